//! How a node codes.

use std::time::Duration;

use crate::ethernet::Mac;

/// What is coded, and what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing: packets go as they are.
    Off,
    /// PiggyCode (Scalia et al.): what meets in the interface queue.
    Piggy,
    /// Delayed-PiggyCode (Hu et al.): all data waits for an ACK.
    Delayed,
    /// The paper's: the later half of a run of data waits for an ACK.
    Controlled,
    /// Beyond the paper: any two opposing packets between two neighbours, whatever their flows and protocols. What meets
    /// in the interface queue, and what has waited for it on the way that has fewer packets.
    #[default]
    Any,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 5] = [Mode::Off, Mode::Piggy, Mode::Delayed, Mode::Controlled, Mode::Any];

    /// As a configuration file has it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Piggy => "piggy",
            Mode::Delayed => "delayed",
            Mode::Controlled => "controlled",
            Mode::Any => "any",
        }
    }
}

/// A node's NC layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// What is coded.
    pub mode: Mode,
    /// How long a packet waits for a partner at most.
    pub wait: Duration,
    /// Whether a pure ACK takes the place of an earlier one of its connection that waits still, in every mode.
    pub thin_acks: bool,
    /// The MAC address of the slave interface, which the master has too.
    pub mac: Mac,
    /// What the slave carries behind an Ethernet header, in bytes.
    pub mtu: usize,
    /// Whether frames for others come from a radio's monitor. A driver may hand up none, so that this node says that it decodes only to
    /// relays that it overhears.
    pub by_monitor: bool,
}

impl Config {
    /// Whether each flow has its own interface queue, as in mac80211. The paper's modes have one for all, first in, first out, as the
    /// paper has, and so has ACK thinning: in a queue of their own ACKs leave before later ones could take their place. With `off` the
    /// queue is the interface's.
    pub(crate) fn queues_by_flow(&self) -> bool {
        self.mode == Mode::Any && !self.thin_acks
    }
}
