//! The interfaces by which this host reaches another.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use device::Net;
use device::net::Query;

use super::cost::Cost;
use crate::config::HostPort;

/// An interface, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Its name.
    pub interface: String,
    /// One of the remotes that the routing tables reach by it.
    pub remote: HostPort,
    /// What it costs.
    pub cost: Cost,
}

/// Those that carry packets and have a route, a default route or a narrower one, to one of `remotes`. `but`: the tunnel's own.
///
/// # Errors
/// The kernel does not say.
pub fn find(remotes: &[HostPort], but: &str) -> io::Result<Vec<Uplink>> {
    let remotes: Vec<_> = remotes.iter().map(|remote| (remote, addresses(remote))).collect();
    let mut net = Net::open()?;
    let mut found = Vec::new();
    for interface in device::interfaces()?.into_iter().filter(|name| name != but) {
        // One that has just gone is none.
        let Ok(link) = net.link(&interface) else { continue };
        if !link.running || link.leads_nowhere {
            continue;
        }
        let remote = remotes.iter().find(|(_, addresses)| reaches(&mut net, link.index, addresses));
        found.extend(remote.map(|(remote, _)| Uplink {
            interface,
            remote: (*remote).clone(),
            cost: Cost::default(),
        }));
    }
    Ok(found)
}

/// Those of `uplinks` that reach `remote` lead to it: it has answered, which others may never do.
///
/// # Errors
/// The kernel does not say.
pub fn lead_to(uplinks: &mut [Uplink], remote: &HostPort) -> io::Result<()> {
    let (mut net, addresses) = (Net::open()?, addresses(remote));
    for uplink in uplinks {
        if net.link(&uplink.interface).is_ok_and(|link| reaches(&mut net, link.index, &addresses)) {
            uplink.remote = remote.clone();
        }
    }
    Ok(())
}

/// Whether there is a route by this interface to one of them.
fn reaches(net: &mut Net, interface: u32, addresses: &[IpAddr]) -> bool {
    let query = |address: &IpAddr| Query { interface: Some(interface), ..Query::to(*address) };
    addresses.iter().any(|address| net.has_route(&query(address)))
}

/// Addresses of a host; none if its name does not resolve.
fn addresses(host: &HostPort) -> Vec<IpAddr> {
    let found = host.to_string().to_socket_addrs();
    found.map_or(Vec::new(), |found| found.map(|address| address.ip()).collect())
}

/// The addresses that others may reach this host by, each with `port`: those of interfaces that lead somewhere, the global
/// ones of IPv4 and IPv6.
///
/// # Errors
/// The kernel does not say.
pub fn own_endpoints(port: u16) -> io::Result<Vec<String>> {
    let mut net = Net::open()?;
    let mut found = Vec::new();
    for interface in device::interfaces()? {
        if !net.link(&interface).is_ok_and(|link| link.running && !link.leads_nowhere) {
            continue;
        }
        let addresses = device::addresses(&interface)?;
        let usable = addresses.into_iter().filter(|address| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        });
        found.extend(usable.map(|address| std::net::SocketAddr::new(address, port).to_string()));
    }
    Ok(found)
}
