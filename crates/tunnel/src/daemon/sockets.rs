//! The outer sockets: one for each family, on one port, and spare ones on other ports.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use device::UdpSocket;
use device::udp::{Options, SendFailure, Transmit};
use rustix::io::Errno;

use super::settings::Listen;
use crate::wire::address::{Address, LocalAddress};

/// Places of sockets of each family: the first is what others know this end by. Spare ones are opened when they are asked
/// for, and stay.
pub const PLACES: u8 = 8;

/// What the tunnel sends and receives with.
#[derive(Debug)]
pub struct Sockets {
    /// By family and place.
    all: BTreeMap<(Family, u8), UdpSocket>,
    options: Options,
}

/// Of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of this address.
    pub fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl Sockets {
    /// Binds where `listen` says.
    pub fn bind(listen: Listen, options: Options) -> io::Result<Self> {
        let options = Options { v6_only: true, ..options };
        let one = |address| UdpSocket::bind(address, options);
        let (v4, v6) = match listen {
            Listen::Address(address) if address.is_ipv4() => (Some(one(address)?), None),
            Listen::Address(address) => (None, Some(one(address)?)),
            Listen::Port(port) => everywhere(port, one)?,
        };
        let v4 = v4.map(|socket| ((Family::V4, 0), socket));
        let all = v4.into_iter().chain(v6.map(|socket| ((Family::V6, 0), socket))).collect();
        Ok(Self { all, options })
    }

    /// Where they are bound; of the IPv4 one, if there are two.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let socket = self.iter().next().ok_or(io::ErrorKind::NotConnected)?;
        socket.local_address()
    }

    /// All there are.
    pub fn iter(&self) -> impl Iterator<Item = &UdpSocket> {
        self.all.values()
    }

    /// The socket of this family and place.
    pub fn get(&self, family: Family, place: u8) -> Option<&UdpSocket> {
        self.all.get(&(family, place))
    }

    /// Opens the sockets of this place, at the addresses of the first ones, on any port that is free; `each` gets those that are new.
    pub fn open(&mut self, place: u8, mark: u32, mut each: impl FnMut(Family, &UdpSocket)) {
        for family in [Family::V4, Family::V6] {
            let Some(first) = self.get(family, 0).filter(|_| !self.all.contains_key(&(family, place))) else {
                continue;
            };
            let options = Options { fwmark: mark, ..self.options };
            let bind = |at: SocketAddr| UdpSocket::bind(SocketAddr::new(at.ip(), 0), options);
            match first.local_address().and_then(bind) {
                Ok(socket) => each(family, self.all.entry((family, place)).or_insert(socket)),
                Err(error) => tracing::warn!("{error}; the tunnel goes on with the ports that it has"),
            }
        }
    }

    /// Sends all, each by the socket of its place, in order, but for the order of those by different sockets. What cannot be sent is
    /// lost, as on any network, and `failed` is told.
    pub fn send<'a>(
        &self,
        all: impl Iterator<Item = (u8, Transmit<'a>)> + Clone,
        mut failed: impl FnMut(&Transmit<'_>, &io::Error),
    ) {
        let place = |(place, transmit): &(u8, Transmit<'a>)| (Family::of(transmit.remote), *place);
        let mut places: Vec<_> = all.clone().map(|one| place(&one)).collect();
        places.sort_unstable();
        places.dedup();
        for one in places {
            let here = all.clone().filter(|found| place(found) == one);
            let transmits: Vec<_> = here.map(|(_, transmit)| transmit).collect();
            let failures = match self.all.get(&one).or_else(|| self.all.get(&(one.0, 0))) {
                Some(socket) => socket.send(&transmits),
                None => vec![SendFailure { index: 0, error: io::ErrorKind::Unsupported.into() }],
            };
            for SendFailure { index, error } in failures {
                tracing::trace!("cannot send to {}: {error}", transmits[index].remote);
                failed(&transmits[index], &error);
            }
        }
    }
}

/// What kernels say to a source address (IP_PKTINFO) that is not the host's.
pub fn may_be_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, InvalidInput, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | InvalidInput | NetworkUnreachable)
}

/// Memory is short: what is to be said of that is said elsewhere.
pub fn is_for_room(error: &io::Error) -> bool {
    let room = [Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN];
    error.kind() == io::ErrorKind::WouldBlock || room.iter().any(|one| is(error, *one))
}

/// The bytes of the IP packet that was larger than its own link carries, if that is why it was not sent.
pub fn too_large(transmit: &Transmit<'_>, error: &io::Error) -> Option<u16> {
    let payload = transmit.segment_size.unwrap_or(usize::MAX).min(transmit.contents.len());
    let size = payload + Address::direct(transmit.remote, LocalAddress::default()).overhead();
    u16::try_from(size).ok().filter(|_| is(error, Errno::MSGSIZE))
}

fn is(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

/// Listens for TCP where `listen` says.
pub fn listen_tcp(listen: Listen) -> io::Result<TcpListener> {
    let port = match listen {
        Listen::Address(address) => return device::tcp::listen(address),
        Listen::Port(port) => port,
    };
    match if_there(device::tcp::listen((Ipv6Addr::UNSPECIFIED, port).into()))? {
        Some(both) => Ok(both),
        None => device::tcp::listen((Ipv4Addr::UNSPECIFIED, port).into()),
    }
}

type Pair = (Option<UdpSocket>, Option<UdpSocket>);

/// Both families on `port`, or each on one that is free; only IPv4 on a host without IPv6.
fn everywhere(port: u16, one: impl Fn(SocketAddr) -> io::Result<UdpSocket>) -> io::Result<Pair> {
    let v4 = one((Ipv4Addr::UNSPECIFIED, port).into())?;
    let v6 = if_there(one((Ipv6Addr::UNSPECIFIED, port).into()))?;
    Ok((Some(v4), v6))
}

/// `None` on a host without IPv6; whatever else is wrong with an IPv6 socket is an error.
fn if_there<T>(v6: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{AddrInUse, PermissionDenied, QuotaExceeded};
    match v6 {
        Err(error) if !matches!(error.kind(), AddrInUse | PermissionDenied | QuotaExceeded) => {
            tracing::info!("listens on IPv4 alone, for this host has no IPv6: {error}");
            Ok(None)
        }
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_port_that_is_taken_for_ipv6_is_taken() {
        let other = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let listen = Listen::Port(other.local_addr().unwrap().port());
        assert_eq!(listen_tcp(listen).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn spare_ports_are_at_the_address_that_is_listened_at() {
        let listen = Listen::Address("127.0.0.9:0".parse().unwrap());
        let mut sockets = Sockets::bind(listen, Options::default()).unwrap();
        let mut opened = Vec::new();
        for _ in 0..2 {
            sockets.open(3, 0, |family, socket| opened.push((family, socket.local_address().unwrap())));
        }
        assert_eq!(opened.len(), 1, "{opened:?}");
        assert_eq!((opened[0].0, opened[0].1.ip()), (Family::V4, "127.0.0.9".parse::<IpAddr>().unwrap()));
        assert_ne!(opened[0].1, sockets.local_address().unwrap());
    }
}
