//! What one case transfers over which chain.

use std::time::Duration;

use link::Probability;

use super::mode::Mode;
use super::transfer::{End, Plan, SEGMENT};

/// What making a chain and its nodes takes, for each node, and taking it down.
const OVERHEAD: Duration = Duration::from_millis(350);

/// What guests at the nodes take to be up, to find each other and to learn who overhears whom: each says so every second.
const GUESTS: Duration = Duration::from_secs(12);

/// One transfer, or several at once, over a chain.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) mode: Mode,
    pub(super) hops: usize,
    /// How long a packet waits for a partner at most.
    pub(super) wait: Duration,
    pub(super) plan: Plan,
    /// Whether hosts make several segments at a time, as Linux has done for every interface since 4.17.
    pub(super) bursts: bool,
    /// Frames that go as one transmission at most.
    pub(super) aggregate: usize,
    /// Of the unicast frames that a station could overhear.
    pub(super) overhearing_loss: Probability,
}

/// What the kernel's TCP alone carries over 1, 2, 3 and 4 hops, about, in Mbit/s: for estimates.
const PLAIN_MBPS: [f64; 4] = [24.0, 11.9, 7.9, 5.9];

impl Test {
    /// How long it takes, about.
    pub(super) fn estimate(&self) -> Duration {
        let time = match self.plan.end {
            End::Time(time) => time,
            End::Packets(packets) => {
                let flows = self.plan.flows as u64 * if self.plan.both_ways { 2 } else { 1 };
                let bits = (packets * flows * SEGMENT * 8) as f64;
                let rate = PLAIN_MBPS[self.hops.clamp(1, PLAIN_MBPS.len()) - 1];
                Duration::from_secs_f64(bits / rate / 1e6)
            }
        };
        let guests = matches!(self.mode, Mode::Batman { .. });
        let settling = if guests { GUESTS } else { Duration::ZERO };
        time + OVERHEAD * u32::try_from(self.hops + 1).unwrap_or(u32::MAX) + settling
    }
}
