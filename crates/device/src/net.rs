//! Interfaces, addresses and routes, through rtnetlink (RFC 3549).

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::explained;
use crate::interface_request;
use crate::netlink::{Message, Reply, address, attribute, attributes, replies};

/// `struct ifinfomsg`, in bytes.
const LINK_HEADER: usize = 16;
/// Of IFLA_LINKINFO: what kind of interface this one is a port of (linux/if_link.h).
const INFO_SLAVE_KIND: u16 = 4;
/// Of IFLA_LINKINFO: what kind of interface it is, and what is that kind's own; a veth's other end is the first of that.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// `struct rtmsg`, in bytes.
pub(crate) const ROUTE_HEADER: usize = 12;
/// Of RTA_METRICS: the congestion control's name (RTAX_CC_ALGO, linux/rtnetlink.h).
const METRIC_CONGESTION_CONTROL: u16 = 16;
/// An address's flags, 32 bits of them (IFA_FLAGS).
const ADDRESS_FLAGS: u16 = 8;
/// `struct fib_rule_hdr`, in bytes.
const RULE_HEADER: usize = 12;
/// A rule's attributes and its inversion (linux/fib_rules.h).
const RULE_PRIORITY: u16 = 6;
const RULE_MARK: u16 = 10;
const RULE_SUPPRESS_PREFIX: u16 = 14;
const RULE_TABLE: u16 = 15;
const RULE_TO_TABLE: u8 = 1;
const RULE_UNREACHABLE: u8 = 7;
const RULE_INVERT: u32 = 2;
/// Asks for what the tables hold, not for what the kernel makes of it, and which of them does.
const IN_TABLES: u32 = libc::RTM_F_FIB_MATCH | libc::RTM_F_LOOKUP_TABLE;
/// Bytes that one reply may have: a link's description with statistics is about 2 KiB.
const REPLY: usize = 32 << 10;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index, unique in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The longest IP packet it takes, in bytes.
    pub mtu: u32,
    /// Its frames are Ethernet's.
    pub ethernet: bool,
    /// Its address as the frames have it, if that is one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Switched on.
    pub up: bool,
    /// It carries packets: switched on, and its other end too.
    pub running: bool,
    /// The kind of what it is a port of, as `bridge`, `bond` or `openvswitch`, if that takes what it receives.
    pub port_of: Option<String>,
    /// It has one other end, which takes whatever is sent by it, with a route or without.
    pub point_to_point: bool,
    /// It has no other end, as loopback and dummies: its addresses are the host's.
    pub leads_nowhere: bool,
}

impl Link {
    /// What takes all that it receives, and how to take it out of that, in a sentence; `None` if nothing does.
    pub fn taken(&self) -> Option<String> {
        let (name, kind) = (&self.name, self.port_of.as_deref()?);
        let (owner, out) = match kind {
            "openvswitch" => ("an Open vSwitch".to_owned(), format!("ovs-vsctl del-port {name}")),
            _ => (format!("a {kind}"), format!("ip link set {name} nomaster")),
        };
        Some(format!("`{name}` is a port of {owner}, which takes all that comes; take it out with `{out}`"))
    }
}

/// What is asked of the routing tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Where a packet is to go.
    pub destination: IpAddr,
    /// Its mark; 0: none.
    pub mark: u32,
    /// Its source address, if that is given.
    pub source: Option<IpAddr>,
    /// The interface that it has to leave by, if that is given.
    pub interface: Option<u32>,
}

impl Query {
    /// Of an unmarked packet that may leave from anywhere.
    pub fn to(destination: IpAddr) -> Self {
        Self { destination, mark: 0, source: None, interface: None }
    }
}

/// The routing table `main`.
pub const MAIN_TABLE: u32 = libc::RT_TABLE_MAIN as u32;

/// A unicast route of a prefix to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix's address.
    pub destination: IpAddr,
    /// Its length in bits.
    pub prefix: u8,
    /// The interface's index.
    pub interface: u32,
    /// The table that it stands in, as [`MAIN_TABLE`].
    pub table: u32,
    /// The address that packets without one get; `None`: what the kernel chooses.
    pub source: Option<IpAddr>,
    /// The congestion control of TCP connections by this route, whatever they ask for; `None`: what they ask for.
    pub congestion_control: Option<String>,
}

/// A rule of policy routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Of IPv6, not of IPv4.
    pub v6: bool,
    /// Rules are asked in this order.
    pub priority: u32,
    /// It is for packets without this mark; `None`: for all.
    pub unless_marked: Option<u32>,
    /// The table that it asks.
    pub table: u32,
    /// It leaves the table's default route out.
    pub no_default: bool,
    /// Its packets go nowhere. The table is not asked, and only tells the rule from others'.
    pub unreachable: bool,
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// Index of the interface.
    pub interface: u32,
    /// The source address it would take.
    pub source: Option<IpAddr>,
}

/// The route that the kernel takes, as it stands in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The table's number, as [`MAIN_TABLE`].
    pub table: u32,
    /// Its prefix's length in bits.
    pub prefix: u8,
    /// Index of the interface that it leads to; `None` if there are several next hops.
    pub interface: Option<u32>,
}

/// A connection to the kernel of the network namespace that the thread was in when it was opened.
#[derive(Debug)]
pub struct Net {
    socket: OwnedFd,
    sequence: u32,
}

impl Net {
    /// Fails only where descriptors or memory have run out.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The interface `name`.
    pub fn link(&mut self, name: &str) -> io::Result<Link> {
        let request = Message::new(libc::RTM_GETLINK).fixed(&[0; LINK_HEADER]).text(libc::IFLA_IFNAME, name);
        self.ask_link(request, &format!("find interface `{name}`"))
    }

    /// The interface with this index.
    pub fn link_at(&mut self, index: u32) -> io::Result<Link> {
        let request = Message::new(libc::RTM_GETLINK).fixed(&link_header(index));
        self.ask_link(request, &format!("find interface {index}"))
    }

    /// Whether the interface with this index is as [`Link::point_to_point`] says. Unlike a link, that is told without the kernel's lock of
    /// interfaces (RTNL), which whoever changes them may hold for seconds. Fails where there is none.
    pub fn is_point_to_point(&self, index: u32) -> io::Result<bool> {
        let mut request = interface_request::at(index);
        // The second takes the name that the first one gives.
        for question in [libc::SIOCGIFNAME, libc::SIOCGIFFLAGS] {
            // SAFETY: both read and write one `ifreq`, which outlives the call; the descriptor is open.
            let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), question, &raw mut request) };
            if result < 0 {
                let error = io::Error::last_os_error();
                return Err(explained(error, format_args!("cannot find interface {index}")));
            }
        }
        Ok(interface_request::has_flag(&request, libc::IFF_POINTOPOINT))
    }

    fn ask_link(&mut self, request: Message, doing: &str) -> io::Result<Link> {
        let reply = self.request(request, 0, doing)?;
        read_link(&reply).ok_or_else(|| explain(doing, "the kernel's answer is not understood"))
    }

    /// Makes a pair of interfaces, each of which receives what the other sends.
    pub fn add_veth(&mut self, name: &str, other: &str) -> io::Result<()> {
        let named = |name| attribute(libc::IFLA_IFNAME, &[name, "\0"].concat().into_bytes());
        let peer = attribute(VETH_INFO_PEER, &[[0; LINK_HEADER].as_slice(), &named(other)].concat());
        let info = [attribute(INFO_KIND, b"veth"), attribute(INFO_DATA, &peer)].concat();
        let request = Message::new(libc::RTM_NEWLINK).fixed(&[0; LINK_HEADER]);
        let request = request.text(libc::IFLA_IFNAME, name).attribute(libc::IFLA_LINKINFO, &info);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.change(request, flags, &format!("make interfaces `{name}` and `{other}`"))
    }

    /// Switches an interface on.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut header = link_header(index);
        header[8..12].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        header[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        let request = Message::new(libc::RTM_NEWLINK).fixed(&header);
        self.change(request, 0, &format!("switch interface {index} on"))
    }

    /// Sets the longest IP packet that an interface takes, in bytes.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let request = Message::new(libc::RTM_NEWLINK).fixed(&link_header(index)).number(libc::IFLA_MTU, mtu);
        self.change(request, 0, &format!("set the MTU of interface {index} to {mtu}"))
    }

    /// Gives an interface another Ethernet address.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let request =
            Message::new(libc::RTM_NEWLINK).fixed(&link_header(index)).attribute(libc::IFLA_ADDRESS, &mac);
        self.change(request, 0, &format!("set the MAC address of interface {index}"))
    }

    /// Sets how many packets an interface queues before it drops.
    pub fn set_queue_length(&mut self, index: u32, packets: u32) -> io::Result<()> {
        let request =
            Message::new(libc::RTM_NEWLINK).fixed(&link_header(index)).number(libc::IFLA_TXQLEN, packets);
        self.change(request, 0, &format!("set the queue of interface {index} to {packets} packets"))
    }

    /// Gives an interface an address with its prefix's length in bits; an IPv6 one is usable at once (no duplicate
    /// address detection). `routed`: the route of its prefix comes with it. Fails with `AlreadyExists` where it is there already.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8, routed: bool) -> io::Result<()> {
        let unrouted = if routed { 0 } else { libc::IFA_F_NOPREFIXROUTE };
        let request = interface_address(libc::RTM_NEWADDR, index, address, prefix)
            .address(libc::IFA_ADDRESS, address)
            .number(ADDRESS_FLAGS, libc::IFA_F_NODAD | unrouted);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.change(request, flags, &format!("add address {address}/{prefix} to interface {index}"))
    }

    /// Takes such an address away; fails where there is none. Where it was the first of its prefix, the kernel takes the
    /// others of that prefix with it, and with an interface's last address of a family its routes.
    pub fn delete_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let request = interface_address(libc::RTM_DELADDR, index, address, prefix);
        self.change(request, 0, &format!("delete address {address}/{prefix} from interface {index}"))
    }

    /// Adds a route; fails with `AlreadyExists` where the table has one of its prefix.
    pub fn add_route(&mut self, route: &Route) -> io::Result<()> {
        self.new_route(route, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
    }

    /// Adds a route, in the place of the one of its prefix if there is one.
    pub fn replace_route(&mut self, route: &Route) -> io::Result<()> {
        self.new_route(route, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
    }

    /// Adds a route behind others of its prefix; fails with `AlreadyExists` only where it is there itself.
    pub fn append_route(&mut self, route: &Route) -> io::Result<()> {
        self.new_route(route, libc::NLM_F_CREATE | libc::NLM_F_APPEND)
    }

    fn new_route(&mut self, route: &Route, flags: libc::c_int) -> io::Result<()> {
        let doing = match &route.congestion_control {
            Some(name) => format!("route {route} with congestion control {name}"),
            None => format!("route {route}"),
        };
        self.change(route.request(libc::RTM_NEWROUTE), flags, &doing)
    }

    /// Takes such a route away; fails where there is none.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<()> {
        self.change(route.request(libc::RTM_DELROUTE), 0, &format!("delete the route of {route}"))
    }

    /// Adds a rule; fails with `AlreadyExists` where it is there already.
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let doing = format!("add the routing rule of priority {}", rule.priority);
        self.change(rule.request(libc::RTM_NEWRULE), flags, &doing)
    }

    /// Takes such a rule away; fails where there is none.
    pub fn delete_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let doing = format!("delete the routing rule of priority {}", rule.priority);
        self.change(rule.request(libc::RTM_DELRULE), 0, &doing)
    }

    /// How a packet would leave. Fails with `NetworkUnreachable` where it could not.
    pub fn way_to(&mut self, query: &Query) -> io::Result<WayOut> {
        let doing = format!("find the way to {}", query.destination);
        let reply = self.request(query.request(0), 0, &doing)?;
        read_way(&reply).ok_or_else(|| explain(&doing, "the route leads to no interface"))
    }

    /// Whether the tables have a route for such a packet. [`way_to`](Self::way_to) does not say where an interface is given:
    /// for IPv4 the kernel then takes any destination for a neighbour, and for IPv6 with a source it asks for no interface.
    pub fn has_route(&mut self, query: &Query) -> bool {
        let Ok(found) = self.find_route(query) else { return false };
        query.interface.is_none() || found.interface.is_none() || found.interface == query.interface
    }

    /// The route that such a packet takes. Fails where there is none, or one that leads nowhere.
    pub fn find_route(&mut self, query: &Query) -> io::Result<Found> {
        let doing = format!("find the route to {}", query.destination);
        let reply = self.request(query.request(IN_TABLES), 0, &doing)?;
        read_route(&reply).ok_or_else(|| explain(&doing, "the kernel's answer is not understood"))
    }

    /// A request that is answered by an acknowledgement only.
    fn change(&mut self, request: Message, flags: libc::c_int, doing: &str) -> io::Result<()> {
        self.request(request, flags | libc::NLM_F_ACK, doing).map(drop)
    }

    /// Sends `request`; the body of its answer, empty if that is an acknowledgement.
    fn request(&mut self, request: Message, flags: libc::c_int, doing: &str) -> io::Result<Vec<u8>> {
        let explain = |error| explained(error, format_args!("cannot {doing}"));
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence, flags);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &bytes, SendFlags::empty(), &kernel).map_err(|error| explain(error.into()))?;
        self.answer().map_err(explain)
    }

    fn answer(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; REPLY];
        loop {
            let (length, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            let mine = |reply: &Reply<'_>| reply.sequence == self.sequence;
            let Some(reply) = replies(&buffer[..length]).find(mine) else { continue };
            return match reply.error() {
                Some(0) => Ok(Vec::new()),
                Some(error) => Err(io::Error::from_raw_os_error(error)),
                None => Ok(reply.body.to_vec()),
            };
        }
    }
}

/// What is there already is as good as added.
pub fn existing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

fn explain(doing: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot {doing}: {why}"))
}

/// `struct ifinfomsg` that names an interface and changes none of its flags.
fn link_header(index: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// A request about an address of an interface.
fn interface_address(kind: u16, index: u32, address: IpAddr, prefix: u8) -> Message {
    let [a, b, c, d] = index.to_ne_bytes();
    let header = [family(address), prefix, 0, 0, a, b, c, d];
    Message::new(kind).fixed(&header).address(libc::IFA_LOCAL, address)
}

impl Route {
    fn request(&self, kind: u16) -> Message {
        let mut header = [0; ROUTE_HEADER];
        (header[0], header[1]) = (family(self.destination), self.prefix);
        header[5] = libc::RTPROT_STATIC;
        header[6] = if self.destination.is_ipv4() { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
        header[7] = libc::RTN_UNICAST;
        let mut request = Message::new(kind)
            .fixed(&header)
            .address(libc::RTA_DST, self.destination)
            .number(libc::RTA_OIF, self.interface)
            .number(libc::RTA_TABLE, self.table);
        if let Some(source) = self.source {
            request = request.address(libc::RTA_PREFSRC, source);
        }
        if let Some(name) = &self.congestion_control {
            let metrics = attribute(METRIC_CONGESTION_CONTROL, &[name.as_bytes(), &[0]].concat());
            request = request.attribute(libc::RTA_METRICS, &metrics);
        }
        request
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} to interface {}", self.destination, self.prefix, self.interface)
    }
}

impl Rule {
    fn request(&self, kind: u16) -> Message {
        let mut header = [0; RULE_HEADER];
        header[0] = (if self.v6 { libc::AF_INET6 } else { libc::AF_INET }) as u8;
        header[7] = if self.unreachable { RULE_UNREACHABLE } else { RULE_TO_TABLE };
        if self.unless_marked.is_some() {
            header[8..].copy_from_slice(&RULE_INVERT.to_ne_bytes());
        }
        let mut request = Message::new(kind)
            .fixed(&header)
            .number(RULE_PRIORITY, self.priority)
            .number(RULE_TABLE, self.table);
        if let Some(mark) = self.unless_marked {
            request = request.number(RULE_MARK, mark);
        }
        if self.no_default {
            request = request.number(RULE_SUPPRESS_PREFIX, 0);
        }
        request
    }
}

impl Query {
    fn request(&self, flags: u32) -> Message {
        let mut header = [0; ROUTE_HEADER];
        (header[0], header[1]) = (family(self.destination), bits(self.destination));
        header[2] = self.source.map_or(0, bits);
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        let mut request = Message::new(libc::RTM_GETROUTE)
            .fixed(&header)
            .address(libc::RTA_DST, self.destination)
            .number(libc::RTA_MARK, self.mark);
        if let Some(source) = self.source {
            request = request.address(libc::RTA_SRC, source);
        }
        if let Some(interface) = self.interface {
            request = request.number(libc::RTA_OIF, interface);
        }
        request
    }
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn read_link(body: &[u8]) -> Option<Link> {
    let (header, rest) = body.split_first_chunk::<LINK_HEADER>()?;
    let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let find = |kind: u16| attributes(rest).find(|(found, _)| *found == kind).map(|(_, data)| data);
    let name = find(libc::IFLA_IFNAME)?;
    let on = |flag: libc::c_int| word(8) & flag as u32 != 0;
    Some(Link {
        index: word(4),
        name: text(name),
        mtu: number(find(libc::IFLA_MTU)?)?,
        ethernet: u16::from_ne_bytes([header[2], header[3]]) == libc::ARPHRD_ETHER,
        mac: find(libc::IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok()),
        up: on(libc::IFF_UP),
        running: on(libc::IFF_UP) && on(libc::IFF_RUNNING),
        port_of: find(libc::IFLA_LINKINFO).and_then(port_of),
        point_to_point: on(libc::IFF_POINTOPOINT),
        leads_nowhere: on(libc::IFF_LOOPBACK) || (on(libc::IFF_NOARP) && !on(libc::IFF_POINTOPOINT)),
    })
}

/// From IFLA_LINKINFO. A VRF takes nothing before it is IP's, and batman-adv only its own frames.
fn port_of(info: &[u8]) -> Option<String> {
    let (_, kind) = attributes(info).find(|(found, _)| *found == INFO_SLAVE_KIND)?;
    Some(text(kind)).filter(|kind| !["vrf", "batadv"].contains(&kind.as_str()))
}

fn read_way(body: &[u8]) -> Option<WayOut> {
    let rest = body.get(ROUTE_HEADER..)?;
    let find = |kind: u16| attributes(rest).find(|(found, _)| *found == kind).map(|(_, data)| data);
    let interface = number(find(libc::RTA_OIF)?)?;
    Some(WayOut { interface, source: find(libc::RTA_PREFSRC).and_then(address) })
}

fn read_route(body: &[u8]) -> Option<Found> {
    let (header, rest) = body.split_first_chunk::<ROUTE_HEADER>()?;
    let find =
        |kind: u16| attributes(rest).find(|(found, _)| *found == kind).and_then(|(_, data)| number(data));
    Some(Found { table: find(libc::RTA_TABLE)?, prefix: header[1], interface: find(libc::RTA_OIF) })
}

pub(crate) fn number(data: &[u8]) -> Option<u32> {
    data.try_into().ok().map(u32::from_ne_bytes)
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data.strip_suffix(&[0]).unwrap_or(data)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_whose_frames_are_taken_says_how_it_is_taken_out() {
        let taken = |kind: &str| {
            let info = attribute(INFO_SLAVE_KIND, &[kind.as_bytes(), &[0]].concat());
            let mut body = vec![0; LINK_HEADER];
            body.extend(attribute(libc::IFLA_IFNAME, b"eth0\0"));
            body.extend(attribute(libc::IFLA_MTU, &1500u32.to_ne_bytes()));
            body.extend(attribute(libc::IFLA_LINKINFO, &info));
            read_link(&body).expect("a link").taken()
        };
        for (kind, what, out) in [
            ("bridge", "`eth0` is a port of a bridge", "`ip link set eth0 nomaster`"),
            ("bond", "`eth0` is a port of a bond", "`ip link set eth0 nomaster`"),
            ("openvswitch", "`eth0` is a port of an Open vSwitch", "`ovs-vsctl del-port eth0`"),
        ] {
            let sentence = taken(kind).expect("it is taken");
            assert!(sentence.starts_with(what) && sentence.ends_with(out), "{sentence}");
        }
        assert_eq!(["vrf", "batadv"].map(taken), [None, None]);
    }
}
