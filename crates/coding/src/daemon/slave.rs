//! The slave interface: heard as a whole, and kept from this host's IP.
//!
//! What neighbours send each other is heard in promiscuous mode, and by a monitor interface where the slave is a radio's.

use std::io;
use std::net::IpAddr;

use bpf::tc::{self, Attached, Direction};
use device::nl80211::{Monitor, Radio};
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
    /// What is known of the network by listening.
    pub overhearing: Overhearing,
    /// The monitor's frames, or why there is none.
    pub monitor: Result<PromiscuousSocket, Deaf>,
    _made: Option<Monitor>,
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
    /// Takes the interface over.
    pub fn open(facts: Facts, monitor: &MonitorName) -> io::Result<Self> {
        // First of all, so that IP never has a packet twice.
        let silence = silence(facts.index).map_err(io::Error::other)?;
        let socket = PromiscuousSocket::open(facts.index, facts.mtu)?;
        let air = Radio::of(facts.index)?.map(|radio| Air::open(radio, facts, monitor));
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

/// The monitor interface of a slave's radio.
pub enum MonitorName {
    /// One that somebody else makes.
    Given(String),
    /// One to be made.
    Own(String),
}

impl Air {
    fn open(mut radio: Radio, facts: Facts, name: &MonitorName) -> Self {
        let overhearing = Overhearing::new(radio.has_keys());
        // A monitor costs work for each frame on the channel.
        if radio.aggregates() {
            return Self { overhearing, monitor: Err(Deaf::Aggregating), _made: None };
        }
        let (made, index) = match name {
            MonitorName::Given(name) => {
                let link = Net::open().and_then(|mut net| net.link(name));
                let link = link.map_err(|_| Deaf::Absent(name.clone()));
                (None, link.and_then(|link| link.up.then_some(link.index).ok_or(Deaf::Down(name.clone()))))
            }
            MonitorName::Own(name) => match radio.monitor(name) {
                Ok(monitor) => {
                    let index = monitor.index;
                    (Some(monitor), Ok(index))
                }
                Err(error) => (None, Err(Deaf::Refused(name.clone(), error.to_string()))),
            },
        };
        let refused = |error: io::Error| Deaf::Refused(name.name().to_owned(), error.to_string());
        let monitor = index.and_then(|index| PromiscuousSocket::open(index, facts.mtu).map_err(refused));
        Self { overhearing, monitor, _made: made }
    }
}

impl MonitorName {
    /// One to be made, named after the master, or by its index if that leaves no room: what two masters' names begin or end with may be
    /// the same.
    pub fn own(master: &str, index: u32) -> Self {
        let named = format!("{master}-mon");
        MonitorName::Own(if named.len() <= NAME { named } else { format!("mon-{index}") })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        match self {
            MonitorName::Given(name) | MonitorName::Own(name) => name,
        }
    }
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
        let name = |master, index| MonitorName::own(master, index).name().to_owned();
        assert_eq!(name("nc0", 7), "nc0-mon");
        let long = [("coding-wlan0", 7), ("coding-wlan1", 8), ("my-coding-wlan0", u32::MAX)];
        assert_eq!(long.map(|(master, index)| name(master, index)), ["mon-7", "mon-8", "mon-4294967295"]);
    }
}
