//! How Nawa is configured, for the lab to start it.

use super::clocks::Clocks;

/// How Nawa is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NawaSetup {
    /// `scheduler` in the configuration: "auto", "paper" or "paper-absolute".
    pub scheduler: &'static str,
    /// The clocks that its two ends see.
    pub clocks: Clocks,
    /// Which paths the server may send over.
    pub back: Back,
    /// True for paths through the relays, false for paths from end to end.
    pub relayed: bool,
    /// `resend` of the peer, at both ends.
    pub resend: bool,
    /// `bicast` of the peer, at both ends: "off", "selective" or "adaptive".
    pub bicast: &'static str,
}

impl NawaSetup {
    /// What Nawa does when nothing is configured, through relays.
    pub const AUTO: NawaSetup = NawaSetup {
        scheduler: "auto",
        clocks: Clocks::Same,
        back: Back::All,
        relayed: true,
        resend: true,
        bicast: "off",
    };
}

/// The paths of the direction back, from server to client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Back {
    /// All of them.
    #[default]
    All,
    /// The first alone, as in the paper's measurements.
    One,
}
