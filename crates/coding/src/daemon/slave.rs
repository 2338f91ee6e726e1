//! The slave interface: heard as a whole, and kept from this host's IP.
//!
//! What neighbours send each other is heard in promiscuous mode, and by a monitor interface where the slave is a radio's.

use std::io;
use std::net::IpAddr;

use bpf::tc::{self, Attached, Direction};
use device::nl80211::{Monitor, Network, Radio};
use device::{Net, PromiscuousSocket};

use super::state::{Deaf, LEAST_MTU, Unusable};
use crate::ethernet::Mac;
use crate::overhearing::Overhearing;

const OBJECT: &[u8] = bpf::object!("slave.bpf.o");
const PROGRAM: &str = "coding_slave";
/// The longest name of an interface, in bytes.
const NAME: usize = 15;

/// What of the slave the layer and the master depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Unique in its namespace.
    pub index: u32,
    /// Its address.
    pub mac: Mac,
    /// What it carries behind an Ethernet header, in bytes.
    pub mtu: u32,
}

/// The slave at work; when dropped, the interface is as it was.
pub struct Slave {
    /// What it was opened by.
    pub facts: Facts,
    /// Its frames.
    pub socket: PromiscuousSocket,
    /// What the radio's monitor hears, and what is known by it; none where the slave is no radio's, and is heard in promiscuous mode.
    pub air: Option<Air>,
    _silence: Attached,
}

/// How a radio's neighbours are overheard.
pub struct Air {
    /// What the radio's network was when the slave was opened.
    pub network: Network,
    /// What is known of the network by listening.
    pub overhearing: Overhearing,
    /// The monitor's frames, and the monitor if nawa made it; or why there is none.
    pub monitor: Result<(PromiscuousSocket, Option<Monitor>), Deaf>,
}

/// Looks at the interface `name`, which is to be used.
///
/// # Errors
/// Why it cannot be used; [`Unusable::Down`] only if nothing else is wrong.
pub fn look_first(net: &mut Net, name: &str) -> Result<Facts, Unusable> {
    look(net, name).and_then(|facts| match own_address(name) {
        Some(address) => Err(Unusable::Addressed(name.to_owned(), address)),
        None => Ok(facts),
    })
}

/// An address of the interface `name` that somebody gave it. Nothing reaches it.
pub fn own_address(name: &str) -> Option<IpAddr> {
    device::addresses(name).unwrap_or_default().into_iter().find(|address| !comes_by_itself(address))
}

/// Looks at the interface `name`, which is used, or was.
///
/// # Errors
/// Why it cannot be used; [`Unusable::Down`] only if nothing else is wrong.
pub fn look(net: &mut Net, name: &str) -> Result<Facts, Unusable> {
    let link = net.link(name).map_err(|_| Unusable::Absent(name.to_owned()))?;
    let mac = link.mac.filter(|_| link.ethernet).map(Mac);
    let mac = mac.ok_or_else(|| Unusable::NotEthernet(name.to_owned()))?;
    if link.mtu < LEAST_MTU {
        return Err(Unusable::Small(name.to_owned(), link.mtu));
    }
    if let Some(taken) = link.taken() {
        return Err(Unusable::Port(taken));
    }
    if !link.running {
        return Err(Unusable::Down(name.to_owned()));
    }
    Ok(Facts { index: link.index, mac, mtu: link.mtu })
}

/// Link-local addresses, which kernels and other programs give without being asked, do no harm.
fn comes_by_itself(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

impl Slave {
    /// Takes the interface over. A radio's monitor has this name, and is made if it was not `given`.
    pub fn open(facts: Facts, monitor: &str, given: bool) -> io::Result<Self> {
        // First of all, so that IP never has a packet twice.
        let silence = silence(facts.index).map_err(io::Error::other)?;
        let socket = PromiscuousSocket::open(facts.index, facts.mtu)?;
        let air = Radio::of(facts.index)?.map(|radio| Air::open(radio, facts, monitor, given));
        Ok(Self { facts, socket, air, _silence: silence })
    }

    /// Why sums would not be overheard here, if so.
    pub fn deaf(&self) -> Option<Deaf> {
        let air = self.air.as_ref()?;
        match &air.monitor {
            Err(deaf) => Some(deaf.clone()),
            Ok(_) => air.overhearing.encrypted.then_some(Deaf::Encrypted),
        }
    }
}

impl Air {
    fn open(radio: Radio, facts: Facts, name: &str, given: bool) -> Self {
        let network = radio.network;
        let refused = |error: io::Error| Deaf::Refused(name.to_owned(), error.to_string());
        let found = match useless(&network) {
            // A monitor costs work for each frame on the channel.
            Some(useless) => Err(useless),
            None if given => find_monitor(name, &network, refused).map(|index| (index, None)),
            None => radio.monitor(name).map(|made| (made.index, Some(made))).map_err(refused),
        };
        let open = |index| PromiscuousSocket::open(index, facts.mtu).map_err(refused);
        let monitor = found.and_then(|(index, made)| Ok((open(index)?, made)));
        Self { network, overhearing: Overhearing::new(network.encrypted), monitor }
    }
}

/// The name of a monitor that is made: after the master, or by its index if that leaves no room, as what two masters' names begin or
/// end with may be the same.
pub fn own_monitor(master: &str, index: u32) -> String {
    let named = format!("{master}-mon");
    if named.len() <= NAME { named } else { format!("mon-{index}") }
}

/// The index of the interface `name`, if it is a monitor of this network's radio, and up.
fn find_monitor(name: &str, network: &Network, refused: impl Fn(io::Error) -> Deaf) -> Result<u32, Deaf> {
    let absent = || Deaf::Absent(name.to_owned());
    let link = Net::open().and_then(|mut net| net.link(name)).map_err(|_| absent())?;
    let radio = Radio::of(link.index).map_err(refused)?;
    radio.filter(|radio| radio.network.is_monitor_of(network)).ok_or_else(absent)?;
    link.up.then_some(link.index).ok_or_else(|| Deaf::Down(name.to_owned()))
}

/// Why coding gains nothing in such a network, if so.
fn useless(network: &Network) -> Option<Deaf> {
    // First, since the queue below depends on it.
    let aggregating = network.aggregates().then_some(Deaf::Aggregating);
    aggregating.or((!network.is_of_peers()).then_some(Deaf::Infrastructure))
}

/// Keeps IP off the interface with this index.
fn silence(interface: u32) -> Result<Attached, bpf::Error> {
    bpf::xdp::load(OBJECT, &[])?.attach_to_hook(PROGRAM, interface, Direction::Ingress)
}

/// Takes off what a crash left on the interface with index `interface`, on kernels before 6.6. True if there was anything.
pub fn remove_left(interface: u32) -> bool {
    tc::remove_left(interface, PROGRAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_master_has_a_monitor_of_its_own() {
        assert_eq!(own_monitor("nc0", 7), "nc0-mon");
        for (master, index) in [("coding-wlan0", 7), ("coding-wlan1", 8), ("my-coding-wlan0", u32::MAX)] {
            assert_eq!(own_monitor(master, index), format!("mon-{index}"));
        }
    }

    #[test]
    fn coding_is_for_stations_that_reach_each_other_frame_by_frame() {
        // Station, access point, its VLAN's, both of Wi-Fi Direct; ad-hoc, mesh, outside any network; 20 MHz without HT, and with it.
        let of = |kind, width| useless(&Network { wiphy: 0, kind, width, encrypted: false });
        for kind in [2, 3, 4, 8, 9] {
            assert_eq!(of(kind, Some(0)), Some(Deaf::Infrastructure), "{kind}");
        }
        for kind in [1, 7, 11] {
            assert_eq!([of(kind, None), of(kind, Some(0))], [None, None], "{kind}");
            assert_eq!(of(kind, Some(1)), Some(Deaf::Aggregating), "{kind}");
        }
    }
}
