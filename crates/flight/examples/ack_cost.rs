//! What `fsat` costs: the time of its programs per ACK beside that of a BPF CUBIC made of the kernel's own functions,
//! and the throughput over loopback beside the kernel's CUBIC. Rounds in turns, medians; root. The time is as the kernel
//! counts it, and less what it counts for as many runs of an empty program.
//!
//! `cargo run --release -p flight --features kernel --example ack_cost -- [ROUNDS] [SECONDS]`

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flight::kernel::cost::Timing;
use flight::kernel::{self, Base, FSAT, FSAT_PAPER, Registration, Scheme};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is compared; the first is what costs are compared with.
const SYSTEMS: [&str; 6] =
    ["bpf_cubic", "fsat_paper reno", "fsat_paper cubic", "fsat reno", "fsat cubic", "cubic"];

/// The program of `bpf_cubic` that does nothing, at each ACK.
const EMPTY: &str = "cubic_empty";

fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let rounds = numbers.next().transpose()?.unwrap_or(9);
    let time = Duration::from_secs(numbers.next().transpose()?.unwrap_or(2));
    let _alone = kernel::lock::registration()?;
    let namespace = Namespace::new()?;
    let mut costs: [Vec<f64>; SYSTEMS.len()] = Default::default();
    let (mut rates, mut nets) = (costs.clone(), costs.clone());
    let mut empty = 0.0;
    for round in 0..rounds {
        for (i, system) in SYSTEMS.iter().enumerate() {
            let spent = namespace.within(|| cost(system, time))?;
            empty = if i == 0 { spent.empty_ns } else { empty };
            costs[i].push(spent.ns);
            nets[i].push(spent.ns - spent.runs * empty);
            rates[i].push(namespace.within(|| rate(system, time))?);
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    print(&costs, &nets, &rates);
    Ok(())
}

fn print(costs: &[Vec<f64>], nets: &[Vec<f64>], rates: &[Vec<f64>]) {
    let kernel = &rates[SYSTEMS.len() - 1];
    println!(
        "{:18} {:>10} {:>14} {:>8} {:>14} {:>8} {:>10}",
        "", "ns per ACK", "of bpf_cubic", "net ns", "of bpf_cubic", "Gbit/s", "of cubic"
    );
    for (i, system) in SYSTEMS.iter().enumerate() {
        println!(
            "{system:18} {:>10.0} {:>14.2} {:>8.0} {:>14.2} {:>8.1} {:>10.2}",
            median(costs[i].clone()),
            median(ratios(&costs[i], &costs[0])),
            median(nets[i].clone()),
            median(ratios(&nets[i], &nets[0])),
            median(rates[i].clone()),
            median(ratios(&rates[i], kernel)),
        );
    }
}

/// Within each round, so that what else the machine does cancels.
fn ratios(these: &[f64], those: &[f64]) -> Vec<f64> {
    these.iter().zip(those).map(|(this, that)| this / that).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What the programs of a congestion control took.
#[derive(Default)]
struct Spent {
    /// Per ACK.
    ns: f64,
    /// Runs per ACK.
    runs: f64,
    /// Per run of the program that does nothing, where there is one.
    empty_ns: f64,
}

fn cost(system: &str, time: Duration) -> Outcome<Spent> {
    let Some((registered, prefix)) = register(system)? else { return Ok(Spent::default()) };
    let timing = Timing::start()?;
    let before = acks()?;
    transfer(name(system), time)?;
    let acks = (acks()? - before) as f64;
    let mut spent = Spent::default();
    for (program, cost) in timing.of(prefix) {
        if program == EMPTY {
            spent.empty_ns = cost.time_ns as f64 / cost.runs as f64;
        } else {
            spent.ns += cost.time_ns as f64 / acks;
            spent.runs += cost.runs as f64 / acks;
        }
    }
    registered.end()?;
    Ok(spent)
}

/// Gbit/s, untimed.
fn rate(system: &str, time: Duration) -> Outcome<f64> {
    let registered = register(system)?;
    let bytes = transfer(name(system), time)?;
    registered.map_or(Ok(()), |(registered, _)| registered.end())?;
    Ok(bytes as f64 * 8.0 / time.as_secs_f64() / 1e9)
}

/// With how the names of its programs begin; `None` if the kernel has it by itself.
fn register(system: &str) -> Outcome<Option<(Registration, &'static str)>> {
    let base = if system.ends_with("reno") { Base::Reno } else { Base::Cubic };
    let [fsat, paper] = Scheme::published(base);
    Ok(match name(system) {
        FSAT => Some((kernel::register(&fsat)?, "fsat_tcp_")),
        FSAT_PAPER => Some((kernel::register(&paper)?, "fsat_tcp_")),
        "bpf_cubic" => Some((kernel::register_rival()?, "cubic_")),
        _ => None,
    })
}

fn name(system: &str) -> &str {
    system.split(' ').next().unwrap_or(system)
}

/// Sends over loopback for `time`; how many bytes arrived within it.
fn transfer(congestion_control: &str, time: Duration) -> Outcome<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    rustix::net::sockopt::set_tcp_congestion(&near, congestion_control)?;
    let mut far = listener.accept()?.0;
    let (stop, arrived) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let (receiving, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> io::Result<()> {
            let data = vec![0; 256 << 10];
            while !stop.load(Relaxed) {
                near.write_all(&data)?;
            }
            near.shutdown(Shutdown::Write)
        });
        let receiver = scope.spawn(move || -> io::Result<()> {
            let _receiving = receiving;
            let mut buffer = vec![0; 256 << 10];
            loop {
                match far.read(&mut buffer)? {
                    0 => return Ok(()),
                    n => arrived.fetch_add(n as u64, Relaxed),
                };
            }
        });
        let _ = ended.recv_timeout(time); // sooner where the receiver has failed
        let bytes = arrived.load(Relaxed);
        stop.store(true, Relaxed);
        for thread in [sender, receiver] {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(bytes)
    })
}

/// That TCP of this namespace has processed.
fn acks() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let [names, values] = lines[..] else { return Err("no TcpExt in /proc/net/netstat".into()) };
    let counted = names.split(' ').zip(values.split(' '));
    let acks = counted.filter(|(name, _)| ["TCPPureAcks", "TCPHPAcks"].contains(name));
    acks.map(|(_, value)| value.parse::<u64>().map_err(Into::into)).sum()
}

/// A network namespace, removed when dropped.
struct Namespace(String);

impl Namespace {
    fn new() -> Outcome<Namespace> {
        let namespace = Namespace(format!("nawalab-{}-cost", std::process::id()));
        run("ip", ["netns", "add", &namespace.0])?;
        run("ip", ["-n", &namespace.0, "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    fn within<T: Send>(&self, work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
        let path: PathBuf = Path::new("/run/netns").join(&self.0);
        device::netns::run_in(&path, work)?
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", ["netns", "delete", &self.0]);
    }
}

fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Outcome<()> {
    let mut command = Command::new(program);
    let status = command.args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}
