//! The master interface: a TAP with the slave's MAC address, which IP takes for the medium.

use std::io;

use device::net::existing;
use device::{Net, Tap};
use ipnet::IpNet;
use packet::ip::LEAST_MTU_V6;

use super::slave::Facts;
use super::state::StartError;
use crate::header;

/// A relay sends what it forwards back by the interface that it came by, and the kernel would tell the neighbours to do without the
/// relay. IPv6 cannot be kept from that, so that nobody listens.
const SEND_REDIRECTS: &str = "/proc/sys/net/ipv4/conf/*/send_redirects";
const ACCEPT_REDIRECTS: &str = "/proc/sys/net/ipv6/conf/*/accept_redirects";

/// The master, up; gone when dropped.
#[derive(Debug)]
pub struct Master {
    /// Its frames.
    pub tap: Tap,
    /// Open already, where descriptors have run out.
    pub net: Net,
    name: String,
    index: u32,
    mtu: u32,
    addresses: Vec<IpNet>,
}

impl Master {
    /// Makes it, with its addresses and without carrier.
    pub fn make(name: &str, addresses: &[IpNet]) -> Result<Self, StartError> {
        let mut net = Net::open()?;
        if net.link(name).is_ok() {
            return Err(StartError::MasterExists(name.to_owned()));
        }
        let failed = |error| StartError::Master(name.to_owned(), error);
        let tap = Tap::create(name).map_err(failed)?;
        tap.set_carrier(false).map_err(failed)?;
        let link = net.link(name).map_err(failed)?;
        let name = name.to_owned();
        let mut master = Self { tap, net, name, index: link.index, mtu: link.mtu, addresses: Vec::new() };
        master.set_addresses(addresses).map_err(failed)?;
        master.net.set_up(link.index).map_err(failed)?;
        Ok(master)
    }

    /// Unique in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The longest IP packet it takes, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// What takes all that comes, if somebody has made it a port of that.
    pub fn taken(&mut self) -> Option<String> {
        self.net.link_at(self.index).ok()?.taken()
    }

    /// Stands for this slave from now on, with room for the NC header.
    pub fn join(&mut self, slave: &Facts) -> io::Result<()> {
        let mtu = slave.mtu - header::CODED as u32;
        self.net.set_mac(self.index, slave.mac.0)?;
        self.net.set_mtu(self.index, mtu)?;
        self.mtu = mtu;
        // Each time, for IPv6 forgets its own where the MTU was too small for it. `redirects` says what fails.
        for setting in [SEND_REDIRECTS, ACCEPT_REDIRECTS] {
            let _ = std::fs::write(setting.replace('*', &self.name), "0");
        }
        if let Err(error) = self.add_missing() {
            tracing::warn!("{error}");
        }
        self.tap.set_carrier(true)
    }

    /// What is wrong if redirects are on. The kernel sends them as well where this host's own setting, of `all`, has it.
    pub fn redirects(&self) -> Option<String> {
        let is_on = |file: &String| std::fs::read_to_string(file).is_ok_and(|value| value.trim() != "0");
        let forwards = is_on(&format!("/proc/sys/net/ipv4/conf/{}/forwarding", self.name));
        let send = ["all", &self.name].map(|of| SEND_REDIRECTS.replace('*', of));
        let accept = [ACCEPT_REDIRECTS.replace('*', &self.name)];
        let setting = send.into_iter().filter(|_| forwards).chain(accept).find(is_on)?;
        Some(format!("ICMP redirects tell hosts to do without a relay; `echo 0 > {setting}`"))
    }

    /// What is wrong if it is too small for one of its addresses, where the slave's name is this.
    pub fn is_too_small(&self, slave: &str) -> Option<String> {
        let net = self.addresses.iter().find(|net| !self.carries(net))?;
        let (mtu, least) = (self.mtu, u32::from(LEAST_MTU_V6) + header::CODED as u32);
        Some(format!(
            "the master carries {mtu} bytes, and IPv6 needs {LEAST_MTU_V6}, so that it does without {net}; raise the MTU of `{slave}` to {least}"
        ))
    }

    /// The kernel takes the addresses of IPv6 off an interface with less, and gives none back.
    fn carries(&self, net: &IpNet) -> bool {
        self.mtu >= u32::from(LEAST_MTU_V6) || net.addr().is_ipv4()
    }

    /// Has no cable, so that IP sends nothing.
    pub fn part(&self) {
        // If the interface is gone, the next read says so.
        let _ = self.tap.set_carrier(false);
    }

    /// Has these addresses from now on. What is the same is not touched.
    ///
    /// # Errors
    /// One that is new could not be added; then all is as before.
    pub fn set_addresses(&mut self, wanted: &[IpNet]) -> io::Result<()> {
        let is_new = |net: &&IpNet| self.carries(net) && !self.addresses.contains(net);
        let new: Vec<_> = wanted.iter().filter(is_new).collect();
        for (count, net) in new.iter().enumerate() {
            if let Err(error) = self.add(net) {
                new[..count].iter().for_each(|net| self.delete(net));
                return Err(error);
            }
        }
        let old = std::mem::replace(&mut self.addresses, wanted.to_vec());
        old.iter().filter(|net| !wanted.contains(net)).for_each(|net| self.delete(net));
        self.add_missing()
    }

    /// With an address the kernel may have taken others of its prefix.
    fn add_missing(&mut self) -> io::Result<()> {
        let carried: Vec<_> = self.addresses.iter().filter(|net| self.carries(net)).copied().collect();
        carried.iter().try_for_each(|net| self.add(net))
    }

    fn add(&mut self, net: &IpNet) -> io::Result<()> {
        existing(self.net.add_address(self.index, net.addr(), net.prefix_len(), true))
    }

    fn delete(&mut self, net: &IpNet) {
        // Somebody else has done it, perhaps the kernel.
        if let Err(error) = self.net.delete_address(self.index, net.addr(), net.prefix_len()) {
            tracing::debug!("{error}");
        }
    }
}
