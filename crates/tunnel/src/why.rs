//! Why a path does not carry what it should, in words for status and logs.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// What keeps a path from being used, or from being used both ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The interface that it is to leave by is not there.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// That interface carries nothing.
    #[error("{0} is down")]
    InterfaceDown(String),
    /// No interface has the address that it is to leave from.
    #[error("no interface has the address {0}")]
    NoAddress(IpAddr),
    /// The resolver has no address for its peer's name, or its relay's.
    #[error("\"{name}\" has no address: {error}")]
    NoName {
        /// The host's name.
        name: String,
        /// What the resolver says.
        error: String,
    },
    /// The routing tables know no way; `by` is empty, or says by what.
    #[error("no route{by} to {to}")]
    NoRoute {
        /// As `" by wan2"`.
        by: String,
        /// The peer's address, or the relay's.
        to: IpAddr,
    },
    /// IPv6 keeps to an interface only with the address that it takes there by itself, and it takes another.
    #[error("packets from {ip} do not keep to {interface}, where IPv6 takes {takes} by itself")]
    NotTaken {
        /// The path's own address.
        ip: IpAddr,
        /// The interface that has it.
        interface: String,
        /// The address that the kernel prefers there.
        takes: IpAddr,
    },
    /// Its packets would come back as packets for the tunnel.
    #[error(
        "its packets to {to} would go into {interface} itself; name its uplink with `local`, or route {to} past {interface}"
    )]
    Loop {
        /// The peer's address, or the relay's.
        to: IpAddr,
        /// The tunnel's own interface.
        interface: String,
    },
    /// The relay has not answered.
    #[error(
        "no answer from the relay at {0}: is it on, is its key that of `via`, and is this end's in its `allow`?"
    )]
    NoRelay(SocketAddr),
    /// There is no connection to the relay.
    #[error("no connection by TLS to {to}: {error}")]
    NoTls {
        /// The relay's address.
        to: SocketAddr,
        /// What became of the last one.
        error: String,
    },
    /// It works, by TLS.
    #[error("goes by TLS to {0}, slower than by UDP: what is lost there holds up all that follows")]
    OverTls(SocketAddr),
    /// The kernel sends nothing there.
    #[error("cannot send to {to}: {error}")]
    NotSent {
        /// The peer's address, or the relay's.
        to: SocketAddr,
        /// What the kernel says.
        error: String,
    },
    /// ICMP says that nobody listens there.
    #[error("{0} refuses: no daemon listens on that port; is it the peer's address?")]
    Refused(SocketAddr),
    /// ICMP says that no router knows the way.
    #[error("a router on the way to {0} says that it cannot be reached")]
    Unreachable(SocketAddr),
    /// What comes from there is not what the peer would send.
    #[error("what answers at {0} is not the peer: another program, or another key than the file's")]
    Stranger(SocketAddr),
    /// The peer asks for cookies, and takes no handshake yet.
    #[error("{0} has too many handshakes at present, and lets this end wait")]
    Limited(SocketAddr),
    /// Nothing comes back.
    #[error("no answer from {0}: is it on, is its port open, and are both ends' keys right?")]
    NoAnswer(SocketAddr),
    /// Nothing comes back, though other paths reach the peer, and by that its keys: at this address, or elsewhere.
    #[error(
        "no answer from {to} over this link, and the other paths reach {}",
        if *elsewhere { "the peer at another address: look at this link, and at this address" } else { "it: look at this link" }
    )]
    LinkSilent {
        /// Where this path leads.
        to: SocketAddr,
        /// The other paths lead to other addresses.
        elsewhere: bool,
    },
    /// ICMP says that nobody listens where the other paths reach the peer.
    #[error(
        "{0} is refused over this link, and the other paths reach it: something on this link answers in its place"
    )]
    LinkRefuses(SocketAddr),
    /// What is sent arrives, and nothing comes.
    #[error("what is sent arrives, and nothing comes in{0}: rp_filter, or a firewall?")]
    NothingComesIn(String),
    /// Its packets are too small.
    #[error("it carries packets of {carries} bytes, and needs {needs}: {larger}")]
    TooSmall {
        /// The largest outer packet that passes, in bytes.
        carries: u16,
        /// The least that is of use.
        needs: u16,
        /// What becomes of larger ones.
        larger: Larger,
    },
    /// It works, in more datagrams than others take.
    #[error(
        "it carries packets of {carries} bytes, so one of {packet} bytes inside goes in {pieces} datagrams: {larger}"
    )]
    InPieces {
        /// The largest outer packet that passes, in bytes.
        carries: u16,
        /// The largest inner packet.
        packet: u16,
        /// In how many datagrams that goes.
        pieces: usize,
        /// As of one that is too small.
        larger: Larger,
    },
    /// It works, and has carried what it may.
    #[error("its monthly cap of {cap} bytes is spent: it is used only while no other path works")]
    Spent {
        /// What it may carry in a month.
        cap: u64,
    },
    /// It works, and waits for worse times.
    #[error("kept for later: other paths carry all")]
    Kept,
    /// A backup that does not wait.
    #[error("a backup that helps: over the other paths packets come more than a second later")]
    Helps,
    /// It has the default route, no path is up, and the file says that packets then leave in the clear.
    #[error("no path is up to it, so packets of the default route leave in the clear (fail-open)")]
    FailsOpen,
    /// The same, and they go nowhere.
    #[error("no path is up to it, so packets of the default route go nowhere (fail closed)")]
    HeldBack,
    /// Another program's route or rule comes before this end's.
    #[error(
        "packets to {net} go {way} and not into {interface}, for {rival} comes first: \
         delete it (`ip route get {to}` shows where they go)"
    )]
    Beside {
        /// What is routed to the peer.
        net: IpNet,
        /// The tunnel's own interface.
        interface: String,
        /// An address in it.
        to: IpAddr,
        /// Where packets go: as `by wan1`.
        way: String,
        /// What comes first: as `a route in the table 99`.
        rival: String,
    },
    /// Two hosts have one key, and take the sessions from each other.
    #[error(
        "two hosts have this peer's key, and each ends the other's session: give one of them a key of its own"
    )]
    TwoPlaces,
}

/// What becomes of packets that are larger than a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Larger {
    /// They go into a black hole.
    #[error("larger ones vanish without a word")]
    Vanish,
    /// They do not leave this host.
    #[error("its own link's MTU says so")]
    NotSent,
    /// ICMP says that they do not pass.
    #[error("a router on the way says so")]
    Refused,
}

impl Why {
    /// For scripts: one word for each kind, whatever the sentence says.
    pub fn cause(&self) -> &'static str {
        match self {
            Why::NoInterface(_) => "no-interface",
            Why::InterfaceDown(_) => "interface-down",
            Why::NoAddress(_) => "no-address",
            Why::NoName { .. } => "no-name",
            Why::NoRoute { .. } => "no-route",
            Why::NotTaken { .. } => "not-taken",
            Why::Loop { .. } => "loop",
            Why::NoRelay(_) => "no-relay",
            Why::NoTls { .. } => "no-tls",
            Why::OverTls(_) => "tls",
            Why::NotSent { .. } => "not-sent",
            Why::Refused(_) => "refused",
            Why::Unreachable(_) => "unreachable",
            Why::Stranger(_) => "stranger",
            Why::Limited(_) => "limited",
            Why::NoAnswer(_) => "no-answer",
            Why::LinkSilent { .. } => "link-silent",
            Why::LinkRefuses(_) => "link-refuses",
            Why::NothingComesIn(_) => "nothing-comes-in",
            Why::TooSmall { larger: Larger::Vanish, .. } => "black-hole",
            Why::TooSmall { .. } => "too-small",
            Why::InPieces { .. } => "in-pieces",
            Why::Spent { .. } => "spent",
            Why::Kept => "kept",
            Why::Helps => "helps",
            Why::FailsOpen => "fails-open",
            Why::HeldBack => "held-back",
            Why::Beside { .. } => "beside",
            Why::TwoPlaces => "two-places",
        }
    }
}

impl Why {
    /// Whether packets of a default route, IPv4's or IPv6's, go beside it.
    pub fn is_of_default(&self, v4: bool) -> bool {
        matches!(self, Why::Beside { net, .. } if net.prefix_len() == 0 && net.addr().is_ipv4() == v4)
    }
}
