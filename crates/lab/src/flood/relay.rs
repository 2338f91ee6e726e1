//! `flood-relay`: how long a message takes over a chain of nodes, and how much of that each relay's software takes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use link::Adjacency;
use serde_json::Value;

use crate::clock;
use crate::error::Error;
use crate::experiment::{Experiment, Fields, Published, Ratio, Reference, RunOptions, SideBySide, Size};
use crate::medium::{INTERFACE, Medium, MediumConfig};
use crate::program::{Process, output};
use crate::runner::Sample;
use crate::statistics::median;
use crate::system::{KeyPair, Means, write_key};

use super::node::{Mode, Node};
use super::ping::{Pings, ping};
use super::{Test, case};

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
    authenticated: bool,
    /// Whether an application of the relay's gets what is relayed; over two hops.
    listening: bool,
    round_trips: u32,
}

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (round_trips, repeats) = match options.size {
        Size::Quick => (500, 9),
        Size::Normal => (2000, 9),
        Size::Paper => (10_000, 9),
    };
    let cases = cells(options.size).into_iter().map(|(mode, hops, authenticated, listening)| {
        let key: Fields<Value> = vec![
            ("mode", mode.name().into()),
            ("hops", hops.into()),
            ("authenticated", if authenticated { "yes" } else { "no" }.into()),
            ("listening", if listening { "yes" } else { "no" }.into()),
        ];
        let test = RelayTest { mode, hops, authenticated, listening, round_trips };
        case(key, Test::Relay(test), OVERHEAD + ROUND_TRIP * round_trips)
    });
    Ok(Experiment {
        name: "flood-relay",
        cases: cases.collect(),
        side_by_side: SideBySide::Cases(1),
        repeats,
        ratios: RATIOS.to_vec(),
        pooled: None,
        paper: paper(),
        notes: NOTES.map(str::to_owned).to_vec(),
    })
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

const NOTES: [&str; 7] = [
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
    "published (table 1, a Pentium D and 802.11b): 970, 950 and 350 us; the text says over 70 % less, the table 64 %",
];

pub(super) fn measure(test: &RelayTest, means: &Means) -> Result<Sample, Error> {
    let config = MediumConfig { timed_wire: Some(1), ..MediumConfig::default() };
    let medium = Medium::build(&Adjacency::chain(test.hops + 1), config)?;
    let key = test.authenticated.then(|| key_file(means)).transpose()?;
    let mut nodes = start(&medium, test, key.as_deref(), means)?;
    let listener = test.listening.then(|| listen(&medium, 1, means)).transpose()?;
    let pings = |count| ping(&medium, 0, test.hops, count, means);
    pings(WARM_UP)?;
    medium.forget_delays()?;
    let round_trips = pings(test.round_trips)?;
    nodes.iter_mut().try_for_each(Node::check)?;
    drop(listener);
    let mut metrics = one_way(&round_trips);
    metrics.extend(relays(&medium, test)?);
    let remark =
        (round_trips.lost > 0).then(|| format!("{} pings of a run were not answered", round_trips.lost));
    Ok(Sample { metrics, remark, ..Sample::default() })
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
    if hop.is_empty() {
        return Ok(Vec::new());
    }
    hop.sort_unstable_by(f64::total_cmp);
    let metrics = [
        ("relay_delay_us", median(hop.clone())),
        ("relay_mean_us", hop.iter().sum::<f64>() / hop.len() as f64),
        ("relay_p99_us", hop[hop.len() * 99 / 100]),
        ("relay_node_us", median(own)),
    ];
    Ok(metrics.map(|(name, value)| (name.to_owned(), value)).to_vec())
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
