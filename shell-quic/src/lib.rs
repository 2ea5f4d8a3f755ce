//! The QUIC broker. Not written yet; see ARCHITECTURE.md for what exists.
