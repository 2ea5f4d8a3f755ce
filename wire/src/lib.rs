//! Pure codecs. Nothing here reads a socket or a clock.
