//! `flood-rate`: how many frames per second a node relays without loss, by where it relays them.

use std::time::Duration;

use serde_json::Value;

use crate::clock;
use crate::error::Error;
use crate::experiment::{Experiment, Fields, Ratio, Reference, RunOptions, SideBySide, Size};
use crate::medium::{Medium, MediumConfig};
use crate::runner::Sample;
use crate::system::Means;

use super::frames::frame;
use super::node::{Mode, Node};
use super::{Test, case};

pub(crate) const ABOUT: &str =
    "frames per second that one node relays without loss: driver, kernel, application";

/// The paper's message.
const MESSAGE_BYTES: usize = 100;
/// More is loss.
const LOSS: f64 = 0.001;
/// Frames per second that are tried first; then each time this much more.
const FIRST: f64 = 10_000.0;
const STEP: f64 = 1.15;
/// As many rates in a row that are not carried end the search: one alone may be the machine's.
const FAILURES: usize = 2;
/// Until a rate of about a million is not carried.
const STEPS: u32 = 33;
/// What the relay has still to send when the generator has ended.
const SETTLE: Duration = Duration::from_millis(30);

const MODES: [Mode; 5] = [Mode::Driver, Mode::Kernel, Mode::Application, Mode::Packet, Mode::XdpTx];

const RATIOS: [Ratio; 3] = [
    Ratio { name: "of_application", metric: "frames_per_s", of: ("mode", Reference::Name("application")) },
    Ratio {
        name: "of_packet_application",
        metric: "frames_per_s",
        of: ("mode", Reference::Name("packet-application")),
    },
    Ratio { name: "of_xdp_tx", metric: "frames_per_s", of: ("mode", Reference::Name("xdp-tx")) },
];

/// One relay under load.
#[derive(Clone, Debug)]
pub struct RateTest {
    mode: Mode,
    /// How long one rate is tried.
    probe: Duration,
}

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let probe = Duration::from_millis(if options.size == Size::Quick { 200 } else { 500 });
    let cases = MODES.map(|mode| {
        let key: Fields<Value> = vec![("mode", mode.name().into())];
        let estimate = (probe + SETTLE) * STEPS + Duration::from_millis(800);
        case(key, Test::Rate(RateTest { mode, probe }), estimate)
    });
    Ok(Experiment {
        name: "flood-rate",
        cases: cases.to_vec(),
        side_by_side: SideBySide::Cases(1),
        repeats: if options.size == Size::Quick { 3 } else { 9 },
        ratios: RATIOS.to_vec(),
        paper: Vec::new(),
        notes: NOTES.map(str::to_owned).to_vec(),
    })
}

const NOTES: [&str; 4] = [
    "generator, relay and sink on one medium, each heard by the next alone; messages of 100 bytes, each with the next sequence number, sent \
     from within the kernel (XDP); the highest rate at which less than 0.1 % of what left for the relay was not relayed",
    "on a veth a relay in driver or kernel runs on the generator's CPU and slows it down rather than lose frames: its \
     rate includes generating and carrying; programs have another CPU, if there is one",
    "packet-application: a program of the lab's with one packet socket and nothing but the relay; xdp-tx: a program that \
     sends every frame back, whatever it is",
    "no interrupt of a network card is in these figures",
];

pub(super) fn measure(test: &RateTest, means: &Means) -> Result<Sample, Error> {
    let medium = Medium::build(&link::Adjacency::one_way(3), MediumConfig::default())?;
    let _silent = [medium.attach(0, "sink")?, medium.attach(2, "sink")?];
    let mut relay = Node::start(&medium, 1, test.mode, None, means)?;
    let (mut rate, mut best, mut failures, mut fastest) = (FIRST, None, 0, 0.0);
    // From below: what has been too much may stay with a relay for a while, as in a set that is full.
    while failures < FAILURES {
        let probe = probe(&medium, test, rate)?;
        relay.check()?;
        if probe.is_carried() {
            best = best.into_iter().chain([probe.relayed_per_s]).reduce(f64::max);
        }
        // Where the generator gets no faster, the relay is not asked for more.
        let more = probe.offered_per_s > fastest * 1.02;
        fastest = probe.offered_per_s.max(fastest);
        failures = if probe.is_carried() && more { 0 } else { failures + 1 };
        rate *= STEP;
    }
    let best = best.ok_or_else(|| {
        Error::program("flood-rate", format!("{} carries not even {FIRST:.0} frames/s", test.mode.name()))
    })?;
    Ok(Sample { metrics: vec![("frames_per_s".into(), best)], ..Sample::default() })
}

struct Probe {
    offered_per_s: f64,
    relayed_per_s: f64,
}

impl Probe {
    fn is_carried(&self) -> bool {
        self.relayed_per_s > self.offered_per_s * (1.0 - LOSS)
    }
}

/// Sends at `rate` for a while.
fn probe(medium: &Medium, test: &RateTest, rate: f64) -> Result<Probe, Error> {
    let frame = frame(test.mode, MESSAGE_BYTES);
    let counts = || Ok::<_, Error>((medium.edge(0, 1)?.offered, medium.sent(1)?));
    let before = counts()?;
    let began = clock::now();
    medium.stream(0, &frame, Duration::from_secs_f64(1.0 / rate), test.probe)?;
    let time = began.elapsed().as_secs_f64();
    std::thread::park_timeout(SETTLE);
    let after = counts()?;
    let per_s = |after: u64, before: u64| (after - before) as f64 / time;
    Ok(Probe { offered_per_s: per_s(after.0, before.0), relayed_per_s: per_s(after.1, before.1) })
}
