//! Of the experiments of `flood`, what needs no `nawa`: that they run, and what they report.

mod common;

use common::{alone, left_in, skip};
use lab::catalog::find;
use lab::{RunOptions, Size, run_experiment};
use serde_json::Value;

/// One run of those cases of `name` whose key has `value` for `field`: the report.
fn run(name: &str, field: &'static str, value: &Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let options = RunOptions { size: Size::Quick, json: Some(path.clone()), ..RunOptions::default() };
    let mut experiment = find(name, &options).unwrap();
    experiment.cases.retain(|case| case.key.contains(&(field, value.clone())));
    experiment.repeats = 1;
    run_experiment(&experiment, &options).unwrap();
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn metric(report: &Value, case: usize, name: &str) -> f64 {
    report["results"][case]["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn flood_rate_finds_a_rate_of_a_bare_program_and_leaves_nothing() {
    if skip("flood_rate_finds_a_rate_of_a_bare_program_and_leaves_nothing") {
        return;
    }
    let _alone = alone();
    let report = run("flood-rate", "mode", &"xdp-tx".into());
    assert!(metric(&report, 0, "frames_per_s") > 0.0);
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

#[test]
fn flood_reach_reports_both_algorithms() {
    if skip("flood_reach_reports_both_algorithms") {
        return;
    }
    let _alone = alone();
    let report = run("flood-reach", "movement", &"walk".into());
    let [pure, suppressed] = [0, 1].map(|case| metric(&report, case, "transmissions_per_message"));
    assert!(suppressed < pure, "the same seeds give the same frames: {suppressed} {pure}");
    assert!(metric(&report, 1, "reached_ratio") <= 1.0);
    assert!(metric(&report, 1, "last_node_ms") > 0.0);
}
