//! Where a guest's interface is: in a network of its own behind its host, which forwards for it.

use std::net::Ipv4Addr;

use super::Interface;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::wiring::{end, mac};

/// Such a network. The host's end is a TAP.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    tap: String,
    /// The host's address there, and the guest's.
    pub(crate) gateway: Ipv4Addr,
    pub(crate) own: Ipv4Addr,
}

impl Segment {
    /// In the network 10.A.B.0/24.
    pub(crate) fn new(tap: String, [a, b]: [u8; 2]) -> Self {
        let [gateway, own] = [1, 2].map(|host| Ipv4Addr::new(10, a, b, host));
        Self { tap, gateway, own }
    }

    /// The guest's interface `number` (from 0), with further `lines`.
    pub(crate) fn interface(&self, number: usize, lines: impl IntoIterator<Item = String>) -> Interface {
        let own = end(&format!("vec{number}"), self.own, self.gateway).into_iter().skip(1);
        Interface {
            tap: self.tap.clone(),
            mac: mac(self.own),
            options: None,
            lines: own.chain(lines).collect(),
        }
    }

    /// Has `host`, where the guest has begun to boot, forward for it.
    pub(crate) fn admit(&self, host: &Namespace) -> Result<(), Error> {
        host.sysctl(&format!("ipv6/conf/{}/disable_ipv6", self.tap), "1")?;
        host.sysctl("ipv4/ip_forward", "1")?;
        host.ip(&end(&self.tap, self.gateway, self.own))
    }
}
