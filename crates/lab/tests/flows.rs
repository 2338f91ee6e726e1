//! One small experiment from end to end: flows side by side, a congestion control that is not there, the JSON.

mod common;

use std::time::Duration;

use common::{alone, alone_with_guests, left_in, report};
use lab::experiment::{Case, Experiment, Ratio, SideBySide};
use lab::flight::Flows;
use lab::flows::{BUFFER_MAX, FlowSpec, FlowTest, Origin};
use lab::network::{PathSpec, Topology};
use lab::{RunOptions, run_each};
use link::Queue;
use serde_json::Value;

const BYTES: u64 = 200_000;

fn flow(congestion_control: &'static str, start_ms: u64) -> FlowSpec {
    let start = [Duration::from_millis(start_ms); 2];
    FlowSpec {
        congestion_control,
        origin: Origin::Host,
        start,
        bytes: Some(BYTES),
        receive_buffer: Some(50_000),
    }
}

fn case(cc: &'static str, flows: Vec<FlowSpec>) -> Case {
    let mut path = PathSpec::plain("link", 5.0, 5);
    path.up.queue = Queue::Packets(30);
    let test = FlowTest {
        initial_window: Some(3),
        receive_buffer_max: BUFFER_MAX,
        from: Duration::ZERO,
        until: None,
        limit: Duration::from_secs(60),
        flows,
    };
    let topology = Topology::Single(Box::new(path));
    let key = vec![("cc", cc.into()), ("flows", 1.into())];
    Case::new(key, Flows { topology, test }, Duration::from_secs(1))
}

fn experiment() -> Experiment {
    let missing = case("nawa_test_none", vec![flow("nawa_test_none", 0)]);
    Experiment {
        name: "flows-test",
        cases: vec![
            case("reno", vec![flow("reno", 0)]),
            missing,
            case("cubic", vec![flow("cubic", 0), flow("cubic", 100)]),
        ],
        side_by_side: SideBySide::Cases(3),
        repeats: 1,
        ratios: vec![Ratio::new("of_reno", "goodput_mbps", &[("cc", "reno")])],
        ..Experiment::default()
    }
}

/// The metric `name` of the result whose `cc` is `cc`.
fn metric(json: &Value, cc: &str, name: &str) -> f64 {
    let results = json["results"].as_array().unwrap();
    let result = results.iter().find(|result| result["case"]["cc"] == cc).unwrap();
    result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{cc} {name}: {result:#}"))
}

#[test]
fn flows_side_by_side_are_measured_and_nothing_remains() {
    let Some(_alone) = alone("flows_side_by_side_are_measured_and_nothing_remains") else { return };
    let folder = tempfile::tempdir().unwrap();
    let series = folder.path().join("series");
    let json = report(&experiment(), RunOptions { series: Some(series.clone()), ..RunOptions::default() });
    for cc in ["reno", "cubic"] {
        let goodput = metric(&json, cc, "goodput_mbps");
        assert!(goodput > 0.0 && goodput < 5.0, "{cc}: no link carries more than its rate: {goodput}");
        assert!(metric(&json, cc, "utilisation") <= 1.0);
        let (mean, max) = (metric(&json, cc, "queue_mean_packets"), metric(&json, cc, "queue_max_packets"));
        assert!(mean <= max && max <= 30.0, "{cc}: {mean} of {max}");
        assert!(metric(&json, cc, "window_bytes") < 100_000.0, "the receive buffer bounds the window");
    }
    let ratio = metric(&json, "cubic", "goodput_mbps") / metric(&json, "reno", "goodput_mbps");
    // Results have five digits.
    assert!((metric(&json, "cubic", "of_reno") / ratio - 1.0).abs() < 1e-3);
    let jain = metric(&json, "cubic", "jain");
    assert!((0.5..=1.0).contains(&jain), "{jain}");
    assert_eq!(json["results"].as_array().unwrap().len(), 2, "what is missing has no result");
    let notes = json["notes"].to_string();
    assert!(notes.contains("nawa_test_none: not measured"), "{notes}");
    let csv = std::fs::read_to_string(series.join("reno 1 1.csv")).unwrap();
    assert!(csv.lines().count() > 10 && csv.starts_with("time_s,queue_packets,flow,cwnd_packets"), "{csv}");
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

#[test]
fn the_series_of_each_experiment_are_in_a_folder_of_their_own() {
    let Some(_alone) = alone("the_series_of_each_experiment_are_in_a_folder_of_their_own") else { return };
    let folder = tempfile::tempdir().unwrap();
    let series = folder.path().join("series");
    let one = |name| Experiment {
        name,
        cases: vec![case("reno", vec![flow("reno", 0)])],
        ratios: Vec::new(),
        ..experiment()
    };
    let options = RunOptions { series: Some(series.clone()), ..RunOptions::default() };
    run_each(&["one", "two"].map(one), &options, folder.path()).unwrap();
    for name in ["one", "two"] {
        assert!(series.join(name).join("reno 1 1.csv").exists(), "{name}");
    }
}

#[test]
fn flows_of_guests_are_measured_beside_the_hosts() {
    let Some(_alone) = alone_with_guests("flows_of_guests_are_measured_beside_the_hosts") else { return };
    let guest = FlowSpec { origin: Origin::Guest { module: Some("tcp_vegas") }, ..flow("vegas", 100) };
    let none = FlowSpec { origin: Origin::Guest { module: Some("tcp_none") }, ..flow("none", 0) };
    let both = vec![flow("reno", 0), guest.clone(), guest];
    let cases = vec![case("vegas", both), case("none", vec![none])];
    let experiment = Experiment { cases, ratios: Vec::new(), ..experiment() };
    let json = report(&experiment, RunOptions::default());
    let jain = metric(&json, "vegas", "jain");
    assert!((1.0 / 3.0..=1.0).contains(&jain), "all three have arrived: {jain}");
    assert!(metric(&json, "vegas", "utilisation") <= 1.0);
    assert!(json["results"][0]["metrics"]["window_bytes"].is_null(), "a guest's is not known");
    let notes = json["notes"].to_string();
    assert!(notes.contains("none in a guest: not measured"), "{notes}");
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}
