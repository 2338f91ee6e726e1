//! `flood-reach`: how many a message reaches and how many frames that takes, pure against suppressed, in virtual time.

use std::time::Duration;

use flood::suppression::Rules;
use link::dcf::{self, DcfConfig, Phy, Reach};
use link::{Adjacency, Bitrate, Capacity, Jitter, LinkConfig, Position, Probability, Walk};

use crate::axes::{ALL, FULL, Grid, cases};
use crate::datagram::ETHERNET;
use crate::dcf::Medium;
use crate::error::{Error, Result};
use crate::ether::Ether;
use crate::experiment::{Case, Experiment, Ratio, RunOptions};
use crate::network::percent_lost;
use crate::system::Means;
use crate::workload::{Measure, Sample};

use super::real;
use super::simulation::{Flooded, Simulation, TTL};

pub(crate) const ABOUT: &str =
    "flooding networks of 100 nodes and more: share reached, frames per message, pure and suppressed";

/// The paper's message.
const MESSAGE_BYTES: usize = 100;
/// 802.11b's broadcast rate, the paper's.
const RATE: Bitrate = Bitrate::from_bps(1_000_000);
/// Bytes of a frame of wire version 1 before its data.
const HEADER: usize = 24;
/// Messages of one loaded network; as many as nodes send about a frame each, for them to learn the medium, come before.
const LOADED: u64 = 100;
const LEARNING: u64 = 20;
/// Networks, and one message in each, that make one sample.
const NETWORKS: u64 = 50;
/// So many daemons a machine of two processors starts within some seconds.
const REAL_NODES: usize = 30;
/// Of delayed links, which hold each frame back by so much, and by up to as much again.
const DELAY: Duration = Duration::from_millis(2);
/// How far nodes that walk hear each other, in sides of the square: 100 nodes then have about 20 neighbours.
const WALK_RADIUS: f64 = 0.27;
/// In sides of the square per second: 30 m/s if a side is 1 km.
const WALK_SPEED: f64 = 0.03;
/// Between the messages in a network of nodes that walk.
const WALK_PAUSE: Duration = Duration::from_secs(1);

const AGAINST_PURE: [Ratio; 1] =
    [Ratio::new("transmissions_of_pure", "transmissions_per_message", &[("algorithm", "pure")])];

/// One algorithm on random networks of one kind.
#[derive(Clone, Debug)]
pub struct ReachTest {
    nodes: usize,
    /// Neighbours in the mean, where nodes are scattered; without, they walk about.
    degree: Option<u32>,
    loss_percent: u32,
    rules: Rules,
    between: Between,
    /// `nawa` in namespaces, not the strand's core in virtual time.
    real: bool,
    /// The share of the medium that pure flooding of all messages asks for at one place; 0: one message at a time.
    load_percent: u32,
}

/// What lies between two nodes that hear each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    /// A link with loss.
    Prompt,
    /// Delay and jitter too. In virtual time, the network, the messages and the losses are those of real time.
    Delayed,
    /// 802.11b at 1 Mbit/s, the paper's: stations contend for the medium, and those that do not hear each other collide.
    Dcf,
}

/// Nodes that walk have no `degree` of their own. Pure flooding is what suppression is compared with.
const GRIDS: [Grid; 8] = [
    Grid(
        ALL,
        &[
            LINKS,
            "movement=none nodes:degree:loss_percent=100:20:0,100:20:20,100:8:0,100:8:20,300:20:20,30:12:20",
            BOTH,
        ],
    ),
    Grid(ALL, &[LINKS, "movement=walk nodes=100 loss_percent=20", BOTH]),
    Grid(ALL, &[REAL, "nodes=30 degree=12 loss_percent=20 delay_ms=0 clock=real", BOTH]),
    Grid(FULL, &[REAL, "nodes=30 degree=8 loss_percent=50 delay_ms=2 clock=virtual,real", BOTH]),
    Grid(FULL, &[REAL, "nodes=100 degree=20 loss_percent=20 delay_ms=0 clock=real", BOTH]),
    Grid(ALL, &[DCF, "load_percent=0 nodes=100 degree=20,8 loss_percent=0,20 clock=virtual", BOTH]),
    Grid(ALL, &[DCF, "load_percent=0 nodes=30 degree=12 loss_percent=0 clock=virtual,real", BOTH]),
    Grid(ALL, &[DCF, LOADS, "nodes=100 loss_percent=0 clock=virtual", BOTH]),
];
const LINKS: &str = "medium=links delay_ms=0 clock=virtual load_percent=0";
const REAL: &str = "medium=links load_percent=0 movement=none";
const DCF: &str = "medium=dcf delay_ms=0 movement=none";
const LOADS: &str = "degree:load_percent=20:10,20:50,14:50,10:10,10:50,8:10,8:25";
const BOTH: &str = "algorithm=pure,suppressed";

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let cases = cases(&GRIDS, options.size, |cell| {
        let walking = cell.text("movement") == "walk";
        let cell = if walking { cell.clone().with("degree", "about 20") } else { cell.clone() };
        let test = ReachTest {
            nodes: cell.get("nodes")?,
            degree: (!walking).then(|| cell.get("degree")).transpose()?,
            loss_percent: cell.get("loss_percent")?,
            rules: cell.one_of("algorithm", &[("pure", Rules::PURE), ("suppressed", Rules::SUPPRESSED)])?,
            between: match (cell.text("medium"), cell.text("delay_ms")) {
                ("dcf", _) => Between::Dcf,
                (_, "0") => Between::Prompt,
                _ => Between::Delayed,
            },
            real: cell.text("clock") == "real",
            load_percent: cell.get("load_percent")?,
        };
        let estimate = Duration::from_millis(if test.real { 300 } else { 10 }) * test.nodes as u32;
        Ok(Case::new(cell.key(KEY), test, estimate))
    })?;
    Ok(Experiment::of(cases, options.size.of(1, 9, 9), &AGAINST_PURE, &NOTES))
}

const KEY: &str = "algorithm nodes loss_percent degree movement medium delay_ms clock load_percent";

const NOTES: [&str; 8] = [
    "clock virtual: the strand's core on an emulated medium at 1 Mbit/s, without collisions if it is of links, each sample the mean of one \
     message of 100 bytes in each of 50 random connected networks (walk: of 50 messages, 1 s apart, whether connected or \
     not), each hearer losing frames independently",
    "clock real: `nawa` in mode driver in a namespace for each node, on one network a sample, 20 messages by `nawa flood \
     send`; new_frames of all nodes' status, and frames counted at the medium",
    "delay_ms: each frame is under way for so long, and up to as long again; with clock virtual then on the network, with the \
     messages and the losses of clock real, not on 50 networks",
    "medium dcf: 802.11b's broadcasts at 1 Mbit/s by the lab's model, preambles and contention included; nodes sense whom \
     they hear, so that others beside them are hidden, and frames collide; 30 nodes with clock virtual: as with delay_ms",
    "suppressed: threshold 3, enough 2, repeats 1, jitter 10 ms, chosen on other networks than these (docs/lab.md)",
    "transmissions_per_message counts all frames of all nodes, the source's and repeats included",
    "load_percent: 100 messages one after the other from everywhere, after 20 that do not count, on one network; pure flooding \
     of all would fill so much of the medium at one place if nothing collided; 0: one message on a network where nobody has sent",
    "last_node_ms: until the last of those that were reached; suppression pays for fewer frames with its jitter",
];

impl Measure for ReachTest {
    const PROGRAMS: &'static [&'static str] = &["ethtool"];

    /// The mean over [`NETWORKS`] messages.
    fn measure(&self, means: &Means, seed: u64) -> Result<Sample> {
        match self.degree.filter(|_| self.real) {
            Some(degree) => {
                let medium = match self.between {
                    Between::Dcf => Medium::build(stations(self, degree, seed)?, seed),
                    _ => Medium::of_links(&network(self, degree, seed)?, link(self), seed),
                };
                real::measure(medium?, self.rules, means)
            }
            None => simulate(self, seed),
        }
    }
}

fn simulate(test: &ReachTest, seed: u64) -> Result<Sample> {
    let messages = match (test.degree, test.between) {
        (None, _) => walking(test, seed),
        // As the same case in real time.
        (Some(degree), Between::Delayed) => one_network(test, degree, seed)?,
        (Some(degree), Between::Dcf) if test.nodes == REAL_NODES => one_network(test, degree, seed)?,
        (Some(degree), _) if test.load_percent > 0 => loaded(test, degree, seed)?,
        (Some(degree), _) => still(test, degree, seed)?,
    };
    let mean = |value: &dyn Fn(&Flooded) -> f64| {
        messages.iter().map(value).sum::<f64>() / messages.len().max(1) as f64
    };
    Ok(Sample::from(vec![
        ("reached_ratio", mean(&|message| message.reached as f64 / test.nodes as f64)),
        ("transmissions_per_message", mean(&|message| message.transmissions as f64)),
        ("last_node_ms", mean(&|message| message.last.as_secs_f64() * 1e3)),
    ]))
}

fn still(test: &ReachTest, degree: u32, seed: u64) -> Result<Vec<Flooded>> {
    let flood = |index| {
        let seed = seed.wrapping_mul(1_000_000).wrapping_add(index);
        let mut simulation = simulation(test, degree, seed)?;
        Ok(simulation.flood(seed as usize % test.nodes, MESSAGE_BYTES, TTL))
    };
    (0..NETWORKS).map(flood).collect()
}

/// Messages from everywhere, one after the other at a steady rate whether the one before has ended or not, of which the first do
/// not count.
fn loaded(test: &ReachTest, degree: u32, seed: u64) -> Result<Vec<Flooded>> {
    let mut simulation = simulation(test, degree, seed)?;
    let frame = Phy::b1().broadcast_time(ETHERNET + HEADER + MESSAGE_BYTES);
    let apart = frame * (degree + 1) * 100 / test.load_percent;
    let mut flood = |count: u64| {
        let from = |n: u64| ((seed.wrapping_add(n)).wrapping_mul(2_654_435_761) >> 7) as usize % test.nodes;
        let began = simulation.now();
        let messages: Vec<_> = (0..count).map(|n| (began + apart * n as u32, from(n))).collect();
        simulation.flood_all(&messages, MESSAGE_BYTES, TTL)
    };
    flood(LEARNING);
    Ok(flood(LOADED))
}

/// What [`real`] does, in virtual time.
fn one_network(test: &ReachTest, degree: u32, seed: u64) -> Result<Vec<Flooded>> {
    let mut simulation = simulation(test, degree, seed)?;
    let flood = |message| simulation.flood(real::source(message, test.nodes), real::text(message).len(), TTL);
    Ok((0..real::MESSAGES).map(flood).collect())
}

fn simulation(test: &ReachTest, degree: u32, seed: u64) -> Result<Simulation> {
    let ether = match test.between {
        Between::Dcf => Ether::dcf(stations(test, degree, seed)?, seed),
        _ => Ether::links(&network(test, degree, seed)?, link(test), seed),
    };
    Ok(Simulation::new(ether, test.nodes, test.rules, seed))
}

fn network(test: &ReachTest, degree: u32, seed: u64) -> Result<Adjacency> {
    let (places, radius) = places(test, degree, seed)?;
    Ok(Adjacency::within(&places, radius))
}

/// The same network of 802.11b stations: its radius is how far a broadcast is read, and sensed.
fn stations(test: &ReachTest, degree: u32, seed: u64) -> Result<DcfConfig> {
    let (places, radius) = places(test, degree, seed)?;
    let scale = Reach::default().receive_m / radius;
    let station = |place: &Position| dcf::Position { x: place.x * scale, y: place.y * scale };
    let config = DcfConfig::new(Phy::b1(), places.iter().map(station).collect());
    let loss = Probability::new(f64::from(test.loss_percent) / 100.0).unwrap_or(Probability::ONE);
    Ok(DcfConfig { loss, ..config })
}

fn places(test: &ReachTest, degree: u32, seed: u64) -> Result<(Vec<Position>, f64)> {
    let found = Position::scattered(test.nodes, degree.into(), seed);
    let none = || format!("no connected network of {} nodes of degree {degree} was found", test.nodes);
    found.ok_or_else(|| Error::program("flood-reach", none()))
}

fn walking(test: &ReachTest, seed: u64) -> Vec<Flooded> {
    let mut walk = Walk::new(test.nodes, WALK_SPEED, seed);
    let mut adjacency = |now| Adjacency::within(&walk.positions(now), WALK_RADIUS);
    let ether = Ether::links(&adjacency(Duration::ZERO), link(test), seed);
    let mut simulation = Simulation::new(ether, test.nodes, test.rules, seed);
    let flood = |index: u32| {
        simulation.set_adjacency(&adjacency(WALK_PAUSE * index));
        simulation.flood(index as usize % test.nodes, MESSAGE_BYTES, TTL)
    };
    (0..NETWORKS as u32).map(flood).collect()
}

fn link(test: &ReachTest) -> LinkConfig {
    let delay = if test.between == Between::Delayed { DELAY } else { Duration::ZERO };
    let (capacity, loss) = (Capacity::Fixed(RATE), percent_lost(test.loss_percent.into()));
    LinkConfig { capacity, loss, delay, jitter: Jitter::Uniform(delay), ..LinkConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        degree: Option<u32>,
        rules: Rules,
        loss_percent: u32,
        between: Between,
        load_percent: u32,
    ) -> [f64; 2] {
        let test = ReachTest { nodes: 100, degree, loss_percent, rules, between, real: false, load_percent };
        let sample = simulate(&test, 1).unwrap();
        [sample.metrics[0].1, sample.metrics[1].1]
    }

    #[test]
    fn on_a_medium_that_contends_suppression_takes_half_the_frames_and_reaches_as_many() {
        let run = |degree, load| {
            let of = |rules| run(Some(degree), rules, 0, Between::Dcf, load);
            [Rules::PURE, Rules::SUPPRESSED].map(of)
        };
        for (degree, load) in [(20, 10), (20, 50), (14, 10), (10, 10)] {
            let [pure, suppressed] = run(degree, load);
            // Pure flooding, which fails many, sends a frame for each node that it reaches.
            let for_each = |[reached, sent]: [f64; 2]| sent / reached;
            assert!(
                suppressed[0] >= 0.99 && for_each(suppressed) <= for_each(pure) / 2.0,
                "{pure:?} {suppressed:?}"
            );
        }
        for load in [10, 25] {
            let [pure, suppressed] = run(8, load);
            assert!(suppressed[1] < pure[1], "{pure:?} {suppressed:?}");
            assert!(load > 10 || suppressed[0] >= pure[0], "{pure:?} {suppressed:?}");
        }
    }

    #[test]
    fn nodes_that_walk_take_fewer_frames_with_suppression() {
        let walking = |rules| run(None, rules, 20, Between::Prompt, 0);
        let [pure, suppressed] = [Rules::PURE, Rules::SUPPRESSED].map(walking);
        assert!(suppressed[1] < pure[1] && suppressed[0] <= 1.0, "{pure:?} {suppressed:?}");
    }

    #[test]
    fn suppression_reaches_nearly_everybody_with_few_frames_where_a_fifth_is_lost() {
        // Virtual time and fixed seeds: these are no measurements, but what the code computes.
        let [reached, sent] = run(Some(20), Rules::SUPPRESSED, 20, Between::Prompt, 0);
        assert!(reached >= 0.99 && sent <= 40.0, "{reached} {sent}");
    }
}
