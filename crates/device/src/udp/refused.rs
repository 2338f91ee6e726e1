//! Ways out that do not take trains of datagrams.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Ways out whose refusal of trains is remembered.
const MAX_REFUSED: usize = 64;

/// Ways out that do not take trains: a driver without checksum offload fails them with EIO, and the kernel with
/// EINVAL.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeSet<Way>);

/// The interface a train leaves by: the one asked for, or the one on the way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Interface(u32),
    Towards(IpAddr),
}

fn way(interface: Option<u32>, remote: IpAddr) -> Way {
    interface.map_or(Way::Towards(remote), Way::Interface)
}

impl Refused {
    pub(super) fn has(&self, interface: Option<u32>, remote: IpAddr) -> bool {
        !self.0.is_empty() && self.0.contains(&way(interface, remote))
    }

    pub(super) fn add(&mut self, interface: Option<u32>, remote: IpAddr) {
        if self.0.len() >= MAX_REFUSED {
            self.0.clear();
        }
        self.0.insert(way(interface, remote));
    }
}
