//! What each addition of `fsat` gains, in virtual time: `cargo run --release -p flight --example ablation [CASE,… [SEED]]`.
//!
//! A row is a case, a column a system; docs/flight-search.md says what the numbers of each case are. The last row is what the
//! parameters in `bpf/fsat.h` are chosen by: how far all cases miss their goals.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::time::Duration;

use flight::Additions;
use sim::{Outcome, Scenario, World, cases};

/// A column; `None` is CUBIC, or Reno on the paper's link.
type System = Option<Additions>;

type Print = dyn Fn(&[Outcome]) -> String;
type Missed = dyn Fn(&[Outcome], &[Outcome]) -> f64;

/// A row.
struct Case {
    name: String,
    scenario: Box<dyn Fn(System, u64) -> Scenario>,
    print: Box<Print>,
    /// How far the runs of a system, the first, miss the goal; those of the base are the second.
    missed: Box<Missed>,
}

const SEEDS: u64 = 6;

fn main() {
    let mut words = std::env::args().skip(1);
    let only = words.next().unwrap_or_default();
    let first: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
    let systems = systems();
    let mut missed = vec![0.0; systems.len()];
    print!("{:15}", "");
    systems.iter().for_each(|(name, _)| print!("{name:>20}"));
    println!();
    for case in cases().iter().filter(|case| only.split(',').any(|part| case.name.contains(part))) {
        print!("{:15}", case.name);
        let runs = |system| -> Vec<Outcome> {
            (first..first + SEEDS).map(|seed| World::new((case.scenario)(system, seed)).run()).collect()
        };
        let base = runs(None);
        for ((_, system), missed) in systems.iter().zip(&mut missed) {
            let own = system.map_or_else(|| base.clone(), |_| runs(*system));
            *missed += (case.missed)(&own, &base);
            print!("{:>20}", (case.print)(&own));
        }
        println!();
    }
    print!("{:15}", "missed");
    missed.iter().for_each(|sum| print!("{sum:>20.1}"));
    println!();
}

fn systems() -> Vec<(&'static str, System)> {
    let without = |addition| Some(Additions::FSAT.without(addition));
    vec![
        ("base", None),
        ("fsat_paper", Some(Additions::PAPER)),
        ("fsat", Some(Additions::FSAT)),
        ("without best", without(Additions::BEST)),
        ("without drain", without(Additions::DRAIN)),
        ("without fair", without(Additions::FAIR)),
        ("without pace", without(Additions::PACE)),
        ("without even", without(Additions::EVEN)),
        ("without full", without(Additions::FULL)),
    ]
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (mbps, loss) in
        [(0.064, 0.0), (0.384, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (1.0, 1.0), (1.0, 5.0)]
    {
        let name = format!("{mbps}M {loss}%");
        cases.push(case(&name, used(mbps), below(0.995 - loss / 100.0, mbps), move |s, n| {
            cases::paper(mbps, loss, s, n)
        }));
    }
    for (mbps, loss) in [(10.0, 0.0), (10.0, 1.0), (3.0, 0.0), (3.0, 1.0)] {
        let name = format!("cell {mbps}M {loss}%");
        cases.push(case(&name, delayed(mbps), late(0.98 - loss / 100.0, mbps), move |s, n| {
            cases::radio(mbps, loss, s, n)
        }));
    }
    cases.push(case("out 5M", delayed(5.0), late(0.95, 5.0), |s, n| cases::outages(5.0, s, n)));
    for mbps in [5.0, 0.6] {
        let name = format!("jump {mbps}M");
        cases.push(case(&name, delayed(mbps), late(0.95, mbps), move |s, n| cases::jumps(mbps, s, n)));
    }
    cases.push(case("fast 10M", delayed(10.0), late(0.95, 10.0), |s, n| cases::fast(10.0, s, n)));
    for mbps in [0.17, 1.0, 5.0, 20.0] {
        let name = format!("bunch {mbps}M");
        cases.push(case(&name, delayed(mbps), behind, move |s, n| cases::bunched(mbps, s, n)));
    }
    let fading =
        ["st 15dB", "st -5dB", "pa3 15dB", "pa3 5dB", "pa3 -5dB", "va30 15dB", "va30 5dB", "va30 -5dB"];
    for channel in cases::HSDPA.into_iter().filter(|(name, ..)| fading.contains(name)) {
        cases.push(case(channel.0, carried, less, move |s, n| cases::fading(channel, s, n)));
    }
    for (flows, queue, apart) in [(2, 1000, 5000), (4, 1000, 2000), (8, 1000, 600), (4, 50, 2000)] {
        let name = format!("{flows} late {}bdp", queue / 50);
        cases.push(case(&name, fair(10.0, 50.0), unfair(50.0), move |s, n| {
            cases::shared(&vec![s; flows], queue, cases::staggered(apart, n), n)
        }));
    }
    for (flows, queue) in [(4, 75), (4, 150), (8, 75), (8, 150)] {
        let name = format!("1M {flows} late {}bdp", queue / 15);
        cases.push(case(&name, fair(1.0, 15.0), unfair(15.0), move |s, n| {
            cases::slow(&vec![s; flows], queue, &cases::latecomers(flows, n), n)
        }));
    }
    for queue in [25, 50, 100, 250, 500] {
        let name = format!("cubic {}bdp", queue as f64 / 50.0);
        cases.push(case(&name, share, unequal, move |s, n| {
            cases::shared(&cases::in_turn(s, n), queue, cases::staggered(1000, n), n)
        }));
    }
    for queue in [8, 15, 30, 75, 150] {
        let name = format!("1M cubic {}bdp", (queue as f64 / 7.5).round() / 2.0);
        cases.push(case(&name, share, unequal, move |s, n| {
            cases::slow(&cases::in_turn(s, n), queue, &cases::scattered(2, n), n)
        }));
    }
    for (each, queue) in [2, 4].into_iter().flat_map(|each| [8, 15, 30, 75, 150].map(|queue| (each, queue))) {
        let name = format!("1M {each}+{each} cubic {}bdp", (queue as f64 / 7.5).round() / 2.0);
        cases.push(case(&name, share, unequal, move |s, n| {
            cases::slow(&cases::in_turn(s, n).repeat(each), queue, &cases::scattered(2 * each, n), n)
        }));
    }
    cases.push(case("route", used(10.0), below(0.95, 10.0), cases::route_change));
    cases.push(case("tiny buffer", dropped, below(0.95, 10.0), |s, n| {
        cases::shared(&[s], 5, Duration::ZERO, n)
    }));
    cases
}

fn case(
    name: &str,
    print: impl Fn(&[Outcome]) -> String + 'static,
    missed: impl Fn(&[Outcome], &[Outcome]) -> f64 + 'static,
    scenario: impl Fn(System, u64) -> Scenario + 'static,
) -> Case {
    Case {
        name: name.to_owned(),
        scenario: Box::new(scenario),
        print: Box::new(print),
        missed: Box::new(missed),
    }
}

// What is missed, in percent of goodput; a mean queue of a tenth of a BDP too much, or a delay 10 % too long, counts as
// one percent, a share off by a quarter beyond the goal as five.

/// Utilisation below `goal`.
fn below(goal: f64, mbps: f64) -> impl Fn(&[Outcome], &[Outcome]) -> f64 {
    move |own, _| 100.0 * (goal - utilisation(own, mbps)).max(0.0)
}

/// Utilisation below `goal`, or a 95th percentile of the queueing delay above 100 ms.
fn late(goal: f64, mbps: f64) -> impl Fn(&[Outcome], &[Outcome]) -> f64 {
    move |own, _| {
        let delay = mean(own, |run| run.queue_p95_ms) / 100.0;
        100.0 * (goal - utilisation(own, mbps)).max(0.0) + 10.0 * delay.ln().max(0.0)
    }
}

/// Less than 0.97 of the base's goodput, or a delay of more than a twentieth of its.
fn behind(own: &[Outcome], base: &[Outcome]) -> f64 {
    let goodput = mean(own, Outcome::goodput) / mean(base, Outcome::goodput);
    let delay = 20.0 * mean(own, |run| run.queue_p95_ms) / mean(base, |run| run.queue_p95_ms);
    100.0 * (0.97 - goodput).max(0.0) + 10.0 * delay.ln().max(0.0)
}

/// Less goodput than the base, or not a tenth less queue.
fn less(own: &[Outcome], base: &[Outcome]) -> f64 {
    let goodput = mean(own, Outcome::goodput) / mean(base, Outcome::goodput);
    let queue = mean(own, |run| run.queue_mean) / mean(base, |run| run.queue_mean);
    100.0 * (0.995 - goodput).max(0.0) + 100.0 * (queue - 0.9).max(0.0)
}

/// Jain's index below 0.98, or a mean queue above 1.5 BDP.
fn unfair(bdp: f64) -> impl Fn(&[Outcome], &[Outcome]) -> f64 {
    move |own, _| {
        let queue = mean(own, |run| run.queue_mean / bdp);
        100.0 * (0.98 - mean(own, Outcome::jain)).max(0.0) + 10.0 * (queue - 1.5).max(0.0)
    }
}

/// A share beyond 1.5 times CUBIC's, or below 0.67 times.
fn unequal(own: &[Outcome], _: &[Outcome]) -> f64 {
    20.0 * (log_share(own).abs() - 1.5f64.ln()).max(0.0)
}

fn log_share(runs: &[Outcome]) -> f64 {
    runs.iter().enumerate().map(|(n, run)| cases::share(n, run).ln()).sum::<f64>() / runs.len() as f64
}

fn mean(runs: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len() as f64
}

fn utilisation(runs: &[Outcome], mbps: f64) -> f64 {
    mean(runs, |run| run.goodput() * 8e-6 / mbps)
}

/// Utilisation / mean queue / greatest queue, packets.
fn used(mbps: f64) -> impl Fn(&[Outcome]) -> String {
    move |runs| {
        let greatest = mean(runs, |run| run.queue_max as f64);
        format!("{:.3}/{:.1}/{greatest:.0}", utilisation(runs, mbps), mean(runs, |run| run.queue_mean))
    }
}

/// Utilisation / 95th percentile of the queueing delay.
fn delayed(mbps: f64) -> impl Fn(&[Outcome]) -> String {
    move |runs| format!("{:.3}/{:.0}ms", utilisation(runs, mbps), mean(runs, |run| run.queue_p95_ms))
}

/// Goodput in kbit/s / mean queue, packets.
fn carried(runs: &[Outcome]) -> String {
    format!("{:.0}/{:.1}", mean(runs, Outcome::goodput) * 8e-3, mean(runs, |run| run.queue_mean))
}

/// Jain's index / mean queue in BDP / utilisation.
fn fair(mbps: f64, bdp: f64) -> impl Fn(&[Outcome]) -> String {
    move |runs| {
        let queue = mean(runs, |run| run.queue_mean / bdp);
        format!("{:.3}/{queue:.2}/{:.2}", mean(runs, Outcome::jain), utilisation(runs, mbps))
    }
}

/// Goodput as a multiple of CUBIC's beside it (geometric mean) / mean queue, packets.
fn share(runs: &[Outcome]) -> String {
    format!("{:.2}/{:.0}", log_share(runs).exp(), mean(runs, |run| run.queue_mean))
}

/// Utilisation / packets dropped.
fn dropped(runs: &[Outcome]) -> String {
    let dropped = mean(runs, |run| run.dropped as f64 / run.offered as f64);
    format!("{:.2}/{:.2}%", utilisation(runs, 10.0), dropped * 100.0)
}
