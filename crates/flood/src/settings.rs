//! What a node is asked to be.

use crate::suppression;
use crate::window::Rules;

/// Who relays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The driver: the paper's proposal. Frames of the EtherType 0x88B5.
    #[default]
    Driver,
    /// The kernel's IP layer: the paper's conventional method 2. UDP.
    Kernel,
    /// This program: the paper's conventional method 1. UDP.
    Application,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interface, which exists.
    pub interface: String,
    /// ID, format of frames, rate limit.
    pub rules: Rules,
    /// Who relays.
    pub mode: Mode,
    /// Of messages that name none.
    pub ttl: u8,
    /// UDP port, where frames go in UDP.
    pub port: u16,
    /// Greater in each of this node's lives than in the one before.
    pub epoch: u32,
    /// When to relay.
    pub suppression: suppression::Rules,
    /// Looks for frames again and again, which takes a processor, instead of sleeping until woken.
    pub busy_poll: bool,
    /// What whoever starts it knows that may go wrong, for its state.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Whether relays wait, so that the driver alone cannot decide.
    pub(crate) fn waits(&self) -> bool {
        self.suppression != suppression::Rules::PURE
    }
}

impl Mode {
    /// As the file has it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Driver => "driver",
            Mode::Kernel => "kernel",
            Mode::Application => "application",
        }
    }
}
