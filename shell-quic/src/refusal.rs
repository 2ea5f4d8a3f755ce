//! The core's "no" on the wire.

use quinn::VarInt;
use sluicegate_core::{Place, Reason, Refusal, Retry};
use sluicegate_wire::quic;

/// The same with the wire's numbers.
pub(crate) const fn to_wire(why: Refusal) -> quic::Refusal {
    let retry = match why.retry {
        Retry::After(millis) => quic::Retry::After(millis),
        Retry::Never => quic::Retry::Never,
    };
    quic::Refusal { place: why.place.code(), reason: why.reason.code(), retry }
}

/// What was lost cannot be had again by asking.
pub(crate) const fn lost(place: Place, reason: Reason) -> quic::Refusal {
    to_wire(Refusal { place, reason, retry: Retry::Never })
}

/// With what a stream is reset whose peer does not read its end.
pub(crate) fn reset_code(why: Refusal) -> VarInt {
    VarInt::from_u32(quic::reset_code(why.place.code(), why.reason.code()))
}
