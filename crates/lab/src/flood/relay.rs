//! `flood-relay`: how long a message takes over a chain of nodes, and how much of that each relay's software takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use link::Adjacency;
use link::dcf::{DcfConfig, Phy, Position};

use crate::axes::{ALL, FULL, Grid, QUICK, cases};
use crate::clock;
use crate::datagram::{ETHERNET, HEADERS};
use crate::dcf::{self, Event};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Fields, Published, Ratio, RunOptions};
use crate::medium::{INTERFACE, Medium, address};
use crate::mesh::SPACING_M;
use crate::namespace::Namespace;
use crate::program::{self, Process};
use crate::statistics::{median, percentile};
use crate::system::{Means, start_nawa};
use crate::workload::{Measure, Sample};

use super::node::{MODES, Mode, Node, Pings, configuration, format, ping};

pub(crate) const ABOUT: &str =
    "a message over 1 to 4 hops: one-way time, and each relay's delay at the medium";

/// Before anything counts.
const WARM_UP: u32 = 100;
/// What making a chain and its nodes takes.
const OVERHEAD: Duration = Duration::from_millis(500);
/// For an application to begin.
const LIMIT: Duration = Duration::from_secs(10);
/// A round trip over four hops, about.
const ROUND_TRIP: Duration = Duration::from_micros(400);
/// One over a hop of 802.11b at 1 Mbit/s, about.
const ROUND_TRIP_OF_A_HOP: Duration = Duration::from_micros(5000);

const RATIOS: [Ratio; 5] = [
    Ratio::new("of_application", "relay_delay_us", &[("mode", "application")]),
    Ratio::new("of_xdp_tx", "relay_delay_us", &[("mode", "xdp-tx")]),
    Ratio::new("node_of_xdp_tx", "relay_node_us", &[("mode", "xdp-tx")]),
    Ratio::new("of_no_tag", "relay_delay_us", &[("authenticated", "no")]),
    Ratio::new("of_no_listener", "relay_delay_us", &[("listening", "no")]),
];

/// Pings from one end of a chain to the other.
#[derive(Clone, Debug)]
pub struct RelayTest {
    /// Of the relays; the ends are `nawa` in the same mode, or in mode `driver` where the relays are not `nawa`.
    mode: Mode,
    hops: usize,
    /// 802.11b at 1 Mbit/s, the paper's, in place of links that take no time.
    on_dcf: bool,
    authenticated: bool,
    /// By what words for `nawa` an application of the relay's gets what is relayed, over two hops, if any does.
    listening: Option<&'static [&'static str]>,
    round_trips: u32,
}

/// Over more than two hops, two relays that forget would send a message to and fro for ever. Modes take turns, so that what else
/// the machine does hits them alike.
const GRIDS: [Grid; 8] = [
    Grid(ALL, &["medium=links authenticated=no listening=no hops=1,2,3,4 mode=driver,kernel,application"]),
    Grid(ALL, &["medium=links authenticated=no listening=no hops=2 mode=xdp-tx,driver-generic"]),
    Grid(ALL, &["medium=links authenticated=no listening=yes hops=2 mode=driver,driver-generic,application"]),
    Grid(ALL, &["medium=links authenticated=no listening=polls hops=2 mode=driver"]),
    Grid(QUICK, &["medium=links authenticated=yes listening=no hops=2 mode=driver,application"]),
    Grid(FULL, &["medium=links authenticated=yes listening=no hops=1,2,3,4 mode=driver,application"]),
    Grid(QUICK, &["medium=dcf authenticated=no listening=no hops=2 mode=driver,kernel,application"]),
    Grid(FULL, &["medium=dcf authenticated=no listening=no hops=1,2,3,4 mode=driver,kernel,application"]),
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let cases = cases(&GRIDS, options.size, |cell| {
        let (hops, on_dcf) = (cell.get("hops")?, cell.text("medium") == "dcf");
        // On the air a round trip takes a hundred times as long.
        let (round_trip, round_trips) = match on_dcf {
            true => (ROUND_TRIP_OF_A_HOP * hops, options.size.of(50, 300, 2000)),
            false => (ROUND_TRIP, options.size.of(500, 2000, 10_000)),
        };
        let workload = RelayTest {
            mode: cell.one_of("mode", &MODES)?,
            hops: hops as usize,
            on_dcf,
            authenticated: cell.text("authenticated") == "yes",
            listening: cell.one_of("listening", &LISTENING)?,
            round_trips,
        };
        let key = cell.key("mode hops medium authenticated listening");
        Ok(Case::new(key, workload, OVERHEAD + round_trip * round_trips))
    })?;
    // Table 1: from the receive interrupt's entry to the transmit command.
    let published = [970.0, 950.0, 350.0];
    let paper = Published::row("mode=application,kernel,driver hops=2", "relay_delay_us", &published);
    Ok(Experiment { paper, ..Experiment::of(cases, options.size.of(2, 9, 9), &RATIOS, &NOTES) })
}

const LISTENING: [(&str, Option<&[&str]>); 3] = [
    ("no", None),
    ("yes", Some(&["flood", "recv", INTERFACE])),
    ("polls", Some(&["flood", "recv", INTERFACE, "--busy-poll"])),
];

const NOTES: [&str; 9] = [
    "one_way_us: half the mean round trip of `nawa flood ping` with 100 bytes, as in the paper; p99_us: half of the \
     round trip's 99th percentile",
    "relay_delay_us: median over all relays and both directions of the time from a message's coming into the medium to \
     its coming in again from the relay; relay_mean_us and relay_p99_us: of the same; relay_node_us: without the medium's \
     own part, from the message's leaving the medium towards the relay on",
    "on a veth there is no interrupt: a relay in driver or kernel runs in the softirq of whoever sent, and what the paper \
     measured, relaying in a hard interrupt, is not in these figures",
    "xdp-tx: in place of the relay an XDP program that sends every frame back and does nothing else",
    "driver-generic: the same program above a driver that refuses XDP, as radios' drivers do (generic XDP)",
    "authenticated: wire version 1 with a key; mode kernel cannot check tags",
    "listening: `nawa flood recv` runs in the relay and is woken by each answer, for which alone the delays are then; polls: it \
     looks again and again (--busy-poll); pings themselves are delivered to nobody but the node that they are for",
    "medium dcf: 802.11b's broadcasts at 1 Mbit/s, 1.5 ms for each of these frames, on the lab's 802.11 model in real time; \
     relay_delay_us is then from the thread's handing the frame to the relay to its taking it from there, waking included",
    "published (table 1, a Pentium D and 802.11b): 970, 950 and 350 us; the text says over 70 % less, the table 64 %",
];

impl Measure for RelayTest {
    const PROGRAMS: &'static [&'static str] = &["ethtool", "nft"];

    fn measure(&self, means: &Means, seed: u64) -> Result<Sample> {
        if self.on_dcf { measure_on_dcf(self, means, seed) } else { measure_on_links(self, means) }
    }
}

fn measure_on_links(test: &RelayTest, means: &Means) -> Result<Sample> {
    let medium = Medium::build(&Adjacency::chain(test.hops + 1), true)?;
    let network = test.authenticated.then(|| means.identity("flood")).transpose()?;
    let key = network.map(|network| network.key_file);
    let mut nodes = start(&medium, test, key.as_deref(), means)?;
    let listener = test.listening.map(|args| listen(&medium, 1, args, means)).transpose()?;
    let pings = |count| ping(medium.node(0), INTERFACE, test.hops, count, means);
    pings(WARM_UP)?;
    medium.forget_delays()?;
    let round_trips = pings(test.round_trips)?;
    nodes.iter_mut().try_for_each(Node::check)?;
    drop(listener);
    Ok(sample(&round_trips, relays(&medium, test)?))
}

fn measure_on_dcf(test: &RelayTest, means: &Means, seed: u64) -> Result<Sample> {
    let stations = Position::chain(test.hops + 1, SPACING_M);
    let mut medium = dcf::Medium::build(DcfConfig::new(Phy::b1(), stations), seed)?;
    medium.take_from_drivers()?;
    let interface = dcf::INTERFACE;
    let start = |(node, host): (usize, &Namespace)| {
        host.ip(&[format!("addr add {}/24 brd 10.99.0.255 dev {interface}", address(node))])?;
        let text = configuration(interface, node, test.mode, None, "");
        start_nawa(means, host, &[], &format!("n{node}"), &text)
    };
    let mut nodes = medium.nodes().iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
    let pings = |count| ping(medium.node(0), interface, test.hops, count, means);
    pings(WARM_UP / 10)?;
    medium.log()?;
    let round_trips = pings(test.round_trips)?;
    nodes.iter_mut().try_for_each(Process::check)?;
    let delays = delays(&medium.log()?, test);
    Ok(sample(&round_trips, of_delays(&delays)))
}

/// How long each relay took for each message, in the order of time.
fn delays(events: &[Event], test: &RelayTest) -> Vec<Duration> {
    let before = ETHERNET + if test.mode.is_udp() { HEADERS } else { 0 };
    let mut heard = BTreeMap::new();
    let mut delays = Vec::new();
    for event in events.iter().filter(|event| (1..test.hops).contains(&event.node)) {
        let Some(header) = event.head.get(before..).and_then(|frame| format().header(frame)) else {
            continue;
        };
        let message = (event.node, header.id, header.epoch, header.seq);
        if event.heard {
            heard.entry(message).or_insert(Some(event.time));
        } else if let Some(came) = heard.get_mut(&message).and_then(Option::take) {
            delays.push(event.time - came);
        }
    }
    delays
}

fn sample(round_trips: &Pings, relays: Fields<f64>) -> Sample {
    let &Pings { rtt_mean_us, rtt_p99_us, sent, received } = round_trips;
    let mut sample = Sample::from(vec![("one_way_us", rtt_mean_us / 2.0), ("p99_us", rtt_p99_us / 2.0)]);
    sample.add(relays);
    let lost = sent.saturating_sub(received);
    sample.remark = (lost > 0).then(|| format!("{lost} pings of a run were not answered"));
    sample
}

fn start(medium: &Medium, test: &RelayTest, key: Option<&Path>, means: &Means) -> Result<Vec<Node>> {
    let mode = |node| match test.mode {
        Mode::XdpTx | Mode::Packet | Mode::Generic if node == 0 || node == test.hops => Mode::Driver,
        mode => mode,
    };
    (0..=test.hops).map(|node| Node::start(medium, node, mode(node), key, means)).collect()
}

/// An application at `node`, which listens when this returns.
fn listen(medium: &Medium, node: usize, args: &[&str], means: &Means) -> Result<Process> {
    let process = Process::start(medium.node(node), means.nawa, args)?;
    let listens = || {
        let status = program::status(medium.node(node), means.nawa).ok()?;
        (status["flood"][0]["receivers"].as_u64() > Some(0)).then_some(())
    };
    clock::within(LIMIT, "`nawa flood recv` does not listen", listens).map(|()| process)
}

/// None over one hop: nobody relays.
fn relays(medium: &Medium, test: &RelayTest) -> Result<Fields<f64>> {
    let relayed = medium.relays()?;
    let delivered = |source: u32| test.listening.is_none() || source as usize == test.hops + 1;
    let between =
        relayed.iter().filter(|relayed| (1..test.hops).contains(&relayed.node) && delivered(relayed.source));
    let (hops, own): (Vec<_>, Vec<_>) = between.map(|relayed| (relayed.hop, us(relayed.relay))).unzip();
    let mut metrics = of_delays(&hops);
    metrics.extend((!own.is_empty()).then(|| ("relay_node_us", median(own))));
    Ok(metrics)
}

fn of_delays(delays: &[Duration]) -> Fields<f64> {
    let Some(p99) = percentile(delays, 99) else { return Vec::new() };
    let all: Vec<f64> = delays.iter().copied().map(us).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    vec![("relay_delay_us", median(all)), ("relay_mean_us", mean), ("relay_p99_us", us(p99))]
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
