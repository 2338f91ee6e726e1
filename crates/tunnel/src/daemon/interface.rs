//! The TUN interface: made, given its addresses and routes, and gone with its descriptor.
//!
//! A default route stands in a table of its own, which a rule asks for all packets but those with the tunnel's mark, after the
//! table `main` has been asked for everything else (as wg-quick does): so the uplinks' default routes stay, whatever their
//! metrics, and the tunnel's own packets never come back into it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use device::Tun;
use device::net::{MAIN_TABLE, Net, Query, Route, Rule, existing};
use ipnet::IpNet;

use super::reverse_path::ReversePath;
use super::settings::{Settings, StartError};
use crate::config::{Config, Mtu};
use crate::path::MIN_INNER_MTU;
use crate::why::Why;

/// Packets (with offload: super-packets) that the kernel keeps while the tunnel does not read; more are dropped, which
/// is what slows local senders down. The kernel's default; less would cut into bursts of a fast sender, which come
/// faster than one thread reads.
const QUEUE: u32 = 500;
/// Queues, by destination: what overflows for one peer is not another's, unless both hash alike.
const QUEUES: usize = 16;
/// The table of the default routes, and the mark of the outer packets where the file gives none: "nawa".
pub const TABLE: u32 = 0x6e61_7761;
/// The priorities of the rules that ask `main`, and then [`TABLE`]: just before the kernel's own for `main`, 32766.
const PRIORITIES: [u32; 2] = [FIRST_PRIORITY, 32763];
/// Of the one that asks `main`.
pub const FIRST_PRIORITY: u32 = 32762;
/// The same of a [`Hold`], behind those of a tunnel that runs.
const HELD: [u32; 2] = [32764, 32765];

/// The TUN interface, as the host sees it: up, with its addresses and routes.
#[derive(Debug)]
pub struct Interface {
    net: Net,
    name: String,
    index: u32,
    mtu: u16,
    /// The mark that the outer packets have if there is a default route.
    mark: u32,
    /// What it was given, in this order.
    pieces: Vec<Piece>,
    /// Packets of the default routes go beside it.
    open: bool,
    reverse_path: ReversePath,
}

/// What an interface is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Address(IpNet),
    /// One with a source is of an address's prefix.
    Route(Route),
    Rule(Rule),
}

impl Interface {
    /// Makes what `settings` say, and the descriptor that it lives with.
    pub fn make(settings: &Settings) -> Result<(Tun, Self), StartError> {
        let name = settings.interface.clone();
        let mut net = Net::open()?;
        if net.link(&name).is_ok() {
            return Err(StartError::InterfaceExists(name));
        }
        let tun = Tun::with_queues(&name, QUEUES).map_err(StartError::Tun)?;
        let mtu = match settings.tunnel.mtu {
            Mtu::Auto => MIN_INNER_MTU,
            Mtu::Fixed(mtu) => mtu,
        };
        let index = configure(&mut net, &name, mtu).map_err(StartError::Interface)?;
        let mark = if settings.fwmark == 0 { TABLE } else { settings.fwmark };
        let mut interface = Self {
            net,
            name,
            index,
            mtu,
            mark,
            pieces: Vec::new(),
            open: false,
            reverse_path: ReversePath::default(),
        };
        interface.reconfigure(&settings.addresses, &settings.tunnel)?;
        Ok((tun, interface))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index in its network namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Has these addresses, and the routes of the peers in `config`, from now on. What is there already is not touched.
    ///
    /// # Errors
    /// One that is new could not be added; then all is as before.
    pub fn reconfigure(&mut self, addresses: &[IpNet], config: &Config) -> Result<(), StartError> {
        let mut wanted = pieces(addresses, config, self.mark, self.index);
        let new: Vec<_> = wanted.iter().filter(|piece| !self.pieces.contains(piece)).cloned().collect();
        let mtu = self.mtu;
        if has_v6(&wanted) {
            self.set_mtu(mtu.max(MIN_INNER_MTU));
            self.switch_v6_on();
        }
        for (count, piece) in new.iter().enumerate() {
            let Err(error) = self.add(piece) else { continue };
            // As the kernel, which gives its own such routes to several interfaces.
            if error.kind() == io::ErrorKind::AlreadyExists && piece.is_prefix() {
                tracing::warn!("{error}; packets to that prefix do not go into {}", self.name);
                wanted.retain(|one| one != piece);
                continue;
            }
            new[..count].iter().rev().for_each(|piece| self.take_back(piece));
            self.set_mtu(mtu);
            return Err(piece.refused(error));
        }
        let old = std::mem::replace(&mut self.pieces, wanted);
        let replaced = |piece: &Piece| self.pieces.iter().any(|new| new.replaces(piece));
        let gone: Vec<_> = old.iter().filter(|piece| !replaced(piece)).collect();
        gone.iter().rev().for_each(|piece| self.delete(piece));
        // With an address the kernel may have taken others of its prefix, and the routes.
        for piece in self.pieces.clone() {
            self.put_back(&piece);
            self.put_first(&piece);
        }
        self.loosen();
        Ok(())
    }

    /// Puts back what somebody has taken away; whether that was a route in whose place, or before which, another stood.
    ///
    /// # Errors
    /// It has gone from this network namespace: deleted, or moved to another.
    pub fn restore(&mut self) -> io::Result<bool> {
        let gone = |error| io::Error::other(format!("{} is not here any more: {error}", self.name));
        let link = self.net.link_at(self.index).map_err(gone)?;
        if link.name != self.name {
            tracing::warn!(
                "somebody has renamed {} to {}; the tunnel goes on by that name",
                self.name,
                link.name
            );
            self.name.clone_from(&link.name);
        }
        if link.mtu != u32::from(self.mtu) {
            tracing::warn!("somebody has set the MTU of {} to {}; it is set back", self.name, link.mtu);
            if let Err(error) = self.net.set_mtu(self.index, self.mtu.into()) {
                tracing::warn!("{error}");
            }
        }
        if !link.up {
            tracing::warn!("somebody has switched {} off; it is switched on again", self.name);
            if let Err(error) = self.net.set_up(self.index) {
                tracing::warn!("{error}");
            }
        }
        if has_v6(&self.pieces) {
            self.switch_v6_on();
        }
        self.loosen();
        let mut replaced = false;
        for piece in self.pieces.clone() {
            if self.put_back(&piece) {
                tracing::warn!("somebody has taken {piece} from {}; it is put back", self.name);
            }
            replaced |= self.put_first(&piece);
        }
        Ok(replaced)
    }

    /// Whether it has a route of one of these prefixes, each an address and its length.
    pub fn has_route_of(&self, prefixes: &BTreeSet<(IpAddr, u8)>) -> bool {
        let of = |piece: &Piece| matches!(piece, Piece::Route(route) if prefixes.contains(&(route.destination, route.prefix)));
        self.pieces.iter().any(of)
    }

    /// Why packets to `net`, one of its routes, go somewhere else, unless a narrower route leads them there: another route
    /// or rule comes first. Of a large prefix it is tried with some of its addresses.
    pub fn leads_beside(&mut self, net: &IpNet) -> Option<Why> {
        if self.open && net.prefix_len() == 0 {
            return None;
        }
        let mut nowhere = None;
        for to in samples(net) {
            let beside =
                |way, rival: String| Why::Beside { net: *net, interface: self.name.clone(), to, way, rival };
            match self.net.find_route(&Query::to(to)) {
                Ok(found) if found.interface == Some(self.index) => return None,
                Ok(found) if found.prefix > net.prefix_len() => {}
                Ok(found) => {
                    let link = found.interface.and_then(|index| self.net.link_at(index).ok());
                    let way = link.map_or("several ways".into(), |link| format!("by {}", link.name));
                    let rival = match found.table {
                        MAIN_TABLE => "another route in the table main".into(),
                        table => format!("a route in the table {table}"),
                    };
                    return Some(beside(way, rival));
                }
                Err(_) => {
                    nowhere = nowhere.or(Some(beside("nowhere".into(), "another route or rule".into())))
                }
            }
        }
        nowhere
    }

    /// Packets of the default routes go beside it from now on, or into it again.
    pub fn set_open(&mut self, open: bool) {
        if std::mem::replace(&mut self.open, open) == open {
            return;
        }
        match open {
            true => {
                tracing::warn!("no path is up to where the default route leads: packets go beside the tunnel")
            }
            false => tracing::info!("packets go through the tunnel again"),
        }
        for piece in self.pieces.clone().iter().filter(|piece| piece.leads_in()) {
            match open {
                true => self.delete(piece),
                false => {
                    self.put_back(piece);
                }
            }
        }
    }

    /// A host may have IPv6 switched off on its links. Where that cannot be written, the first address says why not.
    fn switch_v6_on(&self) {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.name), "0");
    }

    /// While IPv4's default route leads in, no reverse-path filter is strict.
    fn loosen(&mut self) {
        if !self.pieces.iter().any(|piece| piece.leads_in() && !piece.is_v6()) {
            self.reverse_path.put_back();
        } else if self.reverse_path.loosen() {
            tracing::info!("reverse-path filters are loose while the default route leads into {}", self.name);
        }
    }

    /// Takes packets of up to `mtu` bytes from now on; the kernel takes IPv6 from an interface of less than it needs.
    pub fn set_mtu(&mut self, mtu: u16) {
        let mtu = if has_v6(&self.pieces) { mtu.max(MIN_INNER_MTU) } else { mtu };
        if mtu == self.mtu {
            return;
        }
        self.mtu = mtu;
        // Larger packets are answered by the core; smaller ones only cost a little.
        if let Err(error) = self.net.set_mtu(self.index, mtu.into()) {
            tracing::warn!("{error}; the tunnel goes on with the interface's old MTU");
        }
    }

    /// Fails with `AlreadyExists` for a route that is another's; what else is there already is as good as added.
    fn add(&mut self, piece: &Piece) -> io::Result<()> {
        match piece {
            Piece::Route(route) => {
                let instead = self.pieces.iter().any(|own| piece.replaces(own));
                self.put(piece, instead).map_err(|error| self.why_not(route, error))
            }
            _ => existing(self.put(piece, false)),
        }
    }

    /// Why a route could not be added, where the kernel's word for it says little.
    fn why_not(&mut self, route: &Route, error: io::Error) -> io::Error {
        let to = format!("{}/{}", route.destination, route.prefix);
        match (error.kind(), &route.congestion_control) {
            (kind @ io::ErrorKind::AlreadyExists, _) => {
                let holder = self.holder(route).unwrap_or_else(|| "somebody".into());
                io::Error::new(
                    kind,
                    format!("cannot route {to} into {}: {holder} has a route of that prefix", self.name),
                )
            }
            (io::ErrorKind::InvalidInput, Some(name)) => {
                let why = format!(
                    "cannot route {to} with congestion control {name}: this kernel has none of that name"
                );
                io::Error::new(io::ErrorKind::NotFound, why)
            }
            _ => error,
        }
    }

    /// The interface that a route of the same prefix leads to.
    fn holder(&mut self, route: &Route) -> Option<String> {
        let net = IpNet::new(route.destination, route.prefix).ok()?;
        let mut found = samples(&net).filter_map(|to| self.net.find_route(&Query::to(to)).ok());
        let index = found.find(|found| found.prefix == route.prefix)?.interface?;
        Some(self.net.link_at(index).ok()?.name)
    }

    /// Undoes [`add`](Self::add).
    fn take_back(&mut self, piece: &Piece) {
        match self.pieces.iter().find(|own| piece.replaces(own)).cloned() {
            Some(own) => drop(self.put(&own, true).inspect_err(|error| tracing::warn!("{error}"))),
            None => self.delete(piece),
        }
    }

    /// `instead`: in the place of a route of the same prefix. Fails with `AlreadyExists` for what is there already.
    fn put(&mut self, piece: &Piece, instead: bool) -> io::Result<()> {
        if self.open && piece.leads_in() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match piece {
            Piece::Address(net) => self.net.add_address(self.index, net.addr(), net.prefix_len(), false),
            Piece::Route(route) if instead => self.net.replace_route(route),
            Piece::Route(route) => self.net.add_route(route),
            Piece::Rule(rule) => self.net.add_rule(rule),
        }
    }

    fn delete(&mut self, piece: &Piece) {
        let deleted = match piece {
            Piece::Address(net) => self.net.delete_address(self.index, net.addr(), net.prefix_len()),
            Piece::Route(route) => self.net.delete_route(route),
            Piece::Rule(rule) => self.net.delete_rule(rule),
        };
        // Somebody else has done it, perhaps the kernel.
        if let Err(error) = deleted {
            tracing::debug!("{error}");
        }
    }

    /// True if it was not there.
    fn put_back(&mut self, piece: &Piece) -> bool {
        match self.put(piece, false) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::warn!("{error}");
                false
            }
            result => result.is_ok(),
        }
    }

    /// True for a route in whose place, or before which, another stood: it is put there again.
    fn put_first(&mut self, piece: &Piece) -> bool {
        let Piece::Route(route) = piece else { return false };
        // It fits behind those of its prefix only if it is none of them. IPv4's takes the place of the first only if it is
        // none, or the first itself.
        let first = |net: &mut Net| piece.is_v6() || net.replace_route(route).is_ok();
        if self.net.append_route(route).is_err() && first(&mut self.net) {
            return false;
        }
        tracing::warn!(
            "somebody has put another in the place of {piece}, or before it; it is put back into {}",
            self.name
        );
        self.delete(piece);
        self.net.replace_route(route).unwrap_or_else(|error| tracing::warn!("{error}"));
        true
    }
}

impl Drop for Interface {
    /// Addresses and routes go with the interface; rules would stay.
    fn drop(&mut self) {
        for piece in self.pieces.clone().iter().filter(|piece| matches!(piece, Piece::Rule(_))) {
            self.delete(piece);
        }
    }
}

impl Piece {
    /// Whether it is the rule by which packets take a default route into the tunnel.
    fn leads_in(&self) -> bool {
        matches!(self, Piece::Rule(rule) if rule.table == TABLE)
    }

    fn is_v6(&self) -> bool {
        match self {
            Piece::Address(net) => net.addr().is_ipv6(),
            Piece::Route(route) => route.destination.is_ipv6(),
            Piece::Rule(rule) => rule.v6,
        }
    }

    /// Whether it is the route of an address's prefix.
    fn is_prefix(&self) -> bool {
        matches!(self, Piece::Route(route) if route.source.is_some())
    }

    /// Whether it stands where `other` does: it is the same, or a route of the same prefix.
    fn replaces(&self, other: &Piece) -> bool {
        let place = |route: &Route| (route.destination, route.prefix, route.table);
        match (self, other) {
            (Piece::Route(one), Piece::Route(other)) => place(one) == place(other),
            _ => self == other,
        }
    }

    fn refused(&self, error: io::Error) -> StartError {
        match self {
            Piece::Address(_) | Piece::Rule(_) => StartError::Interface(error),
            Piece::Route(_) => StartError::Route(error),
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Address(net) => write!(f, "address {net}"),
            Piece::Route(route) => write!(f, "route {}/{}", route.destination, route.prefix),
            Piece::Rule(rule) => write!(f, "the rule of priority {}", rule.priority),
        }
    }
}

/// Routing rules by which packets of default routes go nowhere where the tunnel's own, which come before, do not take them: while it is
/// started again, and once the daemon has been killed. Gone when dropped.
#[derive(Debug, Default)]
pub struct Hold {
    rules: Vec<Rule>,
    /// Some of them were there already, from a daemon that was killed: they outlast a start that fails.
    inherited: bool,
}

impl Hold {
    /// Holds what `config`, whose outer packets have the mark `fwmark`, sends into the tunnel, unless that may go beside it.
    pub fn take(&mut self, config: &Config, fwmark: u32) {
        let mark = mark(fwmark, config);
        let defaults = default_families(config).filter(|_| !config.fail_open);
        self.set(defaults.flat_map(|v6| rules(v6, HELD, mark, true)).collect());
    }

    /// Puts back what somebody has taken away.
    pub fn restore(&mut self) {
        self.set(self.rules.clone());
    }

    /// The start has not failed.
    pub fn adopt(&mut self) {
        self.inherited = false;
    }

    fn set(&mut self, wanted: Vec<Rule>) {
        let old = std::mem::replace(&mut self.rules, wanted);
        if old.is_empty() && self.rules.is_empty() {
            return;
        }
        let not_held = |error| tracing::warn!("packets of the default route are not held back: {error}");
        let mut net = match Net::open() {
            Ok(net) => net,
            Err(error) => return not_held(error),
        };
        for rule in &self.rules {
            match net.add_rule(rule) {
                Ok(()) if old.contains(rule) => {
                    tracing::warn!("the rule of priority {} was missing; it is put back", rule.priority);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.inherited |= old.is_empty()
                }
                result => result.unwrap_or_else(not_held),
            }
        }
        let gone = old.iter().filter(|rule| !self.rules.contains(rule));
        gone.for_each(|rule| drop(net.delete_rule(rule)));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.inherited {
            self.set(Vec::new());
        }
    }
}

/// Removes the rules that a daemon that was killed has left in the calling thread's network namespace, and puts its reverse-path
/// filter back. The first of a pair of rules is no other program's where the second, with Nawa's own table, is there. What `held`
/// holds stays so.
pub fn remove_left(held: &Hold) {
    let Ok(mut net) = Net::open() else { return };
    let mut killed = false;
    for v6 in [false, true] {
        for (priorities, unreachable) in [(PRIORITIES, false), (HELD, true)] {
            let [main, own] = rules(v6, priorities, 0, unreachable);
            // Whatever its mark was. While packets go beside the tunnel, the first alone is there.
            let own = net.delete_rule(&Rule { unless_marked: None, ..own }).is_ok();
            let open = !unreachable && ReversePath::is_kept();
            let main = (own || open) && net.delete_rule(&main).is_ok();
            killed |= !unreachable && (own || main);
            // Of two that differ in their mark alone, either may be gone now.
            let again = held.rules.iter().filter(|rule| unreachable && rule.v6 == v6);
            again.for_each(|rule| drop(net.add_rule(rule)));
        }
    }
    ReversePath::recover(killed);
}

/// Some addresses of a prefix, unlike each other.
fn samples(net: &IpNet) -> impl Iterator<Item = IpAddr> {
    const BITS: [u128; 3] =
        [0x5555_5555 << 96 | 0x5555_5555, 0xaaaa_aaaa << 96 | 0xaaaa_aaaa, 0x0123_4567 << 96 | 0x3210_cdef];
    let (base, host) = (net.network(), net.hostmask());
    BITS.into_iter().map(move |bits| match (base, host) {
        (IpAddr::V4(base), IpAddr::V4(host)) => {
            Ipv4Addr::from(u32::from(base) | bits as u32 & u32::from(host)).into()
        }
        (IpAddr::V6(base), IpAddr::V6(host)) => {
            Ipv6Addr::from(u128::from(base) | bits & u128::from(host)).into()
        }
        (base, _) => base,
    })
}

fn has_v6(pieces: &[Piece]) -> bool {
    pieces.iter().any(Piece::is_v6)
}

/// Everything but addresses and routes; the interface's index.
fn configure(net: &mut Net, name: &str, mtu: u16) -> io::Result<u32> {
    let index = net.link(name)?.index;
    net.set_mtu(index, mtu.into())?;
    net.set_queue_length(index, QUEUE)?;
    net.set_up(index)?;
    Ok(index)
}

/// The outer packets' mark: the file's or, where a default route has to tell them from others, this program's own.
pub fn mark(fwmark: u32, config: &Config) -> u32 {
    if fwmark == 0 && default_families(config).next().is_some() { TABLE } else { fwmark }
}

/// Of the peers' default routes whether each is IPv6's.
fn default_families(config: &Config) -> impl Iterator<Item = bool> {
    let routes = config.peers.iter().flat_map(|peer| &peer.routes);
    routes.filter(|route| route.prefix_len() == 0).map(|route| route.addr().is_ipv6())
}

/// The rules of a default route: packets ask `main` for all but its default route, and those without `mark` then ask [`TABLE`], or go
/// nowhere.
fn rules(v6: bool, [first, then]: [u32; 2], mark: u32, unreachable: bool) -> [Rule; 2] {
    let main = Rule {
        v6,
        priority: first,
        unless_marked: None,
        table: MAIN_TABLE,
        no_default: true,
        unreachable: false,
    };
    let own = Rule { priority: then, unless_marked: Some(mark), table: TABLE, no_default: false, ..main };
    [main, Rule { unreachable, ..own }]
}

/// The addresses, the routes of their prefixes and of the peers, and the rules of default routes. Routes that are there already
/// are somebody else's, and stay.
fn pieces(addresses: &[IpNet], config: &Config, mark: u32, interface: u32) -> Vec<Piece> {
    let mut pieces: Vec<_> = addresses.iter().copied().map(Piece::Address).collect();
    let prefixes = addresses.iter().filter(|address| address.prefix_len() < address.max_prefix_len());
    let peers = config.peers.iter().flat_map(|peer| &peer.routes);
    for net in prefixes.chain(peers).map(IpNet::trunc) {
        let default = net.prefix_len() == 0;
        let route = Piece::Route(Route {
            destination: net.addr(),
            prefix: net.prefix_len(),
            interface,
            table: if default { TABLE } else { MAIN_TABLE },
            source: addresses.iter().find(|address| address.trunc() == net).map(IpNet::addr),
            congestion_control: config.congestion_control.clone(),
        });
        if pieces.contains(&route) {
            continue;
        }
        pieces.push(route);
        if default {
            pieces.extend(rules(net.addr().is_ipv6(), PRIORITIES, mark, false).map(Piece::Rule));
        }
    }
    pieces
}
