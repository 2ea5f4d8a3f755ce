//! The client library of the QUIC broker. Not written yet: its window and queue (checkpoints 1 and
//! 2) come first, as sans-IO values in `sluicegate-core`.
