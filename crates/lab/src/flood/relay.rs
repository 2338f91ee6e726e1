//! `flood-relay`: how long a message takes over a chain of nodes, and how much of that each relay's software takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use link::Adjacency;
use link::dcf::{DcfConfig, Phy, Position};
use serde_json::Value;

use crate::air::Event;
use crate::clock;
use crate::dcf;
use crate::error::Error;
use crate::experiment::{
    Case, Experiment, Fields, Published, Ratio, Reference, RunOptions, SideBySide, Size,
};
use crate::medium::{INTERFACE, Medium, MediumConfig, address};
use crate::namespace::Namespace;
use crate::program::{Process, output};
use crate::statistics::median;
use crate::system::{KeyPair, Means, start_nawa, write_key};
use crate::workload::{Need, Prepared, Sample, Site, Workload};

use super::frames::format;
use super::mode::Mode;
use super::node::{Node, configuration};
use super::ping::{Pings, ping};

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
/// Between stations of 802.11, in metres: they hear their neighbours and sense nobody else.
const SPACING_M: f64 = 90.0;
/// What Ethernet, and in datagrams IP and UDP, put before a message.
const ETHERNET: usize = 14;
const DATAGRAM: usize = 28;

const RATIOS: [Ratio; 5] = [
    Ratio { name: "of_application", metric: "relay_delay_us", of: ("mode", Reference::Name("application")) },
    Ratio { name: "of_xdp_tx", metric: "relay_delay_us", of: ("mode", Reference::Name("xdp-tx")) },
    Ratio { name: "node_of_xdp_tx", metric: "relay_node_us", of: ("mode", Reference::Name("xdp-tx")) },
    Ratio { name: "of_no_tag", metric: "relay_delay_us", of: ("authenticated", Reference::Name("no")) },
    Ratio { name: "of_no_listener", metric: "relay_delay_us", of: ("listening", Reference::Name("no")) },
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
    /// Whether an application of the relay's gets what is relayed; over two hops.
    listening: bool,
    round_trips: u32,
}

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    // On the air a round trip takes a hundred times as long.
    let (round_trips, on_dcf, repeats) = match options.size {
        Size::Quick => (500, 50, 9),
        Size::Normal => (2000, 300, 9),
        Size::Paper => (10_000, 2000, 9),
    };
    let over_links = cells(options.size).into_iter().map(|(mode, hops, authenticated, listening)| {
        let test = RelayTest { mode, hops, on_dcf: false, authenticated, listening, round_trips };
        cell(test, ROUND_TRIP)
    });
    let over_dcf = dcf_cells(options.size).into_iter().map(|(mode, hops)| {
        let (authenticated, listening) = (false, false);
        let test = RelayTest { mode, hops, on_dcf: true, authenticated, listening, round_trips: on_dcf };
        cell(test, ROUND_TRIP_OF_A_HOP * hops as u32)
    });
    let cases = over_links.chain(over_dcf);
    Ok(Experiment {
        name: "flood-relay",
        cases: cases.collect(),
        side_by_side: SideBySide::Cases(1),
        repeats,
        ratios: RATIOS.to_vec(),
        paper: paper(),
        notes: NOTES.map(str::to_owned).to_vec(),
        ..Experiment::default()
    })
}

fn cell(test: RelayTest, round_trip: Duration) -> Case {
    let yes = |it| if it { "yes" } else { "no" };
    let key: Fields<Value> = vec![
        ("mode", test.mode.name().into()),
        ("hops", test.hops.into()),
        ("medium", if test.on_dcf { "dcf" } else { "links" }.into()),
        ("authenticated", yes(test.authenticated).into()),
        ("listening", yes(test.listening).into()),
    ];
    let estimate = OVERHEAD + round_trip * test.round_trips;
    Case { key, workload: test, estimate }.erase()
}

/// The paper's chains on the paper's medium.
fn dcf_cells(size: Size) -> Vec<(Mode, usize)> {
    let hops = if size == Size::Quick { 2..=2 } else { 1..=4 };
    let modes = [Mode::Driver, Mode::Kernel, Mode::Application];
    hops.flat_map(|hops| modes.map(|mode| (mode, hops))).collect()
}

/// Modes take turns, so that what else the machine does hits them alike.
fn cells(size: Size) -> Vec<(Mode, usize, bool, bool)> {
    let keyed_hops = if size == Size::Quick { 2..=2 } else { 1..=4 };
    let mut cells = Vec::new();
    for hops in 1..=4 {
        cells.extend([Mode::Driver, Mode::Kernel, Mode::Application].map(|mode| (mode, hops, false, false)));
        if hops == 2 {
            // Over more hops, two relays that forget would send a message to and fro for ever.
            cells.push((Mode::XdpTx, hops, false, false));
            cells.extend([Mode::Driver, Mode::Application].map(|mode| (mode, hops, false, true)));
        }
        if keyed_hops.contains(&hops) {
            cells.extend([Mode::Driver, Mode::Application].map(|mode| (mode, hops, true, false)));
        }
    }
    cells
}

/// Table 1: from the receive interrupt's entry to the transmit command.
fn paper() -> Vec<Published> {
    [(Mode::Application, 970.0), (Mode::Kernel, 950.0), (Mode::Driver, 350.0)]
        .map(|(mode, us)| Published {
            key: vec![("mode", mode.name().into()), ("hops", 2.into())],
            metrics: vec![("relay_delay_us", us)],
        })
        .to_vec()
}

const NOTES: [&str; 8] = [
    "one_way_us: half the mean round trip of `nawa flood ping` with 100 bytes, as in the paper; p99_us: half of the \
     round trip's 99th percentile",
    "relay_delay_us: median over all relays and both directions of the time from a message's coming into the medium to \
     its coming in again from the relay; relay_mean_us and relay_p99_us: of the same; relay_node_us: without the medium's \
     own part, from the message's leaving the medium towards the relay on",
    "on a veth there is no interrupt: a relay in driver or kernel runs in the softirq of whoever sent, and what the paper \
     measured, relaying in a hard interrupt, is not in these figures",
    "xdp-tx: in place of the relay an XDP program that sends every frame back and does nothing else",
    "authenticated: wire version 1 with a key; mode kernel cannot check tags",
    "listening: `nawa flood recv` runs in the relay and is woken by each answer, for which alone the delays are then; pings \
     themselves are delivered to nobody but the node that they are for",
    "medium dcf: 802.11b's broadcasts at 1 Mbit/s, 1.5 ms for each of these frames, on the lab's 802.11 model in real time; \
     relay_delay_us is then from the thread's handing the frame to the relay to its taking it from there, waking included",
    "published (table 1, a Pentium D and 802.11b): 970, 950 and 350 us; the text says over 70 % less, the table 64 %",
];

impl Workload for RelayTest {
    fn needs(&self) -> Vec<Need> {
        Need::programs(&["ethtool", "nft"])
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        Ok(Box::new(move || measure(self, &site.means(), site.seed)))
    }
}

fn measure(test: &RelayTest, means: &Means, seed: u64) -> Result<Sample, Error> {
    if test.on_dcf { measure_on_dcf(test, means, seed) } else { measure_on_links(test, means) }
}

fn measure_on_links(test: &RelayTest, means: &Means) -> Result<Sample, Error> {
    let config = MediumConfig { timed_wire: Some(1), ..MediumConfig::default() };
    let medium = Medium::build(&Adjacency::chain(test.hops + 1), config)?;
    let key = test.authenticated.then(|| key_file(means)).transpose()?;
    let mut nodes = start(&medium, test, key.as_deref(), means)?;
    let listener = test.listening.then(|| listen(&medium, 1, means)).transpose()?;
    let pings = |count| ping(medium.node(0), INTERFACE, test.hops, count, means);
    pings(WARM_UP)?;
    medium.forget_delays()?;
    let round_trips = pings(test.round_trips)?;
    nodes.iter_mut().try_for_each(Node::check)?;
    drop(listener);
    Ok(sample(&round_trips, relays(&medium, test)?))
}

fn measure_on_dcf(test: &RelayTest, means: &Means, seed: u64) -> Result<Sample, Error> {
    let stations = Position::chain(test.hops + 1, SPACING_M);
    let mut medium = dcf::Medium::build(DcfConfig::new(Phy::b1(), stations), seed)?;
    medium.take_from_drivers()?;
    let interface = dcf::INTERFACE;
    let start = |(node, host): (usize, &Namespace)| {
        host.ip(&[format!("addr add {}/24 brd 10.99.0.255 dev {interface}", address(node))])?;
        let text = configuration(interface, node, test.mode, None, "");
        start_nawa(means, host, &[], &format!("n{node}"), &text)
    };
    let mut nodes = medium.nodes().iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
    let pings = |count| ping(medium.node(0), interface, test.hops, count, means);
    pings(WARM_UP / 10)?;
    medium.log()?;
    let round_trips = pings(test.round_trips)?;
    nodes.iter_mut().try_for_each(Process::check)?;
    let delays = delays(&medium.log()?.events, test);
    Ok(sample(&round_trips, of_delays(delays)))
}

/// How long each relay took for each message, in the order of time, in microseconds.
fn delays(events: &[Event], test: &RelayTest) -> Vec<f64> {
    let before = ETHERNET + if test.mode.is_udp() { DATAGRAM } else { 0 };
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
            delays.push((event.time - came).as_nanos() as f64 / 1e3);
        }
    }
    delays
}

fn sample(round_trips: &Pings, relays: Vec<(String, f64)>) -> Sample {
    let mut metrics = one_way(round_trips);
    metrics.extend(relays);
    let remark =
        (round_trips.lost > 0).then(|| format!("{} pings of a run were not answered", round_trips.lost));
    Sample { metrics, remark, ..Sample::default() }
}

/// What all nodes of the network share.
fn key_file(means: &Means) -> Result<PathBuf, Error> {
    write_key(&KeyPair::generate(means.nawa)?, means.folder, "flood")
}

fn start(medium: &Medium, test: &RelayTest, key: Option<&Path>, means: &Means) -> Result<Vec<Node>, Error> {
    let mode = |node| match test.mode {
        Mode::XdpTx | Mode::Packet if node == 0 || node == test.hops => Mode::Driver,
        mode => mode,
    };
    (0..=test.hops).map(|node| Node::start(medium, node, mode(node), key, means)).collect()
}

fn one_way(pings: &Pings) -> Vec<(String, f64)> {
    vec![("one_way_us".into(), pings.mean_us / 2.0), ("p99_us".into(), pings.p99_us / 2.0)]
}

/// An application at `node`, which listens when this returns.
fn listen(medium: &Medium, node: usize, means: &Means) -> Result<Process, Error> {
    let process = Process::start(medium.node(node), means.nawa, &["flood", "recv", INTERFACE])?;
    let listens = || {
        let status = output(medium.node(node), means.nawa, &["status", "--json"]).ok()?;
        let status: Value = serde_json::from_str(&status).ok()?;
        (status["flood"][0]["receivers"].as_u64() > Some(0)).then_some(())
    };
    let late = || Error::Late { what: "`nawa flood recv` does not listen".into(), seconds: LIMIT.as_secs() };
    clock::poll_until(LIMIT, listens).map(|()| process).ok_or_else(late)
}

/// None over one hop: nobody relays.
fn relays(medium: &Medium, test: &RelayTest) -> Result<Vec<(String, f64)>, Error> {
    let relayed = medium.relays()?;
    let delivered = |source: u32| !test.listening || source as usize == test.hops + 1;
    let between =
        relayed.iter().filter(|relayed| (1..test.hops).contains(&relayed.node) && delivered(relayed.source));
    let (mut hop, mut own) = (Vec::new(), Vec::new());
    for relayed in between {
        hop.push(relayed.hop.as_nanos() as f64 / 1e3);
        own.push(relayed.relay.as_nanos() as f64 / 1e3);
    }
    let mut metrics = of_delays(hop);
    if !own.is_empty() {
        metrics.push(("relay_node_us".into(), median(own)));
    }
    Ok(metrics)
}

fn of_delays(mut delays: Vec<f64>) -> Vec<(String, f64)> {
    if delays.is_empty() {
        return Vec::new();
    }
    delays.sort_unstable_by(f64::total_cmp);
    let metrics = [
        ("relay_delay_us", median(delays.clone())),
        ("relay_mean_us", delays.iter().sum::<f64>() / delays.len() as f64),
        ("relay_p99_us", delays[delays.len() * 99 / 100]),
    ];
    metrics.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_is_there_in_every_size() {
        for size in [Size::Quick, Size::Normal, Size::Paper] {
            let cells = cells(size);
            for cell in [
                (Mode::Driver, 2, false, false),
                (Mode::Application, 2, false, false),
                (Mode::XdpTx, 2, false, false),
                (Mode::Driver, 2, true, false),
                (Mode::Driver, 2, false, true),
                (Mode::Kernel, 4, false, false),
            ] {
                assert!(cells.contains(&cell), "{cell:?}");
            }
            assert!(cells.iter().all(|&(mode, hops, ..)| mode != Mode::XdpTx || hops == 2));
        }
    }
}
