//! From what is written to what is meant, with every contradiction named.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use ipnet::IpNet;
use toml::Spanned;
use tunnel::PrivateKey;
use tunnel::config::{Config, Marks};
use tunnel::daemon::Listen;

use super::coding;
use super::document::{self, Document};
use super::flood;
use super::peer::{self, public_key};
use super::settings::{Base, Flight, Relay, Settings, Tunnel};
use super::source::{Source, unique};
use super::{secret, value};

/// Checks `document`. `None` if anything is wrong; `source` then knows what.
pub fn check(source: &mut Source, document: Document) -> Option<Settings> {
    sections_belong_together(source, &document);
    let node = document.node;
    let state_dir = match node.as_ref().and_then(|node| node.state_dir.as_ref()) {
        Some(name) => source.folder().join(name),
        None => usual_state_dir(source.stem()),
    };
    let key = node.and_then(|node| private_key(source, &node));
    let me = key.as_ref().map(PrivateKey::public);
    let peers = peer::all(source, document.peers, me.as_ref());
    let written = document.tunnel;
    if written.as_ref().is_some_and(|tunnel| tunnel.listen.is_none()) {
        complain_of_unreachable(source, &peers);
    }
    let tunnel = written.map(|written| tunnel(source, written, peers));
    let relay = document.relay.map(|written| relay(source, written, tunnel.as_ref().map(|t| t.listen)));
    let flight = document.flight.map(|written| flight(source, written));
    let floods = flood::all(source, document.floods);
    let codings = coding::all(source, document.codings);
    let bicast = document.bicast.map(|written| super::bicast::check(source, written));
    let tls = relay.as_ref().and_then(|relay| relay.tls);
    let metrics = document.metrics.and_then(|written| metrics(source, &written.listen, tls));
    Some(Settings { key, state_dir, tunnel, relay, flight, bicast, floods, codings, metrics })
}

/// The folder that systemd names (`StateDirectory=`), or one in it that is called as the file: daemons of several network namespaces,
/// each with a file of its own (`nawa@NAME.service`), do not write over each other's counts.
fn usual_state_dir(stem: &OsStr) -> PathBuf {
    let all = PathBuf::from(std::env::var_os("STATE_DIRECTORY").unwrap_or_else(|| "/var/lib/nawa".into()));
    if stem == "nawa" { all } else { all.join(stem) }
}

fn private_key(source: &mut Source, node: &document::Node) -> Option<PrivateKey> {
    let path = source.folder().join(node.key_file.get_ref());
    source.expect(node.key_file.span(), secret::read(&path))
}

fn sections_belong_together(source: &mut Source, document: &Document) {
    let has = |name| document.present.contains(name);
    let needs_key = has("tunnel") || has("relay");
    let nothing = !needs_key && !["flight", "bicast", "coding", "flood"].into_iter().any(has);
    if !has("node") && (needs_key || nothing) {
        source.complain(0..0, "there is no [node] section; write one with key-file = \"FILE\"");
    }
    if nothing {
        source.complain(
            0..0,
            "there is nothing to run; write a [tunnel], [relay], [flight], [bicast], [[coding]] or [[flood]] section",
        );
    }
    if let (false, Some(peer)) = (has("tunnel"), document.peers.first()) {
        source.complain(peer.name.span(), "a peer needs a [tunnel] section; write one");
    }
    complain_of_bicast_below_coding(source, document);
    complain_of_the_tunnel_itself(source, document);
}

/// What the tunnel makes is neither below it nor below another strand.
fn complain_of_the_tunnel_itself(source: &mut Source, document: &Document) {
    let Some(tunnel) = &document.tunnel else { return };
    let floods = document.floods.iter().map(|flood| &flood.interface);
    let codings = document.codings.iter().flat_map(|coding| [&coding.interface, &coding.master]);
    let bicast = document.bicast.iter().flat_map(|bicast| bicast.interfaces.get_ref());
    let paths = document.peers.iter().flat_map(|peer| &peer.paths).filter_map(|path| path.local.as_ref());
    let all = floods.chain(codings).chain(bicast).chain(paths);
    for name in all.filter(|name| name.get_ref() == tunnel.interface.get_ref()) {
        source.complain(name.span(), "this is the interface that [tunnel] makes; name another");
    }
}

fn complain_of_bicast_below_coding(source: &mut Source, document: &Document) {
    let Some(bicast) = &document.bicast else { return };
    let slaves: Vec<_> = document.codings.iter().map(|coding| coding.interface.get_ref()).collect();
    for name in bicast.interfaces.get_ref().iter().filter(|name| slaves.contains(&name.get_ref())) {
        source.complain(name.span(), "[[coding]] has this interface, and IP runs on its master; name that");
    }
}

/// An end that lists no path and has no fixed port can neither call nor be called.
fn complain_of_unreachable(source: &mut Source, peers: &[peer::Checked]) {
    for peer in peers.iter().filter(|peer| !peer.lists_paths) {
        source.complain(
            peer.span.clone(),
            "this peer has no [[peer.path]] and [tunnel] has no `listen`, so neither end can call; write one",
        );
    }
}

/// A peer's address inside the tunnel is reached by the tunnel, and not the other way round.
fn complain_of_inner_remotes(source: &mut Source, addresses: &[IpNet], peers: &[peer::Checked]) {
    for peer in peers {
        let routed = |ip: &IpAddr| peer.value.routes.contains(&IpNet::from(*ip));
        let inner = |ip: &IpAddr| routed(ip) && addresses.iter().any(|net| net.contains(ip));
        for path in &peer.value.paths {
            if let Some(ip) = path.remote.address().map(|to| to.ip()).filter(inner) {
                let name = &path.name;
                let what = format!(
                    "path {name} leads to {ip}, this peer's address inside the tunnel; write the one outside"
                );
                source.complain(peer.span.clone(), what);
            }
        }
    }
}

/// All of `[tunnel]`, with its peers. What is wrong is replaced by something harmless.
fn tunnel(source: &mut Source, written: document::Tunnel, peers: Vec<peer::Checked>) -> Tunnel {
    let interface = source.expect(written.interface.span(), value::interface(written.interface.get_ref()));
    if written.addresses.get_ref().is_empty() {
        source.complain(
            written.addresses.span(),
            "the interface has no address; write at least one, as \"10.77.0.1/24\"",
        );
    }
    let addresses = written.addresses.into_inner();
    let addresses: Vec<_> = addresses
        .iter()
        .filter_map(|text| Some((text.span(), source.expect(text.span(), value::address(text.get_ref()))?)))
        .collect();
    let own = addresses.iter().map(|(span, address)| (span.clone(), address.addr()));
    unique(source, own, "this address is listed already; remove one");
    for (span, address) in &addresses {
        let same = |route: &IpNet| *route == IpNet::from(address.addr());
        if let Some(peer) = peers.iter().find(|peer| peer.value.routes.iter().any(same)) {
            let (ip, name) = (address.addr(), &peer.value.name);
            let what = format!("{ip} is peer {name}'s route as well; give each end an address of its own");
            source.complain(span.clone(), what);
        }
    }
    let addresses: Vec<_> = addresses.into_iter().map(|(_, address)| address).collect();
    complain_of_inner_remotes(source, &addresses, &peers);
    let scheduler =
        written.scheduler.and_then(|text| source.expect(text.span(), value::scheduler(text.get_ref())));
    let mtu = written.mtu.and_then(|mtu| source.expect(mtu.span(), value::mtu(mtu.get_ref())));
    let listen =
        written.listen.and_then(|listen| source.expect(listen.span(), value::listen(listen.get_ref())));
    let resolvers = written.resolvers.iter();
    let resolvers =
        resolvers.filter_map(|text| source.expect(text.span(), value::ip(text.get_ref()))).collect();
    let congestion_control = written
        .congestion_control
        .and_then(|name| source.expect(name.span(), value::congestion_control(name.get_ref())));
    let endpoints = written.endpoints.iter();
    let endpoints = endpoints.filter_map(|text| source.expect(text.span(), text.get_ref().parse())).collect();
    Tunnel {
        interface: interface.unwrap_or_default(),
        addresses,
        listen: listen.unwrap_or(Listen::Port(0)),
        endpoints,
        fwmark: written.fwmark,
        config: Config {
            scheduler: scheduler.unwrap_or_default(),
            mtu: mtu.unwrap_or_default(),
            marks: Marks { dscp: written.copy_dscp, ecn: written.copy_ecn },
            fail_open: written.fail_open,
            congestion_control,
            resolvers,
            peers: peers.into_iter().map(|peer| peer.value).collect(),
        },
    }
}

fn relay(source: &mut Source, written: document::Relay, tunnel: Option<Listen>) -> Relay {
    let span = written.listen.span();
    let listen =
        source.expect(span.clone(), value::listen(written.listen.get_ref())).unwrap_or(Listen::Port(0));
    if tunnel.is_some_and(|tunnel| value::collide(tunnel, listen)) {
        source.complain(span, "[tunnel] listens here already; give the relay another port");
    }
    let tls = written.tls.and_then(|tls| source.expect(tls.span(), value::listen(tls.get_ref())));
    if let Some(mode) = written.mode {
        source.expect(mode.span(), relay_mode(mode.get_ref()));
    }
    if written.allow.get_ref().is_empty() {
        source.complain(written.allow.span(), "nobody may use this relay; list the public keys that may");
    }
    let allow: Vec<_> =
        written.allow.into_inner().iter().map(|key| (key.span(), public_key(source, key))).collect();
    unique(
        source,
        allow.iter().filter_map(|(span, key)| Some((span.clone(), *key.as_ref()?))),
        "this key is listed twice; remove one",
    );
    Relay { listen, tls, allow: allow.into_iter().filter_map(|(_, key)| key).collect() }
}

fn metrics(source: &mut Source, written: &Spanned<String>, tls: Option<Listen>) -> Option<SocketAddr> {
    let address = source.expect(written.span(), value::metrics_address(written.get_ref()))?;
    if tls.is_some_and(|tls| value::collide(tls, Listen::Address(address))) {
        source.complain(written.span(), "[relay] has this port for `tls`; give the metrics another");
    }
    Some(address)
}

fn flight(source: &mut Source, written: document::Flight) -> Flight {
    let base = written.base.and_then(|base| source.expect(base.span(), flight_base(base.get_ref())));
    Flight { default: written.default, base: base.unwrap_or_default() }
}

fn flight_base(base: &str) -> Result<Base, String> {
    let none = |_| format!("there is no base \"{base}\"; write \"cubic\" or \"reno\"");
    <Base as ValueEnum>::from_str(base, false).map_err(none)
}

fn relay_mode(mode: &str) -> Result<(), String> {
    match mode {
        "auto" | "userspace" => Ok(()),
        "xdp" => Err("the relay mode \"xdp\" is not built yet; write \"auto\" or \"userspace\"".into()),
        _ => Err(format!("there is no relay mode \"{mode}\"; write \"auto\" or \"userspace\"")),
    }
}
