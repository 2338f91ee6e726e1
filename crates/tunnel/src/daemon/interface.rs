//! The TUN interface: made, given its addresses and routes, and gone with its descriptor.

use std::io;

use device::{Net, Tun};
use ipnet::IpNet;

use super::{Settings, StartError};
use crate::config::{Config, Mtu};
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
    /// What it was given, in this order.
    pieces: Vec<Piece>,
}

/// What an interface is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Address(IpNet),
    Route(IpNet),
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
        let index = configure(&mut net, name, mtu).map_err(StartError::Interface)?;
        let mut interface = Self { tun, net, index, mtu, pieces: Vec::new() };
        interface.reconfigure(&settings.addresses, &settings.tunnel)?;
        Ok(interface)
    }

    /// Its index in its network namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Has these addresses, and the routes of the peers in `config`, from now on. What is the same is not touched.
    ///
    /// # Errors
    /// One that is new could not be added; then all is as before.
    pub fn reconfigure(&mut self, addresses: &[IpNet], config: &Config) -> Result<(), StartError> {
        let wanted = pieces(addresses, config);
        let new: Vec<_> = wanted.iter().filter(|piece| !self.pieces.contains(piece)).collect();
        for (count, piece) in new.iter().enumerate() {
            if let Err(error) = self.add(piece) {
                new[..count].iter().rev().for_each(|piece| self.delete(piece));
                return Err(piece.refused(error));
            }
        }
        let old = std::mem::replace(&mut self.pieces, wanted);
        let gone: Vec<_> = old.iter().filter(|piece| !self.pieces.contains(piece)).collect();
        gone.iter().rev().for_each(|piece| self.delete(piece));
        if !gone.is_empty() {
            self.put_back();
        }
        Ok(())
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

    /// Fails with `AlreadyExists` for a route that is there already.
    fn add(&mut self, piece: &Piece) -> io::Result<()> {
        match piece {
            Piece::Address(net) => self.net.add_address(self.index, net.addr(), net.prefix_len()),
            Piece::Route(net) => self.net.add_route(net.network(), net.prefix_len(), self.index),
        }
    }

    fn delete(&mut self, piece: &Piece) {
        let deleted = match piece {
            Piece::Address(net) => self.net.delete_address(self.index, net.addr(), net.prefix_len()),
            Piece::Route(net) => self.net.delete_route(net.network(), net.prefix_len(), self.index),
        };
        // Somebody else has done it, perhaps the kernel.
        if let Err(error) = deleted {
            tracing::debug!("{error}");
        }
    }

    /// With an address the kernel may have taken others of its prefix, and the routes.
    fn put_back(&mut self) {
        for piece in self.pieces.clone() {
            match self.add(&piece) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => tracing::warn!("{error}"),
                _ => {}
            }
        }
    }
}

impl Piece {
    fn refused(&self, error: io::Error) -> StartError {
        match self {
            Piece::Address(_) => StartError::Interface(error),
            Piece::Route(_) => StartError::Route(error),
        }
    }
}

/// Everything but addresses and routes; the interface's index.
fn configure(net: &mut Net, name: &str, mtu: u16) -> io::Result<u32> {
    let index = net.link(name)?.index;
    net.set_mtu(index, mtu.into())?;
    net.set_queue_length(index, QUEUE)?;
    net.set_up(index)?;
    Ok(index)
}

/// Routes that are there already are somebody else's, and stay, except those that come with the interface's addresses.
fn pieces(addresses: &[IpNet], config: &Config) -> Vec<Piece> {
    let routes = config.peers.iter().flat_map(|peer| &peer.routes);
    let routes = routes.filter(|route| !addresses.iter().any(|address| address.trunc() == **route));
    addresses.iter().copied().map(Piece::Address).chain(routes.copied().map(Piece::Route)).collect()
}
