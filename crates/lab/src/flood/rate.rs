//! `flood-rate`: how many frames per second a node relays without loss, by where it relays them.

use std::time::Duration;

use crate::axes::{ALL, Grid, cases};
use crate::clock;
use crate::error::{Error, Result};
use crate::experiment::{Case, Experiment, Ratio, RunOptions};
use crate::medium::Medium;
use crate::system::Means;
use crate::workload::{Measure, Sample};

use super::node::{MODES, Mode, Node, frame};

pub(crate) const ABOUT: &str =
    "frames per second that one node relays without loss: driver, kernel, application";

/// The paper's message.
const MESSAGE_BYTES: usize = 100;
/// More is loss.
const LOSS: f64 = 0.001;
/// The rates that are tried, in frames per second: this, and each time so much more.
const FIRST: f64 = 10_000.0;
const STEP: f64 = 1.05;
/// Steps at once until a rate is not carried, about twice as much each time. What lies between is then halved.
const STRIDE: u32 = 14;
/// A rate that is not carried is tried again: one failure may be the machine's.
const ATTEMPTS: u32 = 3;
/// A generator that sends less than this share of a rate is at its limit; beginning and ending take it some of the time.
const OFFERED: f64 = 0.9;
/// About so many probes find a rate: strides up, attempts at what is too much, halvings.
const PROBES: u32 = 14;
/// What the relay has still to send when the generator has ended.
const SETTLE: Duration = Duration::from_millis(30);
/// What starting a relay takes.
const RESTART: Duration = Duration::from_millis(60);

const GRIDS: [Grid; 1] = [Grid(ALL, &["mode=driver,kernel,application,packet-application,xdp-tx"])];

const RATIOS: [Ratio; 3] = [
    Ratio::new("of_application", "frames_per_s", &[("mode", "application")]),
    Ratio::new("of_packet_application", "frames_per_s", &[("mode", "packet-application")]),
    Ratio::new("of_xdp_tx", "frames_per_s", &[("mode", "xdp-tx")]),
];

/// One relay under load.
#[derive(Clone, Debug)]
pub struct RateTest {
    mode: Mode,
    /// How long one rate is tried.
    probe: Duration,
}

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let probe = Duration::from_millis(options.size.of(200, 300, 300));
    let estimate = (probe + SETTLE + RESTART) * PROBES + Duration::from_millis(800);
    let cases = cases(&GRIDS, options.size, |cell| {
        let workload = RateTest { mode: cell.one_of("mode", &MODES)?, probe };
        Ok(Case::new(cell.key("mode"), workload, estimate))
    })?;
    Ok(Experiment::of(cases, options.size.of(1, 9, 9), &RATIOS, &NOTES))
}

const NOTES: [&str; 5] = [
    "generator, relay and sink on one medium, each heard by the next alone; messages of 100 bytes, each with the next sequence number, sent \
     from within the kernel (XDP); the highest rate at which less than 0.1 % of what left for the relay was not relayed",
    "rates are multiples of 10,000 by 1.05: every 14th (twice as much) until one is not carried in three attempts, then by \
     halves; a relay that has lost frames is started anew, nftables with an empty set of messages, which holds 65,536",
    "on a veth a relay in driver or kernel runs on the generator's CPU and slows it down rather than lose frames: its \
     rate includes generating and carrying; programs have another CPU, if there is one",
    "packet-application: a program of the lab's with one packet socket and nothing but the relay; xdp-tx: a program that \
     sends every frame back, whatever it is",
    "no interrupt of a network card is in these figures",
];

impl Measure for RateTest {
    const PROGRAMS: &'static [&'static str] = &["ethtool", "nft"];

    fn measure(&self, means: &Means, _: u64) -> Result<Sample> {
        let medium = Medium::build(&link::Adjacency::one_way(3), false)?;
        let _silent = [medium.attach(0, "sink")?, medium.attach(2, "sink")?];
        // As a rate that it carried has left it: what was too much may stay with a relay for a while, as in a set that is
        // full, and the next rate would suffer from it.
        let mut kept = None;
        // Frames per second, the most that were relayed without loss.
        let mut best: Option<f64> = None;
        let carries = |step: u32| {
            let rate = FIRST * STEP.powf(step.into());
            for _ in 0..ATTEMPTS {
                let mut relay = match kept.take() {
                    Some(relay) => relay,
                    None => Node::start(&medium, 1, self.mode, None, means)?,
                };
                let [offered, relayed] = probe(&medium, self, rate)?;
                relay.check()?;
                if relayed > offered * (1.0 - LOSS) {
                    kept = Some(relay);
                    best = best.into_iter().chain([relayed]).reduce(f64::max);
                    if offered > rate * OFFERED {
                        return Ok(true);
                    }
                }
            }
            Ok::<_, Error>(false)
        };
        search(carries)?;
        let best = best.ok_or_else(|| {
            Error::program("flood-rate", format!("{} carries not even {FIRST:.0} frames/s", self.mode.name()))
        })?;
        Ok(vec![("frames_per_s", best)].into())
    }
}

/// Looks for the greatest step that `carries`, as if all below it did: up by strides, then by halves.
fn search<E>(mut carries: impl FnMut(u32) -> Result<bool, E>) -> Result<(), E> {
    let (mut below, mut above) = (0, 0);
    while carries(above)? {
        (below, above) = (above, above + STRIDE);
    }
    while above > below + 1 {
        let middle = below.midpoint(above);
        let bound = if carries(middle)? { &mut below } else { &mut above };
        *bound = middle;
    }
    Ok(())
}

/// Sends at `rate` for a while: how many came to the relay, and how many it sent, per second.
fn probe(medium: &Medium, test: &RateTest, rate: f64) -> Result<[f64; 2]> {
    let frame = frame(test.mode, MESSAGE_BYTES);
    let counts = || Ok::<_, Error>([medium.crossed(0, 1)?, medium.sent(1)?]);
    let before = counts()?;
    let began = clock::now();
    medium.stream(0, &frame, Duration::from_secs_f64(1.0 / rate), test.probe)?;
    let time = began.elapsed().as_secs_f64();
    std::thread::park_timeout(SETTLE);
    let after = counts()?;
    Ok([0, 1].map(|of| (after[of] - before[of]) as f64 / time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_limit_with_few_probes() {
        for limit in [0, 1, 13, 14, 15, 40, 91] {
            let (mut best, mut probes) = (None, 0);
            let carries = |step| {
                probes += 1;
                best = best.max((step <= limit).then_some(step));
                Ok::<_, ()>(step <= limit)
            };
            assert_eq!(search(carries), Ok(()));
            assert_eq!(best, Some(limit));
            assert!(probes <= PROBES, "{probes} for {limit}");
        }
    }
}
