//! Interfaces, addresses and routes, through rtnetlink (RFC 3549).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::netlink::{Message, Reply, attributes, replies};

/// `struct ifinfomsg`, in bytes.
const LINK_HEADER: usize = 16;
/// `struct rtmsg`, in bytes.
const ROUTE_HEADER: usize = 12;
/// An address's flags, 32 bits of them (IFA_FLAGS).
const ADDRESS_FLAGS: u16 = 8;
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
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// Index of the interface.
    pub interface: u32,
    /// The source address it would take.
    pub source: Option<IpAddr>,
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

    fn ask_link(&mut self, request: Message, doing: &str) -> io::Result<Link> {
        let reply = self.request(request, 0, doing)?;
        read_link(&reply).ok_or_else(|| explain(doing, "the kernel's answer is not understood"))
    }

    /// Switches an interface on.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let header = switch_header(index, true);
        self.change(
            Message::new(libc::RTM_NEWLINK).fixed(&header),
            0,
            &format!("switch interface {index} on"),
        )
    }

    /// Switches an interface off; its routes go.
    pub fn set_down(&mut self, index: u32) -> io::Result<()> {
        let header = switch_header(index, false);
        self.change(
            Message::new(libc::RTM_NEWLINK).fixed(&header),
            0,
            &format!("switch interface {index} off"),
        )
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
    /// address detection). One that is there already stays.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let request = interface_address(libc::RTM_NEWADDR, index, address, prefix)
            .address(libc::IFA_ADDRESS, address)
            .number(ADDRESS_FLAGS, libc::IFA_F_NODAD);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        self.change(request, flags, &format!("add address {address}/{prefix} to interface {index}"))
    }

    /// Takes such an address away; fails where there is none. Where it was the first of its prefix, the kernel takes the
    /// others of that prefix with it, and with an interface's last address of a family its routes.
    pub fn delete_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let request = interface_address(libc::RTM_DELADDR, index, address, prefix);
        self.change(request, 0, &format!("delete address {address}/{prefix} from interface {index}"))
    }

    /// Routes a prefix to an interface, in the main table; fails with `AlreadyExists` where such a route is there.
    pub fn add_route(&mut self, destination: IpAddr, prefix: u8, index: u32) -> io::Result<()> {
        let request = route(libc::RTM_NEWROUTE, destination, prefix, index);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.change(request, flags, &format!("route {destination}/{prefix} to interface {index}"))
    }

    /// Takes such a route away; fails where there is none.
    pub fn delete_route(&mut self, destination: IpAddr, prefix: u8, index: u32) -> io::Result<()> {
        let request = route(libc::RTM_DELROUTE, destination, prefix, index);
        self.change(request, 0, &format!("delete the route of {destination}/{prefix} to interface {index}"))
    }

    /// How a packet with this mark (0: none) would leave for `destination`. Fails with `NetworkUnreachable` where
    /// it could not.
    pub fn way_to(&mut self, destination: IpAddr, mark: u32) -> io::Result<WayOut> {
        let mut header = [0; ROUTE_HEADER];
        (header[0], header[1]) = (family(destination), bits(destination));
        let request = Message::new(libc::RTM_GETROUTE)
            .fixed(&header)
            .address(libc::RTA_DST, destination)
            .number(libc::RTA_MARK, mark);
        let doing = format!("find the way to {destination}");
        let reply = self.request(request, 0, &doing)?;
        read_way(&reply).ok_or_else(|| explain(&doing, "the route leads to no interface"))
    }

    /// A request that is answered by an acknowledgement only.
    fn change(&mut self, request: Message, flags: libc::c_int, doing: &str) -> io::Result<()> {
        self.request(request, flags | libc::NLM_F_ACK, doing).map(drop)
    }

    /// Sends `request`; the body of its answer, empty if that is an acknowledgement.
    fn request(&mut self, request: Message, flags: libc::c_int, doing: &str) -> io::Result<Vec<u8>> {
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("cannot {doing}: {error}"));
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

fn explain(doing: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot {doing}: {why}"))
}

/// `struct ifinfomsg` that names an interface and changes none of its flags.
fn link_header(index: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// `struct ifinfomsg` that changes IFF_UP.
fn switch_header(index: u32, up: bool) -> [u8; LINK_HEADER] {
    let mut header = link_header(index);
    let flag = libc::IFF_UP as u32;
    header[8..12].copy_from_slice(&(if up { flag } else { 0 }).to_ne_bytes());
    header[12..16].copy_from_slice(&flag.to_ne_bytes());
    header
}

/// A request about an address of an interface.
fn interface_address(kind: u16, index: u32, address: IpAddr, prefix: u8) -> Message {
    let [a, b, c, d] = index.to_ne_bytes();
    let header = [family(address), prefix, 0, 0, a, b, c, d];
    Message::new(kind).fixed(&header).address(libc::IFA_LOCAL, address)
}

/// A request about the unicast route of a prefix to an interface, in the main table.
fn route(kind: u16, destination: IpAddr, prefix: u8, index: u32) -> Message {
    let mut header = [0; ROUTE_HEADER];
    (header[0], header[1]) = (family(destination), prefix);
    header[4] = libc::RT_TABLE_MAIN;
    header[5] = libc::RTPROT_STATIC;
    header[6] = if destination.is_ipv4() { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
    header[7] = libc::RTN_UNICAST;
    Message::new(kind).fixed(&header).address(libc::RTA_DST, destination).number(libc::RTA_OIF, index)
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
        name: String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned(),
        mtu: number(find(libc::IFLA_MTU)?)?,
        ethernet: u16::from_ne_bytes([header[2], header[3]]) == libc::ARPHRD_ETHER,
        mac: find(libc::IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok()),
        up: on(libc::IFF_UP),
        running: on(libc::IFF_UP) && on(libc::IFF_RUNNING),
    })
}

fn read_way(body: &[u8]) -> Option<WayOut> {
    let rest = body.get(ROUTE_HEADER..)?;
    let find = |kind: u16| attributes(rest).find(|(found, _)| *found == kind).map(|(_, data)| data);
    let interface = number(find(libc::RTA_OIF)?)?;
    Some(WayOut { interface, source: find(libc::RTA_PREFSRC).and_then(address) })
}

fn number(data: &[u8]) -> Option<u32> {
    data.try_into().ok().map(u32::from_ne_bytes)
}

fn address(data: &[u8]) -> Option<IpAddr> {
    match data.len() {
        4 => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    }
}
