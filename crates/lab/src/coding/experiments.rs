//! `coding-wait`: one transfer over 2 and 3 hops, by mode and waiting time (paper 002, figures 7 to 12); `coding-gain`: what coding gains
//! by window, flows and directions; `coding-loss`: what is left of it where neighbours do not overhear everything.

use std::time::Duration;

use link::Probability;

use super::test::{Mode, Test};
use super::transfer::{End, Plan};
use crate::axes::{ALL, FULL, Grid, QUICK, cases};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Published, Ratio, RunOptions, Size};

pub(crate) const ABOUT_WAIT: &str = "one TCP transfer over 2 and 3 hops of 802.11g, by mode and waiting time: goodput, RTT, packets sent (paper 002)";

/// A mode without a wait has 0. The paper does not say what receivers advertise at most, in segments; what it says of the time
/// that packets wait (99 % of them less than 10 ms, 5.3) is so with about 16 on this medium, where relays' queues are short. 256
/// fill them.
const WAIT: [Grid; 4] = [
    Grid(QUICK, &["window_segments=256 hops=2,3 mode=plain,off,thinned,piggy,delayed wait_ms=0"]),
    Grid(QUICK, &["window_segments=256 hops=2,3 mode=delayed,controlled,any wait_ms=1,10"]),
    Grid(FULL, &["window_segments=16,256 hops=2,3", WITHOUT_WAIT]),
    Grid(FULL, &["window_segments=16,256 hops=2,3 mode=delayed,controlled,any wait_ms=1,3,5,10,20,50,100"]),
];
const WITHOUT_WAIT: &str = "mode=plain,off,thinned,piggy,delayed,batman-off,batman wait_ms=0";

/// What is compared with a mode that has no wait.
const WAIT_RATIOS: [Ratio; 6] = [
    Ratio::new("goodput_of_plain", "goodput_mbps", &[("mode", "plain"), ("wait_ms", "0")]),
    Ratio::new("packets_of_plain", "packets_per_segment", &[("mode", "plain"), ("wait_ms", "0")]),
    Ratio::new("goodput_of_off", "goodput_mbps", &[("mode", "off"), ("wait_ms", "0")]),
    Ratio::new("packets_of_off", "packets_per_segment", &[("mode", "off"), ("wait_ms", "0")]),
    Ratio::new("rtt_of_piggycode", "rtt_ms", &[("mode", "delayed"), ("wait_ms", "0")]),
    Ratio::new("rtt_of_delayed", "rtt_ms", &[("mode", "delayed")]),
];

const WAIT_NOTES: [&str; 4] = [
    "10,000 packets of 1448 bytes with --paper, 4,000 without, 1,500 with --quick",
    "receivers advertise window_segments at most, which the paper does not say; with 16 packets wait for as long as it says \
     (99 % of them less than 10 ms), 256 fill the relays' queues",
    "hosts make one segment at a time (gso_max_segs 1), as on the paper's kernel, and windows are not tuned, so that a receiver \
     acknowledges every second segment (data_per_ack): today's Linux ends each burst of segments with PSH, which it \
     answers at once, and answers every segment while it tunes a window",
    "delayed with wait 0 is what the paper measured as PiggyCode; piggy codes in the interface queue, as PiggyCode was \
     published",
];

pub(crate) fn wait(options: &RunOptions) -> Result<Experiment> {
    let size = options.size;
    let end = End::Packets(size.of(1_500, 4_000, 10_000));
    let timing = Timing { size, end, bursts: false, repeats: size.of(1, 5, 5) };
    let experiment = experiment_of(&WAIT, timing, &WAIT_RATIOS, &WAIT_NOTES)?;
    Ok(Experiment { paper: paper(), ..experiment })
}

/// What chapter 5.2 says of figures 7 to 12, which give no numbers: the best over all waiting times.
fn paper() -> Vec<Published> {
    let of = Published::of;
    let (goodput, packets, rtt) = ("goodput_of_plain", "packets_of_plain", "rtt_of_piggycode");
    vec![
        of("mode=controlled hops=2 wait_ms=best", &[(goodput, 1.06), (packets, 0.84), (rtt, 0.93)]),
        of("mode=delayed hops=2 wait_ms=best", &[(goodput, 1.06), (packets, 0.85)]),
        of("mode=controlled hops=3 wait_ms=best", &[(goodput, 1.05), (packets, 0.79), (rtt, 0.87)]),
        of("mode=delayed hops=3 wait_ms=best", &[(goodput, 1.04), (packets, 0.80), (rtt, 0.94)]),
    ]
}

pub(crate) const ABOUT_GAIN: &str =
    "TCP over 2 to 4 hops of 802.11g, by window, flows and directions: goodput and packets sent, by mode";

const GAIN_NOTES: [&str; 2] = [
    "each case for a fixed time, slow start included; window_segments: what receivers advertise at most; directions 2: as \
     many flows from either end",
    "wait 10 ms; flows: for each direction",
];

/// Over one hop nobody relays: what the medium carries, to be compared with its model in virtual time. batman-adv is in guests,
/// which take long to begin.
const GAIN: [Grid; 6] = [
    Grid(ALL, &["hops=1 window_segments=64 flows=1 directions=1 mode=plain", ALL_HEARD, "aggregation=off"]),
    Grid(
        QUICK,
        &["hops:aggregation=2:off,3:off,2:on window_segments=64 directions=1,2 flows=1", ALL_HEARD, MODES],
    ),
    Grid(
        FULL,
        &["hops=2,3,4 window_segments=4,8,16,32,64,128,256", ONE_WAY, ALL_HEARD, "aggregation=off", MODES],
    ),
    Grid(FULL, &[MORE_FLOWS, ALL_HEARD, "aggregation=off", MODES]),
    Grid(
        FULL,
        &["hops=2,3 window_segments=64", EITHER_WAY, ALL_HEARD, "aggregation=off mode=batman-off,batman"],
    ),
    Grid(FULL, &["hops=2,3,4 window_segments=64,256", EITHER_WAY, ALL_HEARD, "aggregation=on", MODES]),
];
const ALL_HEARD: &str = "overhearing_loss_percent=0";
const ONE_WAY: &str = "flows=1 directions=1";
const EITHER_WAY: &str = "flows=1 directions=1,2";
const MORE_FLOWS: &str = "hops=2,3,4 window_segments=64 flows:directions=1:2,4:1,2:2";
const MODES: &str = "mode=plain,off,controlled,any";

pub(crate) fn gain(options: &RunOptions) -> Result<Experiment> {
    experiment_of(&GAIN, Timing::fixed(options.size), &RATIOS, &GAIN_NOTES)
}

pub(crate) const ABOUT_LOSS: &str = "TCP over 2 and 3 hops of 802.11g where 0 to 50 % of what could be overheard is not: goodput and packets, by mode";

const LOSS_NOTES: [&str; 2] = [
    "overhearing_loss_percent: of the frames for one station, those that another which could does not overhear; nothing is \
     lost otherwise but by collisions",
    "each case for a fixed time, slow start included; wait 10 ms",
];

const LOSS: [Grid; 2] = [
    Grid(QUICK, &["hops=2 window_segments=64", LOSSES_QUICK, ONE_WAY, MODES]),
    Grid(FULL, &["hops=2,3 window_segments=4,64", LOSSES, ONE_WAY, "aggregation=off,on", MODES]),
];
const LOSSES_QUICK: &str = "overhearing_loss_percent:aggregation=0:off,10:off,50:off,50:on";
const LOSSES: &str = "overhearing_loss_percent=0,1,5,10,20,50";

pub(crate) fn loss(options: &RunOptions) -> Result<Experiment> {
    experiment_of(&LOSS, Timing::fixed(options.size), &RATIOS, &LOSS_NOTES)
}

/// How much is measured, when transfers end, whether hosts make several segments at a time, and how often all is repeated.
struct Timing {
    size: Size,
    end: End,
    bursts: bool,
    repeats: usize,
}

impl Timing {
    /// A fixed time, slow start included.
    fn fixed(size: Size) -> Self {
        let end = End::Time(Duration::from_millis(size.of(1_500, 5_000, 10_000)));
        Self { size, end, bursts: true, repeats: size.of(1, 5, 9) }
    }
}

/// Where no axis says how long a packet waits for a partner at most.
const WAIT_MS: u64 = 10;

/// With aggregation, frames that go as one transmission at most: 4 ms at the fastest rate here.
const AGGREGATE: usize = 16;

/// The experiment whose cells these grids are: one way and one flow at a time if they do not say.
fn experiment_of(grids: &[Grid], timing: Timing, ratios: &[Ratio], about: &[&str]) -> Result<Experiment> {
    let cases = cases(grids, timing.size, |cell| {
        let mode = Mode::named(cell.text("mode"));
        let wait_ms = if cell.text("wait_ms").is_empty() { WAIT_MS } else { cell.get("wait_ms")? };
        let aggregate = if cell.text("aggregation") == "on" { AGGREGATE } else { 1 };
        let loss = cell.get::<f64>("overhearing_loss_percent")? / 100.0;
        let test = Test {
            mode,
            hops: cell.get("hops")?,
            wait: Duration::from_millis(wait_ms),
            plan: Plan {
                flows: cell.get("flows").map(|flows: usize| flows.max(1))?,
                ways: cell.get("directions").map(|ways: usize| ways.max(1))?,
                window: cell.get("window_segments")?,
                end: timing.end,
            },
            bursts: timing.bursts,
            aggregate,
            overhearing_loss: Probability::new(loss).unwrap_or(Probability::ZERO),
        };
        let estimate = test.estimate();
        Ok(Case::new(cell.key(KEY), test, estimate))
    })?;
    Ok(Experiment::of(cases, timing.repeats, ratios, &[about, &NOTES].concat()))
}

const KEY: &str = "mode hops wait_ms window_segments flows directions overhearing_loss_percent aggregation";

const RATIOS: [Ratio; 4] = [
    Ratio::new("goodput_of_plain", "goodput_mbps", &[("mode", "plain")]),
    Ratio::new("packets_of_plain", "packets_per_segment", &[("mode", "plain")]),
    Ratio::new("goodput_of_off", "goodput_mbps", &[("mode", "off")]),
    Ratio::new("packets_of_off", "packets_per_segment", &[("mode", "off")]),
];

/// What a reader of any of these figures has to know.
const NOTES: [&str; 9] = [
    "the running kernel's TCP (CUBIC) over a chain of namespaces on one emulated 802.11g medium (54 Mbit/s, stations 90 m apart: \
     neighbours read each other, all sense each other); 1448 bytes a segment",
    "mode plain: the kernel alone, without nawa; off: nawa on every node, which codes nothing; *_of_plain, *_of_off: \
     ratios within each repeat; *_packets_*: of packets_per_segment",
    "aggregation on: up to 16 frames for one station go as one (A-MPDU); plain and off have the interface's queue to themselves, by \
     flow and with CoDel (FQ-CoDel), as mac80211's is; controlled and any keep what waits in the layer. On a radio of 802.11n nawa \
     codes nothing, which is off; this medium does not say that it is one",
    "mode batman: batman-adv of Linux 6.1 with its network coding in a guest at each node, batman-off: without; TCP's ends are the \
     same as in all modes; its own messages count as packets",
    "packets_sent: frames that all nodes' NC layers handed to their interfaces (plain: that all stations took), the MAC's \
     repetitions apart; packets_per_segment: for each segment that arrived",
    "bound_packets_ratio, bound_goodput_ratio: the least packets and the most goodput that sums of two opposing packets \
     allow against no coding, from this run's count of packets of both ways (and 802.11's airtimes)",
    "rule_packets_ratio: the least packets that the paper's rule sends in this run, which codes one data packet of two at most, \
     however many ACKs there are; held_in_vain_ratio: of the held, those whose time ran out",
    "coding_ratio: packets that relays sent in sums, of all that they relayed; held_ms: mean time in wait queues; \
     held_1ms_ratio, held_10ms_ratio: of the held, those that left within 1 and 10 ms",
    "rtt_ms: mean of the senders' smoothed round-trip time, every 10 ms; medium_late_us: by how much frames came later to \
     their nodes than the model of the medium says, in the mean",
];
