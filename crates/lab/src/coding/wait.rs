//! `coding-wait`: one transfer over 2 and 3 hops, by mode and waiting time (paper 002, figures 7 to 12).

use super::measure::{Timing, experiment_of, ratios};
use super::transfer::End;
use crate::axes::{FULL, Grid, QUICK};
use crate::error::Error;
use crate::experiment::{Experiment, Published, Ratio, Reference, RunOptions};

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

/// The paper's transfer, in packets.
const PACKETS: u64 = 10_000;

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
    let end = End::Packets(options.size.of(1_500, 4_000, PACKETS));
    let timing = Timing { end, bursts: false, repeats: options.size.of(1, 5, 5) };
    let experiment = experiment_of("coding-wait", &GRIDS, options.size, timing, &ABOUT_THIS)?;
    Ok(Experiment { ratios: all_ratios(), paper: paper(), ..experiment })
}

fn all_ratios() -> Vec<Ratio> {
    let at_0 = |mode| Reference::NameAt(mode, ("wait_ms", "0"));
    let plain = ratios(["goodput_of_plain", "packets_of_plain"], at_0("plain"));
    let off = ratios(["goodput_of_off", "packets_of_off"], at_0("off"));
    let rtt = |name, of| Ratio { name, metric: "rtt_ms", of: ("mode", of) };
    let rtts = [rtt("rtt_of_piggycode", at_0("delayed")), rtt("rtt_of_delayed", Reference::Name("delayed"))];
    [&plain[..], &off, &rtts].concat()
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

#[cfg(test)]
mod tests {
    use super::super::test::Test;
    use super::*;
    use crate::experiment::Size;

    #[test]
    fn the_papers_cases_are_there() {
        let experiment = experiment(&RunOptions { size: Size::Paper, ..RunOptions::default() }).unwrap();
        assert_eq!(experiment.cases.len(), 2 * 2 * (7 + 3 * 7));
        for case in &experiment.cases {
            let test = case.workload::<Test>().unwrap();
            assert!(matches!(test.plan.end, End::Packets(PACKETS)));
        }
    }
}
