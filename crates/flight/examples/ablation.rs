//! Prints what each addition of `fsat` gains, in virtual time: `cargo run --release -p flight --example ablation`.

#[path = "../tests/sim/mod.rs"]
mod sim;

use flight::Additions;
use sim::cases;
use sim::{Outcome, World};
use std::time::Duration;

/// A column: its name and how a row's system does there, in two numbers.
type Case = (&'static str, Box<dyn Fn(Option<Additions>) -> String>);

fn mean(runs: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len() as f64
}

fn seeds(scenario: impl Fn(u64) -> sim::Scenario) -> Vec<Outcome> {
    (1..=5).map(|seed| World::new(scenario(seed)).run()).collect()
}

fn paper(mbps: f64, loss: f64) -> Box<dyn Fn(Option<Additions>) -> String> {
    Box::new(move |fsat| {
        let runs = seeds(|seed| cases::paper(mbps, loss, fsat, seed));
        let used = mean(&runs, |run| run.goodput() * 8e-6 / mbps);
        format!("{used:.3}/{:.1}/{:.0}", mean(&runs, |run| run.queue_mean), mean(&runs, |run| run.queue_max as f64))
    })
}

fn radio(mbps: f64, loss: f64) -> Box<dyn Fn(Option<Additions>) -> String> {
    Box::new(move |fsat| {
        let runs = seeds(|seed| cases::radio(mbps, loss, fsat, seed));
        let used = mean(&runs, |run| run.goodput() * 8e-6 / mbps);
        format!("{used:.3}/{:.0}ms", mean(&runs, |run| run.queue_p95_ms))
    })
}

fn shared(n: usize, queue: usize, apart_ms: u64) -> Box<dyn Fn(Option<Additions>) -> String> {
    Box::new(move |fsat| {
        let runs = seeds(|seed| cases::shared(&vec![fsat; n], queue, Duration::from_millis(apart_ms + seed * 37), seed));
        let jain = mean(&runs, Outcome::jain);
        format!("{jain:.3}/{:.2}bdp/{:.2}", mean(&runs, |run| run.queue_mean / 50.0), mean(&runs, |run| run.goodput() * 8e-7))
    })
}

fn against_cubic(queue: usize) -> Box<dyn Fn(Option<Additions>) -> String> {
    Box::new(move |fsat| {
        let runs = seeds(|seed| cases::shared(&[fsat, None], queue, Duration::from_millis(1000 + seed * 37), seed));
        let share = mean(&runs, |run| run.flows[0].goodput / run.flows[1].goodput);
        format!("{share:.2}/{:.2}", mean(&runs, |run| run.goodput() * 8e-7))
    })
}

fn cases() -> Vec<Case> {
    vec![
        ("64k", paper(0.064, 0.0)),
        ("384k", paper(0.384, 0.0)),
        ("1M", paper(1.0, 0.0)),
        ("2M", paper(2.0, 0.0)),
        ("4M", paper(4.0, 0.0)),
        ("1M 1%", paper(1.0, 1.0)),
        ("1M 5%", paper(1.0, 5.0)),
        ("cell 10M", radio(10.0, 0.0)),
        ("cell 10M 1%", radio(10.0, 1.0)),
        ("cell 3M", radio(3.0, 0.0)),
        ("cell 3M 1%", radio(3.0, 1.0)),
        ("2 late deep", shared(2, 1000, 5000)),
        ("4 late deep", shared(4, 1000, 2000)),
        ("8 within 5s", shared(8, 1000, 600)),
        ("4 late 1bdp", shared(4, 50, 2000)),
        ("cubic .5bdp", against_cubic(25)),
        ("cubic 1bdp", against_cubic(50)),
        ("cubic 2bdp", against_cubic(100)),
        ("cubic 5bdp", against_cubic(250)),
        ("cubic 10bdp", against_cubic(500)),
        ("route", Box::new(|fsat| {
            let runs = seeds(|seed| cases::route_change(fsat, seed));
            format!("{:.2}/{:.0}", mean(&runs, |run| run.goodput() * 8e-7), mean(&runs, |run| run.queue_mean))
        })),
        ("tiny buffer", Box::new(|fsat| {
            let runs = seeds(|seed| cases::shared(&[fsat], 5, Duration::ZERO, seed));
            let lost = mean(&runs, |run| run.dropped as f64 / run.offered as f64);
            format!("{:.2}/{:.2}%", mean(&runs, |run| run.goodput() * 8e-7), lost * 100.0)
        })),
    ]
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let systems = [
        ("base", None),
        ("paper", Some(Additions::PAPER)),
    ];
    print!("{:14}", "");
    systems.iter().for_each(|(name, _)| print!("{name:>20}"));
    println!();
    for (name, run) in cases().iter().filter(|(name, _)| name.contains(&only)) {
        print!("{name:14}");
        systems.iter().for_each(|(_, fsat)| print!("{:>20}", run(*fsat)));
        println!();
    }
}
