//! What happens to a network while it is used: addresses that change, at either end or in a NAT between them.

use std::net::{IpAddr, Ipv4Addr};

use crate::error::Error;
use crate::program::output;
use crate::wiring::{mac, neighbour};

use super::{Network, Path, SERVER};

/// The server's address after [`Network::readdress_server`].
const NEW_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

/// The client's host number on its links after [`Network::readdress_client`].
const NEW_CLIENT: u8 = 101;

/// The port that a client appears to send from after [`Network::rebind`].
const NEW_PORT: u16 = 40_001;

/// The ports of Nawa's daemon on the client, and of its relays.
const CLIENT_PORT: u16 = 51_900;
const RELAY_PORT: u16 = 51_901;

impl Network {
    /// Gives the client another address on path `path` (from 0), as a new lease does: the old one goes, with its routes.
    pub fn readdress_client(&self, path: usize) -> Result<(), Error> {
        let path = self.path(path);
        self.relays_of(path).try_for_each(|relay| relay.ip(&path.new_client_at_relay()))?;
        self.client.ip(&path.new_client())
    }

    /// Gives the server another address instead of [`SERVER`]; every path reaches it.
    pub fn readdress_server(&self) -> Result<(), Error> {
        for (index, relay) in (1..).zip(&self.relays) {
            relay.ip(&[format!("route add {NEW_SERVER} via {}", Path { index }.address(2, 2))])?;
        }
        let lines = [format!("addr add {NEW_SERVER}/32 dev lo"), format!("addr del {SERVER}/32 dev lo")];
        self.server.ip(&lines)
    }

    /// Lets path `path` (from 0) appear to come from another port, as after a NAT that has forgotten it: what the client
    /// sends reaches its relay from the new port, and what is sent to the old one is dropped. The client is not told.
    pub fn rebind(&self, path: usize) -> Result<(), Error> {
        self.relays_of(self.path(path)).try_for_each(|relay| output(relay, "nft", &[rebinding()]).map(drop))
    }

    /// The relay host of `path`; none in a direct topology.
    fn relays_of(&self, path: Path) -> impl Iterator<Item = &crate::namespace::Namespace> {
        self.relays.get(usize::from(path.index) - 1).into_iter()
    }
}

impl Path {
    /// The client's link loses its first address, and with the last address its routes and neighbours.
    fn new_client(self) -> Vec<String> {
        let (old, new, next) = (self.address(1, 1), self.address(1, NEW_CLIENT), self.address(1, 2));
        let (device, table, index) = (self.interface(), 100 + u16::from(self.index), self.index);
        vec![
            format!("addr del {old}/24 dev {device}"),
            format!("addr add {new}/24 dev {device}"),
            neighbour(&device, next, &mac(next)),
            format!("rule add from {new} table {table}"),
            format!("route replace default via {next} table {table}"),
            format!("route replace default via {next} metric {index}"),
        ]
    }

    fn new_client_at_relay(self) -> Vec<String> {
        vec![neighbour("c1", self.address(1, NEW_CLIENT), &mac(self.address(1, 1)))]
    }
}

/// A NAT without state, between the link and the relay.
fn rebinding() -> String {
    format!(
        "table ip rebinding {{
            chain in {{
                type filter hook prerouting priority raw;
                iifname c1 udp sport {CLIENT_PORT} udp dport {RELAY_PORT} udp sport set {NEW_PORT};
            }}
            chain out {{
                type filter hook output priority raw;
                oifname c1 udp sport {RELAY_PORT} udp dport {CLIENT_PORT} drop;
                oifname c1 udp sport {RELAY_PORT} udp dport {NEW_PORT} udp dport set {CLIENT_PORT};
            }}
        }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_address_is_on_the_same_link() {
        let lines = Path { index: 2 }.new_client();
        assert_eq!(lines[1], "addr add 10.2.1.101/24 dev p2");
        assert_eq!(lines[4], "route replace default via 10.2.1.2 table 102");
    }
}
