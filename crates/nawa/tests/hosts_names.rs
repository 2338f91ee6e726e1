//! Peers that are given by name: names that move, that do not resolve, and that have addresses of two families.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use common::traffic::{Pings, Starved};
use common::uplinks::{FAMILIES, Names, Resolver, Uplinks, nft, path, path_to, shell};
use common::{Daemon, namespaces_or_skip, output, pause, succeed};
use device::monotonic;
use rustix::process::Signal;
use serde_json::Value;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// A path in use is up again so long after its name is right, at most. Both times are beyond what the machine lets threads wait for.
const BACK: Duration = Duration::from_secs(5);
/// What does not wait for a resolver takes less.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A path to the office by name.
fn named(name: &str, more: &str) -> String {
    path(name, more).replace("203.0.113.7", "office.test")
}

fn leads_to(address: &str) -> impl Fn(&Value) -> bool + use<> {
    let address: IpAddr = address.parse().expect("an address");
    move |path| {
        let to = path["remote"].as_str().and_then(|to| to.parse::<SocketAddr>().ok());
        path["state"] == "up" && to.is_some_and(|to| to.ip() == address)
    }
}

#[test]
fn a_name_that_moves_is_followed_behind_a_nat() {
    let Some(_alone) = namespaces_or_skip("a_name_that_moves_is_followed_behind_a_nat") else { return };
    let net = Uplinks::new();
    nft(
        &net.core,
        "table inet nat { chain post { type nat hook postrouting priority 100; oifname eth0 masquerade\n}\n}",
    );
    net.van.ip("route add default via 10.0.1.1");
    net.van.ip("route add default via fd01::1");
    shell(&net.office, "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad");
    let resolver = Resolver::new(&net.van, "203.0.113.7 office.test\n", 1);
    let [_office, mut van] = net.start("", OFFICE, &named("l1", ""));
    net.wait_for("l1", "up", leads_to("203.0.113.7"));
    let move_to = |old: &str, new: &str| {
        net.office.ip(&format!("address del {old} dev eth0"));
        net.office.ip(&format!("address add {new} dev eth0"));
        let router = if new.contains(':') { "2001:db8::1" } else { "203.0.113.1" };
        net.office.ip(&format!("route replace default via {router}"));
    };
    // The name is right at once, or so long after the path has been found to be silent.
    let cases =
        [None, Some(Duration::ZERO), Some(Duration::from_millis(700)), Some(Duration::from_millis(1400))];
    let starved = Starved::new();
    let places = ["203.0.113.7/24", "203.0.113.8/24", "2001:db8::8/64", "2001:db8::9/64", "203.0.113.9/24"];
    for (place, late) in places.windows(2).zip(cases) {
        let new = place[1].split_once('/').expect("an address").0;
        net.ping("10.77.0.2");
        // What is used is noticed to be silent.
        let _used = Pings::start(&net.van, "10.77.0.2");
        move_to(place[0], place[1]);
        if let Some(late) = late {
            net.wait_for("l1", "silent", |path| path["state"] == "silent");
            pause(late);
        }
        let right = monotonic();
        resolver.write(&format!("{new} office.test\n"));
        net.wait_for("l1", "at its new address", leads_to(new));
        let took = monotonic() - right;
        println!(
            "the name right {late:.1?} after the silence: the path is up {:.1} s later",
            took.as_secs_f64()
        );
        assert!(took < BACK + starved.excuses(), "the path is up {took:?} after the name is right");
    }
    net.ping("10.77.0.2");
    // Where nothing is sent, the next packet finds out. A van that has just begun has sent none.
    for place in ["203.0.113.9/24", "203.0.113.10/24", "2001:db8::a/64"].windows(2) {
        drop(van);
        van = Daemon::start(&net.van, &net.van_file("", OFFICE, &named("l1", "")));
        net.wait_up(&["l1"]);
        net.wait_idle("l1");
        move_to(place[0], place[1]);
        let new = place[1].split_once('/').expect("an address").0;
        resolver.write(&format!("{new} office.test\n"));
        let right = monotonic();
        succeed(&mut net.van.command("ping", ["-c", "1", "-i", "0.2", "-w", "30", "10.77.0.2"]));
        let took = monotonic() - right;
        println!("{new}: after a pause the first answer comes {:.1} s later", took.as_secs_f64());
        assert!(
            took < BACK + starved.excuses(),
            "{new}: the first answer comes {took:?} after the name is right"
        );
        net.wait_for("l1", "at its new address", leads_to(new));
    }
}

#[test]
fn a_name_that_does_not_resolve_stops_nothing_else() {
    let Some(_alone) = namespaces_or_skip("a_name_that_does_not_resolve_stops_nothing_else") else { return };
    FAMILIES.into_iter().for_each(one_name_is_bad);
}

fn one_name_is_bad(office: &str) {
    let net = Uplinks::new();
    net.lead_out();
    let known = format!("{} elsewhere.test\n", office.trim_matches(['[', ']']));
    nft(
        &net.core,
        "table inet deaf { chain input { type filter hook input priority 0; udp dport 53 drop\n}\n}",
    );
    // Longer than anybody here waits.
    let resolver = Resolver::new(&net.van, "", 90);
    let _office = Daemon::start(&net.office, &net.office_file(""));
    let paths = path_to(office, "l1", "") + &named("l2", "");
    let file = net.van_file("", OFFICE, &paths);
    let (starved, since) = (Starved::new(), monotonic());
    let mut van = Daemon::start(&net.van, &file);
    let took = monotonic() - since;
    assert!(took < AT_ONCE + starved.excuses(), "it is ready after {took:?}");
    net.wait_up(&["l1"]);
    net.wait_why("l2", "\"office.test\" has no address: no answer from the server 10.0.1.1");
    // A reload that brings another such name takes nothing from what goes on.
    let pings = Pings::start(&net.van, "10.77.0.2");
    net.van_file("", OFFICE, &(paths + &path_to("nobody.test", "l5", "")));
    van.signal(Signal::HUP);
    van.read_until("the file is taken up");
    net.wait_why("l5", "\"nobody.test\" has no address: ");
    pause(Duration::from_secs(1));
    let answers = pings.end();
    assert!(answers.missing == 0 && answers.longest < AT_ONCE + starved.excuses(), "{answers:?}");
    // It is not waited for by those who add others, nor at the end.
    succeed(&mut net.van.nawa(["path", "add", "office", "l3", "--remote", &format!("{office}:51900")]));
    succeed(&mut net.van.nawa(["path", "add", "office", "l4", "--remote", "elsewhere.test:51900"]));
    net.wait_up(&["l1", "l3"]);
    resolver.write(&known);
    succeed(&mut net.van.nawa(["path", "del", "office", "l4"]));
    succeed(&mut net.van.nawa(["path", "add", "office", "l4", "--remote", "elsewhere.test:51900"]));
    net.wait_up(&["l4"]);
    let since = monotonic();
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
    let took = monotonic() - since;
    assert!(took < AT_ONCE + starved.excuses(), "it ends after {took:?}");
    assert!(!net.van.has_interface("nawa0"));
}

#[test]
fn a_name_that_comes_later_is_found() {
    let Some(_alone) = namespaces_or_skip("a_name_that_comes_later_is_found") else { return };
    for office in FAMILIES {
        let net = Uplinks::new();
        net.lead_out();
        let resolver = Resolver::new(&net.van, "", 1);
        let _daemons = net.start("", OFFICE, &named("l1", ""));
        net.wait_why("l1", "\"office.test\" has no address: ");
        resolver.write(&format!("{} office.test\n", office.trim_matches(['[', ']'])));
        net.wait_up(&["l1"]);
    }
}

#[test]
fn the_family_that_works_is_used() {
    let Some(_alone) = namespaces_or_skip("the_family_that_works_is_used") else { return };
    let net = Uplinks::new();
    let both = "2001:db8::7 office.test\n203.0.113.7 office.test\n";
    let _resolver = Resolver::new(&net.van, both, 1);
    // The first uplink has no IPv6 at all, the second one that leads nowhere, the third no IPv4.
    net.van.ip("route add default via 10.0.1.1 metric 10");
    net.van.ip("route add default via 10.0.2.1 metric 20");
    net.van.ip("route add default via fd02::1 metric 20");
    nft(
        &net.core,
        "table ip6 hole { chain forward { type filter hook forward priority 0; iifname wan2 ip6 saddr fd02::2 drop\n}\n}",
    );
    let _daemons = net.start("", OFFICE, &(named("l1", "local = 'wan1'") + &named("l2", "local = 'wan2'")));
    net.wait_for("l1", "by IPv4", leads_to("203.0.113.7"));
    net.wait_for("l2", "by IPv4", leads_to("203.0.113.7"));
    net.van.ip("address add fd02::3/64 dev wan2 nodad");
    let by_v6 = ["path", "add", "office", "l3", "--remote", "office.test:51900", "--local", "fd02::3"];
    net.van.ip("route replace default via fd02::1 metric 20 src fd02::3");
    succeed(&mut net.van.nawa(by_v6));
    net.wait_for("l3", "by IPv6", leads_to("2001:db8::7"));
}

/// Link-local addresses, the same on both links: an interface tells them apart. IPv4 has no zones (RFC 3927 §3.2), so there it is `local`.
#[test]
fn a_neighbour_is_named_with_its_interface() {
    let Some(_alone) = namespaces_or_skip("a_neighbour_is_named_with_its_interface") else { return };
    for (mine, theirs, prefix) in [("169.254.0.2", "169.254.0.1", "16"), ("fe80::a", "fe80::b", "64 nodad")] {
        let net = Uplinks::new();
        for wan in ["wan1", "wan2"] {
            net.van.ip(&format!("address add {mine}/{prefix} dev {wan}"));
            net.core.ip(&format!("address add {theirs}/{prefix} dev {wan}"));
        }
        let count = |wan: &str| format!("iifname {wan} udp dport 51900 counter\n");
        let counts = count("wan1") + &count("wan2");
        nft(
            &net.core,
            &format!(
                "table inet seen {{ chain pre {{ type filter hook prerouting priority -300;\n{counts}}}\n}}"
            ),
        );
        let v6 = theirs.contains(':');
        let to = |wan: &str| if v6 { format!("[{theirs}%{wan}]") } else { theirs.to_owned() };
        let by = |wan: &str| if v6 { String::new() } else { format!("local = '{wan}'") };
        let _office = Daemon::start(&net.core, &net.office_file(""));
        let _van =
            Daemon::start(&net.van, &net.van_file("", OFFICE, &path_to(&to("wan1"), "l1", &by("wan1"))));
        let remote = format!("{}:51900", to("wan2"));
        let mut add = vec!["path", "add", "office", "l2", "--remote", &remote];
        add.extend(["--local", "wan2"].iter().filter(|_| !v6));
        succeed(&mut net.van.nawa(add));
        net.wait_up(&["l1", "l2"]);
        let seen = shell(&net.core, "nft list table inet seen");
        assert!(seen.contains("wan1") && seen.contains("wan2") && !seen.contains("packets 0"), "{seen}");
        net.ping("10.77.0.2");
        // Their prefix comes again, behind the one that the tunnel's interface has as well.
        for (wan, name) in [("wan1", "l1"), ("wan2", "l2")] {
            net.van.ip(&format!("link set {wan} down"));
            net.wait_for(name, "down", |path| path["state"] != "up");
            net.van.ip(&format!("link set {wan} up"));
            net.van.ip(&format!("address replace {mine}/{prefix} dev {wan}"));
            net.wait_up(&[name]);
        }
    }
}

const DEFAULT: &str = "'0.0.0.0/0', '::/0'";

/// The van asks a server elsewhere, with everything routed into the tunnel, which is down. What its other programs send is
/// not let out.
fn comes_up_by_name(net: &Uplinks, names: &Names, local: &str) {
    let others = "add table inet seen; flush table inet seen; table inet seen { chain pre { type filter hook prerouting priority -300;\n\
                  udp dport 9 counter\n}\n}";
    nft(&net.core, others);
    let send = || {
        net.van.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            // Refused where there is no way, which is as good.
            let _ = socket.send_to(b"beside", "203.0.113.7:9");
        })
    };
    let seen =
        |count| shell(&net.core, "nft list table inet seen").contains(&format!("packets {count} bytes"));
    send();
    assert!(seen(1), "it is counted while there is no tunnel");
    let daemons = net.start("", DEFAULT, &named("l1", local));
    net.wait_why("l1", "\"office.test\" has no address: ");
    send();
    names.set("office.test", &["203.0.113.7"]);
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    // The office moves, and the path falls silent.
    for (old, new) in [("203.0.113.7", "203.0.113.8"), ("203.0.113.8", "203.0.113.7")] {
        net.office.ip(&format!("address del {old}/24 dev eth0"));
        net.office.ip(&format!("address add {new}/24 dev eth0"));
        net.office.ip("route replace default via 203.0.113.1");
        names.set("office.test", &[new]);
        net.wait_for("l1", "at its new address", leads_to(new));
        net.ping("10.77.0.2");
    }
    send();
    assert!(seen(1), "nothing goes beside the tunnel");
    names.forget("office.test");
    drop(daemons);
    // What holds the default route back once the daemon has been killed.
    output(&mut net.van.nawa(["down"]));
}

#[test]
fn a_hub_by_name_has_the_default_route() {
    let Some(_alone) = namespaces_or_skip("a_hub_by_name_has_the_default_route") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.core.ip("address add 198.51.100.53/32 dev lo");
    let resolver = Resolver::new(&net.van, "", 1);
    let names = Names::new(&net.core, "198.51.100.53", false);
    resolver.ask("nameserver 198.51.100.53\n");
    comes_up_by_name(&net, &names, "");
    assert_eq!(names.asked(), [true, false]);
    drop(names);
    // Answers that do not fit into a datagram.
    let names = Names::new(&net.core, "198.51.100.53", true);
    comes_up_by_name(&net, &names, "");
    assert_eq!(names.asked(), [true, true]);
}

#[test]
fn a_name_is_asked_for_by_its_paths_own_link() {
    let Some(_alone) = namespaces_or_skip("a_name_is_asked_for_by_its_paths_own_link") else { return };
    let net = Uplinks::new();
    // The first uplink is there, and leads nowhere; the server is one of IPv6.
    net.lead_out();
    nft(
        &net.core,
        "table inet hole { chain pre { type filter hook prerouting priority 0; iifname wan1 meta l4proto { udp, tcp } drop\n}\n}",
    );
    net.core.ip("address add 2001:db8:53::53/128 dev lo nodad");
    let resolver = Resolver::new(&net.van, "", 1);
    let names = Names::new(&net.core, "2001:db8:53::53", false);
    resolver.ask("nameserver 10.0.1.1\nnameserver 2001:db8:53::53\n");
    comes_up_by_name(&net, &names, "local = 'wan2'");
}

/// As dnsmasq: asks a server beyond the uplinks by sockets that no path is told of.
#[test]
fn a_cache_on_this_host_is_gone_round() {
    let Some(_alone) = namespaces_or_skip("a_cache_on_this_host_is_gone_round") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.core.ip("address add 198.51.100.53/32 dev lo");
    let resolver = Resolver::new(&net.van, "", 1);
    resolver.ask("nameserver 127.0.0.1\n");
    let names = Names::new(&net.core, "198.51.100.53", false);
    // What hears and does not answer: its own questions go into the tunnel.
    let cache = net.van.within(|| UdpSocket::bind("127.0.0.1:53").expect("port 53 is free"));
    names.set("office.test", &["203.0.113.7"]);
    let [office, van] = net.start("", DEFAULT, &named("l1", ""));
    net.wait_why("l1", "goes into the tunnel: name its own server in `resolvers`");
    drop(van);
    let resolvers = "resolvers = ['198.51.100.53']";
    let van = Daemon::start(&net.van, &net.van_file(resolvers, DEFAULT, &named("l1", "")));
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    drop(van);
    // As systemd-resolved: says where its servers are.
    let file = net.van_file("", DEFAULT, &named("l1", ""));
    let line = format!(
        "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/resolve && \
         echo nameserver 198.51.100.53 >/run/systemd/resolve/resolv.conf && exec {} run {}",
        env!("CARGO_BIN_EXE_nawa"),
        file.display()
    );
    let _van = Daemon::spawn(&mut net.van.command("sh", ["-c", &line]));
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    drop((office, cache));
}
