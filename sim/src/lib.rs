//! The overload simulator.
