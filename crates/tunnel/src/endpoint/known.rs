//! Where peers and relays are known to be: under a flood that is asked of each datagram, and costs a look into a table.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::peer::Peer;
use crate::wire::Direction;
use crate::wire::address::Address;

/// How old the tables may be: what a peer gets that has moved since is a cookie first.
const AGE: Duration = Duration::from_secs(1);

/// The places that paths lead to.
#[derive(Debug, Default)]
pub struct Known {
    places: HashSet<(SocketAddr, Option<(Direction, u64)>)>,
    /// Of their next hops, and of relays.
    hosts: HashSet<SocketAddr>,
    until: Duration,
}

impl Known {
    /// Whether a path of one of `peers` leads there, or did a second ago.
    pub fn contains(&mut self, now: Duration, address: &Address, peers: &[Peer]) -> bool {
        self.renew(now, peers);
        self.places.contains(&place(address))
    }

    /// Whether a path of one of `peers` leads or is registered there, or was a second ago.
    pub fn has_host(&mut self, now: Duration, host: SocketAddr, peers: &[Peer]) -> bool {
        self.renew(now, peers);
        self.hosts.contains(&host)
    }

    fn renew(&mut self, now: Duration, peers: &[Peer]) {
        if now < self.until {
            return;
        }
        let paths = peers.iter().flat_map(|peer| &peer.paths);
        self.places = paths.clone().filter_map(|path| path.address()).map(place).collect();
        let relays = paths.filter_map(|path| path.relay()).map(|relay| relay.remote);
        self.hosts = self.places.iter().map(|(host, _)| *host).chain(relays).collect();
        self.until = now + AGE;
    }
}

fn place(address: &Address) -> (SocketAddr, Option<(Direction, u64)>) {
    (address.remote, address.via)
}
