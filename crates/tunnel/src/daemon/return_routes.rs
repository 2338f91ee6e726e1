//! Answers leave by the interface that was hit, if a route leads back by it; else by whatever the routing tables say.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use device::Net;
use device::net::Query;

use super::routing::leaves_by;
use crate::wire::address::{Address, LocalAddress};

/// Routes that are remembered; beyond that all are forgotten, and asked for again.
const MAX_KNOWN: usize = 4096;

/// What the kernel said of the routes by which answers leave.
#[derive(Debug)]
pub struct ReturnRoutes {
    net: Net,
    mark: u32,
    /// How packets leave to the first address, from the second, by the interface if a route leads there by it.
    known: HashMap<(IpAddr, IpAddr, u32), LocalAddress>,
}

impl ReturnRoutes {
    /// Of packets with this mark.
    pub fn new(mark: u32) -> io::Result<Self> {
        Ok(Self { net: Net::open()?, mark, known: HashMap::new() })
    }

    /// Packets have this mark from now on, or routes have changed.
    pub fn forget(&mut self, mark: u32) {
        self.mark = mark;
        self.known.clear();
    }

    /// Leaves the interface of `to` out if no route leads there by it. One without a source address has been looked at: it
    /// is this end's configuration's.
    pub fn settle(&mut self, to: &mut Address) {
        let (Some(source), Some(interface)) = (to.local.ip, to.local.interface) else { return };
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        let (net, mark, destination) = (&mut self.net, self.mark, to.remote.ip());
        let query = Query { destination, mark, source: Some(source), interface: Some(interface) };
        let ask = || {
            if net.has_route(&query) {
                return LocalAddress { ip: Some(source), interface: Some(interface), socket: 0 };
            }
            // A question about a link would wait for whoever changes links at present, and this is the data thread.
            let straight = net.is_point_to_point(interface).ok();
            let way = straight.and_then(|straight| leaves_by(net, interface, straight, &query));
            way.unwrap_or(LocalAddress { ip: Some(source), ..LocalAddress::default() })
        };
        let socket = to.local.socket;
        let way = *self.known.entry((destination, source, interface)).or_insert_with(ask);
        to.local = LocalAddress { socket, ..way };
    }
}
