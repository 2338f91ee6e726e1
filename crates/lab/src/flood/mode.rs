//! How nodes relay.

/// The UDP port of nodes that relay datagrams, if nothing else is configured.
pub(super) const PORT: u16 = 51_902;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `nawa`, inside the driver.
    Driver,
    /// The same above a driver that refuses it, as radios' drivers do.
    Generic,
    /// `nawa`, at the IP layer.
    Kernel,
    /// `nawa`, a program with a UDP socket.
    Application,
    /// An XDP program that sends every frame back and does nothing else.
    XdpTx,
    /// A program of the lab's with a packet socket and nothing else: the best that an application can do.
    Packet,
}

/// By their names in the JSON.
pub(super) const MODES: [(&str, Mode); 6] = [
    ("driver", Mode::Driver),
    ("driver-generic", Mode::Generic),
    ("kernel", Mode::Kernel),
    ("application", Mode::Application),
    ("xdp-tx", Mode::XdpTx),
    ("packet-application", Mode::Packet),
];

impl Mode {
    pub(super) fn name(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// Whether messages are in datagrams.
    pub(super) fn is_udp(self) -> bool {
        matches!(self, Mode::Kernel | Mode::Application)
    }
}
