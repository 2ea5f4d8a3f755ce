use super::*;
use crate::batch::{Job, Run};
use crate::{Watch, scenario, watch};

const HOSTILE: &str = "</script><script>alert(1)</script><!-- \u{2028} ' \" & <b>";

fn hostile() -> Run {
    let text = format!(
        r#"
title = '''{HOSTILE}'''
about = '''{HOSTILE}'''
duration = "1s"
[[topic]]
name = "news"
[[publisher]]
name = '''{HOSTILE}'''
topic = "news"
rate = 100
[[subscriber]]
name = '''{HOSTILE}'''
topic = "news"
"#
    );
    let story = scenario::read("</script>.toml", &text).unwrap().remove(0);
    let outcome = watch(&story, Watch { series: true, ..Watch::default() }).unwrap();
    Run {
        job: Job { story, text: text.into() },
        ended: Ended::Ran(Box::new(outcome)),
        wall: 1,
        cpu: None,
    }
}

/// What stands between the opening tag of the data and the next closing tag.
fn data(page: &str) -> &str {
    let from = page.split_once("id=\"data\">").expect("the page has data").1;
    from.split_once("</script>").expect("the element ends").0
}

#[test]
fn what_a_scenario_says_stays_text() {
    let run = hostile();
    let page = page(std::slice::from_ref(&run));
    let empty = super::page(&[]);
    for word in ["<script", "</script", "<!--", "-->", "{{"] {
        assert_eq!(page.matches(word).count(), empty.matches(word).count(), "{word}");
    }
    let read: Value = serde_json::from_str(data(&page)).unwrap();
    assert_eq!(read, document(&[run]));
    assert_eq!(read["runs"][0]["title"], HOSTILE);
    assert_eq!(read["runs"][0]["subscribers"][0]["name"], HOSTILE);
}

#[test]
fn a_text_that_looks_like_a_place_in_the_template_is_left_alone() {
    let mut run = hostile();
    run.job.story.title = "{{report.mjs}} {{data}}".to_owned();
    let page = page(&[run]);
    let read: Value = serde_json::from_str(data(&page)).unwrap();
    let Value::Array(runs) = &read["runs"] else { panic!("runs are a list") };
    assert_eq!(runs.len(), 1);
}

#[test]
fn the_page_fetches_nothing() {
    let page = page(&[]);
    for word in [" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "WebSocket"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("href=").count(), page.matches("href=\"data:,\"").count());
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_crash_has_its_place_on_the_page() {
    let mut run = hostile();
    run.ended = Ended::Crashed("it broke".to_owned());
    let document = document(&[run]);
    let shown = &document["runs"][0];
    assert_eq!((&shown["exit"], &shown["failure"]), (&json!(5), &json!("it broke")));
    assert!(shown["command"].as_str().unwrap().contains("--seed 0"));
}

#[test]
fn the_page_has_the_chain_the_judges_and_every_expectation() {
    let text = include_str!("../../../scenarios/slow-subscriber.toml");
    let story = scenario::read("scenarios/slow-subscriber.toml", text).unwrap().remove(0);
    let outcome = watch(&story, Watch { series: true, ..Watch::default() }).unwrap();
    let job = Job { story, text: text.into() };
    let document =
        document(&[Run { job, ended: Ended::Ran(Box::new(outcome)), wall: 1, cpu: None }]);
    let run = &document["runs"][0];
    let marks: Vec<&str> =
        run["chain"].as_array().unwrap().iter().map(|c| c["mark"].as_str().unwrap()).collect();
    assert_eq!(marks, ["1", "2", "3", "4", "M", "5", "6", "7", "B", "S", "T"]);
    let lost: u64 = run["chain"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|place| place["losses"].as_array().unwrap())
        .map(|loss| loss["records"].as_u64().unwrap())
        .sum();
    assert_eq!(lost, 3542);
    let checks = run["expectations"]["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 18);
    assert!(checks.iter().all(|check| check["holds"] == true));
    assert!(run["judges"].as_array().unwrap().iter().all(|judge| judge["verdict"] == "content"));
    assert_eq!(run["marks"][0]["what"], "sleeper reads nothing");
}
