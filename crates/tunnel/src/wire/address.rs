//! Where datagrams go.

use std::net::{IpAddr, SocketAddr};

use crate::config::PathConfig;
use crate::wire::{Direction, RELAY_HEADER_LEN};

/// The other end of a path, as this end's socket sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The peer, or the relay.
    pub remote: SocketAddr,
    /// The relay's session and the direction that datagrams to this address take in it.
    pub via: Option<(Direction, u64)>,
    /// Where datagrams leave.
    pub local: LocalAddress,
}

/// Where datagrams leave this host: what IP_PKTINFO says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalAddress {
    /// The source address, or the kernel's choice.
    pub ip: Option<IpAddr>,
    /// The interface's index, or the routing table's choice.
    pub interface: Option<u32>,
    /// The place of the socket: 0 is the one that others know this end by, the others have ports that no NAT has seen.
    pub socket: u8,
}

/// Where a path of this end's leaves this host, and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where datagrams leave.
    pub local: LocalAddress,
    /// The peer.
    pub remote: SocketAddr,
    /// The relay in between or, if datagrams go there by TLS, what stands for it on this host.
    pub relay: Option<SocketAddr>,
    /// Where the relay is, if datagrams go there by TLS.
    pub tls: Option<SocketAddr>,
    /// Where else the peer may be, by its name: at an address of the other family.
    pub rival: Option<(SocketAddr, LocalAddress)>,
}

impl Way {
    /// As `config` says, from `local`; `None` where a resolver has to be asked.
    pub fn of(config: &PathConfig, local: LocalAddress) -> Option<Self> {
        // By TLS there is a way only when there is a connection.
        let relay = config.via.as_ref().map(|via| via.address.address().filter(|_| !via.tls));
        Some(Way {
            local,
            remote: config.remote.address()?,
            relay: relay.map_or(Some(None), |a| a.map(Some))?,
            tls: None,
            rival: None,
        })
    }
}

impl Address {
    /// Of a host that is reached directly.
    pub fn direct(remote: SocketAddr, local: LocalAddress) -> Self {
        Address { remote, via: None, local }
    }

    /// Whether both name the same place, wherever datagrams to it leave.
    pub fn is_same_place(&self, other: &Address) -> bool {
        self.remote == other.remote && self.via == other.via
    }

    /// Bytes of IP, UDP and relay headers before a transport packet.
    pub fn overhead(&self) -> usize {
        let ip = if self.remote.is_ipv4() { 20 } else { 40 };
        ip + 8 + self.relay_header_len()
    }

    /// Bytes of the relay's header.
    pub fn relay_header_len(&self) -> usize {
        if self.via.is_some() { RELAY_HEADER_LEN } else { 0 }
    }
}
