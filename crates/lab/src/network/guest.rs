//! Where a guest is: in a network of its own behind the client, which forwards for it.

use std::net::Ipv4Addr;

use crate::error::Error;
use crate::wiring::{end, mac};

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
    pub(crate) gateway: Ipv4Addr,
    /// What `ip` is told in the guest.
    pub(crate) guest_lines: Vec<String>,
    own: Ipv4Addr,
}

impl Network {
    /// The place of guest `number` (from 0).
    pub(crate) fn place_guest(&self, number: u8) -> GuestPlace {
        let [gateway, own] = [1, 2].map(|host| Ipv4Addr::new(10, NET, number, host));
        let guest_lines = end("vec0", own, gateway)[1..].to_vec();
        GuestPlace { tap: format!("g{number}"), mac: mac(own), gateway, guest_lines, own }
    }

    /// Makes the client forward for the guest at `place`, whose TAP is there, and the server find it.
    pub(crate) fn admit_guest(&self, place: &GuestPlace) -> Result<(), Error> {
        let GuestPlace { tap, gateway, own, .. } = place;
        self.client.sysctl(&format!("ipv6/conf/{tap}/disable_ipv6"), "1")?;
        self.client.sysctl("ipv4/ip_forward", "1")?;
        self.client.ip(&end(tap, *gateway, *own))?;
        self.server.ip(&[format!("route add {own}/32 via {}", self.client_address(0))])
    }
}
