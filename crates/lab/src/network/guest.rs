//! Where a guest is: in a network of its own behind the client, which forwards for it.

use std::net::{IpAddr, Ipv4Addr};

use crate::error::Error;

use super::Network;

/// The second byte of the guests' networks; paths have 1 to 200.
const NET: u8 = 254;

/// A guest's place. The client's end is a TAP.
#[derive(Clone, Debug)]
pub(crate) struct GuestPlace {
    /// The TAP in the client's namespace.
    pub(crate) tap: String,
    /// The guest's MAC address.
    pub(crate) mac: String,
    /// The client's address there.
    pub(crate) gateway: IpAddr,
    /// What `ip` is told in the guest.
    pub(crate) guest_lines: Vec<String>,
    number: u8,
}

impl Network {
    /// The place of guest `number` (from 0).
    pub(crate) fn place_guest(&self, number: u8) -> GuestPlace {
        let [gateway, own] = [1, 2].map(|host| address(number, host));
        GuestPlace {
            tap: format!("g{number}"),
            mac: mac(number, 2),
            gateway,
            guest_lines: vec![
                format!("addr add {own}/24 dev vec0"),
                format!("neigh replace {gateway} lladdr {} dev vec0 nud permanent", mac(number, 1)),
            ],
            number,
        }
    }

    /// Makes the client forward for the guest at `place`, whose TAP is there, and the server find it.
    pub(crate) fn admit_guest(&self, place: &GuestPlace) -> Result<(), Error> {
        let GuestPlace { tap, mac: guest, gateway, number, .. } = place;
        self.client.sysctl(&format!("ipv6/conf/{tap}/disable_ipv6"), "1")?;
        self.client.sysctl("ipv4/ip_forward", "1")?;
        self.client.ip(&[
            format!("link set {tap} address {}", mac(*number, 1)),
            format!("addr add {gateway}/24 dev {tap}"),
            format!("neigh replace {} lladdr {guest} dev {tap} nud permanent", address(*number, 2)),
        ])?;
        self.server.ip(&[format!("route add 10.{NET}.{number}.0/24 via {}", self.client_address(0))])
    }
}

fn address(number: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, NET, number, host).into()
}

fn mac(number: u8, host: u8) -> String {
    format!("02:00:00:{NET:02x}:{number:02x}:{host:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_and_paths_have_addresses_of_their_own() {
        assert_eq!(address(0, 2).to_string(), "10.254.0.2");
        assert_eq!(mac(1, 2), "02:00:00:fe:01:02");
    }
}
