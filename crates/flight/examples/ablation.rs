//! What `fsat` does on the simulation's links, and what each of its constants is worth.
//!
//! `cargo run --release -p flight --example ablation [CASE,… [SEEDS]]`: a row is a case, a column a system. Medians over seeds.
//!
//! `… --example ablation rules [SEEDS]`: what is lost without each constant on links that none was chosen on, in standard errors of
//! the difference, of which the rule of admission (CONTRIBUTING.md) asks for two: on all of them together, and in the case in which
//! most is. By chance alone one case in twenty loses two.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flight::{Algorithm, Constants};
use link::{Aqm, Jitter, Queue};
use sim::cases::{self, Bottleneck};
use sim::{Outcome, Scenario, World};

type System = Option<Algorithm>;
type Make = Box<dyn Fn(System, u64) -> Scenario + Sync>;

/// What a case is about.
#[derive(Clone, Copy)]
enum About {
    /// How much of so many Mbit/s is used, and the queue.
    Use(f64),
    /// Share beside CUBIC, by the flow, and drops.
    Share,
    /// Jain's index of own flows, the queue in BDP of so many packets, and drops.
    Own(f64),
}

struct Case {
    name: String,
    make: Make,
    about: About,
}

fn case(
    name: impl Into<String>,
    about: About,
    make: impl Fn(System, u64) -> Scenario + Sync + 'static,
) -> Case {
    Case { name: name.into(), make: Box::new(make), about }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let only = words.next().unwrap_or_default();
    let seeds = words.next().and_then(|word| word.parse().ok()).unwrap_or(5);
    if only == "rules" { rules(seeds) } else { table(&only, seeds) }
}

fn table(only: &str, seeds: u64) {
    println!("{:26}{:>26}{:>26}{:>26}", "", "cubic, reno", "fsat_paper", "fsat");
    let named = |case: &Case| only.split(',').any(|part| case.name.contains(part));
    let list: Vec<Case> = chosen().into_iter().filter(named).collect();
    let rows = at_once(&list, |case| {
        [None, Some(Algorithm::Paper), Some(Algorithm::fsat())]
            .map(|system| print(case.about, &runs(case, system, seeds)))
    });
    for (case, [cubic, paper, fsat]) in list.iter().zip(rows) {
        println!("{:26}{cubic:>26}{paper:>26}{fsat:>26}", case.name);
    }
}

fn runs(case: &Case, system: System, seeds: u64) -> Vec<Outcome> {
    (1..=seeds).map(|seed| World::new((case.make)(system, seed)).run()).collect()
}

/// `of` each, on all processors.
fn at_once<'a, T: Sync, R: Send>(list: &'a [T], of: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let (next, of) = (AtomicUsize::new(0), &of);
    let work = || {
        let turns = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        turns.map_while(|n| Some((n, of(list.get(n)?)))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|one| one.join().expect("a case does not panic")).collect()
    });
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

fn print(about: About, runs: &[Outcome]) -> String {
    let median = |of: &dyn Fn(&Outcome) -> f64| median(runs.iter().map(of).collect());
    let dropped = median(&|run| 100.0 * run.dropped as f64 / run.offered as f64);
    match about {
        About::Use(mbps) => {
            let (used, p95) = (median(&|run| run.goodput() * 8e-6 / mbps), median(&|run| run.queue_p95_ms));
            format!("{used:.3} {:.1}p {p95:.0}ms", median(&|run| run.queue_mean))
        }
        About::Share => {
            let shares = runs.iter().enumerate().map(|(n, run)| cases::share(n, run)).collect();
            format!("{:.2} {dropped:.1}%", crate::median(shares))
        }
        About::Own(bdp) => {
            format!(
                "{:.2} {:.2}bdp {dropped:.1}%",
                median(&Outcome::jain),
                median(&|run| run.queue_mean / bdp)
            )
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The links that the constants were chosen on.
fn chosen() -> Vec<Case> {
    let mut list = Vec::new();
    let wired = [(0.064, 0.0), (0.384, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (1.0, 1.0), (1.0, 5.0)];
    for (mbps, loss) in wired {
        list.push(case(format!("wired {mbps}M {loss}%"), About::Use(mbps), move |s, n| {
            cases::paper(mbps, loss, s, n)
        }));
    }
    for (mbps, loss) in [(10.0, 1.0), (10.0, 5.0), (100.0, 1.0), (100.0, 5.0)] {
        list.push(case(format!("loss {mbps}M {loss}%"), About::Use(mbps), move |s, n| {
            cases::alone(s, mbps, loss, n)
        }));
    }
    for (mbps, loss) in [(10.0, 0.0), (10.0, 1.0), (3.0, 0.0), (3.0, 1.0)] {
        list.push(case(format!("cell {mbps}M {loss}%"), About::Use(mbps), move |s, n| {
            cases::radio(mbps, loss, s, n)
        }));
    }
    list.push(case("cell out 5M", About::Use(5.0), |s, n| cases::outages(5.0, s, n)));
    list.push(case("cell jump 5M", About::Use(5.0), |s, n| cases::jumps(5.0, s, n)));
    list.push(case("cell fast 10M", About::Use(10.0), |s, n| cases::fast(10.0, s, n)));
    for mbps in [1.0, 10.0, 100.0] {
        field(&mut list, mbps, &fields());
        alone(&mut list, mbps, &[4, 16, 50], &[[20, 100], [100, 180], [100, 130]]);
    }
    for mbps in [10.0, 100.0] {
        field(&mut list, mbps, &[0.5, 1.0, 3.0, 10.0].map(|bdp| ("tail", Bottleneck::Bdp(bdp))));
    }
    for queue in [16, 64, 256, 2000] {
        list.push(case(format!("lan {queue} 1"), About::Use(cases::LAN_MBPS), move |s, n| {
            cases::lan(&[s], queue, n)
        }));
        for each in [1, 4] {
            list.push(case(format!("lan {queue} {each}+{each}"), About::Share, move |s, n| {
                cases::lan(&cases::in_turn(s, n).repeat(each), queue, n)
            }));
        }
        list.push(case(format!("lan {queue} 8 own"), About::Own(16.0), move |s, n| {
            cases::lan(&[s; 8], queue, n)
        }));
    }
    // As the lab's `flight-field`: the first 10 s after eight starts within 5 s.
    let queues = [
        ("codel", Bottleneck::Managed(Aqm::CODEL)),
        ("pie", Bottleneck::Managed(Aqm::PIE)),
        ("tail 2bdp", Bottleneck::Bdp(2.0)),
    ];
    for (name, kind) in queues {
        list.push(case(format!("lab {name} 100M 8"), About::Own(cases::bdp(100.0)), move |s, n| {
            let mut scenario = cases::field(&[s; 8], 100.0, kind, 10, n);
            scenario.flows.iter_mut().zip(cases::scattered(8, n)).for_each(|(flow, at)| flow.start = at);
            scenario
        }));
    }
    list
}

fn fields() -> [(&'static str, Bottleneck); 6] {
    [
        ("policer", Bottleneck::Policer(50)),
        ("codel", Bottleneck::Managed(Aqm::CODEL)),
        ("pie", Bottleneck::Managed(Aqm::PIE)),
        ("packets", Bottleneck::Packets(1)),
        ("packets", Bottleneck::Packets(3)),
        ("packets", Bottleneck::Packets(10)),
    ]
}

/// Beside one and four of CUBIC, and eight of its own.
fn field(list: &mut Vec<Case>, mbps: f64, kinds: &[(&str, Bottleneck)]) {
    let bdp = cases::bdp(mbps);
    let seconds = if mbps > 50.0 { 40 } else { 90 };
    for &(name, kind) in kinds {
        let name = match kind {
            Bottleneck::Packets(packets) => format!("{packets} {name}"),
            Bottleneck::Bdp(times) => format!("{name} {times}bdp"),
            _ => name.to_owned(),
        };
        for each in [1, 4] {
            list.push(case(format!("{name} {mbps}M {each}+{each}"), About::Share, move |s, n| {
                cases::field(&cases::in_turn(s, n).repeat(each), mbps, kind, seconds, n)
            }));
        }
        for (flows, late) in [(8, false), (8, true)] {
            let when = if late { "late" } else { "own" };
            list.push(case(format!("{name} {mbps}M {flows} {when}"), About::Own(bdp), move |s, n| {
                let mut scenario = cases::field(&vec![s; flows], mbps, kind, seconds, n);
                for (flow, k) in scenario.flows.iter_mut().zip(0u32..).filter(|_| late) {
                    flow.start = k * Duration::from_millis(600 + 37 * n);
                }
                scenario
            }));
        }
    }
}

fn alone(list: &mut Vec<Case>, mbps: f64, bunches: &'static [u64], steps: &'static [[u64; 2]]) {
    let about = About::Use(mbps);
    for &every in bunches {
        list.push(case(format!("acks {every}ms {mbps}M"), about, move |s, n| {
            cases::bunched_acks(s, mbps, every, n)
        }));
    }
    for &rtts in steps {
        for back in [false, true] {
            let name = format!("step {}-{}{} {mbps}M", rtts[0], rtts[1], if back { " back" } else { "" });
            list.push(case(name, about, move |s, n| cases::step(s, mbps, rtts, back, n)));
        }
    }
    list.push(case(format!("starlink {mbps}M"), about, move |s, n| cases::starlink(s, mbps, n)));
    list.push(case(format!("suspended {mbps}M"), about, move |s, n| cases::suspended(s, mbps, n)));
    for rtts in [[2, 2], [20, 10]] {
        list.push(case(format!("jitter {}±{}ms {mbps}M", rtts[0], rtts[1]), about, move |s, n| {
            cases::jittering(s, mbps, rtts, n)
        }));
    }
    list.push(case(format!("reordered {mbps}M"), about, move |s, n| cases::reordered(s, mbps, n)));
}

/// Links of other rates, buffers, losses and steps.
fn held_out() -> Vec<Case> {
    let mut list = Vec::new();
    for mbps in [4.0, 25.0] {
        let kinds = [
            ("policer", Bottleneck::Policer(20)),
            ("codel", Bottleneck::Managed(Aqm::CODEL)),
            ("packets", Bottleneck::Packets(7)),
            ("tail", Bottleneck::Bdp(2.0)),
            ("tail", Bottleneck::Bdp(6.0)),
        ];
        field(&mut list, mbps, &kinds);
        alone(&mut list, mbps, &[30], &[[40, 90]]);
        for rtt in [66, 72, 78] {
            list.push(case(format!("longer 60-{rtt} {mbps}M"), About::Use(mbps), move |s, n| {
                cases::longer(s, mbps, [60, rtt], n)
            }));
        }
        for loss in [0.0, 0.5, 3.0] {
            list.push(case(format!("loss {mbps}M {loss}%"), About::Use(mbps), move |s, n| {
                let mut scenario = cases::alone(s, mbps, loss, n);
                scenario.link.queue = Queue::Packets((5.0 * cases::bdp(mbps)) as usize);
                scenario
            }));
        }
    }
    // Rate, how many times as fast until a bucket is empty, BDP of buffer, seconds until then, flows a side: all by chance.
    for (mbps, times, bdp, seconds, each) in
        [(8.0, 4.8, 1.8, 17, 4), (30.0, 3.7, 7.9, 8, 1), (14.0, 2.9, 3.9, 10, 4), (23.0, 2.2, 4.7, 5, 1)]
    {
        let name = format!("boost {mbps}M x{times} {bdp}bdp {each}+{each}");
        list.push(case(name, About::Share, move |s, n| {
            cases::boosted(s, [mbps, times], bdp, seconds, each, n)
        }));
    }
    // Between neighbours: the RTT, and what hosts hold now and then, µs.
    for (rtt, held) in [(100, 30), (300, 100), (600, 300), (800, 200)] {
        let name = format!("neighbours {rtt}±{held}us");
        list.push(case(name, About::Use(cases::LAN_MBPS), move |s, n| {
            let mut scenario = cases::lan(&[s], 700, n);
            scenario.link.delay = Duration::from_micros(rtt - 100);
            scenario.link.jitter = Jitter::HalfNormal(Duration::from_micros(held));
            scenario
        }));
    }
    for (mbps, loss) in [(2.0, 3.0), (40.0, 2.0), (60.0, 5.0)] {
        list.push(case(format!("lasting {mbps}M {loss}%"), About::Use(mbps), move |s, n| {
            let mut scenario = cases::alone(s, mbps, loss, n);
            (scenario.from, scenario.until) = (Duration::from_secs(200), Duration::from_secs(260));
            scenario
        }));
    }
    list.push(case("cell 6M", About::Use(6.0), |s, n| cases::radio(6.0, 0.0, s, n)));
    list.push(case("cell 6M 2%", About::Use(6.0), |s, n| cases::radio(6.0, 2.0, s, n)));
    list.push(case("cell jump 12M", About::Use(12.0), |s, n| cases::jumps(12.0, s, n)));
    list.push(case("cell fast 4M", About::Use(4.0), |s, n| cases::fast(4.0, s, n)));
    list
}

/// What a run is worth, in nepers: goodput, how equal shares are, a tenth of the queue, and drops.
fn worth(about: About, n: usize, run: &Outcome) -> f64 {
    let kept = (1.0 - run.dropped as f64 / run.offered as f64).ln();
    match about {
        About::Use(_) => run.goodput().ln() - 0.1 * (1.0 + run.queue_p95_ms).ln(),
        About::Share => kept - cases::share(n, run).ln().abs(),
        About::Own(bdp) => {
            kept + run.jain().ln() + run.goodput().ln() - 0.1 * (1.0 + run.queue_mean / bdp).ln()
        }
    }
}

/// Each constant at a value that takes its rule out.
fn without() -> Vec<(&'static str, Constants)> {
    let all = Constants::default();
    vec![
        ("contract", Constants { contract: 0, ..all }),
        ("deviations", Constants { deviations: 0, ..all }),
        ("more", Constants { more: 1 << 20, ..all }),
        ("answer", Constants { answer: 1 << 20, ..all }),
        ("empty", Constants { empty: 1 << 20, ..all }),
        ("heavy", Constants { heavy: 2, ..all }),
        ("memory", Constants { memory: 1 << 20, ..all }),
        ("stale", Constants { stale_us: 1 << 31, ..all }),
        ("host", Constants { host_us: 1, ..all }),
        ("far", Constants { far: 20_000, ..all }),
        ("slow", Constants { slow: 1, ..all }),
        ("pace", Constants { pace: 10_000, ..all }),
    ]
}

fn rules(seeds: u64) {
    let list = held_out();
    let worths = |system| -> Vec<Vec<f64>> {
        at_once(&list, |case| {
            let runs = runs(case, Some(system), seeds);
            runs.iter().enumerate().map(|(n, run)| worth(case.about, n, run)).collect()
        })
    };
    let all = worths(Algorithm::fsat());
    println!(
        "{:12}{:>10}{:>8}{:>24}{:>10}{:>8}   of {} cases over two standard errors worse, and better",
        "without",
        "all lose",
        "errors",
        "most is lost in",
        "nepers",
        "errors",
        list.len()
    );
    for (name, constants) in without() {
        let rest = worths(Algorithm::Fsat(constants));
        let lost: Vec<(f64, f64)> = all.iter().zip(&rest).map(|(all, rest)| difference(all, rest)).collect();
        let over = |sign: f64| lost.iter().filter(|(mean, error)| sign * mean > 2.0 * error).count();
        let sure = (0..lost.len()).filter(|n| lost[*n].0 > 2.0 * lost[*n].1);
        let most = sure.max_by(|a, b| lost[*a].0.total_cmp(&lost[*b].0)).unwrap_or_default();
        let (together, of_all) = difference(&of_seeds(&all), &of_seeds(&rest));
        print!("{name:12}{together:>10.4}{:>8.1}", together / of_all);
        let (mean, error) = lost[most];
        print!("{:>24}{mean:>10.3}{:>8.1}", list[most].name, mean / error);
        println!("{:>8}{:>8}", over(1.0), over(-1.0));
    }
}

/// The mean of all cases for each seed.
fn of_seeds(worths: &[Vec<f64>]) -> Vec<f64> {
    let seeds = 0..worths.first().map_or(0, Vec::len);
    seeds.map(|seed| worths.iter().map(|case| case[seed]).sum::<f64>() / worths.len() as f64).collect()
}

/// The mean of the paired differences, and its standard error.
fn difference(all: &[f64], rest: &[f64]) -> (f64, f64) {
    let n = all.len() as f64;
    let each: Vec<f64> = all.iter().zip(rest).map(|(all, rest)| all - rest).collect();
    let mean = each.iter().sum::<f64>() / n;
    let variance = each.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt().max(1e-6))
}
