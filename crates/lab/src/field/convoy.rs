//! The convoy, its uplinks, and the hub.
//!
//! ```text
//!   v1 ─ 802.11 ─ v2 ─ 802.11 ─ v3 ─ 802.11 ─ v4
//!   ├─wwan0─[lte]─────u0─┐                    ├─wwan0─[policed]─u2─┐
//!   └─wwan1─[sat]─────u1─┴─ net ── eth0…3 hub └─wwan1─[nat]─────u3─┴─ net (the same)
//! ```
//!
//! The hub has an address on each way: what goes to 203.0.1.1 goes by `lte`, and so on, wherever it comes from. Vehicles with uplinks
//! forward for the others and masquerade them. `net` translates the addresses of `nat`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use link::dcf::{DcfConfig, Phy, Position};
use link::{
    Bitrate, ByteCount, Capacity, CellularConfig, LinkConfig, Loss, PolicerConfig, Probability, Queue, Trace,
};

use crate::command::end;
use crate::dcf::Medium;
use crate::emulator::{Emulator, Wire};
use crate::error::Result;
use crate::mesh::{self, SPACING_M};
use crate::namespace::Namespace;
use crate::network;
use crate::program::output;

/// How many vehicles there are.
pub const VEHICLES: usize = 4;

/// The vehicle where everything is used: in the middle, and without an uplink.
pub(super) const USER: usize = 2;
/// The vehicle that warns of hazards, and that has SCTP's association.
pub(super) const FRONT: usize = 0;
/// The vehicle that relays to the first one.
pub(super) const RELAY: usize = 1;
/// The vehicle that falls behind.
pub(super) const LAST: usize = 3;

/// Out of everybody's range.
const FAR_M: f64 = 5000.0;

/// Of the radios, as drivers have it.
const MTU: u32 = 1500;

/// The hub's address in the tunnel.
pub(super) const HUB_INNER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

pub(super) struct Uplink {
    pub(super) name: &'static str,
    vehicle: usize,
    interface: &'static str,
    pub(super) metered: bool,
}

pub(super) const UPLINKS: [Uplink; 4] = [
    Uplink { name: "lte", vehicle: 0, interface: "wwan0", metered: true },
    Uplink { name: "sat", vehicle: 0, interface: "wwan1", metered: false },
    Uplink { name: "policed", vehicle: 3, interface: "wwan0", metered: false },
    Uplink { name: "nat", vehicle: 3, interface: "wwan1", metered: false },
];
pub(super) const LTE: usize = 0;
pub(super) const POLICED: usize = 2;
const NAT: usize = 3;

/// All of it; dropping it removes it.
pub(super) struct Convoy {
    // Dropped in this order.
    /// The uplinks, in order.
    pub(super) wires: Vec<Wire>,
    pub(super) medium: Medium,
    /// Where what is unplugged lies, too.
    pub(super) net: Namespace,
    pub(super) hub: Namespace,
    /// The interface of each vehicle's mesh that carries IP.
    mesh_interface: &'static str,
}

impl Convoy {
    /// Everything but the mesh's addresses, which [`join_mesh`](Self::join_mesh) gives.
    pub(super) fn build(emulator: &Emulator, mesh_interface: &'static str, seed: u64) -> Result<Self> {
        let config = DcfConfig::new(Phy::g54(), Position::chain(VEHICLES, SPACING_M));
        let medium = Medium::build(config, seed)?;
        let (net, hub) = (Namespace::create("net")?, Namespace::create("hub")?);
        net.sysctl("ipv4/ip_forward", "1")?;
        let mut convoy = Self { wires: Vec::new(), medium, net, hub, mesh_interface };
        for vehicle in convoy.medium.nodes() {
            prepare_vehicle(vehicle)?;
        }
        for (number, links) in links(seed).into_iter().enumerate() {
            let wire = convoy.add_uplink(emulator, number, links, seed)?;
            convoy.wires.push(wire);
        }
        convoy.set_nat(1)?;
        Ok(convoy)
    }

    pub(super) fn vehicle(&self, vehicle: usize) -> &Namespace {
        self.medium.node(vehicle)
    }

    /// Gives `vehicle` its place in the mesh: its address, unless `nawa` has given it, neighbours, and the ways to the others and to
    /// the hub.
    pub(super) fn join_mesh(&self, vehicle: usize) -> Result<()> {
        let (host, interface) = (self.vehicle(vehicle), self.mesh_interface);
        if interface == crate::dcf::INTERFACE {
            host.ip(&[format!("addr replace {}/24 brd + dev {interface}", mesh::address(vehicle))])?;
        }
        host.ip(&[format!("link set {interface} up")])?;
        mesh::join(host, vehicle, VEHICLES, interface)?;
        let others = UPLINKS.iter().enumerate().filter(|(_, uplink)| uplink.vehicle != vehicle);
        let way = |(number, uplink): (usize, &Uplink)| {
            let via = mesh::address(mesh::next(vehicle, uplink.vehicle));
            format!("route replace 203.0.{}.0/24 via {via} dev {interface}", number + 1)
        };
        host.ip(&others.map(way).collect::<Vec<_>>())
    }

    fn add_uplink(
        &self,
        emulator: &Emulator,
        number: usize,
        links: [LinkConfig; 2],
        seed: u64,
    ) -> Result<Wire> {
        let Uplink { vehicle, interface, .. } = UPLINKS[number];
        let (host, far) = (self.vehicle(vehicle), format!("u{number}"));
        let taps = [host.tap(interface)?, self.net.tap(&far)?];
        let net = number + 1;
        let [own, peer] = [1, 2].map(|end| Ipv4Addr::new(10, number as u8 + 1, 0, end));
        host.ip(&end(interface, own, peer))?;
        self.net.ip(&end(&far, peer, own))?;
        host.ip(&[format!("route add 203.0.{net}.0/24 via 10.{net}.0.2")])?;
        let hub = self.hub.name();
        self.net.ip(&[
            format!("link add h{number} type veth peer name eth{number} netns {hub}"),
            format!("addr add 203.0.{net}.254/24 dev h{number}"),
            format!("link set h{number} up"),
        ])?;
        self.hub.ip(&[
            format!("addr add {}/24 dev eth{number}", hub_address(number)),
            format!("link set eth{number} up"),
            format!("route add 10.{net}.0.0/24 via 203.0.{net}.254"),
        ])?;
        if number == NAT {
            self.hub.ip(&[format!("route add 198.51.100.0/24 via 203.0.{net}.254")])?;
        }
        emulator.join(taps, links, seed.wrapping_add(net as u64))
    }

    /// What comes from the uplink `nat` appears to come from 198.51.100.HOST, and what goes to any other such address is dropped.
    pub(super) fn set_nat(&self, host: u8) -> Result<()> {
        let outside = format!("198.51.100.{host}");
        let rules = format!(
            "table ip translation
            delete table ip translation
            table ip translation {{
                chain in {{
                    type filter hook prerouting priority raw;
                    iifname u{NAT} ip saddr 10.4.0.1 ip saddr set {outside}
                    iifname h{NAT} ip daddr {outside} ip daddr set 10.4.0.1
                    iifname h{NAT} ip daddr 198.51.100.0/24 drop
                }}
            }}"
        );
        output(&self.net, "nft", &[rules]).map(drop)
    }

    /// Bytes of frames that were given to an uplink since then, both ways.
    pub(super) fn bytes(&self, uplink: usize) -> Result<u64> {
        Ok(self.wires[uplink].stats()?.iter().map(|stats| stats.offered.bytes.get()).sum())
    }

    /// Bytes that all vehicles have put on the air.
    pub(super) fn air_bytes(&self) -> Result<u64> {
        Ok(self.medium.stats()?.stations.iter().map(|one| one.transmitted.bytes.get()).sum())
    }

    /// Takes `vehicle` out of everybody's range, or back.
    pub(super) fn set_in_range(&self, vehicle: usize, in_range: bool) {
        let position = Position::chain(VEHICLES, SPACING_M)[vehicle];
        self.medium.place(vehicle, if in_range { position } else { Position { y: FAR_M, ..position } });
    }
}

pub(super) fn hub_address(uplink: usize) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, u8::try_from(uplink + 1).unwrap_or(u8::MAX), 1)
}

fn prepare_vehicle(host: &Namespace) -> Result<()> {
    mesh::forward(host)?;
    host.ip(&[format!("link set {} mtu {MTU}", crate::dcf::INTERFACE)])?;
    let masquerade = "table ip convoy { chain out { type nat hook postrouting priority srcnat; \
                      oifname \"wwan*\" ip saddr 10.88.0.0/24 masquerade; }; }";
    output(host, "nft", &[masquerade]).map(drop)
}

/// Of each uplink, from the vehicle and to it.
fn links(seed: u64) -> [[LinkConfig; 2]; 4] {
    let fixed = |mbps, ms, bytes| network::fixed(mbps, Duration::from_millis(ms), Queue::Bytes(bytes));
    let lte = |stream: u64, mbps: f64| {
        let config = CellularConfig { mean: Bitrate::from_mbps(mbps), ..CellularConfig::default() };
        let trace = Trace::cellular(seed.wrapping_mul(2).wrapping_add(stream), &config);
        LinkConfig { capacity: Capacity::Trace(Arc::new(trace)), ..fixed(mbps, 40, 300_000) }
    };
    let bursts =
        Probability::new(0.01).and_then(|mean| Loss::gilbert_elliott(mean, 3.0)).unwrap_or(Loss::None);
    let policed = |mbps: f64| LinkConfig {
        policer: Some(PolicerConfig { rate: Bitrate::from_mbps(mbps), burst: ByteCount(30_000) }),
        ..fixed(50.0, 20, 200_000)
    };
    let nat = |mbps: f64| LinkConfig { loss: bursts, ..fixed(mbps, 30, 150_000) };
    [
        [lte(0, 3.0), lte(1, 6.0)],
        [fixed(1.0, 150, 150_000), fixed(3.0, 150, 150_000)],
        [policed(2.0), policed(4.0)],
        [nat(3.0), nat(5.0)],
    ]
}
