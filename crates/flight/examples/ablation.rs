//! What each addition of `fsat` gains, in virtual time: `cargo run --release -p flight --example ablation [CASE,…]`.
//!
//! A row is a case, a column a system; docs/flight.md says what the numbers of each case are.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::time::Duration;

use flight::Additions;
use sim::{Outcome, Scenario, World, cases};

/// A column; `None` is CUBIC, or Reno on the paper's link.
type System = Option<Additions>;
/// A row: its name, and what it prints of a system.
type Case = (String, Box<dyn Fn(System) -> String>);

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let systems = systems();
    print!("{:15}", "");
    systems.iter().for_each(|(name, _)| print!("{name:>20}"));
    println!();
    for (name, run) in cases().iter().filter(|(name, _)| only.split(',').any(|part| name.contains(part))) {
        print!("{name:15}");
        systems.iter().for_each(|(_, system)| print!("{:>20}", run(*system)));
        println!();
    }
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
    ]
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (mbps, loss) in
        [(0.064, 0.0), (0.384, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (1.0, 1.0), (1.0, 5.0)]
    {
        cases.push(case(&format!("{mbps}M {loss}%"), used(mbps), move |s, n| cases::paper(mbps, loss, s, n)));
    }
    for (mbps, loss) in [(10.0, 0.0), (10.0, 1.0), (3.0, 0.0), (3.0, 1.0)] {
        cases.push(case(&format!("cell {mbps}M {loss}%"), delayed(mbps), move |s, n| {
            cases::radio(mbps, loss, s, n)
        }));
    }
    for (name, doppler, rates) in [
        ("pa3 5dB", 5.6, [1627, 1099]),
        ("pa3 -5dB", 5.6, [22, 876]),
        ("va30 5dB", 55.6, [1223, 388]),
        ("va30 -5dB", 55.6, [343, 482]),
    ] {
        cases.push(case(name, carried, move |s, n| cases::fading(doppler, rates, s, n)));
    }
    for (flows, queue, apart) in [(2, 1000, 5000), (4, 1000, 2000), (8, 1000, 600), (4, 50, 2000)] {
        let name = format!("{flows} late {}bdp", queue / 50);
        cases.push(case(&name, fair, move |s, n| {
            cases::shared(&vec![s; flows], queue, staggered(apart, n), n)
        }));
    }
    for queue in [25, 50, 100, 250, 500] {
        let name = format!("cubic {}bdp", queue as f64 / 50.0);
        cases.push(case(&name, share, move |s, n| cases::shared(&[s, None], queue, staggered(1000, n), n)));
    }
    cases.push(case("route", used(10.0), cases::route_change));
    cases.push(case("tiny buffer", dropped, |s, n| cases::shared(&[s], 5, Duration::ZERO, n)));
    cases
}

fn case(
    name: &str,
    print: impl Fn(&[Outcome]) -> String + 'static,
    scenario: impl Fn(System, u64) -> Scenario + 'static,
) -> Case {
    let run =
        move |system| print(&SEEDS.map(|seed| World::new(scenario(system, seed)).run()).collect::<Vec<_>>());
    (name.to_owned(), Box::new(run))
}

fn staggered(ms: u64, seed: u64) -> Duration {
    Duration::from_millis(ms + 37 * seed)
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
fn fair(runs: &[Outcome]) -> String {
    let queue = mean(runs, |run| run.queue_mean / 50.0);
    format!("{:.3}/{queue:.2}/{:.2}", mean(runs, Outcome::jain), utilisation(runs, 10.0))
}

/// Goodput as a multiple of CUBIC's beside it / utilisation.
fn share(runs: &[Outcome]) -> String {
    let share = mean(runs, |run| run.flows[0].goodput / run.flows[1].goodput);
    format!("{share:.2}/{:.2}", utilisation(runs, 10.0))
}

/// Utilisation / packets dropped.
fn dropped(runs: &[Outcome]) -> String {
    let dropped = mean(runs, |run| run.dropped as f64 / run.offered as f64);
    format!("{:.2}/{:.2}%", utilisation(runs, 10.0), dropped * 100.0)
}
