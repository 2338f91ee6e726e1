//! Which peer an inner address belongs to: the longest prefix wins.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// Prefixes and the peers (their places in the list) that they are routed to.
#[derive(Debug, Default)]
pub struct Routes {
    /// The lengths in use, the longest first.
    v4: Vec<u8>,
    v6: Vec<u8>,
    nets: HashMap<IpNet, usize>,
}

impl Routes {
    /// Routes `net` to `peer`.
    pub fn insert(&mut self, net: IpNet, peer: usize) {
        let lengths = if net.addr().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        if !lengths.contains(&net.prefix_len()) {
            lengths.push(net.prefix_len());
            lengths.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.nets.insert(net.trunc(), peer);
    }

    /// The peer that `address` is routed to.
    pub fn find(&self, address: IpAddr) -> Option<usize> {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.iter().find_map(|&length| {
            let net = IpNet::new(address, length).ok()?.trunc();
            self.nets.get(&net).copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let mut routes = Routes::default();
        for (peer, net) in
            ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "fd77::/64", "0.0.0.0/0"].iter().enumerate()
        {
            routes.insert(net.parse().unwrap(), peer);
        }
        for (address, peer) in [
            ("10.9.9.9", Some(0)),
            ("10.1.9.9", Some(1)),
            ("10.1.2.3", Some(2)),
            ("192.0.2.1", Some(4)),
            ("fd77::5", Some(3)),
            ("fd78::5", None),
        ] {
            assert_eq!(routes.find(address.parse().unwrap()), peer, "{address}");
        }
    }
}
