//! What every production shell needs from the operating system.
