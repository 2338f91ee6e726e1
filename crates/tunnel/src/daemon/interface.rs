//! The TUN interface: made, given its addresses and routes, and gone with its descriptor.

use std::io;

use device::{Net, Tun};
use ipnet::IpNet;

use super::{Settings, StartError};
use crate::config::Mtu;
use crate::path::MIN_INNER_MTU;

/// Packets (with offload: super-packets) that the kernel keeps while the tunnel does not read; more are dropped, which
/// is what slows local senders down. The kernel's default; less would cut into bursts of a fast sender, which come
/// faster than one thread reads.
const QUEUE: u32 = 500;

/// The TUN interface, up.
#[derive(Debug)]
pub struct Interface {
    /// Its packets.
    pub tun: Tun,
    net: Net,
    index: u32,
    mtu: u16,
}

impl Interface {
    /// Makes what `settings` say.
    pub fn make(settings: &Settings) -> Result<Self, StartError> {
        let name = &settings.interface;
        let mut net = Net::open()?;
        if net.link(name).is_ok() {
            return Err(StartError::InterfaceExists(name.clone()));
        }
        let tun = Tun::create(name).map_err(StartError::Tun)?;
        let mtu = match settings.tunnel.mtu {
            Mtu::Auto => MIN_INNER_MTU,
            Mtu::Fixed(mtu) => mtu,
        };
        let index = configure(&mut net, name, mtu, &settings.addresses).map_err(StartError::Interface)?;
        let routes = settings.tunnel.peers.iter().flat_map(|peer| &peer.routes);
        add_routes(&mut net, index, routes, &settings.addresses).map_err(StartError::Route)?;
        Ok(Self { tun, net, index, mtu })
    }

    /// Takes packets of up to `mtu` bytes from now on.
    pub fn set_mtu(&mut self, mtu: u16) {
        if mtu == self.mtu {
            return;
        }
        self.mtu = mtu;
        // Larger packets are answered by the core; smaller ones only cost a little.
        if let Err(error) = self.net.set_mtu(self.index, mtu.into()) {
            tracing::warn!("{error}; the tunnel goes on with the interface's old MTU");
        }
    }
}

/// Everything but routes; the interface's index.
fn configure(net: &mut Net, name: &str, mtu: u16, addresses: &[IpNet]) -> io::Result<u32> {
    let index = net.link(name)?.index;
    net.set_mtu(index, mtu.into())?;
    net.set_queue_length(index, QUEUE)?;
    for address in addresses {
        net.add_address(index, address.addr(), address.prefix_len())?;
    }
    net.set_up(index)?;
    Ok(index)
}

/// Routes that are there already are somebody else's, and stay, except those that came with the interface's addresses.
fn add_routes<'a>(
    net: &mut Net,
    index: u32,
    routes: impl Iterator<Item = &'a IpNet>,
    addresses: &[IpNet],
) -> io::Result<()> {
    for route in routes.filter(|route| !addresses.iter().any(|address| address.trunc() == **route)) {
        net.add_route(route.network(), route.prefix_len(), index)?;
    }
    Ok(())
}
