//! How `fsat` shares a link, with itself and with CUBIC: `cargo run --release -p flight --example crowd [SEEDS]`, in virtual time.
//!
//! First flows of `fsat` alone, by link, number, starts and buffer: mean queue in BDP and Jain's index, over all seeds and of the
//! worst. Then beside as many of CUBIC, by the buffer in BDP: goodput as a multiple of CUBIC's, its geometric mean, and what eight
//! in ten seeds lie between. Last what queues once CUBIC has ended. It shows what the mean of the ablation's six seeds hides; and on
//! the slow link, the lab's, what two minutes and a half hide, for here each flow could send the paper's 10 MB.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::thread;
use std::time::Duration;

use flight::Additions;
use sim::{Outcome, Scenario, World, cases};

const OWN: Option<Additions> = Some(Additions::FSAT);

/// A link: its name, and its BDP in packets.
type Link = (&'static str, usize);

/// When flows begin, as in the lab; on the fast link always one after the other.
#[derive(Debug, Clone, Copy)]
enum Starts {
    Random,
    Late,
}

const FAST: Link = ("10M", 50);
const SLOW: Link = ("1M", 15);

fn main() {
    let seeds = std::env::args().nth(1).and_then(|word| word.parse().ok()).filter(|n| *n > 0).unwrap_or(24);
    println!("{:20}{:>7}{:>7}{:>7}{:>7}", "", "queue", "most", "Jain", "least");
    let fast = [(2, 20), (4, 20), (8, 20), (4, 1)].map(|(flows, buffer)| (FAST, Starts::Late, flows, buffer));
    let slow = [Starts::Late, Starts::Random].into_iter().flat_map(|starts| {
        [(2, 1), (2, 5), (4, 1), (4, 5), (4, 10), (8, 1), (8, 2), (8, 5), (8, 10)]
            .map(|(flows, buffer)| (SLOW, starts, flows, buffer))
    });
    for (link, starts, flows, buffer) in fast.into_iter().chain(slow) {
        let runs = runs(seeds, |seed| together(link, starts, flows, buffer, seed));
        let queue = sorted(runs.iter().map(|run| run.queue_mean / link.1 as f64));
        let jain = sorted(runs.iter().map(Outcome::jain));
        let name = format!("{} {flows} {starts:?} {buffer}bdp", link.0);
        let (most, least) = (queue[seeds - 1], jain[0]);
        println!("{name:20}{:>7.2}{most:>7.2}{:>7.3}{least:>7.3}", mean(&queue), mean(&jain));
    }
    println!("{:20}{:>18}{:>18}{:>18}{:>18}{:>18}", "beside CUBIC", "0.5", "1", "2", "5", "10");
    for (link, each) in [(FAST, 1), (SLOW, 1), (SLOW, 2), (SLOW, 4)] {
        print!("{:20}", format!("{} {each}+{each}", link.0));
        for half_bdps in [1, 2, 4, 10, 20] {
            let queue = (link.1 * half_bdps).div_ceil(2);
            let runs = runs(seeds, |seed| beside(link, each, queue, seed));
            let logs = sorted(runs.iter().enumerate().map(|(n, run)| cases::share(n, run).ln()));
            let [least, most] = [seeds / 10, seeds - 1 - seeds / 10].map(|n| logs[n].exp());
            let shares = format!("{:.2} ({least:.2}-{most:.2})", mean(&logs).exp());
            print!("{shares:>18}");
        }
        println!();
    }
    print_left(seeds);
}

/// How many of so many flows each, in a buffer of so many BDP, and the spans after CUBIC has left, seconds.
const LEFT: [(usize, usize); 3] = [(1, 5), (1, 10), (2, 10)];
const SPANS: [[u64; 2]; 5] = [[0, 10], [10, 20], [20, 40], [40, 80], [80, 160]];

/// The queue in BDP after CUBIC has left, at 150 s: its mean, and what nine in ten seeds have at most.
fn print_left(seeds: usize) {
    print!("{:20}", "left by CUBIC");
    SPANS.iter().for_each(|[from, to]| print!("{:>18}", format!("{from}-{to} s")));
    println!();
    for (each, buffer) in LEFT {
        print!("{:20}", format!("{} {each}+{each} {buffer}bdp", SLOW.0));
        for span in SPANS {
            let after = span.map(Duration::from_secs);
            let left = |seed| cases::left(OWN, each, SLOW.1 * buffer, Duration::from_secs(150), after, seed);
            let queue = sorted(runs(seeds, left).iter().map(|run| run.queue_mean / SLOW.1 as f64));
            print!("{:>18}", format!("{:.2} ({:.2})", mean(&queue), queue[seeds - 1 - seeds / 10]));
        }
        println!();
    }
}

/// [`cases::slow`] for as long as the paper's nodes take to send 10 MB each, at equal shares.
fn slow(systems: &[Option<Additions>], queue: usize, starts: &[Duration], seed: u64) -> Scenario {
    let mut scenario = cases::slow(systems, queue, starts, seed);
    scenario.until = scenario.from + Duration::from_secs(84) * systems.len() as u32;
    scenario
}

/// With seeds from 1 on, two at a time.
fn runs(seeds: usize, scenario: impl Fn(u64) -> Scenario + Sync) -> Vec<Outcome> {
    let all: Vec<u64> = (1..=seeds as u64).collect();
    let half = |seeds: &[u64]| -> Vec<Outcome> {
        seeds.iter().map(|seed| World::new(scenario(*seed)).run()).collect()
    };
    let (first, second) = all.split_at(seeds / 2);
    thread::scope(|scope| {
        let beside = scope.spawn(|| half(second));
        let mut runs = half(first);
        runs.extend(beside.join().expect("a simulation"));
        runs
    })
}

fn together(link: Link, starts: Starts, flows: usize, buffer: usize, seed: u64) -> Scenario {
    let systems = vec![OWN; flows];
    let queue = link.1 * buffer;
    if link == SLOW {
        let starts = match starts {
            Starts::Random => cases::scattered(flows, seed),
            Starts::Late => cases::latecomers(flows, seed),
        };
        return slow(&systems, queue, &starts, seed);
    }
    let apart_ms = [5000, 2000, 600][flows.ilog2() as usize - 1];
    cases::shared(&systems, queue, cases::staggered(apart_ms, seed), seed)
}

fn beside(link: Link, each: usize, queue: usize, seed: u64) -> Scenario {
    let systems = cases::in_turn(OWN, seed).repeat(each);
    if link == SLOW {
        return slow(&systems, queue, &cases::scattered(2 * each, seed), seed);
    }
    cases::shared(&systems, queue, cases::staggered(1000, seed), seed)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
