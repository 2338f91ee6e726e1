//! Which way packets leave this host: what the kernel's routing tables say of an interface, an address or neither.

use std::net::{IpAddr, SocketAddr};

use device::net::{Link, Query};
use device::{Net, Outgoing};

use super::names::Name;
use crate::config::Local;
use crate::why::Why;
use crate::wire::address::LocalAddress;

/// What is asked about a way out.
pub struct Host<'a> {
    /// To ask the kernel.
    pub net: &'a mut Net,
    /// Index and name of the tunnel's own interface.
    pub own: (u32, &'a str),
    /// Of the outer packets.
    pub mark: u32,
}

impl Host<'_> {
    /// The first address of `name` that a way leads to, and where that leaves this host.
    pub fn first_way(
        &mut self,
        local: &Local,
        source: Option<IpAddr>,
        name: &mut Name,
    ) -> Result<(SocketAddr, LocalAddress), Why> {
        let mut result = Err(name.why());
        for address in name.candidates(source).into_iter().rev() {
            match self.way(local, address) {
                Ok(way) => result = Ok((address, way)),
                Err(why) if result.is_err() => result = Err(why),
                Err(_) => {}
            }
        }
        if let Ok((address, _)) = result {
            name.choose(address);
        }
        result
    }

    /// The first address of the other family than that of `chosen` that a way leads to, and where that leaves this host.
    pub fn rival(
        &mut self,
        local: &Local,
        source: Option<IpAddr>,
        name: &Name,
        chosen: SocketAddr,
    ) -> Option<(SocketAddr, LocalAddress)> {
        let others = name.candidates(source).into_iter().filter(|one| one.is_ipv4() != chosen.is_ipv4());
        others.into_iter().find_map(|one| Some((one, self.way(local, one).ok()?)))
    }

    /// How this end's own questions leave for what a path is about: as its packets do, wherever they lead.
    pub fn leaves(&mut self, local: &Local) -> Outgoing {
        let (name, source) = match local {
            Local::Any => (None, None),
            Local::Interface(name) => (Some(name.clone()), None),
            Local::Address(ip) => (device::holders(*ip).unwrap_or_default().pop(), Some(*ip)),
        };
        let interface = name.and_then(|name| self.net.link(&name).ok()).map(|link| link.index);
        Outgoing { mark: self.mark, interface, source }
    }

    fn way(&mut self, local: &Local, to: SocketAddr) -> Result<LocalAddress, Why> {
        // Many interfaces, the tunnel's own too, have a route to the prefix of neighbours.
        let interface = match to {
            SocketAddr::V6(to) => Some(to.scope_id()).filter(|zone| *zone > 0),
            SocketAddr::V4(_) => None,
        };
        let query = Query { mark: self.mark, interface, ..Query::to(to.ip()) };
        match local {
            Local::Any => self.outside(&query, String::new()).map(|()| LocalAddress::default()),
            Local::Interface(name) => self.by_interface(name, &query),
            Local::Address(ip) => self.by_address(*ip, &query),
        }
    }

    /// Whether there is a way, and not into the tunnel itself.
    fn outside(&mut self, query: &Query, by: String) -> Result<(), Why> {
        let to = query.destination;
        match self.net.way_to(query) {
            Ok(way) if way.interface == self.own.0 => Err(Why::Loop { to, interface: self.own.1.to_owned() }),
            Ok(_) => Ok(()),
            Err(_) => Err(Why::NoRoute { by, to }),
        }
    }

    fn by_interface(&mut self, name: &str, query: &Query) -> Result<LocalAddress, Why> {
        let link = self.net.link(name).map_err(|_| Why::NoInterface(name.to_owned()))?;
        let query = &Query { interface: Some(link.index), ..*query };
        self.check(&link, query)?;
        let (index, straight) = (link.index, link.point_to_point);
        if let Some(way) = leaves_by(self.net, index, straight, query) {
            return Ok(way);
        }
        // Perhaps a rule knows packets from its addresses.
        let mut sources = device::addresses(&link.name).unwrap_or_default();
        sources.retain(|ip| ip.is_ipv4() == query.destination.is_ipv4());
        let way = |ip| leaves_by(self.net, index, straight, &Query { source: Some(ip), ..*query });
        let by = format!(" by {name}");
        sources.into_iter().find_map(way).ok_or(Why::NoRoute { by, to: query.destination })
    }

    fn by_address(&mut self, ip: IpAddr, query: &Query) -> Result<LocalAddress, Why> {
        let mut result = Err(Why::NoAddress(ip));
        for name in device::holders(ip).unwrap_or_default() {
            let Ok(link) = self.net.link(&name) else { continue };
            result = self.by_holder(ip, &link, &Query { source: Some(ip), ..*query });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn by_holder(&mut self, ip: IpAddr, link: &Link, query: &Query) -> Result<LocalAddress, Why> {
        self.check(link, query)?;
        if link.leads_nowhere {
            let by = format!(" from {ip}");
            return self
                .outside(query, by)
                .map(|()| LocalAddress { ip: Some(ip), ..LocalAddress::default() });
        }
        let by = format!(" by {} from {ip}", link.name);
        let query = Query { interface: Some(link.index), ..*query };
        let way = leaves_by(self.net, link.index, link.point_to_point, &query);
        way.ok_or_else(|| self.why_not(ip, link, by, &query))
    }

    /// There is no route by that interface, or IPv6 takes another of its addresses by it.
    fn why_not(&mut self, ip: IpAddr, link: &Link, by: String, query: &Query) -> Why {
        let free = Query { source: None, ..*query };
        let there = ip.is_ipv6() && self.net.has_route(&free);
        match there.then(|| self.net.way_to(&free).ok()?.source).flatten() {
            Some(takes) if takes != ip => Why::NotTaken { ip, interface: link.name.clone(), takes },
            _ => Why::NoRoute { by, to: query.destination },
        }
    }

    fn check(&self, link: &Link, query: &Query) -> Result<(), Why> {
        if link.index == self.own.0 {
            return Err(Why::Loop { to: query.destination, interface: link.name.clone() });
        }
        if !link.running {
            return Err(Why::InterfaceDown(link.name.clone()));
        }
        Ok(())
    }
}

/// How packets leave by this interface, from this source if one is given; `None` if no route leads there by it. One that is
/// `point_to_point` takes all.
pub fn leaves_by(net: &mut Net, interface: u32, point_to_point: bool, query: &Query) -> Option<LocalAddress> {
    let way = |ip| LocalAddress { ip, interface: Some(interface), socket: 0 };
    if point_to_point || net.has_route(query) {
        return Some(way(query.source));
    }
    // IPv6 keeps to an interface only where the source is left to it; of its own addresses it takes what it would anyway.
    let free = Query { source: None, ..*query };
    let taken = query.source.filter(|source| source.is_ipv6() && net.has_route(&free))?;
    net.way_to(&free).ok().filter(|found| found.source == Some(taken)).map(|_| way(None))
}
