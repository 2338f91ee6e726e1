//! What the nodes of a chain do.

use std::time::Duration;

/// What the nodes of a chain do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The kernel forwards, without `nawa`.
    Plain,
    Off,
    Piggy,
    Delayed,
    Controlled,
    Any,
}

impl Mode {
    /// As in the JSON, and, but for `plain`, in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Off => "off",
            Mode::Piggy => "piggy",
            Mode::Delayed => "delayed",
            Mode::Controlled => "controlled",
            Mode::Any => "any",
        }
    }

    /// Whether there is anything to count of sums.
    pub(super) fn codes(self) -> bool {
        !matches!(self, Mode::Plain | Mode::Off)
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
