//! Peers that are given by name: names that move, that do not resolve, and that have addresses of two families.

mod common;

use common::uplinks::{Resolver, Uplinks, nft, path};
use common::{Daemon, eventually, namespaces_or_skip, succeed};
use rustix::process::Signal;
use serde_json::Value;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// A path to the office by name.
fn named(name: &str, more: &str) -> String {
    path(name, more).replace("203.0.113.7", "office.test")
}

fn leads_to(address: &str) -> impl Fn(&Value) -> bool {
    move |path| path["state"] == "up" && path["remote"].as_str().is_some_and(|to| to.starts_with(address))
}

#[test]
fn a_name_that_moves_is_followed_behind_a_nat() {
    let Some(_alone) = namespaces_or_skip("a_name_that_moves_is_followed_behind_a_nat") else { return };
    let net = Uplinks::new();
    nft(
        &net.core,
        "table ip nat { chain post { type nat hook postrouting priority 100; oifname eth0 masquerade\n}\n}",
    );
    net.van.ip("route add default via 10.0.1.1");
    let resolver = Resolver::new(&net.van, "203.0.113.7 office.test\n", 1);
    let _daemons = net.start("", OFFICE, &named("l1", ""));
    net.wait_for("l1", "up", leads_to("203.0.113.7:"));
    for (old, new) in [("203.0.113.7", "203.0.113.8"), ("203.0.113.8", "203.0.113.9")] {
        net.office.ip(&format!("address del {old}/24 dev eth0"));
        net.office.ip(&format!("address add {new}/24 dev eth0"));
        net.office.ip("route replace default via 203.0.113.1");
        resolver.write(&format!("{new} office.test\n"));
        net.wait_for("l1", "at its new address", leads_to(&format!("{new}:")));
        net.ping("10.77.0.2");
    }
}

#[test]
fn a_name_that_does_not_resolve_stops_nothing_else() {
    let Some(_alone) = namespaces_or_skip("a_name_that_does_not_resolve_stops_nothing_else") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    nft(
        &net.core,
        "table inet deaf { chain input { type filter hook input priority 0; udp dport 53 drop\n}\n}",
    );
    // Longer than anybody here waits.
    let resolver = Resolver::new(&net.van, "", 90);
    let [_office, van] = net.start("", OFFICE, &(path("l1", "") + &named("l2", "")));
    net.wait_up(&["l1"]);
    net.wait_why("l2", "\"office.test\" has no address: the resolver has not answered yet");
    // It is not waited for by those who add others, nor at the end.
    succeed(&mut net.van.nawa(["path", "add", "office", "l3", "--remote", "203.0.113.7:51900"]));
    succeed(&mut net.van.nawa(["path", "add", "office", "l4", "--remote", "elsewhere.test:51900"]));
    net.wait_up(&["l1", "l3"]);
    resolver.write("203.0.113.7 elsewhere.test\n");
    succeed(&mut net.van.nawa(["path", "del", "office", "l4"]));
    succeed(&mut net.van.nawa(["path", "add", "office", "l4", "--remote", "elsewhere.test:51900"]));
    net.wait_up(&["l4"]);
    van.signal(Signal::TERM);
    eventually("the daemon ends", || (!net.van.has_interface("nawa0")).then_some(()));
    eventually("its socket is free", || {
        let ended = common::output(&mut net.van.nawa(["status"]));
        (ended.status.code() != Some(0)).then_some(())
    });
    assert_eq!(van.wait(), Some(0));
}

#[test]
fn a_name_that_comes_later_is_found() {
    let Some(_alone) = namespaces_or_skip("a_name_that_comes_later_is_found") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let resolver = Resolver::new(&net.van, "", 1);
    let _daemons = net.start("", OFFICE, &named("l1", ""));
    net.wait_why("l1", "\"office.test\" has no address: ");
    resolver.write("203.0.113.7 office.test\n");
    net.wait_up(&["l1"]);
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
    net.wait_for("l1", "by IPv4", leads_to("203.0.113.7:"));
    net.wait_for("l2", "by IPv4", leads_to("203.0.113.7:"));
    net.van.ip("address add fd02::3/64 dev wan2 nodad");
    let by_v6 = ["path", "add", "office", "l3", "--remote", "office.test:51900", "--local", "fd02::3"];
    net.van.ip("route replace default via fd02::1 metric 20 src fd02::3");
    succeed(&mut net.van.nawa(by_v6));
    net.wait_for("l3", "by IPv6", leads_to("[2001:db8::7]:"));
}

#[test]
fn a_neighbour_is_named_with_its_interface() {
    let Some(_alone) = namespaces_or_skip("a_neighbour_is_named_with_its_interface") else { return };
    let net = Uplinks::new();
    for wan in ["wan1", "wan2"] {
        net.core.ip(&format!("address add fe80::b/64 dev {wan} nodad"));
        net.van.ip(&format!("address add fe80::a/64 dev {wan} nodad"));
    }
    let to = |name: &str, zone: &str| path(name, "").replace("203.0.113.7", &format!("[fe80::b%{zone}]"));
    let _office = Daemon::start(&net.core, &net.office_file(""));
    let _van = Daemon::start(&net.van, &net.van_file("", OFFICE, &(to("l1", "wan1") + &to("l2", "wan2"))));
    net.wait_up(&["l1", "l2"]);
    net.ping("10.77.0.2");
}
