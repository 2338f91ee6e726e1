//! Of the experiments of `flood`, what needs no `nawa`: that they run, and what they report.

mod common;

use common::{alone, left_in, report};
use lab::catalog::find;
use lab::{RunOptions, Size};

#[test]
fn flood_rate_finds_a_rate_of_a_bare_program_and_leaves_nothing() {
    let Some(_alone) = alone("flood_rate_finds_a_rate_of_a_bare_program_and_leaves_nothing") else { return };
    let options = RunOptions { size: Size::Quick, ..RunOptions::default() };
    let mut experiment = find("flood-rate", &options).unwrap();
    experiment.keep(&["mode=xdp-tx".into()]).unwrap();
    experiment.repeats = 1;
    let report = report(&experiment, options);
    let rate = report["results"][0]["metrics"]["frames_per_s"].as_f64();
    assert!(rate > Some(0.0), "{report:#}");
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}
