//! Where peers are known to be: under a flood of handshakes that is asked of each, and costs a look into a table.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::peer::Peer;
use crate::wire::Direction;
use crate::wire::address::Address;

/// How old the table may be: what a peer gets that has moved since is a cookie first.
const AGE: Duration = Duration::from_secs(1);

/// The places that paths lead to.
#[derive(Debug, Default)]
pub struct Known {
    places: HashSet<(SocketAddr, Option<(Direction, u64)>)>,
    until: Duration,
}

impl Known {
    /// Whether a path of one of `peers` leads there, or did a second ago.
    pub fn contains(&mut self, now: Duration, address: &Address, peers: &[Peer]) -> bool {
        if now >= self.until {
            let paths = peers.iter().flat_map(|peer| &peer.paths);
            self.places = paths.filter_map(|path| path.address()).map(place).collect();
            self.until = now + AGE;
        }
        self.places.contains(&place(address))
    }
}

fn place(address: &Address) -> (SocketAddr, Option<(Direction, u64)>) {
    (address.remote, address.via)
}
