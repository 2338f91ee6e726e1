//! Pure flooding over a medium with delay, jitter and loss, in virtual time by the strand's core and in real time by `nawa`
//! at every node: the same seed, the same network, the same losses, so the same nodes reached by the same number of frames.

mod common;

use common::namespaces_or_skip;
use lab::catalog::find;
use lab::{RunOptions, run_experiment};
use serde_json::Value;

#[test]
fn real_time_reaches_whom_virtual_time_reaches() {
    let Some(_alone) = namespaces_or_skip("real_time_reaches_whom_virtual_time_reaches") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("report.json");
    let nawa = env!("CARGO_BIN_EXE_nawa").into();
    let options = RunOptions { json: Some(path.clone()), nawa, ..RunOptions::default() };
    let mut experiment = find("flood-reach", &options).expect("there is one");
    let wanted = [("algorithm", Value::from("pure")), ("delay_ms", 2.into())];
    experiment.cases.retain(|case| wanted.iter().all(|field| case.key.contains(field)));
    experiment.repeats = 1;
    run_experiment(&experiment, &options).expect("it runs");
    let text = std::fs::read_to_string(path).expect("the report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let metrics = |clock: &str| {
        let mut results = report["results"].as_array().expect("a list").iter();
        let result = results.find(|result| result["case"]["clock"] == clock).expect("both clocks");
        ["reached_ratio", "transmissions_per_message", "last_node_ms"]
            .map(|name| result["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {report:#}")))
    };
    let ([reached, sent, last], [real_reached, real_sent, real_last]) = (metrics("virtual"), metrics("real"));
    // Means of the same whole numbers, in another order.
    let same = |one: f64, other: f64| (one - other).abs() < 1e-9;
    assert!(same(real_reached, reached) && same(real_sent, sent), "{report:#}");
    assert!(reached < 1.0, "losses that reach all the same show little: {report:#}");
    // Frames have an Ethernet header there, and nodes take their time.
    assert!(real_last > last, "{report:#}");
}
