//! Names of WebSocket connections: unique in the process, and nobody can guess one.
//!
//! A name leads to an outlet of a shard, so that a call which enters on one event loop can leave
//! out a connection of another: two numbers, each below 2^53, since some clients read numbers as
//! floating point.
//!
//! ```text
//! first:   25 low bits of the generation | 22 bits index | 6 bits shard
//! second:   7 high bits of the generation | 46 bits of a MAC over the rest
//! ```

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sluicegate_core::OutletId;

/// A secret of the process: names of an earlier one are not taken for its own.
pub type Key = [u8; 32];

const SHARD: u32 = 6;
const INDEX: u32 = 22;
const LOW: u32 = 25;
const MAC: u32 = 46;

/// Draws a key.
pub fn key(entropy: fn() -> u64) -> Key {
    let mut key = [0; 32];
    for word in key.chunks_exact_mut(8) {
        word.copy_from_slice(&entropy().to_le_bytes());
    }
    key
}

/// The name of an outlet.
///
/// # Panics
/// When there are more shards or connections than the core's table of limits allows.
pub fn name(key: &Key, shard: u32, outlet: OutletId) -> String {
    let (index, generation) = (u64::from(outlet.index()), outlet.to_bits() >> 32);
    let shard_bits = u64::from(shard);
    assert!(shard_bits < 1 << SHARD && index < 1 << INDEX, "the limits are below");
    let low = generation & ((1 << LOW) - 1);
    let first = (low << INDEX | index) << SHARD | shard_bits;
    let second = generation >> LOW << MAC | mac(key, shard, outlet);
    format!("{first}.{second}")
}

/// The shard and the outlet that a name leads to; it may have gone since. `None` when it is no
/// name of this process.
pub fn find(key: &Key, name: &str) -> Option<(u32, OutletId)> {
    let (first, second) = name.split_once('.')?;
    let (first, second): (u64, u64) = (first.parse().ok()?, second.parse().ok()?);
    let field = |number: u64, from: u32, bits: u32| number >> from & ((1 << bits) - 1);
    let shard = u32::try_from(field(first, 0, SHARD)).ok()?;
    let index = field(first, SHARD, INDEX);
    let generation = second >> MAC << LOW | first >> (SHARD + INDEX);
    if first >> 53 != 0 || second >> 53 != 0 {
        return None;
    }
    let outlet = OutletId::from_bits(generation << 32 | index);
    (mac(key, shard, outlet) == field(second, 0, MAC)).then_some((shard, outlet))
}

fn mac(key: &Key, shard: u32, outlet: OutletId) -> u64 {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(&shard.to_le_bytes());
    mac.update(&outlet.to_bits().to_le_bytes());
    let bytes = mac.finalize().into_bytes();
    let (word, _) = bytes.split_first_chunk().expect("32 bytes");
    u64::from_le_bytes(*word) >> (64 - MAC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::limits::KEYS;

    const OWN: Key = [7; 32];

    #[test]
    fn a_name_leads_to_its_outlet_on_its_shard_and_nothing_else_does() {
        let last = (1 << INDEX) - 1;
        for bits in [0, 1, last, 5 << 32 | 3, u64::from(u32::MAX) << 32 | last] {
            let outlet = OutletId::from_bits(bits);
            for shard in [0, 1, 63] {
                let name = name(&OWN, shard, outlet);
                assert!(sluicegate_wire::rest::check_socket_id(&name), "{name}");
                let halves: Vec<u64> = name.split('.').map(|half| half.parse().unwrap()).collect();
                assert!(halves.iter().all(|half| *half < 1 << 53), "{name}");
                assert_eq!(find(&OWN, &name), Some((shard, outlet)), "{name}");
                assert_eq!(find(&[8; 32], &name), None, "of another process");
                for (at, bit) in (0..2).flat_map(|at| (0..64).map(move |bit| (at, bit))) {
                    let mut other = halves.clone();
                    other[at] ^= 1 << bit;
                    let other = format!("{}.{}", other[0], other[1]);
                    assert_eq!(find(&OWN, &other), None, "{other} for {name}");
                }
            }
        }
        for guess in ["0.0", "0", "", "0.", ".1", "a.b", "99999999999999999999.1", "1.-1"] {
            assert_eq!(find(&OWN, guess), None, "{guess}");
        }
    }

    #[test]
    fn every_connection_that_the_limits_allow_has_a_name() {
        let most = |name| KEYS.iter().find(|key| key.name == name).unwrap().max;
        assert!(most("max_connections") <= 1 << INDEX && most("shards") <= 1 << SHARD);
    }
}
