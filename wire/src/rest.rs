//! The HTTP API.
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// One `POST /events`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub struct Trigger { pub name: String, pub channels: Vec<String>, pub data: String, pub socket_id: Option<String>, pub info: Option<String> }
/// What is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub struct Bounds { pub data: usize, pub channel: usize }
/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "skeleton")]
pub enum BadBody { NotUtf8 }
impl BadBody { /// The HTTP status.
    pub fn status(self) -> u16 { todo!() } }
impl fmt::Display for BadBody { fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() } }
/// Reads the body of `POST /events` within the bounds of hosted Pusher.
pub fn trigger(_body: &[u8]) -> Result<Trigger, BadBody> { todo!() }
/// The same within other bounds.
pub fn trigger_within(_body: &[u8], _bounds: Bounds) -> Result<Trigger, BadBody> { todo!() }
/// Whether it is `digits.digits`.
pub fn check_socket_id(_id: &str) -> bool { todo!() }
/// The string that is signed.
pub fn string_to_sign(_method: &str, _path: &str, _query: &str) -> String { todo!() }
