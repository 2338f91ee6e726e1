//! The programs on tc's hooks, `bpf/bicast.bpf.c`: loading and attaching them, telling them what to do, and reading
//! what they know.

mod records;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use bpf::Error;
use bpf::tc::{self, Attached, Direction};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use crate::core::Mode;
use records::address_bytes;

pub use records::{Known, Remote};

const OBJECT: &[u8] = bpf::object!("bicast.bpf.o");
/// What our programs' names start with.
const PREFIX: &str = "bicast_";

/// What the programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is copied.
    pub mode: Mode,
    /// In adaptive mode: the most bytes of copies, in percent of the bytes sent.
    pub budget_percent: u32,
    /// The port of SCTP in UDP (RFC 6951).
    pub udp_port: u16,
    /// Whether packets are copied as well that this host forwards for others.
    pub forwarding: bool,
}

/// What is counted for all associations together, ended ones as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Passed on and not understood: a chunk that cannot be, or more of them than are looked at.
    pub malformed_packets: u64,
    /// Fragments of IP, passed on.
    pub fragments: u64,
    /// Packets of associations, copies not counted.
    pub sent_packets: u64,
    /// Bytes of them, from the IP header on.
    pub sent_bytes: u64,
    /// Copies.
    pub copies: u64,
    /// Bytes of them.
    pub extra_bytes: u64,
}

/// The loaded programs, and where they are attached. Dropping it takes them off.
pub struct Programs {
    object: Object,
    attached: BTreeMap<u32, [Attached; 2]>,
}

impl Programs {
    /// Loads them; they are attached nowhere.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn load(settings: &Settings) -> Result<Programs, Error> {
        let object = bpf::open(OBJECT, "bicast")?.load().map_err(|error| bpf::refused("bicast", error))?;
        let programs = Programs { object, attached: BTreeMap::new() };
        programs.set(settings)?;
        Ok(programs)
    }

    /// Has them do as `settings` say, from the next packet on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set(&self, settings: &Settings) -> Result<(), Error> {
        let words = [
            settings.mode as u32,
            settings.budget_percent,
            settings.udp_port.into(),
            settings.forwarding.into(),
        ];
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.map("settings")?.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)
    }

    /// Rules of the firewall, NAT or IPsec have changed by `now`, on the monotonic clock: the stack has to use a way anew before
    /// copies do.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn rules_changed(&self, now: Duration) -> Result<(), Error> {
        let value = (now.as_nanos() as u64).to_ne_bytes();
        self.map("rules_changed")?.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)
    }

    /// Attaches them to exactly these interfaces, by index, each with the share of bytes, in percent, that copies which leave by
    /// it may be at most in adaptive mode.
    ///
    /// # Errors
    /// What the kernel says; the others are attached all the same.
    pub fn attach(&mut self, interfaces: &BTreeMap<u32, u32>) -> Result<(), Error> {
        let share = |index: &u32| (index.to_ne_bytes().to_vec(), interfaces[index]);
        // No copy is sent to a hook that is left.
        let staying =
            self.attached.keys().filter(|index| interfaces.contains_key(index)).map(share).collect();
        self.replace("hooked", staying)?;
        self.attached.retain(|index, _| interfaces.contains_key(index));
        let new: Vec<u32> = interfaces.keys().filter(|i| !self.attached.contains_key(i)).copied().collect();
        let mut result = Ok(());
        for index in new {
            match self.attach_one(index) {
                Ok(attached) => drop(self.attached.insert(index, attached)),
                Err(error) => result = Err(error),
            }
        }
        self.replace("hooked", self.attached.keys().map(share).collect())?;
        result
    }

    fn attach_one(&self, index: u32) -> Result<[Attached; 2], Error> {
        // A namespace has one daemon, so whatever is there is a crash's.
        remove_left(index);
        let attach =
            |name: &str, direction| tc::attach(bpf::program(&self.object, name)?.as_fd(), index, direction);
        // What is learnt from what arrives goes first.
        Ok([attach("bicast_ingress", Direction::Ingress)?, attach("bicast_egress", Direction::Egress)?])
    }

    /// Says which addresses this host has on the interfaces in use, each with its interface's index.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_own(&self, addresses: &BTreeMap<IpAddr, u32>) -> Result<(), Error> {
        let own = addresses.iter().map(|(address, index)| (address_bytes(*address).to_vec(), *index));
        self.replace("own", own.collect())
    }

    /// Has the map hold `new` and nothing else.
    fn replace(&self, name: &'static str, new: BTreeMap<Vec<u8>, u32>) -> Result<(), Error> {
        let map = self.map(name)?;
        // Deleting while walking may lead back to the start.
        for gone in map.keys().filter(|key| !new.contains_key(key)).collect::<Vec<_>>() {
            map.delete(&gone).map_err(failed)?;
        }
        for (key, value) in &new {
            map.update(key, &value.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        Ok(())
    }

    /// What can be asked from any thread.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch(&self) -> Result<Watch, Error> {
        Ok(Watch { associations: self.map("associations")?, counters: self.map("counters")? })
    }

    fn map(&self, name: &'static str) -> Result<MapHandle, Error> {
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Missing(name.to_owned()))?;
        MapHandle::try_from(&map).map_err(failed)
    }
}

/// What the programs know and have counted.
#[derive(Debug)]
pub struct Watch {
    associations: MapHandle,
    counters: MapHandle,
}

impl Watch {
    /// The associations, by ports and tag.
    pub fn associations(&self) -> Vec<Known> {
        let value = |key: &[u8]| self.associations.lookup(key, MapFlags::ANY).ok().flatten();
        let read = |key: Vec<u8>| Known::read(&key, &value(&key)?);
        let mut known: Vec<_> = self.associations.keys().filter_map(read).collect();
        known.sort_by_key(|known| (known.local_port, known.remote_port, known.tag));
        known
    }

    /// Forgets those of which nothing has been sent for longer than `idle` at `now`, on the monotonic clock.
    pub fn forget_idle(&self, now: Duration, idle: Duration) {
        // Deleting while walking may lead back to the start.
        for key in self.associations.keys().collect::<Vec<_>>() {
            let value = self.associations.lookup(&key, MapFlags::ANY).ok().flatten();
            let known = value.and_then(|value| Known::read(&key, &value));
            if known.is_some_and(|known| now.saturating_sub(known.seen) > idle) {
                // It may have ended meanwhile.
                let _ = self.associations.delete(&key);
            }
        }
    }

    /// What has been counted.
    pub fn counters(&self) -> Counters {
        let sum = |counter: u32| {
            let values = self.counters.lookup_percpu(&counter.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            let number = |value: Vec<u8>| value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            values.into_iter().flatten().map(number).sum()
        };
        Counters {
            malformed_packets: sum(0),
            fragments: sum(1),
            sent_packets: sum(2),
            sent_bytes: sum(3),
            copies: sum(4),
            extra_bytes: sum(5),
        }
    }
}

/// Takes off what a crash left on the interface with this index; only kernels before 6.6 leave anything. True if there
/// was something.
pub fn remove_left(interface: u32) -> bool {
    tc::remove_left(interface, PREFIX)
}

fn failed(error: libbpf_rs::Error) -> Error {
    Error::System { doing: "use a map of bicast", error: std::io::Error::other(error) }
}
