//! Nodes that relay for each other on the 802.11 medium, in a row: each knows its neighbours, and by them the ways to the others.

use std::net::Ipv4Addr;

use crate::command::neighbour;
use crate::dcf::mac;
use crate::error::Result;
use crate::namespace::Namespace;

/// Between neighbours, in metres: they hear each other, and nobody further does.
pub(crate) const SPACING_M: f64 = 90.0;

pub(crate) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, u8::try_from(node + 1).unwrap_or(u8::MAX))
}

/// Has a node forward. Packets go out by the interface that they came in by: nobody is to be told of a shorter way.
pub(crate) fn forward(node: &Namespace) -> Result<()> {
    node.sysctl("ipv4/ip_forward", "1")?;
    ["all", "default"].iter().try_for_each(|of| {
        node.sysctl(&format!("ipv4/conf/{of}/send_redirects"), "0")?;
        node.sysctl(&format!("ipv4/conf/{of}/accept_redirects"), "0")
    })
}

/// Gives `node`, one of `count`, its neighbours and the ways to the others by `interface`, which is up.
pub(crate) fn join(host: &Namespace, node: usize, count: usize, interface: &str) -> Result<()> {
    host.sysctl(&format!("ipv4/conf/{interface}/send_redirects"), "0")?;
    let way = |other: usize| match next(node, other) {
        next if next == other => neighbour(interface, address(next), &mac(next)),
        next => format!("route replace {} via {} dev {interface}", address(other), address(next)),
    };
    host.ip(&(0..count).filter(|other| *other != node).map(way).collect::<Vec<_>>())
}

/// The neighbour that is next on the way from `node` to `other`.
pub(crate) fn next(node: usize, other: usize) -> usize {
    if other > node { node + 1 } else { node - 1 }
}
