//! What the nodes of a chain do.

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
