//! The outer sockets: one for each family, on one port.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use device::UdpSocket;
use device::udp::{Options, SendFailure, Transmit};

use super::Listen;

/// Times a free IPv4 port is looked for whose number is free in IPv6 too.
const PORT_TRIES: usize = 16;
/// One line in the log for each kind of failure in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What the tunnel sends and receives with.
#[derive(Debug)]
pub struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    /// When a failure of each kind (errno) was last logged.
    logged: BTreeMap<Option<i32>, Duration>,
}

impl Sockets {
    /// Binds where `listen` says.
    pub fn bind(listen: Listen, options: Options) -> io::Result<Self> {
        let options = Options { v6_only: true, ..options };
        let one = |address| UdpSocket::bind(address, options);
        let (v4, v6) = match listen {
            Listen::Address(address) if address.is_ipv4() => (Some(one(address)?), None),
            Listen::Address(address) => (None, Some(one(address)?)),
            Listen::Port(0) => any_port(one)?,
            Listen::Port(port) => everywhere(port, one)?,
        };
        Ok(Self { v4, v6, logged: BTreeMap::new() })
    }

    /// Where they are bound; of the IPv4 one, if there are two.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let socket = self.iter().next().ok_or(io::ErrorKind::NotConnected)?;
        socket.local_address()
    }

    /// All there are.
    pub fn iter(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(&self.v6)
    }

    /// Sends all in order, but for the order of IPv4 and IPv6. What cannot be sent is lost, as on any network; `gone` is
    /// told where to and from where, if that may be for its source address, which this host has no more.
    pub fn send<'a>(
        &mut self,
        now: Duration,
        all: impl Iterator<Item = Transmit<'a>> + Clone,
        mut gone: impl FnMut(SocketAddr, IpAddr),
    ) {
        for v4 in [true, false] {
            let transmits: Vec<_> = all.clone().filter(|transmit| transmit.remote.is_ipv4() == v4).collect();
            if transmits.is_empty() {
                continue;
            }
            let socket = if v4 { &self.v4 } else { &self.v6 };
            let failures = match socket {
                Some(socket) => socket.send(&transmits).failures,
                None => vec![SendFailure { index: 0, error: io::ErrorKind::Unsupported.into() }],
            };
            for SendFailure { index, error } in failures {
                let Transmit { remote, local, .. } = transmits[index];
                self.log(now, remote, &error);
                if let Some(local) = local.filter(|_| may_be_gone(&error)) {
                    gone(remote, local);
                }
            }
        }
    }

    fn log(&mut self, now: Duration, remote: SocketAddr, error: &io::Error) {
        let kind = error.raw_os_error();
        let recent = self.logged.get(&kind).is_some_and(|last| now < *last + LOG_INTERVAL);
        if !recent {
            self.logged.insert(kind, now);
            tracing::debug!("cannot send to {remote}: {error}");
        }
    }
}

/// What kernels say to a source address (IP_PKTINFO) that is not the host's.
fn may_be_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, InvalidInput, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | InvalidInput | NetworkUnreachable)
}

type Pair = (Option<UdpSocket>, Option<UdpSocket>);

/// Both families on `port`; only IPv4 on a host without IPv6.
fn everywhere(port: u16, one: impl Fn(SocketAddr) -> io::Result<UdpSocket>) -> io::Result<Pair> {
    let v4 = one((Ipv4Addr::UNSPECIFIED, port).into())?;
    let v6 = one((Ipv6Addr::UNSPECIFIED, v4.local_address()?.port()).into());
    match v6 {
        Ok(v6) => Ok((Some(v4), Some(v6))),
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
            Err(error)
        }
        Err(error) => {
            tracing::info!("going on without IPv6: {error}");
            Ok((Some(v4), None))
        }
    }
}

/// Both families on a port that is free in both.
fn any_port(one: impl Fn(SocketAddr) -> io::Result<UdpSocket>) -> io::Result<Pair> {
    let mut result = everywhere(0, &one);
    for _ in 1..PORT_TRIES {
        if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
        result = everywhere(0, &one);
    }
    result
}
