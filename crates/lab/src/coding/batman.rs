//! batman-adv and its network coding, the rival, which the running kernel need not have: each node's is in a guest.
//!
//! ```text
//!   host: host0 ── vec1 ─ br0 ─ bat0 ─ vec0 ── air0 ▸◂ w0      an end; what is between has no host0
//! ```
//!
//! Guests only carry frames. TCP's ends are the namespaces', as in all modes.

use crate::dcf::{INTERFACE, Medium, mac};
use crate::error::{Error, Result};
use crate::guest::{self, Booting, Guest, GuestSpec, Interface};
use crate::namespace::Namespace;
use crate::program::{output, require};

/// The TAP that an end's IP has, by which its guest carries what it sends.
pub(super) const HOST_INTERFACE: &str = "host0";

/// The TAP that is the guest's interface on the air.
const AIR: &str = "air0";

/// Room for what batman-adv adds to a frame of 1500 bytes, so that it is not cut in two.
const MTU: u32 = 1560;

/// What batman-adv's coding puts before a packet that it relays. It takes this for given: with the driver's 32 bytes the guest panics.
const HEADROOM: u32 = 128;

/// A guest at every node of `medium`, each knows its neighbours alone; `coding` or not.
pub(super) fn start(medium: &Medium, coding: bool) -> Result<Vec<Guest>> {
    require(&["batctl", "nft"])?;
    let last = medium.nodes().len() - 1;
    let boot = |(number, node)| {
        let is_end = number == 0 || number == last;
        let booting = guest::boot(node, &spec(number, is_end))?;
        join(node, number, is_end)?;
        Ok(booting)
    };
    let booting = medium.nodes().iter().enumerate().map(boot).collect::<Result<Vec<_>>>()?;
    let mut guests = booting.into_iter().map(Booting::finish).collect::<Result<Vec<_>>>()?;
    let coding = u8::from(coding);
    for guest in &mut guests {
        // A bridge at an end is no second way to the others.
        guest
            .run(&format!("batctl meshif bat0 bridge_loop_avoidance 0 && batctl meshif bat0 nc {coding}"))?;
    }
    Ok(guests)
}

/// Sums that `guest` has sent, and such that it could not decode.
pub(super) fn sums(guest: &mut Guest) -> Result<(u64, u64)> {
    let said = guest.run("batctl meshif bat0 statistics")?;
    let count = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        let count = line.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| Error::program("batctl statistics", format!("it has no {name}: {said}")))
    };
    // Each of the two packets counts, as recoded if it came in a sum.
    Ok(((count("nc_code")? + count("nc_recode")?) / 2, count("nc_decode_failed")?))
}

fn spec(number: usize, is_end: bool) -> GuestSpec {
    let air = [
        "link set vec0 promisc on",
        "link add bat0 type batadv",
        "link set vec0 master bat0",
        "link set bat0 up",
    ];
    let interface = |tap: &str, mac, lines: &[&str]| Interface {
        tap: tap.into(),
        mac,
        options: Some(format!("mtu={MTU},headroom={HEADROOM}")),
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
    };
    let mut interfaces = vec![interface(AIR, mac(number), &air)];
    if is_end {
        let bridge = [
            "link add br0 type bridge",
            "link set bat0 master br0",
            "link set vec1 master br0",
            "link set br0 up",
        ];
        interfaces.push(interface(HOST_INTERFACE, format!("02:00:00:00:01:{number:02x}"), &bridge));
    }
    GuestSpec { modules: vec!["batman-adv", "bridge"], interfaces, ..GuestSpec::default() }
}

/// Joins the guest to the air, and an end's IP to the guest. Broadcasts reach far beyond the neighbours, whom alone anything
/// else reaches: who hears them would take stations for neighbours that are none.
fn join(node: &Namespace, number: usize, is_end: bool) -> Result<()> {
    let neighbours: Vec<String> =
        [number.checked_sub(1), Some(number + 1)].into_iter().flatten().map(mac).collect();
    let neighbours = neighbours.join(", ");
    let rules = format!(
        "table netdev air {{\n\
         chain heard {{ type filter hook ingress device {INTERFACE} priority 0; policy drop; \
         ether saddr {{ {neighbours} }} fwd to {AIR}; }}\n\
         chain sent {{ type filter hook ingress device {AIR} priority 0; fwd to {INTERFACE}; }}\n}}"
    );
    node.ip(&[format!("link set {AIR} mtu {MTU}")])?;
    output(node, "nft", &[rules])?;
    if is_end {
        output(node, "ethtool", &["-K", HOST_INTERFACE, "tx", "off", "gso", "off", "gro", "off"])?;
    }
    Ok(())
}
