//! Lines of `ip` that make the ends of links, whose neighbours are static: no ARP is lost.

use std::net::Ipv4Addr;

/// The MAC address of an interface: it has the last three bytes of its address.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [_, a, b, c] = address.octets();
    format!("02:00:00:{a:02x}:{b:02x}:{c:02x}")
}

/// Brings `device` up with the address `own` in a network of 24 bits, in which it knows `peer`.
pub(crate) fn end(device: &str, own: Ipv4Addr, peer: Ipv4Addr) -> Vec<String> {
    let up = format!("link set {device} address {} up", mac(own));
    vec![up, format!("addr add {own}/24 dev {device}"), neighbour(device, peer, &mac(peer))]
}

/// `address` is reached by `device` at `mac`.
pub(crate) fn neighbour(device: &str, address: Ipv4Addr, mac: &str) -> String {
    format!("neigh replace {address} lladdr {mac} dev {device} nud permanent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_an_address_and_knows_its_neighbour() {
        let lines = end("c1", Ipv4Addr::new(10, 1, 1, 2), Ipv4Addr::new(10, 254, 1, 1));
        assert_eq!(lines[0], "link set c1 address 02:00:00:01:01:02 up");
        assert_eq!(lines[2], "neigh replace 10.254.1.1 lladdr 02:00:00:fe:01:01 dev c1 nud permanent");
    }
}
