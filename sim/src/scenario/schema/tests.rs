use super::*;
use crate::scenario;
use std::path::Path;

/// What of `value` the schema does not allow. It knows the words that the schema uses, and stops
/// at any other.
fn faults(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().expect("a schema is an object") {
        let holds = match word.as_str() {
            "$schema" | "title" | "description" | "default" => true,
            "type" => types(rule).iter().any(|name| is_of(value, name)),
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_u64() >= rule.as_u64(),
            "maximum" => value.as_u64() <= rule.as_u64(),
            "pattern" => value.as_str().is_none_or(|text| matches(rule, text)),
            "anyOf" => rule.as_array().unwrap().iter().any(|one| faults(one, value, at).is_empty()),
            "required" => rule.as_array().unwrap().iter().all(|key| {
                value.as_object().is_none_or(|table| table.contains_key(key.as_str().unwrap()))
            }),
            "propertyNames" => value
                .as_object()
                .is_none_or(|table| table.keys().all(|key| matches(&rule["pattern"], key))),
            "items" => {
                let all = value.as_array().into_iter().flatten();
                found.extend(all.flat_map(|inner| faults(rule, inner, at)));
                true
            }
            "properties" => {
                for (key, rule) in rule.as_object().unwrap() {
                    if let Some(inner) = value.get(key) {
                        found.extend(faults(rule, inner, &format!("{at}.{key}")));
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (key, inner) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{key}");
                    match rule {
                        _ if known.is_some_and(|known| known.contains_key(key)) => {}
                        Value::Bool(false) => found.push(format!("{at} is unknown")),
                        rule => found.extend(faults(rule, inner, &at)),
                    }
                }
                true
            }
            other => panic!("the schema says `{other}`, which this test does not know"),
        };
        if !holds {
            found.push(format!("{at}: {word} {rule}, found {value}"));
        }
    }
    found
}

fn types(rule: &Value) -> Vec<&str> {
    let list = rule.as_array().map(|all| all.iter().map(|one| one.as_str().unwrap()).collect());
    list.unwrap_or_else(|| vec![rule.as_str().unwrap()])
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("`{other}` is no type of a schema"),
    }
}

/// The two patterns there are, without a library for them.
fn matches(pattern: &Value, text: &str) -> bool {
    let (place, reason) = text.split_once('/').map_or((text, None), |(p, r)| (p, Some(r)));
    match pattern.as_str().unwrap() {
        "^[0-9]" => text.starts_with(|c: char| c.is_ascii_digit()),
        all if all == cells() => {
            let is_place = Place::ALL.iter().any(|known| known.name() == place);
            let known = |name: &str| Reason::ALL.iter().any(|known| known.name() == name);
            text == "total" || is_place && reason.is_none_or(known)
        }
        other => panic!("`{other}` is not a pattern of the schema"),
    }
}

fn value(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn every_shipped_story_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(faults(&schema(), &value(&text), "file"), [""; 0], "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} stories");
}

const GOOD: &str = r#"
title = "t"
about = "a"
duration = "1s"
limits = { high_water_bytes = "16KiB", shards = 2 }
topic = [{ name = "news" }]
publisher = [
  { name = "p", topic = "news", rate = 5, bursts = [{ at = "0s", for = "1ms", times = 2 }] },
]
subscriber = [{ name = "s", topic = "news", policy = "drop_new", pipe = "single", bytes = "1MiB" }]
[expect]
drained = true
bands = ["severe"]
dropped = { total = "= 0", "backlog/drop_old" = 0 }
subscriber = { s = { latency_p99 = "<= 1s" } }
"#;

#[test]
fn what_the_reader_refuses_by_its_shape_the_schema_refuses() {
    assert_eq!(faults(&schema(), &value(GOOD), "file"), [""; 0]);
    scenario::read("good.toml", GOOD).unwrap();
    for (from, to) in [
        ("title = \"t\"", ""),
        ("title = \"t\"", "title = 5"),
        ("duration = \"1s\"", ""),
        ("duration = \"1s\"", "duration = true"),
        ("drained = true", "drained = \"yes\""),
        ("rate = 5, ", ""),
        ("rate = 5", "raet = 5"),
        ("times = 2", "times = -2"),
        ("times = 2", "tims = 2"),
        ("name = \"news\"", "nam = \"news\""),
        ("\"drop_new\"", "\"drop_all\""),
        ("shards = 2", "shards = 65"),
        ("shards = 2", "shard = 2"),
        ("backlog/drop_old", "backlog/drop_all"),
        ("backlog/drop_old", "backlogs"),
        ("latency_p99", "latency_p98"),
        ("bands = [\"severe\"]", "bands = \"severe\""),
    ] {
        let bad = GOOD.replacen(from, to, 1);
        assert_ne!(bad, GOOD, "{from}");
        scenario::read("bad.toml", &bad).unwrap_err();
        assert_ne!(faults(&schema(), &value(&bad), "file"), [""; 0], "{from} -> {to}");
    }
}

#[test]
fn the_schema_says_what_is_needed_and_what_a_value_looks_like() {
    let schema = schema();
    assert_eq!(schema["required"], json!(["about", "duration", "title"]));
    let publisher = &schema["properties"]["publisher"]["items"];
    assert_eq!(publisher["required"], json!(["name", "rate", "topic"]));
    let duration = schema["properties"]["duration"]["description"].as_str().unwrap();
    assert!(duration.starts_with("a duration such as \"500ms\""), "{duration}");
    let bound = &schema["properties"]["expect"]["properties"]["held_peak"]["description"];
    assert!(bound.as_str().unwrap().contains("or a bound on it"), "{bound}");
    let keys = schema["properties"]["limits"]["properties"].as_object().unwrap();
    assert_eq!(keys.len(), limits::KEYS.len());
}
