//! The lab's experiments of coding with this `nawa` on every node of the chain.

mod common;

use common::{namespaces_or_skip, skip};
use lab::catalog::find;
use lab::{RunOptions, Size, run_experiment};
use serde_json::Value;

#[test]
fn nodes_that_code_are_measured_over_the_emulated_air() {
    let name = "nodes_that_code_are_measured_over_the_emulated_air";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("x.json");
    let nawa = env!("CARGO_BIN_EXE_nawa").into();
    let options = RunOptions { size: Size::Quick, json: Some(file.clone()), nawa, ..RunOptions::default() };
    let mut experiment = find("coding-wait", &options).expect("the lab has it");
    let wanted = |name: &str, key: &Value| match name {
        "mode" => ["plain", "off", "any"].iter().any(|mode| key == mode),
        "hops" => key == 2,
        "wait_ms" => key == 0 || key == 10,
        _ => true,
    };
    experiment.cases.retain(|case| case.key.iter().all(|(name, value)| wanted(name, value)));
    assert_eq!(experiment.cases.len(), 3);
    match run_experiment(&experiment, &options) {
        Err(error @ lab::Error::NoMacvtap { .. }) => return skip(name, &error.to_string()),
        result => result.expect("it completes"),
    }
    let json: Value = serde_json::from_slice(&std::fs::read(&file).expect("the results")).expect("JSON");
    let metric = |mode: &str, name: &str| {
        let results = json["results"].as_array().expect("results");
        let result = results.iter().find(|result| result["case"]["mode"] == mode).expect("the mode");
        result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{mode} {name}: {result:#}"))
    };
    for mode in ["plain", "off", "any"] {
        let goodput = metric(mode, "goodput_mbps");
        assert!(goodput > 0.0 && goodput < 24.2, "no more than the medium carries: {goodput}");
        assert!(metric(mode, "window_bytes") <= 258.0 * 1448.0, "the receiver's window is limited");
        assert!((0.7..1.0).contains(&metric(mode, "bound_packets_ratio")));
    }
    for mode in ["plain", "off"] {
        assert!(metric(mode, "packets_per_segment") >= 2.0, "each segment crosses two hops");
    }
    assert!(metric("any", "coded_packets") > 0.0 && metric("any", "packets_of_off") > 0.0);
    let ratio = metric("any", "coding_ratio");
    assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
}
