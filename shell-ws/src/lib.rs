//! A drop-in Pusher Channels server.
