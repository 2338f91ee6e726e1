//! A rival by a script of ten lines, as docs/lab.md shows it.

mod common;

use std::path::Path;

use common::{alone, left_in, skip};
use lab::{RunOptions, Size};
use serde_json::Value;

const SCRIPT: &str = include_str!("rivals/vxlan");
const DOCUMENT: &str = include_str!("../../../docs/lab.md");

#[test]
fn the_document_shows_the_script_that_is_tested() {
    assert!(SCRIPT.lines().count() <= 10);
    let shown: String = SCRIPT.lines().map(|line| format!("    {line}\n")).collect();
    assert!(DOCUMENT.contains(&shown), "docs/lab.md does not show crates/lab/tests/rivals/vxlan");
}

#[test]
fn a_rival_is_measured_beside_nawa() {
    let name = "a_rival_is_measured_beside_nawa";
    let Some(_alone) = alone(name) else { return };
    if let Err(error) = lab::program::require(&["iperf3", "ping"]) {
        skip::<()>(name, error);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    let options = RunOptions {
        size: Size::Quick,
        rival: Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rivals/vxlan")),
        only: ["links=50+10", "system=cubic,vxlan"].map(str::to_owned).to_vec(),
        json: Some(file.clone()),
        series: Some(folder.path().join("series")),
        ..RunOptions::default()
    };
    lab::run("tunnel", &options).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let goodput = |system: &str| {
        let of = json["results"].as_array().unwrap().iter().find(|result| result["case"]["system"] == system);
        of.unwrap()["metrics"]["goodput_mbps"].as_f64().unwrap()
    };
    // Both have the first path alone; 50 bytes of each packet are VXLAN's.
    assert!(goodput("vxlan") > 0.0 && goodput("cubic") > 0.0, "{json}");
    let series = std::fs::read_dir(folder.path().join("series")).unwrap().map(|entry| entry.unwrap().path());
    for run in series.collect::<Vec<_>>() {
        let (text, page) = (std::fs::read_to_string(&run).unwrap(), run.with_extension("html"));
        assert!(text.lines().count() > 40 && text.contains(",fast up,"), "{text}");
        lab::show(&run, &page).unwrap();
        assert_eq!(std::fs::read_to_string(page).unwrap().matches("role=\"img\"").count(), 4);
    }
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

#[test]
fn an_experiment_without_nawa_has_no_place_for_a_rival() {
    let rival = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rivals/vxlan"));
    let options = RunOptions { rival, ..RunOptions::default() };
    let error = lab::run("flight-wired", &options).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("flight-wired"), "{error}");
}
