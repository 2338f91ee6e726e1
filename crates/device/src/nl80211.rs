//! Radios, through nl80211 (linux/nl80211.h): whether an interface belongs to one, its network, and further interfaces that hear all.

use std::io;

use crate::genetlink::{GenericNetlink, attributes};
use crate::net::Net;

const GET_INTERFACE: u8 = 5;
const NEW_INTERFACE: u8 = 7;
const GET_KEY: u8 = 9;
const GET_MESH_CONFIG: u8 = 28;
const ATTR_WIPHY: u16 = 1;
const ATTR_IFINDEX: u16 = 3;
const ATTR_IFNAME: u16 = 4;
const ATTR_IFTYPE: u16 = 5;
const ATTR_KEY_INDEX: u16 = 8;
const ATTR_MONITOR_FLAGS: u16 = 23;
const ATTR_MESH_CONFIG: u16 = 35;
const ATTR_CHANNEL_WIDTH: u16 = 159;
/// The interface goes with the socket that made it.
const ATTR_SOCKET_OWNER: u16 = 204;
/// Whether a mesh's frames are sent on: an attribute in that of the mesh's configuration.
const MESH_FORWARDING: u16 = 19;
/// An attribute's kind has this bit, or not, where it holds others.
const NESTED: u16 = 0x8000;
/// Widths of channels (`enum nl80211_chan_width`) on which frames go one by one: 20 MHz as before 802.11n, 5 and 10 MHz.
const SINGLE: [u32; 3] = [0, 6, 7];
const TYPE_MONITOR: u32 = 6;
/// Frames of the own network for other stations, which a radio otherwise need not hand up, come under this flag as well.
const MONITOR_OTHERS: u16 = 4;
/// Keys that frames to all, or in an old network all frames, may be encrypted with.
const GROUP_KEYS: u8 = 4;

/// A radio that an interface belongs to, for questions about the interface.
#[derive(Debug)]
pub struct Radio {
    /// What its network was when it was asked for.
    pub network: Network,
    socket: GenericNetlink,
    interface: u32,
}

/// What of an interface and its network decides who can read its frames, and how they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The radio's number.
    pub wiphy: u32,
    /// The interface's kind (`enum nl80211_iftype`).
    pub kind: u32,
    /// The channel's width (`enum nl80211_chan_width`); `None` without a channel.
    pub width: Option<u32>,
    /// Whether the interface has a key, so that its network's frames are encrypted.
    pub encrypted: bool,
}

/// An interface that hears all that its radio does; gone when dropped, and with the process.
#[derive(Debug)]
pub struct Monitor {
    /// Its index.
    pub index: u32,
    _owner: GenericNetlink,
}

/// What the first attribute of this kind holds.
fn within(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| kind & !NESTED == wanted).map(|(_, found)| found)
}

impl Network {
    /// Whether frames go from station to station, by no access point: ad-hoc, in a mesh, and outside any network, as vehicles' (802.11p).
    pub fn is_of_peers(&self) -> bool {
        matches!(self.kind, 1 | 7 | 11)
    }

    /// Whether the interface is a monitor of the radio that the `other` belongs to.
    pub fn is_monitor_of(&self, other: &Self) -> bool {
        self.kind == TYPE_MONITOR && self.wiphy == other.wiphy
    }

    /// Whether it is one of 802.11n or later, so that many frames go as one.
    pub fn aggregates(&self) -> bool {
        self.width.is_some_and(|width| !SINGLE.contains(&width))
    }
}

impl Radio {
    /// The radio of the interface with this index; `None` if it has none that Linux's 802.11 stack knows. Fails where that cannot be
    /// told, as without descriptors or memory.
    pub fn of(interface: u32) -> io::Result<Option<Self>> {
        let mut socket = match GenericNetlink::open("nl80211") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let index = interface.to_ne_bytes();
        let answer = match socket.request(GET_INTERFACE, &[(ATTR_IFINDEX, &index)]) {
            Err(no) if matches!(no.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => return Ok(None),
            answered => answered?,
        };
        let number = |wanted| within(&answer, wanted)?.first_chunk().copied().map(u32::from_ne_bytes);
        let (Some(wiphy), Some(kind)) = (number(ATTR_WIPHY), number(ATTR_IFTYPE)) else { return Ok(None) };
        let encrypted = (0..GROUP_KEYS)
            .any(|key| socket.request(GET_KEY, &[(ATTR_IFINDEX, &index), (ATTR_KEY_INDEX, &[key])]).is_ok());
        let network = Network { wiphy, kind, width: number(ATTR_CHANNEL_WIDTH), encrypted };
        Ok(Some(Self { network, socket, interface }))
    }

    /// Whether the interface is an 802.11s mesh's, and the kernel sends the mesh's frames on, those to all as well.
    pub fn forwards(&mut self) -> bool {
        let interface = self.interface.to_ne_bytes();
        let answer = self.socket.request(GET_MESH_CONFIG, &[(ATTR_IFINDEX, &interface)]).unwrap_or_default();
        within(&answer, ATTR_MESH_CONFIG).and_then(|config| within(config, MESH_FORWARDING)) == Some(&[1][..])
    }

    /// Makes a monitor, up; fails where the driver has none, or the name is taken.
    pub fn monitor(mut self, name: &str) -> io::Result<Monitor> {
        // A flag is an attribute without data, in the attribute of the flags: its length and its kind.
        let [[a, b], [c, d]] = [4u16.to_ne_bytes(), MONITOR_OTHERS.to_ne_bytes()];
        let made = self.socket.request(
            NEW_INTERFACE,
            &[
                (ATTR_WIPHY, &self.network.wiphy.to_ne_bytes()),
                (ATTR_IFNAME, &[name.as_bytes(), &[0]].concat()),
                (ATTR_IFTYPE, &TYPE_MONITOR.to_ne_bytes()),
                (ATTR_MONITOR_FLAGS, &[a, b, c, d]),
                (ATTR_SOCKET_OWNER, &[]),
            ],
        );
        let mut net = Net::open()?;
        // Of a name that is taken the kernel says that too many files are open.
        let taken =
            || io::Error::new(io::ErrorKind::AlreadyExists, "another interface has this name; remove it");
        made.map_err(|error| if net.link(name).is_ok() { taken() } else { error })?;
        let index = net.link(name)?.index;
        net.set_up(index)?;
        Ok(Monitor { index, _owner: self.socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_one_by_its_kind_and_its_radio() {
        let of = |wiphy, kind| Network { wiphy, kind, width: None, encrypted: false };
        let is_monitor = |wiphy, kind| of(wiphy, kind).is_monitor_of(&of(1, 7));
        assert_eq!([is_monitor(1, 6), is_monitor(1, 2), is_monitor(0, 6)], [true, false, false]);
    }

    #[test]
    fn what_is_no_radios_has_none() {
        // The loopback interface, and one that is not there.
        for interface in [1, u32::MAX >> 1] {
            assert!(Radio::of(interface).unwrap().is_none());
        }
    }
}
