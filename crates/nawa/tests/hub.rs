//! A hub with many peers: how soon all are up, what it keeps of each, how long it is asked for its state, what a packet costs.
//!
//! `cargo test --release -p nawa --test hub -- --nocapture` prints them for 300 peers. The peers are the tunnel's core over sockets of their
//! own, with addresses of their own, on one thread; the hub is `nawa run`. Many peers differ from one in what they send (many flows) and
//! in how they send it (little each); so one of them sends as many flows as all, too.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::hub::{Net, inner, place};
use common::traffic::Stop;
use common::{Daemon, PATIENCE, namespaces_or_skip, pause, within};
use device::poller::{Interest, boottime};
use device::{Poller, monotonic};
use tunnel::endpoint::Arrival;
use tunnel::wire::train::Train;

/// Each has a socket, and the hub's own programs have one for each: 600 of the 1024 descriptors that a shell usually has.
const PEERS: usize = 300;
/// Packets a second, in all, of this size in bytes: what fills a part of one processor.
const RATE: u64 = 2000;
const SIZE: u16 = 1000;
/// So many packets of one peer come together.
const BURST: u64 = 8;
/// After so long the sizes of packets that pass are known.
const SETTLED: Duration = Duration::from_secs(10);
/// After so long peers that carry nothing any more are quiet.
const QUIET: Duration = Duration::from_secs(6);
/// After so long nothing is left to do about a question.
const SWEPT: Duration = Duration::from_millis(100);
/// A cost is measured for so long, so many times: more would starve the tests that run beside this one.
const LOAD: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;
/// What peers may take that carry nothing, in percent of a processor: of the process's own time, which what else the machine does hardly
/// changes.
const MOST_QUIET: f64 = 5.0;

/// An inner UDP packet to the hub's discard port, of this flow.
fn packet(from: Ipv4Addr, flow: u16) -> Vec<u8> {
    let mut packet = vec![0; SIZE.into()];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&SIZE.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&[10, 77, 0, 1]);
    let sum: u32 = packet[..20].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[20..22].copy_from_slice(&flow.to_be_bytes());
    packet[22..24].copy_from_slice(&9u16.to_be_bytes());
    packet[24..26].copy_from_slice(&(SIZE - 20).to_be_bytes());
    packet
}

/// Who sends.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// The hub does, not the peers.
    down: bool,
    /// To or from the first so many of the peers, in turn.
    peers: usize,
    /// Each so many flows, in turn.
    flows: u16,
}

/// How much of a load has been sent.
#[derive(Default)]
struct Pace {
    since: Option<Duration>,
    bursts: usize,
}

impl Pace {
    /// The peer and the flow of the next burst that is due.
    fn next(&mut self, now: Duration, load: Load) -> Option<(usize, u16)> {
        if load.peers == 0 {
            *self = Self::default();
            return None;
        }
        let start = *self.since.get_or_insert(now);
        let due = RATE * (now - start).as_millis() as u64 / 1000;
        let turn = self.bursts;
        (turn as u64 * BURST < due).then(|| {
            self.bursts += 1;
            (turn % load.peers, 1024 + (turn / load.peers) as u16 % load.flows)
        })
    }
}

/// Sends what the hub sends until `stop`, under this load of at most so many flows.
fn run_down(flows: usize, stop: &AtomicBool, load: &Mutex<Load>) {
    let socket = |flow| UdpSocket::bind(("10.77.0.1", 1024 + flow)).expect("a socket");
    let sockets: Vec<_> = (0..flows as u16).map(socket).collect();
    let (mut poller, mut pace) = (Poller::new().expect("a poller"), Pace::default());
    let bytes = [0; SIZE as usize - 28];
    while !stop.load(Ordering::Relaxed) {
        poller.wait(Some(Duration::from_millis(1))).expect("waiting").for_each(drop);
        let load = *load.lock().expect("a load");
        let load = if load.down { load } else { Load::default() };
        while let Some((peer, flow)) = pace.next(boottime(), load) {
            for _ in 0..BURST {
                sockets[usize::from(flow - 1024)].send_to(&bytes, (inner(peer), 9)).expect("it is sent");
            }
        }
    }
}

/// Runs the peers until `stop`, under this load.
fn run(net: &Net, stop: &AtomicBool, load: &Mutex<Load>) {
    let mut ends: Vec<_> = (0..net.keys.len()).map(|at| net.end(at)).collect();
    let bind = |at| UdpSocket::bind((place(at), 4000)).expect("a socket");
    let sockets: Vec<_> = (0..ends.len()).map(bind).collect();
    let mut poller = Poller::new().expect("a poller");
    for (at, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true).expect("a socket");
        poller.add(socket, at as u64, Interest::Read).expect("a socket");
    }
    let (mut timers, mut train) = (vec![Duration::ZERO; ends.len()], Train::default());
    let mut buffer = [0; 2048];
    let mut pace = Pace::default();
    while !stop.load(Ordering::Relaxed) {
        let mut woken: Vec<_> =
            poller.wait(Some(Duration::from_millis(1))).expect("waiting").map(|r| r.token as usize).collect();
        let now = boottime();
        for at in &woken {
            while let Ok((length, remote)) = sockets[*at].recv_from(&mut buffer) {
                let arrival = Arrival { remote, local: Default::default(), tos: 0 };
                ends[*at].handle_datagram(now, &arrival, &mut buffer[..length]);
            }
        }
        let load = *load.lock().expect("a load");
        let load = if load.down { Load::default() } else { load };
        while let Some((at, flow)) = pace.next(now, load) {
            for _ in 0..BURST {
                ends[at].handle_inner(now, &mut packet(inner(at), flow));
            }
            woken.push(at);
        }
        woken.extend((0..ends.len()).filter(|at| timers[*at] <= now));
        woken.sort_unstable();
        woken.dedup();
        for at in woken {
            let end = &mut ends[at];
            end.work(now);
            end.handle_timeout(now);
            while end.poll_transmit(now, &mut train) {
                let to = train.to.expect("a train goes somewhere").remote;
                for datagram in train.datagrams() {
                    match sockets[at].send_to(datagram, to) {
                        Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                        _ => {}
                    }
                }
            }
            while end.poll_inner().is_some() {}
            timers[at] = end.poll_timeout(now).unwrap_or(Duration::MAX);
        }
    }
}

/// What the hub has carried.
fn carried(net: &Net) -> Carried {
    let state = net.state();
    let peers = state["tunnel"]["peers"].as_array().expect("peers");
    let paths = || peers.iter().flat_map(|peer| peer["paths"].as_array().expect("paths"));
    let of_paths = |member: &str| paths().filter_map(|path| path[member].as_u64()).sum();
    Carried {
        packets: [("order", "delivered_packets"), ("counters", "sent_packets")]
            .map(|(of, member)| peers.iter().filter_map(|peer| peer[of][member].as_u64()).sum()),
        datagrams_in: of_paths("received_packets"),
        datagrams_out: of_paths("sent_packets"),
    }
}

/// The processor's time of a process.
fn used(pid: u64) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let time = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(time).sum())
}

/// What a process keeps in memory, in bytes.
fn memory(pid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn quickest(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let start = monotonic();
        work();
        monotonic() - start
    };
    (0..5).map(time).min().expect("five")
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    /// Inner packets delivered, and those sent.
    packets: [u64; 2],
    datagrams_in: u64,
    datagrams_out: u64,
}

/// What a load costs, for each packet.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Microseconds of processor time, with what the peers take that carry nothing.
    time_us: f64,
    datagrams_in: f64,
    datagrams_out: f64,
}

/// A hub that runs, with what its peers and its own programs send.
struct Hub {
    net: Net,
    _daemon: Daemon,
    pid: u64,
    load: Mutex<Load>,
    started: Duration,
}

impl Hub {
    fn start(count: usize) -> Hub {
        let (net, started) = (Net::new(count), monotonic());
        let _daemon = net.start();
        let pid = net.state()["pid"].as_u64().expect("a process");
        Hub { net, _daemon, pid, load: Mutex::default(), started }
    }

    /// How long after its start all were up, in seconds.
    fn await_all(&self) -> f64 {
        let count = self.net.keys.len();
        within(4 * PATIENCE, "all are up", || (self.net.up() == count).then_some(()));
        (monotonic() - self.started).as_secs_f64()
    }

    /// What a load costs for a while.
    fn cost(&self, load: Load) -> Cost {
        *self.load.lock().expect("a load") = load;
        let start = carried(&self.net);
        // What an answer leaves to be cleared away is not the load's.
        pause(SWEPT);
        let (at, before) = (monotonic(), used(self.pid));
        pause(LOAD);
        let (took, used) = (monotonic() - at, used(self.pid) - before);
        let end = carried(&self.net);
        *self.load.lock().expect("a load") = Load::default();
        let way = usize::from(load.down);
        let packets = (end.packets[way] - start.packets[way]).max(1) as f64;
        Cost {
            time_us: used.as_secs_f64() * 1e6 / (RATE as f64 * took.as_secs_f64()),
            datagrams_in: (end.datagrams_in - start.datagrams_in) as f64 / packets,
            datagrams_out: (end.datagrams_out - start.datagrams_out) as f64 / packets,
        }
    }

    /// How long its metrics take and how many lines they have, and how long its status takes.
    fn asked(&self) -> (Duration, usize, Duration) {
        let mut page = String::new();
        let metrics = quickest(|| {
            self.net.hub.within(|| {
                page.clear();
                let mut stream = TcpStream::connect("127.0.0.1:9477").expect("it listens");
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
                stream.read_to_string(&mut page).expect("it answers");
            });
        });
        (metrics, page.lines().count(), quickest(|| drop(self.net.state())))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What each of these costs, in turn, so that what else the machine does meets all.
fn in_turn<const N: usize>(loads: [(&Hub, Load); N]) -> [Vec<Cost>; N] {
    let mut costs = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (costs, (hub, load)) in costs.iter_mut().zip(loads) {
            costs.push(hub.cost(load));
        }
    }
    costs
}

/// Says what a load costs, beside what the same hub takes that carries nothing, and how many times the other one; returns that.
fn say(what: &str, costs: &[Cost], quiet: &[Cost], one: &[Cost], quiet_one: &[Cost]) -> f64 {
    let of = |costs: &[Cost], value: fn(&Cost) -> f64| median(costs.iter().map(value).collect());
    let (idle, idle_one) = (of(quiet, |cost| cost.time_us), of(quiet_one, |cost| cost.time_us));
    let time = of(costs, |cost| cost.time_us) - idle;
    let times: Vec<_> =
        costs.iter().zip(one).map(|(cost, one)| (cost.time_us - idle) / (one.time_us - idle_one)).collect();
    let times = median(times);
    println!(
        "  {what}: {time:.2} us, {:.2} datagrams in and {:.2} out, {times:.2} times",
        of(costs, |cost| cost.datagrams_in),
        of(costs, |cost| cost.datagrams_out)
    );
    times
}

#[test]
fn a_hub_bears_three_hundred_peers() {
    let Some(_alone) = namespaces_or_skip("a_hub_bears_three_hundred_peers") else { return };
    // Both at once: what is compared is measured in turn.
    let hubs = [Hub::start(1), Hub::start(PEERS)];
    let [one, many] = &hubs;
    let stop = &AtomicBool::new(false);
    let (worst, most_quiet) = std::thread::scope(|scope| {
        let _stop = Stop(stop);
        for hub in &hubs {
            scope.spawn(|| hub.net.peers.within(|| run(&hub.net, stop, &hub.load)));
            let flows = hub.net.keys.len();
            scope.spawn(move || hub.net.hub.within(|| run_down(flows, stop, &hub.load)));
        }
        one.await_all();
        println!("all {PEERS} up {:.1} s after the hub's start", many.await_all());
        let discard = |hub: &Hub| hub.net.hub.within(|| UdpSocket::bind("10.77.0.1:9")).expect("a socket");
        let _discards = hubs.each_ref().map(discard);
        pause(SETTLED);
        let flows = u16::try_from(PEERS).expect("that many flows");
        let (mut worst, mut most_quiet) = (0.0, 0.0);
        for (way, down) in [("in", false), ("out", true)] {
            let load = |peers, flows| Load { down, peers, flows };
            let nothing = load(0, 1);
            let [quiet_one, alone, quiet, of_many, all_flows] = in_turn([
                (one, nothing),
                (one, load(1, 1)),
                (many, nothing),
                (many, load(1, 1)),
                (many, load(1, flows)),
            ]);
            let [alone_then, all] = in_turn([(one, load(1, 1)), (many, load(PEERS, 1))]);
            let percent = median(quiet.iter().map(|cost| cost.time_us).collect()) * RATE as f64 / 1e4;
            println!("{PEERS} quiet peers: {percent:.2} % of a processor");
            most_quiet = f64::max(most_quiet, percent);
            println!("a packet of {SIZE} bytes {way}, in bursts of {BURST} (medians of {ROUNDS}):");
            say("of the only peer", &alone, &quiet_one, &alone, &quiet_one);
            let of_one = say(&format!("of one of {PEERS}"), &of_many, &quiet, &alone, &quiet_one);
            say(&format!("of one of {PEERS}, {PEERS} flows"), &all_flows, &quiet, &alone, &quiet_one);
            let times = say(&format!("of all {PEERS} in turn"), &all, &quiet, &alone_then, &quiet_one);
            worst = f64::max(worst, times).max(of_one);
            // For some seconds after they have sent they are not quiet.
            pause(QUIET);
        }
        (worst, most_quiet)
    });
    let [memory_one, memory_many] = hubs.each_ref().map(|hub| memory(hub.pid));
    let each = memory_many.saturating_sub(memory_one) as f64 / PEERS as f64;
    println!(
        "memory {:.1} MB with 1 peer, {:.1} with {PEERS}: {:.3} MB a peer",
        memory_one as f64 / 1e6,
        memory_many as f64 / 1e6,
        each / 1e6
    );
    let (metrics, lines, status) = many.asked();
    println!(
        "`nawa status --json` in {} ms, metrics ({lines} lines) in {} ms, the quickest of five",
        status.as_millis(),
        metrics.as_millis()
    );
    // What a busy machine does not change; times are for who reads them, but for those that are whole orders off.
    assert!(each < 1e6, "{each} bytes a peer");
    assert!(status.as_millis().max(metrics.as_millis()) < 2000);
    assert!(worst < 5.0, "linear work for each packet?");
    assert!(most_quiet < MOST_QUIET, "{PEERS} quiet peers take {most_quiet:.2} % of a processor");
}
