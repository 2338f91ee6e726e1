//! Where datagrams go, and trains of them.

use std::net::{IpAddr, SocketAddr};

use crate::capture::TrainNotes;
use crate::config::PathConfig;
use crate::wire::{self, Direction, RELAY_HEADER_LEN};

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

/// Datagrams to one address, all of one size but the last, which may be shorter: what UDP segmentation offload sends in
/// one call.
#[derive(Debug, Default)]
pub struct Train {
    /// Where to.
    pub to: Option<Address>,
    /// Traffic class: DSCP and ECN.
    pub tos: u8,
    /// The size of each datagram but the last.
    pub segment_size: usize,
    /// The datagrams one after the other.
    pub contents: Vec<u8>,
    /// What is noted of the datagrams, while somebody captures.
    pub notes: Option<TrainNotes>,
    segments: usize,
    closed: bool,
}

/// The kernel's UDP_MAX_SEGMENTS before 6.9.
const MAX_SEGMENTS: usize = 64;
/// The longest that fits into an IPv4 packet with a UDP header.
const MAX_BYTES: usize = 65_507;

impl Train {
    /// Empties it.
    pub fn clear(&mut self) {
        self.contents.clear();
        self.notes.iter_mut().for_each(TrainNotes::clear);
        (self.to, self.tos, self.segment_size, self.segments, self.closed) = (None, 0, 0, 0, false);
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Whether a datagram of `size` bytes of UDP payload to `to` with `tos` may follow.
    pub fn takes(&self, to: &Address, tos: u8, size: usize) -> bool {
        self.is_empty()
            || (self.to.as_ref() == Some(to)
                && self.tos == tos
                && !self.closed
                && size <= self.segment_size
                && self.segments < MAX_SEGMENTS
                && self.contents.len() + size <= MAX_BYTES)
    }

    /// Appends a datagram that `write` writes, after the relay's header where there is one.
    pub fn put(&mut self, to: &Address, tos: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.contents.len();
        if let Some((direction, session)) = to.via {
            self.contents.extend(wire::relay_header(direction, session));
        }
        write(&mut self.contents);
        let size = self.contents.len() - start;
        if self.is_empty() {
            (self.to, self.tos, self.segment_size) = (Some(*to), tos, size);
        }
        self.segments += 1;
        self.closed = size < self.segment_size;
    }

    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.segments
    }

    /// The datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.contents.chunks(self.segment_size.max(1))
    }
}
