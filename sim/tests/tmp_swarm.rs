use std::collections::BTreeMap;
#[test]
fn tmp() {
    std::panic::set_hook(Box::new(|_| {}));
    let from: u64 = std::env::var("FROM").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut all = sluicegate_sim::deck::Reached::default();
    let mut inputs = 0;
    for seed in from..from + n {
        let plan = sluicegate_sim::dice::plan(seed);
        let (_, played) = plan.deal();
        inputs += played.inputs;
        all.merge(&played.reached);
        if let Some(c) = played.conviction {
            let key = format!(
                "{}: {}",
                c.finding.judge,
                c.finding.what.chars().filter(|c| !c.is_ascii_digit()).collect::<String>()
            );
            let e = kinds.entry(key).or_insert((0, seed));
            e.0 += 1;
            if e.0 == 1 {
                eprintln!("seed {seed} {}", c);
            }
        }
    }
    eprintln!("inputs {inputs}");
    for (w, n) in &all.0 {
        eprintln!("{n:>8} {w}");
    }
    for (k, (n, s)) in kinds {
        eprintln!("{n} x seed {s}: {k}");
    }
}
#[test]
fn tmp_shrink() {
    std::panic::set_hook(Box::new(|_| {}));
    for seed in std::env::var("SEEDS").unwrap_or_default().split(',') {
        let Ok(seed) = seed.parse() else { continue };
        let plan = sluicegate_sim::dice::plan(seed);
        let (script, _) = plan.deal();
        let t = std::time::Instant::now();
        let Some(s) = sluicegate_sim::shrink::shrink(&script, |_| {}) else {
            eprintln!("no conviction");
            continue;
        };
        eprintln!(
            "seed {seed}: {} -> {} in {} plays {:?}: {}",
            script.ops.len(),
            s.script.ops.len(),
            s.plays,
            t.elapsed(),
            s.conviction
        );
        for k in sluicegate_core::limits::KEYS {
            if s.script.limits.get(k.name) != sluicegate_core::Limits::default().get(k.name) {
                eprintln!("   {} = {:?}", k.name, s.script.limits.get(k.name));
            }
        }
        for l in s.script.lines() {
            eprintln!("   {l}");
        }
    }
}
