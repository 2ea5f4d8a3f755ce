//! Any bytes are read as a tape: its head, and items up to the first that is none. A tape that was
//! cut gives what was before the cut, and says where that was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_core::{Damage, Item, Tape};

/// A tape that has a head, as far as it goes: its items, and what is wrong with it.
fn items(bytes: &[u8]) -> Result<(Vec<Item>, Option<Damage>), Damage> {
    let tape = Tape::read(bytes)?;
    tape.limits.check().expect("limits that contradict each other are refused");
    let mut all = Vec::new();
    let mut damage = None;
    for item in tape.items() {
        assert!(damage.is_none(), "damage is told once, and at the end");
        match item {
            Ok(item) => {
                let (Item::Input { shard, .. } | Item::Mark { shard, .. }) = item;
                assert!(u64::from(shard) < tape.limits.shards, "a shard that there is");
                all.push(item);
            }
            Err(found) => damage = Some(found),
        }
    }
    assert!(all.len() <= bytes.len(), "an item takes bytes");
    if let Some(Damage::Cut(at) | Damage::Item(at) | Damage::Shard(at, _)) = damage {
        assert!(at < bytes.len(), "it begins somewhere");
    }
    Ok((all, damage))
}

fuzz_target!(|input: &[u8]| {
    // The first byte says where the rest is cut.
    let Some((&cut, bytes)) = input.split_first() else { return };
    let Ok((whole, _)) = items(bytes) else { return };
    let cut = bytes.len() - usize::from(cut).min(bytes.len());
    match items(&bytes[..cut]) {
        Ok((part, _)) => assert_eq!(part, whole[..part.len()], "the same up to the cut"),
        Err(damage) => assert!(matches!(damage, Damage::Cut(_) | Damage::Magic), "{damage}"),
    }
});
