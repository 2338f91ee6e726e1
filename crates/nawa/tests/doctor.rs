//! The ways of not coming up, each named by `nawa doctor`, and the shape of what it prints. A clock that was never set is in
//! `doctor/host.rs`: nobody sets the clock of a network namespace.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::uplinks::{Resolver, Uplinks, nft, path, shell};
use common::{Daemon, Namespace, Node, eventually, namespaces_or_skip, output, stdout, succeed};
use serde_json::Value;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// The van's network with default routes, and its file with these paths.
fn van(net: &Uplinks, paths: &str) -> std::path::PathBuf {
    net.van.ip("route replace default via 10.0.1.1");
    net.van_file("", OFFICE, paths)
}

/// What `nawa doctor` finds in the van.
#[track_caller]
fn findings(net: &Uplinks, file: &Path) -> Vec<Value> {
    let file = file.to_str().expect("UTF-8");
    let found = output(&mut net.van.nawa(["doctor", "--json", file]));
    let found: Value = serde_json::from_str(&stdout(&found)).expect("one JSON object");
    found["findings"].as_array().expect("findings").clone()
}

/// That it says `what` of `check`, as a failure or a warning, and what to do.
#[track_caller]
fn finds(net: &Uplinks, file: &Path, check: &str, what: &str) {
    let all = findings(net, file);
    let fits = |one: &&Value| {
        one["check"] == check
            && one["what"].as_str().is_some_and(|said| said.contains(what))
            && one["level"] != "ok"
    };
    let found = all.iter().find(fits).unwrap_or_else(|| panic!("not found: {check}: {what}\n{all:#?}"));
    assert!(found["todo"].as_str().is_some_and(|todo| !todo.is_empty()), "{found}");
}

const L1: &str = "path l1 to office";

#[test]
fn nothing_is_amiss_where_all_is_well() {
    let Some(_alone) = namespaces_or_skip("nothing_is_amiss_where_all_is_well") else { return };
    let net = Uplinks::new();
    let file = van(&net, &path("l1", ""));
    let _office = Daemon::start(&net.office, &net.office_file(""));
    // The kernel's own link-local addresses come a moment after their interface.
    let routes = || {
        let all = net.van.ip("route show table all");
        all.lines().filter(|line| !line.contains("fe80::")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = (net.van.ip("-o link"), routes(), net.van.ip("rule"));
    let all = findings(&net, &file);
    assert!(all.iter().all(|one| one["level"] != "fail"), "{all:#?}");
    assert!(all.iter().any(|one| one["check"] == L1 && one["level"] == "ok"), "{all:#?}");
    assert!(all.iter().any(|one| one["check"] == "nat l1 to office"), "{all:#?}");
    let after = (net.van.ip("-o link"), routes(), net.van.ip("rule"));
    assert_eq!(before, after, "it leaves nothing");
    // Of a daemon that runs, its own paths are asked.
    let _van = Daemon::start(&net.van, &file);
    net.wait_up(&["l1"]);
    let lines = succeed(&mut net.van.nawa(["doctor", file.to_str().expect("UTF-8")]));
    assert!(lines.contains("ok    path l1 to office: up, "), "{lines}");
    let keys: Vec<_> = all[0].as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, ["check", "costs", "level", "todo", "what"]);
}

#[test]
fn doctor_names_a_wrong_key() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_wrong_key") else { return };
    let mut net = Uplinks::new();
    let _office = Daemon::start(&net.office, &net.office_file(""));
    net.nodes[0] = Node::new();
    let file = van(&net, &path("l1", ""));
    finds(&net, &file, L1, "the keys do not fit");
    // At the office the key is named.
    let there = stdout(&output(&mut net.office.nawa(["doctor"])));
    let key = &net.nodes[0].public_key;
    assert!(there.contains(&format!("is of the key {key}, which no peer in the file has")), "{there}");
}

/// What it asks goes beside the tunnel that the default route leads into, whatever the mark.
#[test]
fn doctor_asks_as_the_paths_packets_go() {
    let Some(_alone) = namespaces_or_skip("doctor_asks_as_the_paths_packets_go") else { return };
    for mark in ["", "fwmark = 7"] {
        let mut net = Uplinks::new();
        let _office = Daemon::start(&net.office, &net.office_file(""));
        net.nodes[0] = Node::new();
        net.lead_out();
        let file = net.van_file(mark, "'0.0.0.0/0', '::/0'", &path("l1", ""));
        let _van = Daemon::start(&net.van, &file);
        net.wait_for("l1", "silence", |path| path["cause"] == "no-answer");
        finds(&net, &file, L1, "the keys do not fit");
        let found = stdout(&output(&mut net.van.nawa(["doctor"])));
        assert!(found.contains("10.0.1.2 is private, 203.0.113.7 is not"), "{found}");
        nft(&net.core, "add rule inet isp forward meta l4proto udp drop");
        finds(&net, &file, L1, "UDP is blocked on the way");
    }
}

#[test]
fn doctor_names_a_closed_port() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_closed_port") else { return };
    let net = Uplinks::new();
    finds(&net, &van(&net, &path("l1", "")), L1, "203.0.113.7:51900 refuses: no daemon listens on that port");
}

#[test]
fn doctor_names_a_server_that_is_down() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_server_that_is_down") else { return };
    let net = Uplinks::new();
    let file = van(&net, &path("l1", ""));
    nft(&net.core, "insert rule inet isp forward iifname wan1 drop");
    finds(&net, &file, L1, "it is down, or cut off");
    // Its router says that it is not there, where routers do.
    nft(&net.core, "flush chain inet isp forward");
    net.office.ip("link set eth0 down");
    finds(&net, &file, L1, "a router on the way to 203.0.113.7:51900 says that it cannot be reached");
}

#[test]
fn doctor_names_blocked_udp() {
    let Some(_alone) = namespaces_or_skip("doctor_names_blocked_udp") else { return };
    let net = Uplinks::new();
    let _office = Daemon::start(&net.office, &net.office_file(""));
    nft(&net.core, "add rule inet isp forward meta l4proto udp drop");
    finds(&net, &van(&net, &path("l1", "")), L1, "UDP is blocked on the way");
    nft(
        &net.van,
        "table inet wall { chain output { type filter hook output priority 0; udp dport 51900 drop\n}\n}",
    );
    finds(&net, &van(&net, &path("l1", "")), L1, "cannot send to 203.0.113.7:51900: Operation not permitted");
}

#[test]
fn doctor_tells_a_small_link_from_a_black_hole() {
    let Some(_alone) = namespaces_or_skip("doctor_tells_a_small_link_from_a_black_hole") else { return };
    let net = Uplinks::new();
    let _office = Daemon::start(&net.office, &net.office_file(""));
    nft(&net.core, "add rule inet isp forward meta length > 1320 drop");
    let file = van(&net, &path("l1", ""));
    let says = |what: &str| {
        let all = findings(&net, &file);
        let said = |one: &Value| one["what"].as_str().is_some_and(|said| said.contains(what));
        let found = all.iter().any(|one| one["check"] == L1 && one["level"] == "ok" && said(one));
        assert!(found, "{what}: {all:#?}");
    };
    let carries = "packets of 1320 bytes, so one of 1280 bytes inside goes in 2 datagrams";
    says(&format!("{carries}: larger ones vanish without a word"));
    nft(&net.core, "flush chain inet isp forward");
    net.core.ip("link set eth0 mtu 1320");
    says(&format!("{carries}: a router on the way says so"));
}

#[test]
fn doctor_names_a_strict_filter() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_strict_filter") else { return };
    let net = Uplinks::new();
    shell(&net.van, "for i in all wan1 wan2; do echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter; done");
    net.van.ip("route add default via 10.0.1.1 metric 10");
    net.van.ip("route add default via 10.0.2.1 metric 20");
    let file = net.van_file("", OFFICE, &path("l2", "local = 'wan2'"));
    finds(&net, &file, "rp_filter", "with 2 uplinks");
}

#[test]
fn doctor_names_a_missing_route() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_missing_route") else { return };
    let net = Uplinks::new();
    // The rule's table has none.
    net.van.ip("rule add from 10.0.2.2 lookup 102");
    let file = van(&net, &path("l1", "local = '10.0.2.2'"));
    finds(&net, &file, L1, "no route by wan2 from 10.0.2.2 to 203.0.113.7");
}

#[test]
fn doctor_names_a_name_without_an_address() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_name_without_an_address") else { return };
    let net = Uplinks::new();
    let _resolver = Resolver::new(&net.van, "", 1);
    let file = van(&net, &path("l1", "").replace("203.0.113.7", "office.test"));
    finds(&net, &file, L1, "\"office.test\" has no address");
}

#[test]
fn doctor_names_an_address_that_two_have() {
    let Some(_alone) = namespaces_or_skip("doctor_names_an_address_that_two_have") else { return };
    let net = Uplinks::new();
    net.van.ip("address add 10.77.0.9/16 dev wan2");
    let file = van(&net, &path("l1", ""));
    finds(&net, &file, "duplicate address", "10.77.0.0/24 of nawa0 overlaps with 10.77.0.0/16 of wan2");
    // The core has it.
    net.van.ip("address add fd01::1/64 dev wan1");
    let failed = || net.van.ip("address show dev wan1").contains("dadfailed").then_some(());
    eventually("the kernel notices", failed);
    finds(&net, &file, "duplicate address", "another host on wan1's link has fd01::1/64 as well");
}

#[test]
fn doctor_names_a_relay_that_does_not_allow() {
    let Some(_alone) = namespaces_or_skip("doctor_names_a_relay_that_does_not_allow") else { return };
    let net = Uplinks::new();
    let (relay, other) = (Node::new(), &net.nodes[1].public_key);
    let _relay =
        Daemon::start(&net.core, &relay.write(&format!("[relay]\nlisten = 51901\nallow = ['{other}']\n")));
    let via = format!("via = {{ address = '10.0.1.1:51901', public-key = '{}' }}", relay.public_key);
    finds(&net, &van(&net, &path("l1", &via)), L1, "no answer from the relay at 10.0.1.1:51901");
}

#[test]
fn what_a_killed_daemon_left_is_found_and_removed() {
    let Some(_alone) = namespaces_or_skip("what_a_killed_daemon_left_is_found_and_removed") else { return };
    let net = Uplinks::new();
    net.van.ip("route replace default via 10.0.1.1");
    let rules = || net.van.ip("rule") + &net.van.ip("-6 rule");
    let before = rules();
    let default = net.van_file("", "'0.0.0.0/0', '::/0'", &path("l1", ""));
    let _office = Daemon::start(&net.office, &net.office_file(""));
    for removes in ["down", "run"] {
        drop(Daemon::start(&net.van, &default));
        assert_eq!(rules().lines().count(), before.lines().count() + 8, "a killed daemon leaves its rules");
        finds(&net, &default, "leftover", "a routing rule");
        // The path would come up all the same.
        let all = findings(&net, &default);
        assert!(all.iter().any(|one| one["check"] == L1 && one["level"] == "ok"), "{all:#?}");
        // But for a filter, a loose one too, that finds no way back.
        shell(&net.van, "echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter");
        finds(
            &net,
            &default,
            "tunnel",
            "its paths are not tried: by the rules that a killed daemon has left",
        );
        shell(&net.van, "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter");
        let without = stdout(&output(&mut net.van.nawa(["doctor"])));
        assert!(without.contains("WARN  leftover: a routing rule"), "{without}");
        if removes == "down" {
            output(&mut net.van.nawa(["down"]));
        } else {
            // A file without a default route needs none.
            drop(Daemon::start(&net.van, &van(&net, &path("l1", ""))));
        }
        assert_eq!(rules(), before, "by {removes}");
    }
}

#[test]
fn a_host_without_the_loopback_address_lacks_nothing_else() {
    let name = "a_host_without_the_loopback_address_lacks_nothing_else";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let host = Namespace::new();
    host.ip("address del 127.0.0.1/8 dev lo");
    let found = stdout(&output(&mut host.nawa(["doctor"])));
    assert!(found.contains("ok    udp offload"), "{found}");
}

#[test]
fn doctor_says_what_a_hub_passes_on() {
    let Some(_alone) = namespaces_or_skip("doctor_says_what_a_hub_passes_on") else { return };
    let net = Uplinks::new();
    let file = net.office_file("");
    let says = |what: &str| {
        let found = stdout(&output(&mut net.office.nawa(["doctor", file.to_str().expect("UTF-8")])));
        assert!(found.contains(&format!("hub: {what}")), "{found}");
    };
    says("does not forward IPv4");
    shell(&net.office, "echo 1 >/proc/sys/net/ipv4/ip_forward");
    says("forwards IPv4, and no rule of nftables puts its own address");
    // As Docker has them.
    let out = |rule: &str| {
        format!("table ip out {{ chain out {{ type nat hook postrouting priority srcnat; {rule}\n}}\n}}")
    };
    nft(&net.office, &out("ip saddr 172.17.0.0/16 oifname != docker0 masquerade"));
    says("forwards IPv4, and no rule of nftables puts its own address");
    nft(&net.office, &out("oifname eth0 masquerade"));
    let forward = |policy: &str| {
        let chain = "type filter hook forward priority 0; policy";
        nft(&net.office, &format!("table ip filter {{ chain FORWARD {{ {chain} {policy};\n}}\n}}"));
    };
    forward("drop");
    says("forwards IPv4, but for what no rule accepts: ip filter FORWARD drops that");
    forward("accept");
    says("forwards IPv4, and puts its own address on what leaves");
    let _office = Daemon::start(&net.office, &file);
    let found = stdout(&output(&mut net.office.nawa(["doctor"])));
    assert!(found.contains("ok    hub: forwards IPv4"), "{found}");
    // Who calls is none.
    let van =
        stdout(&output(&mut net.van.nawa(["doctor", van(&net, &path("l1", "")).to_str().expect("UTF-8")])));
    assert!(!van.contains("hub:"), "{van}");
}

#[test]
fn a_tunnel_is_measured_idle_and_loaded() {
    let Some(_alone) = namespaces_or_skip("a_tunnel_is_measured_idle_and_loaded") else { return };
    let net = Uplinks::new();
    // A link that the load fills at once.
    shell(&net.core, "tc qdisc add dev eth0 root tbf rate 4mbit burst 16k limit 64k");
    let file = van(&net, &path("l1", ""));
    let _daemons = [Daemon::start(&net.office, &net.office_file("")), Daemon::start(&net.van, &file)];
    net.wait_up(&["l1"]);
    let found = succeed(&mut net.van.nawa(["test", "office", "--time", "10s", "--json"]));
    let found: Value = serde_json::from_str(&found).expect("one JSON object");
    let known = |value: &Value| value.as_f64().is_some_and(|number| number > 0.0);
    for key in ["rtt_p50_ms", "rtt_p95_ms", "rpm"] {
        assert!(known(&found["idle"][key]) && known(&found["loaded"][key]), "{found}");
    }
    assert!(known(&found["loaded"]["rate_bps"]) && known(&found["paths"][0]["rate_bps"]), "{found}");
    let nobody = output(&mut net.van.nawa(["test", "home"]));
    assert_eq!(nobody.status.code(), Some(1));
}

#[test]
fn doctor_reads_a_bad_file() {
    let node = Node::new();
    let file = node.write("[tunnel]\n");
    let found = output(&mut common::nawa(["doctor", "--json", file.to_str().expect("UTF-8")]));
    assert_eq!(found.status.code(), Some(2));
    let found: Value = serde_json::from_str(&stdout(&found)).expect("one JSON object");
    assert!(
        found["findings"].as_array().expect("findings").iter().any(|one| one["check"] == "file"),
        "{found}"
    );
}

#[test]
fn two_doctors_do_not_get_in_each_others_way() {
    let Some(_alone) = namespaces_or_skip("two_doctors_do_not_get_in_each_others_way") else { return };
    let net = Uplinks::new();
    let file = van(&net, &path("l1", ""));
    nft(&net.core, "insert rule inet isp forward iifname wan1 drop");
    let mut first = net.van.nawa(["doctor", file.to_str().expect("UTF-8")]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nawa starts");
    let tries = || net.van.ip("-o link show up").contains("nawa-d").then_some(());
    eventually("it tries the path, which is silent", tries);
    let second = stdout(&output(&mut net.van.nawa(["doctor"])));
    first.kill().and_then(|()| first.wait()).expect("it ends");
    assert!(second.contains("ok    tun: "), "{second}");
}
