//! Links as people bond them, and what flows get on them: through the tunnel, and over each link alone.

#![allow(dead_code, reason = "each user uses a part of this")]

pub mod fetches;
pub mod network;

use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use link::notation::{BONDS, NotationError, Ways, links};
use link::{
    Aqm, Arq, Bitrate, ByteCount, Capacity, CellularConfig, Jitter, LinkConfig, Loss, PolicerConfig,
    Probability, Queue, Reorder, Trace,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcp_sim::{Call, Config, CongestionControl, Connection, Hosts, LinkPair, Network, Ping, Socket};
use tunnel::Scheduler;

use self::network::{Marked, outsider};
use crate::sim::{Busy, Net, Options, inner};

/// Of an IPv4 and a UDP header: links count IP packets here, as the emulator does whose figures these are compared with.
const AROUND: usize = 28;
/// The links' own MTU.
const MTU: u16 = 1500;
/// The tunnel comes up and finds its MTU.
const SETTLE: Duration = Duration::from_secs(4);
/// Pings alone.
const IDLE: Duration = Duration::from_secs(4);
/// Flows beside the tunnel begin so much earlier.
const BEFORE: Duration = Duration::from_secs(2);
const PING_EVERY: Duration = Duration::from_millis(50);
const CALL_EVERY: Duration = Duration::from_millis(20);
/// How often what arrived is looked at.
const STEP: Duration = Duration::from_millis(5);

/// A set of links.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// What the best link alone gives a flow of the kernel's CUBIC and BBR (6.18, one run of 12 s each), Mbit/s.
    pub kernel: Option<[f64; 2]>,
    pub links: Vec<Ways>,
    /// With outer addresses of IPv6.
    pub v6: bool,
}

/// [`Case::kernel`] of those of [`BONDS`] that are measured here.
const KERNEL: [(&str, [f64; 2]); 23] = [
    ("baseline", [47.6, 46.5]),
    ("rtt_40", [47.6, 46.6]),
    ("rtt_70", [47.6, 46.4]),
    ("rtt_120", [47.6, 46.5]),
    ("rtt_320", [47.6, 46.6]),
    ("jit_5", [47.3, 45.8]),
    ("jit_20", [32.9, 42.6]),
    ("loss_05", [7.0, 45.9]),
    ("loss_2", [2.2, 45.4]),
    ("bw_4to1", [47.6, 46.4]),
    ("bw_10to1", [94.6, 92.5]),
    ("dual_lte", [4.6, 36.9]),
    ("fiber_lte", [284., 282.]),
    ("lte_starlink", [35.7, 45.2]),
    ("lte_geo", [37.5, 36.5]),
    ("congested", [1.0, 15.4]),
    ("three", [9.5, 13.2]),
    ("50+10", [48.2, 47.2]),
    ("lossy30", [9.6, 9.3]),
    ("sat+dsl", [12.1, 10.2]),
    ("shallow", [17.5, 18.3]),
    ("tiny", [0.65, 0.63]),
    ("bloat", [7.6, 7.4]),
];

/// The named cases.
pub fn cases() -> Vec<Case> {
    let case = |(name, kernel): (&str, _)| {
        let (_, links) = BONDS.iter().find(|(known, _)| *known == name).expect("a bond of that name");
        Case { name: name.into(), kernel: Some(kernel), ..given(links).expect("links") }
    };
    KERNEL.map(case).into()
}

/// Links as they are written.
pub fn given(text: &str) -> Result<Case, NotationError> {
    Ok(Case { name: "given".into(), kernel: None, links: links(text)?, v6: false })
}

/// One way of a link: Mbit/s, one-way ms, and what the queue holds, in packets.
fn link(mbps: f64, delay: f64, packets: usize) -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(mbps)),
        delay: ms(delay),
        queue: Queue::Packets(packets),
        ..LinkConfig::default()
    }
}

/// Two or three links by chance: rates and delays as likely in each octave, losses mostly small, order-keeping jitter of up
/// to the delay on half of them.
pub fn random(seed: u64) -> Case {
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(seed));
    let count = 2 + usize::from(chance.unit() < 0.4);
    let links = (0..count).map(|_| chance.link()).collect();
    Case::new(format!("random {seed}"), links)
}

/// One link by chance whose way back carries a tenth to a hundredth of it; half of them with outer addresses of IPv6.
pub fn thin(seed: u64) -> Case {
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(seed));
    let (mbps, delay) = (chance.logarithmic(2.0, 100.0), chance.logarithmic(5.0, 150.0));
    let there = link(mbps, delay, chance.logarithmic(20.0, 400.0) as usize);
    let ratio = chance.logarithmic(10.0, 100.0);
    let back = link(mbps / ratio, delay, chance.logarithmic(10.0, 200.0) as usize);
    Case { name: format!("thin {seed}"), kernel: None, links: vec![(there, back)], v6: seed % 2 == 1 }
}

/// Two or three links by chance, each with one of the troubles of the field.
pub fn rough(seed: u64) -> Case {
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(seed));
    let count = 2 + usize::from(chance.unit() < 0.4);
    let links = (0..count).map(|at| chance.trouble(seed + at as u64)).collect();
    Case::new(format!("rough {seed}"), links)
}

struct Chance(ChaCha8Rng);

impl Chance {
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn logarithmic(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.unit())
    }

    fn link(&mut self) -> LinkConfig {
        let (mbps, delay, packets) =
            (self.logarithmic(0.3, 300.0), self.logarithmic(2.0, 600.0), self.logarithmic(10.0, 1000.0));
        let jitter = if self.unit() < 0.5 { 0.0 } else { delay.min(40.0) * self.unit() };
        let loss = if self.unit() < 0.5 { 0.0 } else { 30.0 * self.unit().powi(4) };
        let jitter = if jitter > 0.0 { Jitter::HalfNormal(ms(jitter)) } else { Jitter::None };
        let loss = Loss::Bernoulli(share(loss / 100.0));
        LinkConfig { jitter, loss, ..link(mbps, delay, packets as usize) }
    }

    /// Bursts of loss, held-back frames, reordering jitter, a cell, steps of delay, a policer, stops, a managed queue, copies and damage,
    /// or repeats by the link itself.
    fn trouble(&mut self, seed: u64) -> LinkConfig {
        let (mbps, delay) = (self.logarithmic(0.5, 100.0), self.logarithmic(3.0, 150.0));
        let mut link = link(mbps, delay, self.logarithmic(10.0, 1000.0) as usize);
        match (self.unit() * 10.0) as u32 {
            0 => {
                link.loss = Loss::gilbert_elliott(share(0.03 * self.unit()), self.logarithmic(2.0, 30.0))
                    .unwrap_or_default()
            }
            1 => {
                let extra_delay = ms(self.logarithmic(3.0, 60.0));
                link.reorder = Some(Reorder { probability: share(0.1 * self.unit()), extra_delay });
            }
            2 => link.jitter = Jitter::HalfNormalReordering(ms(delay.min(20.0) * self.unit())),
            3 => {
                let mean = Bitrate::from_mbps(mbps);
                let config = CellularConfig { mean, bunched: self.unit() < 0.5, ..CellularConfig::default() };
                link.capacity = Capacity::Trace(Arc::new(Trace::cellular(seed, &config)));
            }
            4 => {
                let longer = ms(self.logarithmic(delay, 4.0 * delay));
                let every = ms(self.logarithmic(1000.0, 8000.0));
                link.delay_steps = vec![(every, link.delay), (every, longer)];
            }
            5 => {
                link.policer = Some(policed(mbps * (0.1 + 0.6 * self.unit()), self.logarithmic(10.0, 300.0)))
            }
            6 => {
                let (every, length) = (self.logarithmic(1000.0, 10000.0), self.logarithmic(50.0, 1000.0));
                link.blackouts =
                    (1..40).map(|at| ms(every * f64::from(at))..ms(every * f64::from(at) + length)).collect();
            }
            7 => link.aqm = Some(if self.unit() < 0.5 { Aqm::CODEL } else { Aqm::PIE }),
            8 => {
                (link.duplicate, link.corrupt) = (share(0.02 * self.unit()), share(0.01 * self.unit()));
                link.loss_after_queue = true;
            }
            _ => {
                link.arq = Some(Arq { attempts: 7, retry_delay: ms(self.logarithmic(1.0, 20.0)) });
                link.loss = Loss::Bernoulli(share(0.3 * self.unit()));
            }
        }
        link
    }
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

fn share(value: f64) -> Probability {
    Probability::new(value).unwrap_or(Probability::ZERO)
}

/// A policer of so many Mbit/s that lets a burst of so many kB pass.
pub fn policed(mbps: f64, kilobytes: f64) -> PolicerConfig {
    PolicerConfig { rate: Bitrate::from_mbps(mbps), burst: ByteCount((kilobytes * 1e3) as u64) }
}

/// LTE whose rate swings and stops, Wi-Fi that fades, and a satellite: the links of the lab's demo.
pub fn demo(seed: u64) -> Case {
    let lte = LinkConfig {
        capacity: Capacity::Trace(Arc::new(Trace::cellular(seed, &CellularConfig::default()))),
        queue: Queue::Bytes(500_000),
        ..link(10., 45., 0)
    };
    let fades = Loss::GilbertElliott {
        good_to_bad: share(0.04 / 0.96 / 5.0),
        bad_to_good: share(0.2),
        loss_good: Probability::ZERO,
        loss_bad: share(0.5),
    };
    let wifi = LinkConfig { loss: fades, ..link(15., 10., 100) };
    let links = vec![lte, wifi, link(5., 150., 100)];
    Case::new(format!("demo {seed}"), links)
}

impl Case {
    /// Links that are alike both ways.
    fn new(name: String, links: Vec<LinkConfig>) -> Case {
        let links = links.into_iter().map(|link| (link.clone(), link)).collect();
        Case { name, kernel: None, links, v6: false }
    }

    /// What the kernel gives a flow of this kind on the best link.
    pub fn kernel(&self, control: CongestionControl) -> Option<f64> {
        self.kernel.map(|figures| figures[usize::from(control == CongestionControl::Bbr)])
    }

    /// Its links, as in the tables: Mbit/s @ one-way ms ± jitter, loss, queue.
    pub fn describe(&self) -> String {
        let one = |link: &LinkConfig| {
            let rate = match link.capacity {
                Capacity::Fixed(rate) => rate.as_mbps(),
                Capacity::Trace(ref trace) => trace.mean().as_mbps(),
                Capacity::Unlimited => f64::INFINITY,
            };
            let jitter = match link.jitter {
                Jitter::HalfNormal(sigma) | Jitter::HalfNormalReordering(sigma) => {
                    format!("±{:.0}", sigma.as_secs_f64() * 1e3)
                }
                _ => String::new(),
            };
            let loss = if link.loss.mean() == 0.0 {
                String::new()
            } else {
                format!(" {:.1}%", link.loss.mean() * 100.0)
            };
            let queue = match link.queue {
                Queue::Packets(packets) => format!(" q{packets}"),
                Queue::Bytes(_) => String::new(),
            };
            let troubles: [&dyn Debug; 6] = [
                &link.delay_steps.get(1),
                &link.blackouts.first(),
                &link.reorder,
                &link.policer,
                &link.aqm,
                &link.arq,
            ];
            let troubles = troubles.map(|trouble| format!(" {trouble:?}")).into_iter();
            let troubles: String = troubles.filter(|trouble| trouble != " None").collect();
            let (delay, swings) =
                (link.delay.as_secs_f64() * 1e3, matches!(link.capacity, Capacity::Trace(_)));
            let swings = if swings { " swings" } else { "" };
            format!("{rate:.2}@{delay:.0}{jitter}{loss}{queue}{swings}{troubles}")
        };
        let ways = |(there, back): &Ways| {
            let [there, back] = [there, back].map(one);
            if there == back { there } else { format!("{there} back {back}") }
        };
        self.links.iter().map(ways).collect::<Vec<_>>().join(", ") + if self.v6 { ", IPv6" } else { "" }
    }
}

/// What is run over the links of a case.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub control: CongestionControl,
    pub flows: usize,
    /// Flows from the other end at the same time.
    pub against: usize,
    /// Flows of CUBIC over the first link alone that use no tunnel, and begin two seconds earlier.
    pub beside: usize,
    /// For how long, start included.
    pub time: Duration,
    /// The end that sends.
    pub from: usize,
    pub seed: u64,
    /// All paths go over the first link.
    pub shared: bool,
    /// The tunnel's ends run for so long and stand still for so long by turns, in the mean.
    pub busy: Option<[Duration; 2]>,
    /// A ping from either end beside the flows, and before them, and a call.
    pub probes: bool,
    /// The first flow's sender is printed each so often.
    pub show: Option<Duration>,
}

impl Default for Load {
    fn default() -> Load {
        let time = Duration::from_secs(12);
        Load {
            control: CongestionControl::Cubic,
            flows: 1,
            against: 0,
            beside: 0,
            shared: false,
            busy: None,
            time,
            from: 0,
            seed: 1,
            probes: true,
            show: None,
        }
    }
}

/// What was seen through a network.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Mbit/s that the receivers' applications got, all flows.
    pub goodput: f64,
    /// Bytes that each of them got.
    pub shares: Vec<f64>,
    /// Mbit/s of those from the other end, and of those beside the tunnel.
    pub against: f64,
    pub beside: f64,
    /// Round trips of pings, ms, in order of length, of both ends: without a flow, and beside it; and how many were lost.
    pub idle: Vec<f64>,
    pub loaded: Vec<f64>,
    pub pings_lost: usize,
    /// Share of a call's packets lost, and the longest time without one, ms; the worse way.
    pub call_loss: f64,
    pub call_gap: f64,
    /// The longest time in which no flow got anything, ms.
    pub stall: f64,
    /// Of the senders: time-outs and retransmissions.
    pub timeouts: u64,
    pub retransmitted: u64,
}

/// The value that a share of sorted ones stay below.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Flows over one link alone.
pub fn run_single((there, back): &Ways, load: &Load) -> Outcome {
    let mut pair = LinkPair::new(there.clone(), back.clone(), load.seed);
    measure(&mut pair, MTU, &Load { probes: false, ..*load })
}

/// Flows through the tunnel over all links.
pub fn run_bond(case: &Case, load: &Load) -> Outcome {
    run_net(&mut tunnel(case, load), load)
}

/// A tunnel over all links that has come up, on hosts that are as busy as a load says.
fn tunnel(case: &Case, load: &Load) -> Net {
    let mut case = case.clone();
    if load.shared {
        let first = case.links[0].clone();
        case.links.fill(first);
    }
    let mut net = net(&case, load.seed);
    net.shared = load.shared;
    net.busy = load.busy.map(|means| [0, 1].map(|end| Busy::new(2 * load.seed + end, means)));
    net
}

/// Flows through a tunnel that has come up.
pub fn run_net(net: &mut Net, load: &Load) -> Outcome {
    measure(net, inner_mtu(net), load)
}

/// The same, with packets that the hosts mark as `tos` says.
pub fn run_marked(net: &mut Net, tos: fn(&[u8]) -> u8, load: &Load) -> Outcome {
    let mtu = inner_mtu(net);
    measure(&mut Marked { network: net, tos }, mtu, load)
}

fn inner_mtu(net: &Net) -> u16 {
    net.ends[0].inner_mtu().min(net.ends[1].inner_mtu())
}

/// A tunnel over the links of a case that has come up.
pub fn net(case: &Case, seed: u64) -> Net {
    net_over(case.v6, case.links.clone(), seed)
}

/// A tunnel over links, there and back, that has come up.
pub fn net_of(links: Vec<Ways>, seed: u64) -> Net {
    net_over(false, links, seed)
}

/// The same with outer addresses of IPv6, if `v6`.
pub fn net_over(v6: bool, links: Vec<Ways>, seed: u64) -> Net {
    net_with(v6, links, seed, |_, _| ())
}

/// A change of configurations for [`net_with`]: all paths but the first are backups.
pub fn backups(_end: usize, config: &mut tunnel::Config) {
    config.peers[0].paths.iter_mut().skip(1).for_each(|path| path.backup = true);
}

/// The same with configurations changed by `tweak(end, configuration)`.
pub fn net_with(v6: bool, links: Vec<Ways>, seed: u64, tweak: impl Fn(usize, &mut tunnel::Config)) -> Net {
    let mut net = Net::with(&Options { scheduler: Scheduler::Auto, seed }, links, v6, tweak);
    let around = AROUND + 20 * usize::from(v6);
    net.around = around;
    net.tap = Some(Box::new(move |datagram| datagram.bytes.len() + around <= usize::from(MTU)));
    net.pass(SETTLE);
    net
}

fn measure(network: &mut impl Network, mtu: u16, load: &Load) -> Outcome {
    let mut hosts = Hosts::new([inner(0), inner(1)]);
    let idle_from = network.now();
    let from = idle_from
        + if load.probes {
            IDLE
        } else if load.beside > 0 {
            BEFORE
        } else {
            Duration::ZERO
        };
    // Pings and calls go on a little longer than what is measured.
    let end = from + load.time;
    if load.probes {
        for end_that_asks in 0..2 {
            // Not both at once.
            let start = idle_from + PING_EVERY / 2 * end_that_asks;
            hosts.pings.push((end_that_asks as usize, Ping::new(start, PING_EVERY, end)));
            let start = from + CALL_EVERY / 2 * end_that_asks;
            hosts.calls.push((end_that_asks as usize, Call::new(start, CALL_EVERY, end)));
        }
        tcp_sim::run(network, &mut hosts, from);
    }
    let connect = |at: Duration, sender: usize, control, mtu, port, ip: fn(usize) -> Ipv4Addr| {
        let socket = |end: usize, port: u16| Socket { ip: ip(end), port };
        let (near, far) = (socket(sender, port), socket(1 - sender, 5201));
        let config = Config { control, mtu, send: u64::MAX >> 8 };
        let caller = Connection::connect(at, config, near, far);
        let called = Connection::listen(Config { send: 0, ..config }, far, near);
        if sender == 0 { [caller, called] } else { [called, caller] }
    };
    for flow in 0..load.flows {
        hosts.connections.push(connect(from, load.from, load.control, mtu, 5000 + flow as u16, inner));
    }
    for flow in 0..load.against {
        hosts.connections.push(connect(from, 1 - load.from, load.control, mtu, 5500 + flow as u16, inner));
    }
    for flow in 0..load.beside {
        let (at, port) = (from - BEFORE, 6000 + flow as u16);
        hosts.connections.push(connect(at, load.from, CongestionControl::Cubic, MTU, port, outsider));
    }
    // One end of each sends nothing.
    let counts = |hosts: &Hosts| -> Vec<f64> {
        hosts.connections.iter().map(|ends| (ends[0].received() + ends[1].received()) as f64).collect()
    };
    let mbps = |bytes: &[f64]| bytes.iter().sum::<f64>() * 8.0 / load.time.as_secs_f64() / 1e6;
    let (mut shares, mut stall) = (Vec::new(), Duration::ZERO);
    let arrived = |hosts: &Hosts| -> Option<Duration> {
        hosts
            .connections
            .iter()
            .take(load.flows)
            .map(|ends| ends[1 - load.from].established())
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .max()
    };
    while arrived(&hosts).is_none() && network.now() < end {
        tcp_sim::run(network, &mut hosts, network.now() + STEP);
    }
    // The receiver's clock starts when it knows of the connection.
    let before = counts(&hosts).split_off(load.flows + load.against);
    if let Some(begin) = arrived(&hosts) {
        stall = run_and_show(network, &mut hosts, begin + load.time, load);
        shares = counts(&hosts);
    }
    if load.probes {
        let now = network.now();
        tcp_sim::run(network, &mut hosts, now + Duration::from_secs(2));
    }
    let beside = shares.split_off((load.flows + load.against).min(shares.len()));
    let against = shares.split_off(load.flows.min(shares.len()));
    let outcome = outcome(&hosts, load, [idle_from, from, end]);
    let (goodput, against, beside) = (mbps(&shares), mbps(&against), mbps(&beside) - mbps(&before));
    Outcome { goodput, shares, against, beside, stall: stall.as_secs_f64() * 1e3, ..outcome }
}

/// Lets everything happen up to `until`, says how the first flow's sender does meanwhile, and for how long at most nothing
/// arrived.
fn run_and_show(network: &mut impl Network, hosts: &mut Hosts, until: Duration, load: &Load) -> Duration {
    let (mut got, mut since, mut stall, mut shown) = (0, network.now(), Duration::ZERO, network.now());
    while network.now() < until {
        let now = (network.now() + STEP).min(until);
        tcp_sim::run(network, hosts, now);
        let received =
            hosts.connections.iter().take(load.flows).map(|ends| ends[1 - load.from].received()).sum();
        if received > got {
            (got, since) = (received, now);
        }
        stall = stall.max(now - since);
        if load.show.is_some_and(|every| now >= shown + every) {
            shown = now;
            show(hosts, load, now);
        }
    }
    stall
}

fn show(hosts: &Hosts, load: &Load, now: Duration) {
    let Some(sender) = hosts.connections[0][load.from].sender() else { return };
    let rtt = sender.srtt().unwrap_or_default().as_secs_f64() * 1e3;
    let (threshold, window) = (sender.ssthresh(), sender.receive_window() / 1000);
    let received = hosts.connections[0][1 - load.from].received() / 1000;
    println!(
        "  at {:.2} s received {received} kB, cwnd {} of {threshold:?}, in flight {}, window {window} kB, rtt {rtt:.0} ms, {:?}",
        now.as_secs_f64(),
        sender.cwnd(),
        sender.in_flight(),
        sender.counters(),
    );
}

fn outcome(hosts: &Hosts, load: &Load, [idle_from, from, end]: [Duration; 3]) -> Outcome {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut outcome = Outcome::default();
    for (_, ping) in &hosts.pings {
        outcome.idle.extend(ping.round_trips(idle_from, from).0.into_iter().map(ms));
        let (loaded, lost) = ping.round_trips(from, end);
        outcome.loaded.extend(loaded.into_iter().map(ms));
        outcome.pings_lost += lost;
    }
    outcome.idle.sort_by(f64::total_cmp);
    outcome.loaded.sort_by(f64::total_cmp);
    for (_, call) in &hosts.calls {
        let (sent, lost, gap) = call.outcome(from, end);
        outcome.call_loss = outcome.call_loss.max(lost as f64 / sent.max(1) as f64);
        outcome.call_gap = outcome.call_gap.max(ms(gap));
    }
    for sender in hosts.connections.iter().take(load.flows).filter_map(|ends| ends[load.from].sender()) {
        outcome.timeouts += sender.counters().timeouts;
        outcome.retransmitted += sender.counters().retransmitted;
    }
    outcome
}
