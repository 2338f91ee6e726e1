//! The lab's SCTP transfers from end to end, small: all stacks, the copies of `[bicast]`, the JSON.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{namespaces_or_skip, skip};
use lab::bicast::Test;
use lab::catalog::find;
use lab::experiment::Experiment;
use lab::guest::{self, GuestSpec};
use lab::{RunOptions, run_experiment};
use serde_json::Value;

/// The `nawa` under test.
const NAWA: &str = env!("CARGO_BIN_EXE_nawa");

/// The cases of `name` with these stacks, modes and loss, of files of `bytes`.
fn experiment(
    options: &RunOptions,
    name: &str,
    [stacks, modes]: [&[&str]; 2],
    loss_percent: f64,
    bytes: u64,
) -> Experiment {
    let mut experiment = find(name, options).expect("it is there");
    experiment.repeats = 1;
    let is = |value: &Value, names: &[&str]| names.iter().any(|name| value == name);
    experiment.cases.retain(|case| {
        is(&case.key[0].1, stacks) && is(&case.key[1].1, modes) && case.key[2].1 == loss_percent
    });
    for case in &mut experiment.cases {
        let mut test = case.workload::<Test>().expect("transfers").clone();
        test.bytes = bytes;
        case.workload = Arc::new(test);
    }
    experiment
}

/// What `run` of it reports.
fn report(make: impl Fn(&RunOptions) -> Experiment) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, nawa) = (folder.path().join("x.json"), NAWA.into());
    let options = RunOptions { json: Some(json.clone()), nawa, ..RunOptions::default() };
    run_experiment(&make(&options), &options).expect("it runs");
    let text = std::fs::read_to_string(json).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn sctp_transfers_are_measured_by_mode() {
    let name = "sctp_transfers_are_measured_by_mode";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let stacks = ["linux-probed", "usrsctp"];
    if let Err(error) = lab::sctp_stacks() {
        return skip(name, &format!("{error}: make guest"));
    }
    let report = report(|options| {
        let mut experiment = experiment(options, "bicast-loss", [&stacks, &["normal", "full"]], 1.0, 300_000);
        let wanted = [("loss", Value::from("both")), ("transfers", 2.into())];
        experiment.cases.retain(|case| wanted.iter().all(|field| case.key.contains(field)));
        experiment
    });
    let results = report["results"].as_array().expect("results");
    assert_eq!(results.len(), 4, "{}", report["notes"]);
    for result in results {
        let metric = |name: &str| result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{result:#}"));
        assert!(metric("transfer_s") > 0.0 && metric("longest_gap_ms") <= metric("transfer_s") * 1e3 * 2.0);
        let extra = metric("extra_bytes_ratio");
        assert_eq!(extra > 0.0, result["case"]["mode"] == "full", "{result:#}");
    }
}

/// In the lab's guests: Linux 6.1 without a JIT for BPF and without BTF.
#[test]
fn nawa_runs_beside_kernel_sctp() {
    let name = "nawa_runs_beside_kernel_sctp";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    if let Err(error) = lab::sctp_stacks() {
        return skip(name, &format!("{error}: make guest"));
    }
    let report = report(|options| {
        let mut experiment = experiment(options, "bicast-load", [&["linux-probed"], &["full"]], 1.0, 300_000);
        experiment.cases.retain(|case| case.key.contains(&("where", "host".into())));
        experiment.cases.truncate(1);
        experiment
    });
    let result = &report["results"][0];
    let metric = |name: &str| result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{report:#}"));
    assert!(metric("transfer_s") > 0.0 && metric("extra_bytes_ratio") > 0.5, "{result:#}");
}

/// What the test below needs of the kernel that it takes for the running one.
const NATIVE: [&str; 5] = ["sctp", "tun", "veth", "sch_ingress", "cls_bpf"];

/// The lab on a host whose kernel has SCTP, which this machine's may not have: in a guest.
#[test]
fn the_running_kernels_sctp_is_measured() {
    let name = "the_running_kernels_sctp_is_measured";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    if let Err(error) = guest::check(&NATIVE) {
        return skip(name, &format!("{error}: make guest"));
    }
    let this = std::env::current_exe().expect("this program's path");
    let spec = GuestSpec { modules: NATIVE.to_vec(), memory_mb: Some(600), ..GuestSpec::default() };
    let host = lab::namespace::Namespace::create("native").expect("a namespace");
    let mut guest = guest::boot(&host, &spec).and_then(guest::Booting::finish).expect("it boots");
    let inside = format!("TMPDIR=/run '{}' --ignored --exact inside_a_guest", this.display());
    let job = guest.start(&format!("{inside} --nocapture 2>&1")).expect("it starts");
    while let Some(line) = job.next_line(Duration::from_secs(200)).expect("it passes") {
        println!("{line}");
    }
}

#[test]
#[ignore = "started by another, inside a guest"]
fn inside_a_guest() {
    let report = report(|options| {
        let mut experiment =
            experiment(options, "bicast-load", [&["linux-native"], &["normal", "full"]], 1.0, 300_000);
        experiment.cases.retain(|case| case.key.contains(&("transfers", 2.into())));
        experiment
    });
    let results = report["results"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{}", report["notes"]);
    for result in results {
        let metric = |name: &str| result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{result:#}"));
        assert!(metric("transfer_s") > 0.0, "{result:#}");
        assert_eq!(metric("extra_bytes_ratio") > 0.5, result["case"]["mode"] == "full", "{result:#}");
    }
}

#[test]
fn a_path_fails_and_returns_in_mid_transfer() {
    let name = "a_path_fails_and_returns_in_mid_transfer";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    if let Err(error) = lab::sctp_stacks() {
        return skip(name, &format!("{error}: make guest"));
    }
    // More than fits before the path fails, so that the transfer whose primary path it is ends after it is back.
    let report =
        report(|options| experiment(options, "bicast-cut", [&["usrsctp"], &["selective"]], 3.0, 6_000_000));
    let result = &report["results"][0];
    let metric = |name: &str| result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{report:#}"));
    assert!(metric("transfer_s") > 0.0 && metric("later_copies") > 0.0, "{result:#}");
}
