//! The experiments of paper 001 (FS-AT): kernel TCP over one emulated link, what it carries and what it lets wait.

mod fairness;
mod field;
mod hsdpa;
mod loss;
mod paper;
mod radio;
mod series;
mod wired;

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig, Loss, Probability, Queue};
use serde_json::Value;

use crate::error::Error;
use crate::experiment::{Case, Experiment, Fields, Ratio, Reference, Workload};
use crate::flows::{self, FlowOutcome, FlowSpec, FlowTest, Guests, Origin, Outcome};
use crate::network::{PathSpec, Topology};
use crate::runner::Sample;
use crate::system::System;
use crate::workload::Bench;

use series::Series;

pub(crate) use fairness::{ABOUT as ABOUT_FAIRNESS, experiment as fairness};
pub(crate) use field::{ABOUT as ABOUT_FIELD, experiment as field};
pub(crate) use loss::{ABOUT as ABOUT_LOSS, experiment as loss};
pub(crate) use radio::{ABOUT as ABOUT_RADIO, experiment as radio};
pub(crate) use wired::{ABOUT as ABOUT_WIRED, experiment as wired};

/// The congestion controls that are compared, the one that others are compared with first.
/// [`origin`] says which of them are a guest's.
const CONTROLS: [&str; 8] = ["reno", "cubic", "bbr", "fsat_paper", "fsat", "reno-guest", "vegas", "westwood"];

/// What [`CONTROLS`] has of guests.
const GUESTS: usize = 3;

/// The congestion control of the row `name`, and whose it is. Vegas has the paper's α and β.
fn origin(name: &'static str) -> (&'static str, Origin) {
    match name {
        "reno-guest" => ("reno", Origin::Guest { module: None }),
        "vegas" => (name, Origin::Guest { module: Some("tcp_vegas alpha=1 beta=3") }),
        "westwood" => (name, Origin::Guest { module: Some("tcp_westwood") }),
        _ => (name, Origin::Host),
    }
}

/// One way; the paper's RTT is 180 ms.
const DELAY: Duration = Duration::from_millis(90);

/// Deeper than any window of [`RECEIVE_BUFFER`].
const DEEP: Queue = Queue::Packets(1000);

/// The `SO_RCVBUF` with which the kernel advertises at most 96 KiB for frames of 1514 bytes over a TAP.
const RECEIVE_BUFFER: u32 = 73_600;

/// Flows that share a link start within this time, as the paper's do.
const STARTS: Duration = Duration::from_secs(5);

/// The paper's senders begin with three segments.
const INITIAL_WINDOW: u32 = 3;

/// The longest frame: 1500 bytes of IP, and Ethernet's header.
const FRAME: usize = 1514;

/// The payload that a full frame carries, with TCP's timestamps.
const PAYLOAD: usize = 1448;

/// Links of constant rate are emulated at the same time up to this sum of their rates (docs/lab.md, "Calibration").
const UP_TO: Bitrate = Bitrate::from_bps(56_000_000);

/// What making a network and taking it down takes beside the measurement, per case.
const OVERHEAD: Duration = Duration::from_millis(150);

/// What booting a guest takes.
const BOOT: Duration = Duration::from_millis(900);

const AGAINST_RENO: [Ratio; 2] = [
    Ratio { name: "goodput_of_reno", metric: "goodput_mbps", of: ("cc", Reference::Name("reno")) },
    Ratio { name: "queue_of_reno", metric: "queue_mean_packets", of: ("cc", Reference::Name("reno")) },
];

/// What a reader of any of these figures has to know.
const NOTES: [&str; 5] = [
    "kernel TCP from client to server over one emulated link; rates count whole Ethernet frames, of which payload is \
     1448 of 1514 bytes",
    "queue_*: towards the server; mean weighted by time, every change counted; queue_p95_ms: how long frames waited \
     until their transmission began",
    "*_of_*: medians of the ratios within each repeat, whose cases see the same chances and, as far as they fit, run \
     at the same time",
    "reno-guest, vegas (alpha 1, beta 3), westwood: sent by a user-mode-linux guest (Linux 6.1) one hop before the client, \
     which only forwards; reno-guest beside reno is what a guest changes; retransmissions and window_bytes of guests are \
     not known",
    "window_bytes: what the receiver advertises at the end; CUBIC has HyStart, as the kernel has it",
];

fn notes(more: &[&str]) -> Vec<String> {
    more.iter().chain(&NOTES).map(|&note| note.to_owned()).collect()
}

/// Loss as drawn frame by frame, before the queue.
fn percent(loss: f64) -> Loss {
    match Probability::new(loss / 100.0) {
        Ok(probability) if loss > 0.0 => Loss::Bernoulli(probability),
        _ => Loss::None,
    }
}

/// A link whose data direction has `capacity`, `queue` and `loss`; acknowledgements come back over `back`, undisturbed.
fn topology(capacity: Capacity, back: Capacity, delay: Duration, queue: Queue, loss: Loss) -> Topology {
    let down = LinkConfig { capacity: back, delay, queue: DEEP, ..LinkConfig::default() };
    let up = LinkConfig { capacity, loss, queue, ..down.clone() };
    Topology::Single(Box::new(PathSpec { name: "link".into(), up, down }))
}

/// A case: flows over one link.
fn case(key: Fields<Value>, topology: Topology, test: FlowTest, estimate: Duration) -> Case {
    Case {
        key,
        topology,
        system: System::Tcp,
        // The receivers', which send nothing but acknowledgements.
        congestion_control: "reno",
        workload: Workload::Flows(Box::new(test)),
        estimate,
    }
}

/// A flow of the row `name` that starts at once and sends until the end, its window the kernel's.
fn flow(name: &'static str) -> FlowSpec {
    let (congestion_control, origin) = origin(name);
    FlowSpec { congestion_control, origin, start: [Duration::ZERO; 2], bytes: None, receive_buffer: None }
}

/// One flow with the paper's advertised window.
fn windowed(name: &'static str, bytes: Option<u64>) -> FlowSpec {
    FlowSpec { bytes, receive_buffer: Some(RECEIVE_BUFFER), ..flow(name) }
}

/// What `cases` cases side by side, with so many guests, take beside their measurement.
fn overhead(cases: usize, guests: usize) -> Duration {
    let times = |count| u32::try_from(count).unwrap_or(u32::MAX);
    OVERHEAD * times(cases) + BOOT * times(guests)
}

/// Runs the flows of a case; with `series`, a folder, what happened in the course of time goes there.
pub(crate) fn measure(
    bench: &Bench,
    guests: &mut Guests,
    test: &FlowTest,
    seed: u64,
    series: Option<&Path>,
) -> Result<Sample, Error> {
    let outcome = match series {
        Some(folder) => watched(bench, guests, test, seed, folder)?,
        None => flows::run(bench.network, guests, test, seed, None)?,
    };
    let metrics = metrics(&bench.case.topology, &outcome);
    Ok(Sample { metrics: named(metrics), ..Sample::default() })
}

fn watched(
    bench: &Bench,
    guests: &mut Guests,
    test: &FlowTest,
    seed: u64,
    folder: &Path,
) -> Result<Outcome, Error> {
    let title = Experiment::title(bench.case);
    let mut series = Series::create(folder, &title, seed)?;
    std::thread::scope(|scope| {
        let (stop, stopped) = channel();
        let title = &title;
        scope.spawn(move || series::log_state(folder, title, seed, bench, &stopped));
        let outcome = flows::run(bench.network, guests, test, seed, Some(&mut |look| series.write(look)));
        drop(stop);
        outcome
    })
}

fn named(metrics: Fields<f64>) -> Vec<(String, f64)> {
    metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Where there is more than one flow, the first half is that of the congestion control which the case is of, and the
/// second its rivals.
fn metrics(topology: &Topology, outcome: &Outcome) -> Fields<f64> {
    let rates: Vec<f64> = outcome.flows.iter().map(FlowOutcome::goodput_mbps).collect();
    let mut metrics = match rates.len() {
        1 => vec![("goodput_mbps", rates[0])],
        _ => shares(&rates),
    };
    let p95 = outcome.queue.sojourn(95.0).unwrap_or_default();
    metrics.extend([
        ("queue_mean_packets", outcome.queue.mean_frames()),
        ("queue_max_packets", outcome.queue_max as f64),
        ("queue_p95_ms", p95.as_secs_f64() * 1e3),
    ]);
    metrics.push(("dropped_ratio", outcome.dropped as f64 / outcome.offered.max(1) as f64));
    metrics.extend(utilisation(topology, outcome).map(|share| ("utilisation", share)));
    metrics.extend(senders(outcome));
    metrics
}

/// What only senders know; nothing where one of them is a guest.
fn senders(outcome: &Outcome) -> Fields<f64> {
    let infos: Option<Vec<_>> = outcome.flows.iter().map(|flow| flow.info).collect();
    let Some(infos) = infos else { return Vec::new() };
    let retransmitted: u32 = infos.iter().map(|info| info.retransmitted).sum();
    let window = infos.iter().map(|info| info.snd_wnd).max().unwrap_or(0);
    vec![("retransmitted_packets", retransmitted.into()), ("window_bytes", window.into())]
}

/// How flows share a link: the goodput of the first half, its share, and the fairness index of all (Jain, Chiu and
/// Hawe, 1984).
fn shares(rates: &[f64]) -> Fields<f64> {
    let total: f64 = rates.iter().sum();
    let own: f64 = rates[..rates.len() / 2].iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let jain = total * total / (rates.len() as f64 * squares);
    vec![("goodput_mbps", own), ("total_mbps", total), ("share", own / total), ("jain", jain)]
}

/// What the link delivered of what it could have carried; `None` if it could carry anything.
fn utilisation(topology: &Topology, outcome: &Outcome) -> Option<f64> {
    let Topology::Single(path) = topology else { return None };
    let offered = match &path.up.capacity {
        Capacity::Unlimited => return None,
        Capacity::Fixed(rate) => rate.as_bps() as f64 / 8.0 * (outcome.until - outcome.from).as_secs_f64(),
        Capacity::Trace(trace) => {
            (trace.offered(outcome.until).get() - trace.offered(outcome.from).get()) as f64
        }
    };
    (offered > 0.0).then(|| outcome.delivered as f64 / offered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{RunOptions, Size};

    fn all(size: Size) -> Vec<Experiment> {
        let options = RunOptions { size, ..RunOptions::default() };
        [wired, loss, fairness, radio, field].map(|make| make(&options).unwrap()).into()
    }

    #[test]
    fn quick_ends_within_about_two_minutes() {
        for experiment in all(Size::Quick) {
            let estimate = experiment.estimate();
            assert!(estimate <= Duration::from_secs(130), "{}: {estimate:?}", experiment.name);
        }
    }

    #[test]
    fn every_size_compares_all_controls_with_the_same_links() {
        for make in [wired, loss, radio] {
            for size in [Size::Quick, Size::Normal, Size::Paper] {
                let experiment = make(&RunOptions { size, ..RunOptions::default() }).unwrap();
                for case in &experiment.cases {
                    let same_link = |other: &&Case| other.key[1..] == case.key[1..];
                    let names = experiment.cases.iter().filter(same_link).map(|other| &other.key[0].1);
                    let names: Vec<_> = names.collect();
                    assert!(
                        CONTROLS.iter().all(|name| names.iter().any(|&known| known == name)),
                        "{names:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_the_paper_published_is_measured() {
        for experiment in all(Size::Paper) {
            for published in experiment
                .paper
                .iter()
                .filter(|published| CONTROLS.iter().any(|&name| published.key[0].1 == name))
            {
                assert!(experiment.cases.iter().any(|case| case.key == published.key), "{published:?}");
            }
        }
    }

    #[test]
    fn equal_rates_are_fair() {
        assert_eq!(shares(&[0.5, 0.5])[2..], [("share", 0.5), ("jain", 1.0)]);
        assert_eq!(shares(&[1.0, 0.0])[2..], [("share", 1.0), ("jain", 0.5)]);
    }
}
