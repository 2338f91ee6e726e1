//! What is seen of this host, and of what a file asks of it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use device::net::Query;
use device::poller::Interest;
use device::udp::{Options, Transmit};
use device::unreachable::{Because, Listener};
use device::{Net, Outgoing, Poller, Tun, UdpSocket, monotonic};
use ipnet::IpNet;
use serde_json::{Value, json};
use tunnel::Config;
use tunnel::daemon;

use super::host::{Facts, Interface, version};
use super::paths::Seen;
use super::strands;
use crate::command::status::view;
use crate::config::{Settings, Tunnel};
use crate::failure::Failure;

/// By then silence is told from slowness, and a small link from a large one.
const TRIAL_TIME: Duration = Duration::from_secs(8);
/// So often the trial is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A UDP port where nobody listens: the first of traceroute's.
const NOBODY: u16 = 33434;
/// Another host has answered by then, or does not.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is seen of this host.
pub fn host() -> Facts {
    let kernel = read("/proc/sys/kernel/osrelease");
    let lockdown = read("/sys/kernel/security/lockdown");
    let chosen = lockdown.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    Facts {
        capabilities: capabilities(&read("/proc/self/status")),
        container: bpf::probe::is_container(),
        lockdown: chosen.map(|(mode, _)| mode.to_owned()),
        btf: fs::metadata("/sys/kernel/btf/vmlinux").is_ok(),
        struct_ops: bpf::probe::tcp_struct_ops().map(drop).map_err(|error| error.to_string()),
        tun: tun().map_err(|error| error.to_string()),
        udp_trains: UdpSocket::bind(any, Options::default()).is_ok_and(|socket| socket.cuts_trains()),
        interfaces: interfaces(&kernel),
        forwards: (
            read("/proc/sys/net/ipv4/ip_forward") == "1",
            read("/proc/sys/net/ipv6/conf/all/forwarding") == "1",
        ),
        firewall: dropping(&["input", "output"]),
        clock: device::realtime(),
        kernel,
    }
}

/// A file of one line, without its end; empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// The interface of a trial, which no other doctor has: it has no address, and what is routed to it is discarded anyway (RFC 6666).
fn trial_interface() -> String {
    format!("nawa-d{}", std::process::id())
}

fn tun() -> std::io::Result<(bool, bool)> {
    let accepts = Tun::create(&trial_interface())?.accepts();
    Ok((accepts.tcp, accepts.udp))
}

fn interfaces(kernel: &str) -> Vec<Interface> {
    // Before 6.3 the kernel does not say what XDP does.
    let says = version(kernel).is_some_and(|version| version >= (6, 3));
    let (routes, v6) = (read("/proc/net/route"), read("/proc/net/if_inet6"));
    let all = read("/proc/sys/net/ipv4/conf/all/rp_filter").parse().unwrap_or(0);
    let Ok(mut net) = Net::open() else { return Vec::new() };
    let names = device::interfaces().unwrap_or_default().into_iter();
    let links = names.filter_map(|name| net.link(&name).ok()).filter(|link| !link.leads_nowhere);
    let describe = |link: device::net::Link| {
        let driver = fs::read_link(format!("/sys/class/net/{}/device/driver", link.name)).ok();
        let own = read(&format!("/proc/sys/net/ipv4/conf/{}/rp_filter", link.name)).parse().unwrap_or(0);
        Interface {
            driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
            xdp: bpf::xdp::runs_in_driver(link.index).ok().filter(|_| says),
            rp_filter: own.max(all),
            uplink: routes.lines().any(|line| is_default(line, &link.name)),
            duplicates: v6.lines().filter_map(|line| duplicate(line, &link.name)).collect(),
            name: link.name,
        }
    };
    links.map(describe).collect()
}

/// Of /proc/net/route: name, destination, gateway, flags, three counts, mask.
fn is_default(line: &str, name: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    words.first() == Some(&name) && words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")
}

/// Of /proc/net/if_inet6: address, index, prefix, scope, flags, name, all but the last in hexadecimal.
fn duplicate(line: &str, name: &str) -> Option<String> {
    const DAD_FAILED: u32 = 8;
    let words: Vec<_> = line.split_whitespace().collect();
    let [address, _, prefix, _, flags, owner] = words[..] else { return None };
    let hex = |word: &str| u32::from_str_radix(word, 16).ok();
    let failed = owner == name && hex(flags)? & DAD_FAILED != 0;
    let address = Ipv6Addr::from(u128::from_str_radix(address, 16).ok()?);
    failed.then_some(format!("{address}/{}", hex(prefix)?))
}

/// The chains of these hooks that drop what no rule of theirs accepts; `None` where `nft` cannot be asked.
pub fn dropping(hooks: &[&str]) -> Option<Vec<String>> {
    let listed = Command::new("nft")
        .args(["-j", "list", "chains"])
        .output()
        .ok()
        .filter(|one| one.status.success())?;
    let listed: Value = serde_json::from_slice(&listed.stdout).ok()?;
    let chains = listed["nftables"].as_array()?.iter().map(|one| &one["chain"]);
    let drops = |chain: &&Value| {
        chain["policy"] == "drop" && hooks.contains(&chain["hook"].as_str().unwrap_or_default())
    };
    let word = |chain: &Value, key: &str| chain[key].as_str().unwrap_or_default().to_owned();
    let name = |chain: &Value| ["family", "table", "name"].map(|key| word(chain, key)).join(" ");
    Some(chains.filter(drops).map(name).collect())
}

/// What is seen of what `settings` names.
pub fn strands(settings: &Settings) -> strands::Facts {
    let there = device::interfaces().unwrap_or_default();
    // The daemon makes these itself.
    let makes = |name: &str| settings.codings.iter().any(|coding| coding.master == name);
    let is_there = |name: &str| there.contains(name) || makes(name);
    let need = |section: &str, name: &str| (section.to_owned(), name.to_owned(), is_there(name));
    let mut needed: Vec<_> =
        settings.floods.iter().map(|flood| need("[[flood]]", &flood.interface)).collect();
    needed.extend(settings.codings.iter().map(|coding| need("[[coding]]", &coding.interface)));
    let copied = settings.bicast.iter().flat_map(|bicast| &bicast.interfaces);
    needed.extend(copied.map(|name| need("[bicast]", name)));
    let mut facts = strands::Facts { needed, ..Default::default() };
    if let Some(tunnel) = &settings.tunnel {
        facts.interface = tunnel.interface.clone();
        facts.addresses = tunnel.addresses.clone();
        let peers = tunnel.config.peers.iter();
        let routes = peers.flat_map(|peer| peer.routes.iter().map(|net| (peer.name.clone(), *net)));
        facts.routes = routes.collect();
        let networks = device::networks().unwrap_or_default().into_iter();
        let networks = networks.filter_map(|(name, ip, bits)| Some((name, IpNet::new(ip, bits).ok()?)));
        facts.networks = networks.filter(|(name, _)| *name != tunnel.interface && name != "lo").collect();
    }
    facts
}

/// Whether nftables put this host's address on packets from `networks` that leave it; `None` where `nft` cannot be asked.
pub fn masquerades(networks: &[IpNet]) -> Option<bool> {
    let listed =
        Command::new("nft").args(["list", "ruleset"]).output().ok().filter(|one| one.status.success())?;
    Some(puts_own_address(&String::from_utf8_lossy(&listed.stdout), networks))
}

/// The addresses of an interface, with the lengths of their prefixes.
pub fn networks_of(interface: &str) -> Vec<IpNet> {
    let all = device::networks().unwrap_or_default().into_iter().filter(|(name, ..)| name == interface);
    all.filter_map(|(_, ip, bits)| IpNet::new(ip, bits).ok()).collect()
}

/// A rule's statement, of nftables or of iptables within them, in a rule that is not for other sources than these: Docker and libvirt
/// have such rules for networks of their own.
fn puts_own_address(ruleset: &str, networks: &[IpNet]) -> bool {
    let states = |line: &str| {
        let mut words = line.split_whitespace().map(|word| word.trim_matches('"'));
        words.any(|word| ["masquerade", "snat", "MASQUERADE", "SNAT"].contains(&word))
    };
    ruleset.lines().any(|line| states(line) && takes_from(line, networks))
}

/// Whether a rule takes packets from one of these networks, as far as it names sources by their prefixes.
fn takes_from(rule: &str, networks: &[IpNet]) -> bool {
    let Some((_, sources)) = rule.split_once(" saddr ") else { return true };
    let others = sources.strip_prefix("!= ");
    let sources = others.unwrap_or(sources);
    let end = if sources.starts_with('{') { '}' } else { ' ' };
    let named = sources.split(end).next().unwrap_or_default().split(['{', ',', ' ']);
    let prefix = |word: &str| word.parse().ok().or_else(|| Some(IpNet::from(word.parse::<IpAddr>().ok()?)));
    let named: Vec<_> = named.filter_map(prefix).collect();
    let within = networks.iter().any(|net| named.iter().any(|source| source.contains(&net.trunc())));
    named.is_empty() || within != others.is_some()
}

/// What outlives a daemon that is killed.
pub fn left() -> Vec<String> {
    let tables = flood::nft::leftovers().unwrap_or_default();
    let mut left: Vec<_> =
        tables.iter().map(|name| format!("nftables' table ip {name}, of a flood")).collect();
    left.extend(crate::flight::left());
    let rules = ["-4", "-6"].map(|family| (family, own_rules(family)));
    for (family, rules) in rules.iter().filter(|(_, rules)| !rules.is_empty()) {
        let held = if rules.contains("unreachable") { " (the default route goes nowhere)" } else { "" };
        left.push(format!("a routing rule (ip {family} rule) of the tunnel's default route{held}"));
    }
    if daemon::is_filter_loose() && rules.iter().any(|(_, rules)| !rules.is_empty()) {
        left.push("a loosened reverse-path filter (net.ipv4.conf.all.rp_filter)".into());
    }
    left
}

/// The routing rules of a family, as `ip` takes it, that ask the tunnel's own table, or asked `main` before that.
fn own_rules(family: &str) -> String {
    let found = Command::new("ip").args([family, "rule", "show"]).output();
    let rules = found.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let table = daemon::TABLE.to_string();
    // While packets go beside the tunnel, this one alone is there.
    let first = format!("{}:\tfrom all lookup main suppress_prefixlength 0", daemon::FIRST_PRIORITY);
    let is_own = |rule: &&str| rule.contains(&table) || daemon::is_filter_loose() && rule.trim_end() == first;
    rules.lines().filter(is_own).collect::<Vec<_>>().join("\n")
}

/// Whether rules that a killed daemon has left lead IPv4's way back nowhere, so that a reverse-path filter, a loose one
/// too, drops what a path brings.
pub fn answers_are_dropped(facts: &Facts) -> bool {
    facts.interfaces.iter().any(|one| one.rp_filter > 0) && own_rules("-4").contains("unreachable")
}

/// What a tunnel says of its paths that is started for a few seconds, without addresses and routes of its own.
///
/// # Errors
/// One sentence: it cannot start.
pub fn trial(settings: Settings) -> Result<view::Tunnel, Failure> {
    let (tunnel, key) =
        settings.tunnel.zip(settings.key).ok_or_else(|| Failure::failed("the file has no [tunnel]"))?;
    let Tunnel { listen, fwmark, config, .. } = tunnel;
    // Of the tunnel with its routes: by it packets pass the rules that a killed daemon has left.
    let fwmark = daemon::mark(fwmark, &config);
    let settings = daemon::Settings {
        interface: trial_interface(),
        addresses: Vec::new(),
        listen,
        fwmark,
        tunnel: harmless(config),
        key,
    };
    let running = daemon::start(settings, |_| ()).map_err(Failure::failed)?;
    let mut poller = Poller::new().map_err(Failure::failed)?;
    let end = monotonic() + TRIAL_TIME;
    loop {
        poller.wait(Some(LOOK)).map_err(Failure::failed)?.for_each(drop);
        let status =
            running.status().ok_or_else(|| Failure::failed("the tunnel on trial does not answer"))?;
        let mut paths = status.peers.iter().flat_map(|peer| &peer.paths);
        if monotonic() >= end
            || paths.all(|path| ["carries", "kept", "helps", "tls", "in-pieces"].contains(&path.cause))
        {
            return serde_json::from_value(json!(status)).map_err(Failure::failed);
        }
    }
}

/// The same peers and paths, with routes in a prefix that is discarded everywhere; where IPv6 is routed, so that a path has to
/// carry what IPv6 needs.
fn harmless(mut config: Config) -> Config {
    for (index, peer) in (1..).zip(&mut config.peers) {
        let v6 = peer.routes.iter().any(|route| route.addr().is_ipv6());
        let discarded = IpAddr::from(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, index));
        peer.routes = if v6 { vec![discarded.into()] } else { Vec::new() };
    }
    config
}

/// The paths in a tunnel's status, each with its peer and what else is seen of it.
pub fn paths(tunnel: &view::Tunnel) -> Vec<(&view::Peer, &view::Path, Seen)> {
    let all = tunnel.peers.iter().flat_map(|peer| peer.paths.iter().map(move |path| (peer, path)));
    let see = |path: &view::Path| {
        let remote = path.remote.as_ref()?.parse().ok()?;
        Some(seen(remote, path.local.as_deref(), tunnel.fwmark, path.cause == "no-answer"))
    };
    // Silent hosts take their time: all are asked at once.
    std::thread::scope(|scope| {
        let ask = |(peer, path)| (peer, path, scope.spawn(move || see(path)));
        let asked: Vec<_> = all.filter(|(_, path)| path.listed).map(ask).collect();
        let answers = asked.into_iter();
        answers
            .map(|(peer, path, seen)| (peer, path, seen.join().ok().flatten().unwrap_or_default()))
            .collect()
    })
}

/// As packets with that mark go: beside the tunnel, where the default route leads into it.
fn seen(remote: SocketAddr, local: Option<&str>, mark: u32, silent: bool) -> Seen {
    let Ok(mut net) = Net::open() else { return Seen::default() };
    let interface = local.and_then(|name| net.link(name).ok()).map(|link| link.index);
    let source = local.and_then(|text| text.parse().ok());
    let found = net.way_to(&Query { mark, source, interface, ..Query::to(remote.ip()) }).ok();
    let from = source.or(found.and_then(|way| way.source));
    let mut seen = Seen { ends: from.map(|from| (from, remote.ip())), ..Seen::default() };
    if silent {
        let out = Outgoing { mark, interface, source: from };
        seen.udp_passes = refuses(remote.ip(), &out).ok();
        // Of TCP the routing table's way is asked.
        seen.tcp_passes = local.is_none().then(|| answers(remote, mark));
    }
    seen
}

/// Whether a datagram to a port where nobody listens is refused.
fn refuses(to: IpAddr, out: &Outgoing) -> std::io::Result<bool> {
    let listener = Listener::open(to.is_ipv6())?;
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0).into(), Options { fwmark: out.mark, ..Options::default() })?;
    let remote = SocketAddr::new(to, NOBODY);
    let (local, interface) = (out.source, out.interface);
    let transmit =
        Transmit { remote, local, interface, tos: 0, segment_size: None, contents: b"nawa doctor" };
    let mut poller = Poller::new()?;
    poller.add(&listener, 0, Interest::Read)?;
    socket.send(&[transmit]);
    let end = monotonic() + PATIENCE;
    loop {
        let left = end.saturating_sub(monotonic());
        if left.is_zero() {
            return Ok(false);
        }
        poller.wait(Some(left))?.for_each(drop);
        if listener.take().iter().any(|one| one.remote == remote && one.because == Because::Refused) {
            return Ok(true);
        }
    }
}

/// Whether it takes a connection, or refuses it.
fn answers(remote: SocketAddr, mark: u32) -> bool {
    let connect = || -> std::io::Result<()> {
        let stream = Outgoing { mark, ..Outgoing::default() }.tcp(remote)?;
        let mut poller = Poller::new()?;
        poller.add(&stream, 0, Interest::Write)?;
        poller.wait(Some(PATIENCE))?.for_each(drop);
        stream.take_error()?.map_or(Ok(()), Err)?;
        stream.peer_addr().map(drop)
    };
    connect().map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionRefused, |()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_prints_is_read() {
        assert_eq!(capabilities("Name:\tnawa\nCapEff:\t00000000a80425fb\n"), 0xa804_25fb);
        assert_eq!(capabilities(""), 0);
        let networks = ["10.77.0.1/24".parse().expect("a network")];
        let nat = |rule: &str| {
            puts_own_address(&format!("table ip nat {{\n chain out {{\n {rule}\n }}\n}}\n"), &networks)
        };
        assert!(
            nat("oifname != \"nawa0\" masquerade")
                && nat("xt target \"MASQUERADE\"")
                && nat("snat to 192.0.2.1")
        );
        assert!(!nat("type nat hook postrouting priority srcnat; policy accept;"));
        // Docker's and libvirt's are for networks of their own.
        assert!(!nat("ip saddr 172.17.0.0/16 oifname != \"docker0\" counter packets 0 bytes 0 masquerade"));
        assert!(!nat("ip saddr { 172.17.0.0/16, 192.168.122.0/24 } ip daddr 10.0.0.0/8 masquerade"));
        assert!(!nat("ip saddr != 10.77.0.0/16 masquerade") && nat("ip saddr != 172.17.0.0/16 masquerade"));
        assert!(nat("ip saddr 10.77.0.0/24 oifname != \"nawa0\" masquerade"));
        assert!(
            nat("ip saddr { 172.17.0.0/16, 10.0.0.0/8 } masquerade") && nat("ip saddr @inside masquerade")
        );
        let route = "wan1\t00000000\t0101000A\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert!(is_default(route, "wan1") && !is_default(route, "wan2"));
        assert!(!is_default("wan1\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0", "wan1"));
        let taken = "fd010000000000000000000000000002 04 40 00 88     wan1";
        assert_eq!(duplicate(taken, "wan1").as_deref(), Some("fd01::2/64"));
        assert_eq!(duplicate(taken, "wan2"), None);
        assert_eq!(duplicate(&taken.replace(" 88 ", " 80 "), "wan1"), None);
    }
}
