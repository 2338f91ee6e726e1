//! What one case transfers over which chain, and what its nodes do.

use std::time::Duration;

use link::Probability;

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
                let flows = self.plan.flows * self.plan.ways;
                let bits = (packets * flows as u64 * SEGMENT * 8) as f64;
                let rate = PLAIN_MBPS[self.hops.clamp(1, PLAIN_MBPS.len()) - 1];
                Duration::from_secs_f64(bits / rate / 1e6)
            }
        };
        let guests = matches!(self.mode, Mode::Batman { .. });
        let settling = if guests { GUESTS } else { Duration::ZERO };
        time + OVERHEAD * u32::try_from(self.hops + 1).unwrap_or(u32::MAX) + settling
    }
}

/// What the nodes of a chain do, and how it is called in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The kernel forwards, without `nawa`.
    Plain,
    /// `nawa`, in the mode of this name.
    Nawa(&'static str),
    /// `nawa` codes nothing, and thins ACKs: what coding competes with.
    Thinned,
    /// batman-adv forwards, with its network coding or without.
    Batman { codes: bool },
}

impl Mode {
    pub(super) fn named(name: &'static str) -> Self {
        match name {
            "plain" => Mode::Plain,
            "thinned" => Mode::Thinned,
            "batman" => Mode::Batman { codes: true },
            "batman-off" => Mode::Batman { codes: false },
            mode => Mode::Nawa(mode),
        }
    }

    /// The lines of a node's configuration.
    pub(super) fn configuration(self) -> String {
        match self {
            Mode::Nawa(mode) => format!("mode = \"{mode}\"\n"),
            _ => "mode = \"off\"\nthin-acks = true\n".into(),
        }
    }

    /// Whether what waits, waits in the interface's queue, and not in the layer.
    pub(super) fn leaves_queue(self) -> bool {
        matches!(self, Mode::Plain | Mode::Nawa("off"))
    }

    /// Whether there is anything to count of sums.
    pub(super) fn codes(self) -> bool {
        matches!(self, Mode::Batman { codes: true }) || matches!(self, Mode::Nawa(mode) if mode != "off")
    }
}
