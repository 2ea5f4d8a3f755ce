//! The admin pages.

use crate::shards::page;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use sluicegate_quic::config::Config;
use sluicegate_quic::process::Process;

/// A process of its own, looked at and stopped.
fn look<T>(name: &str, look: impl FnOnce(&Process) -> T) -> T {
    let name = format!("sluicegate-admin-{name}-{}", std::process::id());
    let state_dir = std::env::temp_dir().join(name);
    let mut config = Config { port: 0, admin_port: 0, ..Config::default() };
    config.state_dir.clone_from(&state_dir);
    config.limits.shards = 2;
    let process = Process::start(config).unwrap();
    let seen = look(&process);
    process.stop().unwrap();
    std::fs::remove_dir_all(state_dir).unwrap();
    seen
}

/// What is between two marks, each time.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts.map(|part| part.split_once(close).expect("it is closed").0).collect()
}

#[test]
fn the_live_page_has_all_that_it_needs_and_a_policy_that_says_so() {
    let answer = look("page", |process| page(process.admin, "/"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} in {head}"))
    };
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cache-control"), "no-store");
    let hashed = |part: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(part)));
    let [style] = between(body, "<style>", "</style>")[..] else { panic!("one style") };
    let [uplot] = between(body, "<script>", "</script>")[..] else { panic!("one script") };
    let module = between(body, "<script type=\"module\">", "</script>");
    let [module] = module[..] else { panic!("one module") };
    let policy = format!(
        "default-src 'none'; script-src {} {}; style-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hashed(uplot),
        hashed(module),
        hashed(style),
    );
    assert_eq!(header("content-security-policy"), policy);
    assert!(!body.contains("{{"), "a place is left empty");
    // The policy keeps the browser from it; a page that needs it would not work.
    let markup = body.replace(module, "").replace(uplot, "").replace(style, "");
    for word in ["src=", "style=", "onload", "onerror"] {
        assert!(!markup.contains(word), "{word}");
    }
    for word in ["url(", "@import", "import ", "import("] {
        assert!(!module.contains(word) && !style.contains(word), "{word}");
    }
    assert_eq!(between(body, "href=\"", "\""), ["data:,"]);
    let asked = between(module, "fetch(\"", "\"");
    assert_eq!(asked, ["ledger"]);
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!module.contains(word), "{word}: names that clients choose are texts");
    }
}

#[test]
fn the_ledger_says_what_is_held_and_of_how_much() {
    let answer = look("ledger", |process| page(process.admin, "/ledger"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    let shards: serde_json::Value = serde_json::from_str(body).unwrap();
    let limits = Config::default().limits;
    assert_eq!(shards.as_array().unwrap().len(), 2);
    for (at, shard) in shards.as_array().unwrap().iter().enumerate() {
        assert_eq!((&shard["shard"], &shard["band"]), (&at.into(), &"normal".into()));
        assert_eq!(shard["memory"]["budget"], limits.memory_budget);
        assert!(shard["memory"]["held"].is_u64());
        assert_eq!(shard["memory"]["factor_thousandths"], 1000);
        let queue = serde_json::json!({ "jobs": 0, "parked": 0, "slots": limits.pub_queue_total });
        assert_eq!(shard["queue"], queue);
        let inflight = serde_json::json!({ "bytes": 0, "limit": limits.pub_inflight_bytes });
        assert_eq!(shard["inflight"], inflight);
        assert_eq!(shard["books"]["columns"]["offered"]["records"], 0);
        assert_eq!(shard["blocked_by"], serde_json::json!([]));
    }
}
