//! The lab's SCTP transfers from end to end, small: both stacks, the copies of `[bicast]`, the JSON.

mod common;

use common::{namespaces_or_skip, skip};
use lab::experiment::{Experiment, Workload, find};
use lab::{RunOptions, Size, run_experiment};
use serde_json::Value;

/// `bicast-loss` at 1 %, for these stacks and modes, of short files.
fn experiment(options: &RunOptions, stacks: &[&str], modes: &[&str]) -> Experiment {
    let mut experiment = find("bicast-loss", options).expect("it is there");
    let is = |value: &Value, names: &[&str]| names.iter().any(|name| value == name);
    experiment
        .cases
        .retain(|case| is(&case.key[0].1, stacks) && is(&case.key[1].1, modes) && case.key[2].1 == 1.0);
    for case in &mut experiment.cases {
        let Workload::Bicast(test) = &mut case.workload else { panic!("{:?}", case.key) };
        test.set_bytes(300_000);
    }
    experiment
}

#[test]
fn sctp_transfers_are_measured_by_mode() {
    let name = "sctp_transfers_are_measured_by_mode";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let stacks = ["linux-probed", "usrsctp"];
    if let Err(error) = lab::sctp_stacks() {
        return skip(name, &format!("{error}: make guest"));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("x.json");
    let nawa = env!("CARGO_BIN_EXE_nawa").into();
    let options = RunOptions { size: Size::Quick, json: Some(json.clone()), nawa, ..RunOptions::default() };
    run_experiment(&experiment(&options, &stacks, &["normal", "full"]), &options).expect("it runs");
    let text = std::fs::read_to_string(json).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let results = report["results"].as_array().expect("results");
    assert_eq!(results.len(), 4, "{}", report["notes"]);
    for result in results {
        let metric = |name: &str| result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{result:#}"));
        assert!(metric("transfer_s") > 0.0 && metric("longest_gap_ms") <= metric("transfer_s") * 1e3 * 2.0);
        let extra = metric("extra_bytes_ratio");
        assert_eq!(extra > 0.0, result["case"]["mode"] == "full", "{result:#}");
    }
}
