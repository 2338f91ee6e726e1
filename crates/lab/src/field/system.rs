//! The systems, and the files of the vehicles and of the hub.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::convoy::{HUB_INNER, UPLINKS, hub_address};
use crate::dcf::INTERFACE;
use crate::mesh;
use crate::system::{Identity, node_sections, peer_section};

/// What a vehicle's `nawa` gives IP in place of its radio.
pub(super) const MASTER: &str = "nc0";

/// What is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// Every strand.
    Nawa,
    Without(Strand),
    /// Every strand, with this congestion control inside the tunnel.
    Inside(&'static str),
    /// The best that Linux has.
    Stock,
}

/// A strand that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strand {
    Flood,
    Coding,
    Tunnel,
    Flight,
    Bicast,
}

impl System {
    /// By their names in the JSON; with `--quick` the first two.
    pub(super) const ALL: [(&str, System); 8] = [
        ("nawa", System::Nawa),
        ("stock", System::Stock),
        ("nawa-without-flood", System::Without(Strand::Flood)),
        ("nawa-without-coding", System::Without(Strand::Coding)),
        ("nawa-without-tunnel", System::Without(Strand::Tunnel)),
        ("nawa-without-flight", System::Without(Strand::Flight)),
        ("nawa-without-bicast", System::Without(Strand::Bicast)),
        ("nawa-cubic-inside", System::Inside("cubic")),
    ];

    pub(super) fn has(self, strand: Strand) -> bool {
        match self {
            System::Nawa | System::Inside(_) => true,
            System::Without(other) => other != strand,
            System::Stock => false,
        }
    }

    /// The interface of the mesh that carries IP.
    pub(super) fn mesh_interface(self) -> &'static str {
        if self.has(Strand::Coding) { MASTER } else { INTERFACE }
    }

    /// The interface on which it floods: the radio, or, for a program over UDP, the one that carries IP.
    pub(super) fn flood_interface(self) -> &'static str {
        if self.has(Strand::Flood) { INTERFACE } else { self.mesh_interface() }
    }

    /// What the ends' connections into the tunnel use: FS-AT is a strand, without which they have the best of the kernel's.
    fn inside(self) -> String {
        let name = match self {
            System::Inside(name) => name,
            _ if self.has(Strand::Flight) => "fsat",
            _ => "bbr",
        };
        format!("congestion-control = \"{name}\"\n")
    }

    /// The kernel's congestion control where no strand brings one.
    pub(super) fn congestion_control(self) -> Option<&'static str> {
        (self == System::Stock).then_some("bbr")
    }
}

pub(super) struct Identities {
    /// The network's key of messages.
    pub(super) flood_key: PathBuf,
    pub(super) hub: Identity,
    pub(super) vehicles: Vec<Identity>,
}

pub(super) fn inner_address(vehicle: usize) -> String {
    format!("10.77.0.{}", vehicle + 1)
}

/// The file of a vehicle, the same for all but names.
pub(super) fn vehicle_file(system: System, vehicle: usize, identities: &Identities) -> String {
    let mut text = String::new();
    if system.has(Strand::Tunnel) {
        let (key, hub) = (&identities.vehicles[vehicle].key_file, &identities.hub.public_key);
        let bicast = if system.has(Strand::Bicast) { "adaptive" } else { "off" };
        text += &node_sections(key, &inner_address(vehicle), &system.inside());
        let more = format!("keepalive = \"10s\"\nbicast = \"{bicast}\"\n");
        text += &peer_section("hub", hub, &HUB_INNER.to_string(), &more);
        for (number, uplink) in UPLINKS.iter().enumerate() {
            let (name, metered, hub) = (uplink.name, uplink.metered, hub_address(number));
            let _ = write!(
                text,
                "\n[[peer.path]]\nname = \"{name}\"\nremote = \"{hub}:51900\"\nmetered = {metered}\n"
            );
        }
    }
    text += &both(system, ["wwan0", "wwan1"]);
    if system.has(Strand::Coding) {
        let address = mesh::address(vehicle);
        let _ = write!(
            text,
            "\n[[coding]]\ninterface = \"{INTERFACE}\"\nmaster = \"{MASTER}\"\naddresses = [\"{address}/24\"]\n"
        );
    }
    let (interface, id, key) = (system.flood_interface(), vehicle + 1, &identities.flood_key);
    let mode = if system.has(Strand::Flood) { "driver" } else { "application" };
    let _ = write!(
        text,
        "\n[[flood]]\ninterface = \"{interface}\"\nid = {id}\nmode = \"{mode}\"\nkey-file = {key:?}\n"
    );
    text
}

/// The hub's file; none where it runs plain Linux.
pub(super) fn hub_file(system: System, identities: &Identities) -> Option<String> {
    let mut text = String::new();
    if system.has(Strand::Tunnel) {
        let tunnel = format!("listen = 51900\n{}", system.inside());
        text += &node_sections(&identities.hub.key_file, &HUB_INNER.to_string(), &tunnel);
        let bicast = if system.has(Strand::Bicast) { "adaptive" } else { "off" };
        let more = format!("bicast = \"{bicast}\"\n");
        for (vehicle, identity) in identities.vehicles.iter().enumerate() {
            let (name, key) = (format!("vehicle{}", vehicle + 1), &identity.public_key);
            text += &peer_section(&name, key, &inner_address(vehicle), &more);
        }
    }
    text += &both(system, ["eth0", "eth1"]);
    (!text.is_empty()).then_some(text)
}

/// What a vehicle's file and the hub's have alike.
fn both(system: System, interfaces: [&str; 2]) -> String {
    let mut text = String::new();
    if system.has(Strand::Flight) {
        text += "\n[flight]\ndefault = true\n";
    }
    if system.has(Strand::Bicast) {
        let [one, two] = interfaces;
        let _ = write!(text, "\n[bicast]\ninterfaces = [\"{one}\", \"{two}\"]\nmetered = [\"{one}\"]\n");
    }
    text
}
