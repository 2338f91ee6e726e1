//! The experiments of coding from end to end, as far as they need no `nawa`.

mod common;

use common::{alone, left_in, skip};
use lab::catalog::find;
use lab::{RunOptions, run_experiment};
use serde_json::Value;

#[test]
fn a_transfer_over_a_chain_is_measured_and_nothing_remains() {
    let name = "a_transfer_over_a_chain_is_measured_and_nothing_remains";
    if skip(name) || common::skip_without_macvtap(name) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    let options = RunOptions { json: Some(file.clone()), ..RunOptions::default() };
    let mut experiment = find("coding-gain", &options).unwrap();
    experiment.repeats = 1;
    let wanted = |name: &str, key: &Value| match name {
        "mode" => key == "plain",
        "hops" => key == 2,
        "window_segments" => key == 4,
        _ => true,
    };
    experiment.cases.retain(|case| case.key.iter().all(|(name, value)| wanted(name, value)));
    assert_eq!(experiment.cases.len(), 1);
    run_experiment(&experiment, &options).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let metric = |name: &str| {
        json["results"][0]["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name}: {json:#}"))
    };
    assert!(metric("goodput_mbps") > 0.0 && metric("goodput_mbps") < 24.2, "no more than the medium carries");
    assert!(metric("packets_per_segment") >= 2.0, "each crosses two hops");
    assert!(metric("window_bytes") <= 6.0 * 1448.0, "the receiver's window is limited");
    assert!((0.7..1.0).contains(&metric("bound_packets_ratio")));
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}
