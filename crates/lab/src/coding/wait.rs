//! `coding-wait`: one transfer over 2 and 3 hops, by mode and waiting time (paper 002, figures 7 to 12).

use super::measure::{Timing, experiment_of};
use super::transfer::End;
use crate::axes::{FULL, Grid, QUICK};
use crate::error::Error;
use crate::experiment::{Experiment, Published, Ratio, RunOptions};

pub(crate) const ABOUT: &str = "one TCP transfer over 2 and 3 hops of 802.11g, by mode and waiting time: goodput, RTT, packets sent (paper 002)";

/// A mode without a wait has 0. The paper does not say what receivers advertise at most, in segments; what it says of the time
/// that packets wait (99 % of them less than 10 ms, 5.3) is so with about 16 on this medium, where relays' queues are short. 256
/// fill them.
const GRIDS: [Grid; 4] = [
    Grid(QUICK, &["window_segments=256 hops=2,3 mode=plain,off,thinned,piggy,delayed wait_ms=0"]),
    Grid(QUICK, &["window_segments=256 hops=2,3 mode=delayed,controlled,any wait_ms=1,10"]),
    Grid(
        FULL,
        &["window_segments=16,256 hops=2,3 mode=plain,off,thinned,piggy,delayed,batman-off,batman wait_ms=0"],
    ),
    Grid(FULL, &["window_segments=16,256 hops=2,3 mode=delayed,controlled,any wait_ms=1,3,5,10,20,50,100"]),
];

/// What is compared with a mode that has no wait.
const RATIOS: [Ratio; 6] = [
    Ratio::new("goodput_of_plain", "goodput_mbps", &[("mode", "plain"), ("wait_ms", "0")]),
    Ratio::new("packets_of_plain", "packets_per_segment", &[("mode", "plain"), ("wait_ms", "0")]),
    Ratio::new("goodput_of_off", "goodput_mbps", &[("mode", "off"), ("wait_ms", "0")]),
    Ratio::new("packets_of_off", "packets_per_segment", &[("mode", "off"), ("wait_ms", "0")]),
    Ratio::new("rtt_of_piggycode", "rtt_ms", &[("mode", "delayed"), ("wait_ms", "0")]),
    Ratio::new("rtt_of_delayed", "rtt_ms", &[("mode", "delayed")]),
];

const ABOUT_THIS: [&str; 4] = [
    "10,000 packets of 1448 bytes with --paper, 4,000 without, 1,500 with --quick",
    "receivers advertise window_segments at most, which the paper does not say; with 16 packets wait for as long as it says \
     (99 % of them less than 10 ms), 256 fill the relays' queues",
    "hosts make one segment at a time (gso_max_segs 1), as on the paper's kernel, and windows are not tuned, so that a receiver \
     acknowledges every second segment (data_per_ack): today's Linux ends each burst of segments with PSH, which it \
     answers at once, and answers every segment while it tunes a window",
    "delayed with wait 0 is what the paper measured as PiggyCode; piggy codes in the interface queue, as PiggyCode was \
     published",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let end = End::Packets(options.size.of(1_500, 4_000, 10_000));
    let timing = Timing { end, bursts: false, repeats: options.size.of(1, 5, 5) };
    let experiment = experiment_of(&GRIDS, options.size, timing, &ABOUT_THIS)?;
    Ok(Experiment { ratios: RATIOS.into(), paper: paper(), ..experiment })
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
