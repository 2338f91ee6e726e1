//! The interfaces by which this host reaches another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use device::Net;
use device::net::Query;
use tunnel::config::Host;

use super::cost::Cost;
use super::invite::MAX_ENDPOINTS;
use crate::config::{HostPort, value};

/// Addresses that only a default route leads to.
const FAR_V4: Ipv4Addr = Ipv4Addr::new(1, 1, 1, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111);

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

/// Those that carry packets, have a name that a file may have, and have a route, a default route or a narrower one, to one of
/// `remotes`. `but`: the tunnel's own.
///
/// # Errors
/// The kernel does not say.
pub fn find(remotes: &[HostPort], but: &str) -> io::Result<Vec<Uplink>> {
    let remotes: Vec<_> =
        remotes.iter().map(|remote| (remote, addresses(remote).unwrap_or_default())).collect();
    let mut net = Net::open()?;
    let mut found = Vec::new();
    let usable = |name: &String| name != but && value::interface(name).is_ok();
    for interface in device::interfaces()?.into_iter().filter(usable) {
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
    let (mut net, addresses) = (Net::open()?, addresses(remote).unwrap_or_default());
    for uplink in uplinks {
        if net.link(&uplink.interface).is_ok_and(|link| reaches(&mut net, link.index, &addresses)) {
            uplink.remote = remote.clone();
        }
    }
    Ok(())
}

/// Whether there is a route by this interface to one of them. A neighbour by another interface is none by this one.
fn reaches(net: &mut Net, interface: u32, addresses: &[SocketAddr]) -> bool {
    let by_it = |address: &&SocketAddr| zone(address).is_none_or(|zone| zone == interface);
    let query = |address: &SocketAddr| Query { interface: Some(interface), ..Query::to(address.ip()) };
    addresses.iter().filter(by_it).any(|address| net.has_route(&query(address)))
}

/// The interface that a neighbour is named with.
fn zone(address: &SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(address) => Some(address.scope_id()).filter(|zone| *zone > 0),
        SocketAddr::V4(_) => None,
    }
}

/// Addresses of a host. A neighbour's has the interface that it is named with, which is one of this host's.
///
/// # Errors
/// One sentence.
pub fn addresses(host: &HostPort) -> Result<Vec<SocketAddr>, String> {
    let (name, port) = match Host::from(host.clone()) {
        Host::Address(address) => return Ok(vec![address]),
        Host::Name(name, port) => (name, port),
    };
    let Some((ip, zone)) = name.split_once('%') else {
        let found = (name.as_str(), port).to_socket_addrs();
        return found.map(|found| found.collect()).map_err(|error| format!("{host}: {error}"));
    };
    let ip: Ipv6Addr = ip.parse().map_err(|_| format!("{host}: {ip} is no address of IPv6"))?;
    let named = || Net::open().ok()?.link(zone).ok();
    let interface = named().map(|link| link.index).or_else(|| zone.parse().ok());
    let interface = interface.ok_or_else(|| {
        format!("{host} is a neighbour by the interface {zone}, and this host has none of that name")
    })?;
    Ok(vec![SocketAddrV6::new(ip, port, 0, interface).into()])
}

/// The addresses that others may reach this host by, each with `port`: those of interfaces that lead somewhere, the global
/// ones of IPv4 and IPv6; no more than an invite names. First those of interfaces that lead into the Internet, for fewer reach
/// others, as a bridge of containers; one of each interface in turn.
///
/// # Errors
/// The kernel does not say.
pub fn own_endpoints(port: u16) -> io::Result<Vec<String>> {
    let mut net = Net::open()?;
    let mut found = Vec::new();
    for interface in device::interfaces()? {
        let Ok(link) = net.link(&interface) else { continue };
        if !link.running || link.leads_nowhere {
            continue;
        }
        let mut usable = device::addresses(&interface)?;
        usable.retain(|address| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        });
        let inward = !usable.iter().any(|own| leads_far(&mut net, link.index, *own));
        found.extend(usable.into_iter().zip(0..).map(|(address, nth)| ((inward, nth), address)));
    }
    found.sort_by_key(|(rank, _): &((bool, usize), _)| *rank);
    let places = found.into_iter().map(|(_, address)| SocketAddr::new(address, port).to_string());
    Ok(places.take(MAX_ENDPOINTS).collect())
}

/// Whether packets from `own`, an address of this interface, have a route into the Internet by it. None is sent.
fn leads_far(net: &mut Net, interface: u32, own: IpAddr) -> bool {
    let far: IpAddr = if own.is_ipv4() { FAR_V4.into() } else { FAR_V6.into() };
    let by_it = Query { interface: Some(interface), ..Query::to(far) };
    // With a source the kernel minds no interface of IPv6, without one no rule by source.
    net.has_route(&by_it) || net.has_route(&Query { source: Some(own), ..by_it })
}
