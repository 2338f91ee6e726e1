//! Why a link stands idle that a flow could fill: `cargo run --release -p flight --example idle [SEEDS]`, in virtual time.
//!
//! A row is one of the lab's HSDPA channels. First goodput and mean queue of `fsat`, as shares of Reno's; then the least window of
//! constant size that has 0.999 of Reno's goodput, in packets, and its mean queue as a share of Reno's; then what the link could have
//! carried while it had nothing to, in percent of Reno's goodput: with Reno, and with `fsat` by what it was doing.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flight::Additions;
use sim::cases::{self, Channel, HSDPA};
use sim::{Outcome, Sender, World};

/// What the flow was doing: before its first drain, in that, in a later one, up to a second after one, and otherwise.
const DOING: [&str; 5] = ["begin", "first drain", "drains", "after them", "else"];
const AFTER: Duration = Duration::from_secs(1);

fn main() {
    let seeds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(12);
    print!("{:10}{:>9}{:>7}{:>8}{:>7}{:>7}", "", "goodput", "queue", "window", "queue", "reno");
    DOING.iter().for_each(|doing| print!("{doing:>13}"));
    println!();
    let mut product = 1.0;
    for channel in HSDPA {
        let base = Runs::new(channel, None, None, seeds);
        let own = Runs::new(channel, Some(Additions::FSAT), None, seeds);
        let (window, least) = least_window(channel, &base, seeds);
        let goodput = own.goodput / base.goodput;
        product *= goodput;
        let percent = |idle: f64| 100.0 * idle / (base.goodput * UNTIL_S);
        let queues = [own.queue, least.queue].map(|queue| queue / base.queue);
        print!("{:10}{goodput:>9.4}{:>7.2}{window:>8}{:>7.2}", channel.0, queues[0], queues[1]);
        print!("{:>7.2}", percent(base.idle[0]));
        own.idle.iter().for_each(|idle| print!("{:>13.2}", percent(*idle)));
        println!();
    }
    println!("geometric mean {:.4}", f64::powf(product, 1.0 / HSDPA.len() as f64));
}

/// How long a run takes, seconds.
const UNTIL_S: f64 = 60.0;

/// Runs with all seeds, summed up: goodput in bytes per second, mean queue in packets, bytes not carried.
#[derive(Default)]
struct Runs {
    goodput: f64,
    queue: f64,
    idle: [f64; DOING.len()],
}

impl Runs {
    /// Of `system`, or of Reno; `window` packets at most, or the paper's.
    fn new(channel: Channel, system: Option<Additions>, window: Option<u64>, seeds: u64) -> Self {
        let mut all = Self::default();
        for seed in 1..=seeds {
            let (outcome, idle) = run(channel, system, window, seed);
            all.goodput += outcome.goodput();
            all.queue += outcome.queue_mean;
            all.idle.iter_mut().zip(idle).for_each(|(sum, idle)| *sum += idle);
        }
        all
    }
}

fn least_window(channel: Channel, base: &Runs, seeds: u64) -> (u64, Runs) {
    let enough =
        |window: &u64| Runs::new(channel, None, Some(*window), seeds).goodput >= 0.999 * base.goodput;
    let windows: Vec<u64> = (1..66).collect();
    let window = windows[windows.partition_point(|window| !enough(window)).min(windows.len() - 1)];
    (window, Runs::new(channel, None, Some(window), seeds))
}

fn run(
    channel: Channel,
    system: Option<Additions>,
    window: Option<u64>,
    seed: u64,
) -> (Outcome, [f64; DOING.len()]) {
    let idle = Rc::new(RefCell::new([0.0; DOING.len()]));
    let sink = Rc::clone(&idle);
    let mut drained = None;
    let mut scenario = cases::fading(channel, system, seed);
    if let Some(window) = window {
        scenario.flows[0].profile.rwnd = window;
    }
    let mut world = World::new(scenario);
    world.idle = Some(Box::new(move |now, bytes, sender| {
        sink.borrow_mut()[doing(now, sender, &mut drained)] += bytes as f64;
    }));
    let outcome = world.run();
    let idle = *idle.borrow();
    (outcome, idle)
}

/// Which of [`DOING`], and when it last drained.
fn doing(now: Duration, sender: &Sender, drained: &mut Option<Duration>) -> usize {
    let Some(state) = sender.fsat.as_ref().map(|fsat| fsat.state()) else { return 0 };
    if state.draining {
        *drained = Some(now);
        return if state.drains == 1 { 1 } else { 2 };
    }
    match drained {
        None => 0,
        Some(then) if now - *then < AFTER => 3,
        Some(_) => 4,
    }
}
