//! What the nodes of a chain do.

use std::time::Duration;

/// What the nodes of a chain do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The kernel forwards, without `nawa`.
    Plain,
    Off,
    /// Codes nothing, and thins ACKs: what coding competes with.
    Thinned,
    Piggy,
    Delayed,
    Controlled,
    Any,
    /// batman-adv forwards, with its network coding or without.
    Batman {
        codes: bool,
    },
}

impl Mode {
    /// As in the JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Off => "off",
            Mode::Thinned => "thinned",
            Mode::Piggy => "piggy",
            Mode::Delayed => "delayed",
            Mode::Controlled => "controlled",
            Mode::Any => "any",
            Mode::Batman { codes: true } => "batman",
            Mode::Batman { codes: false } => "batman-off",
        }
    }

    /// The lines of a node's configuration.
    pub(super) fn configuration(self) -> String {
        match self {
            Mode::Thinned => "mode = \"off\"\nthin-acks = true\n".into(),
            mode => format!("mode = \"{}\"\n", mode.name()),
        }
    }

    /// Whether there is anything to count of sums.
    pub(super) fn codes(self) -> bool {
        !matches!(self, Mode::Plain | Mode::Off | Mode::Thinned | Mode::Batman { codes: false })
    }

    /// Whether `wait` means anything to it.
    pub(super) fn waits(self) -> bool {
        matches!(self, Mode::Delayed | Mode::Controlled | Mode::Any)
    }
}

/// `wait`, or none for a mode that knows none: the field `wait_ms` of a key, as a time.
pub(super) fn wait_of(mode: Mode, wait_ms: u64) -> Duration {
    Duration::from_millis(if mode.waits() { wait_ms } else { 0 })
}
