//! Every cause has its own words, in status and in a line of the log.

mod common;

use common::uplinks::{FAMILIES, Uplinks, nft, path, path_to, shell, wait_for_path};
use common::{Daemon, Node, namespaces_or_skip, succeed};

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// The van's daemon alone, with one path.
fn van(net: &Uplinks, paths: &str) -> Daemon {
    net.lead_out();
    Daemon::start(&net.van, &net.van_file("", OFFICE, paths))
}

#[test]
fn a_port_where_nobody_listens_is_told_from_silence() {
    let Some(_alone) = namespaces_or_skip("a_port_where_nobody_listens_is_told_from_silence") else { return };
    let net = Uplinks::new();
    let local = "local = 'wan1'";
    let both = path("l1", local) + &path_to(FAMILIES[1], "l6", local);
    let mut van = van(&net, &both);
    for (name, to) in [("l1", "203.0.113.7:51900"), ("l6", "[2001:db8::7]:51900")] {
        net.wait_why(name, &format!("{to} refuses: no daemon listens on that port"));
    }
    van.read_until("path l1 to office is");
    let own = ["path", "add", "office", "own", "--remote", "10.0.2.2:51900"];
    succeed(&mut net.van.nawa(own));
    net.wait_why("own", "10.0.2.2:51900 refuses: no daemon listens on that port; is it the peer's address?");
    succeed(&mut net.van.nawa(["path", "del", "office", "own"]));
    nft(&net.core, "add rule inet isp forward udp dport 51900 drop");
    net.wait_why("l1", "no answer from 203.0.113.7:51900");
    van.read_until("no answer from 203.0.113.7:51900");
    net.wait_why("l6", "no answer from [2001:db8::7]:51900");
    net.van.ip("route del default via 10.0.1.1");
    net.van.ip("route del default via fd01::1");
    net.wait_why("l1", "no route by wan1 to 203.0.113.7");
    van.read_until("path l1 to office is down: no route by wan1 to 203.0.113.7");
    net.wait_why("l6", "no route by wan1 to 2001:db8::7");
    // The office answers, and this host's own firewall drops that.
    let _office = Daemon::start(&net.office, &net.office_file(""));
    nft(
        &net.van,
        "table inet wall { chain input { type filter hook input priority 0; udp sport 51900 counter drop\n}\n}",
    );
    net.lead_out();
    nft(&net.core, "flush chain inet isp forward");
    for (name, to) in [("l1", "203.0.113.7:51900"), ("l6", "[2001:db8::7]:51900")] {
        net.wait_why(name, &format!("no answer from {to}: is it on, is its port open, and"));
        net.wait_for(name, "a cause", |path| path["cause"] == "no-answer");
    }
    let dropped = shell(&net.van, "nft list table inet wall");
    assert!(!dropped.contains("packets 0 "), "{dropped}");
    nft(&net.van, "delete table inet wall");
    net.wait_up(&["l1", "l6"]);
    van.read_until("path l1 to office is up");
    net.wait_for("l1", "nothing amiss", |path| path["why"].is_null());
    // What became of it is remembered, with the number that decided, the newest first.
    let said = succeed(&mut net.van.nawa(["path", "why", "office", "l1"]));
    let mut older = &said[..];
    for what in ["answers after", "down      no route by wan1 to 203.0.113.7", "no answer from", "refuses"] {
        let at = older.find(what).unwrap_or_else(|| panic!("never said before that: {what}\n{said}"));
        older = &older[at..];
    }
    let said = succeed(&mut net.van.nawa(["path", "why", "office", "--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
    let changes = said["paths"][0]["changes"].as_array().expect("changes");
    let causes: Vec<_> = changes.iter().filter_map(|one| one["cause"].as_str()).collect();
    for cause in ["refused", "no-answer", "no-route", "carries"] {
        assert!(causes.contains(&cause), "{causes:?}");
    }
}

#[test]
fn a_router_that_knows_no_way_is_named() {
    let Some(_alone) = namespaces_or_skip("a_router_that_knows_no_way_is_named") else { return };
    let net = Uplinks::new();
    nft(&net.core, "add rule inet isp forward udp dport 51900 reject with icmpx type host-unreachable");
    let mut van = van(&net, &(path("l1", "local = 'wan1'") + &path_to(FAMILIES[1], "l6", "local = 'wan1'")));
    for (name, to) in [("l1", "203.0.113.7:51900"), ("l6", "[2001:db8::7]:51900")] {
        let why = format!("a router on the way to {to} says that it cannot be reached");
        net.wait_why(name, &why);
        net.wait_for(name, "a cause", |path| path["cause"] == "unreachable");
        van.read_until(&why);
    }
    nft(&net.core, "flush chain inet isp forward");
    let _office = Daemon::start(&net.office, &net.office_file(""));
    net.wait_up(&["l1", "l6"]);
}

#[test]
fn what_the_kernel_does_not_send_is_said() {
    let Some(_alone) = namespaces_or_skip("what_the_kernel_does_not_send_is_said") else { return };
    let net = Uplinks::new();
    nft(
        &net.van,
        "table inet wall { chain output { type filter hook output priority 0; udp dport 51900 drop\n}\n}",
    );
    let _van = van(&net, &(path("l1", "") + &path_to(FAMILIES[1], "l6", "")));
    net.wait_why("l1", "cannot send to 203.0.113.7:51900: Operation not permitted");
    net.wait_why("l6", "cannot send to [2001:db8::7]:51900: Operation not permitted");
}

#[test]
fn another_key_is_named_where_it_is_known() {
    let Some(_alone) = namespaces_or_skip("another_key_is_named_where_it_is_known") else { return };
    another_key(FAMILIES[0], "10.0.1.2:");
    another_key(FAMILIES[1], "[fd01::2]:");
}

fn another_key(to: &str, from: &str) {
    let mut net = Uplinks::new();
    let mut office = Daemon::start(&net.office, &net.office_file(""));
    // The van has another key than the office's file says.
    let stranger = Node::new();
    let known = std::mem::replace(&mut net.nodes[0], stranger);
    let first = van(&net, &path_to(to, "l1", ""));
    let line = office.read_until(&format!("a handshake from {from}"));
    assert!(line.contains(&net.nodes[0].public_key), "{line}");
    net.wait_why(
        "l1",
        &format!("no answer from {to}:51900: is it on, is its port open, and are both ends' keys right?"),
    );
    // Both ends name what may be wrong, where they are asked.
    let shown = succeed(&mut net.office.nawa(["status"]));
    assert!(shown.contains(&format!("last handshake refused: a handshake from {from}")), "{shown}");
    assert!(shown.contains(&net.nodes[0].public_key), "{shown}");
    let said = succeed(&mut net.van.nawa(["path", "why", "office"]));
    for node in &net.nodes {
        assert!(said.contains(&node.public_key), "{said}");
    }
    drop(first);
    // The van's file has another key than the office's.
    let right = std::mem::replace(&mut net.nodes[1], Node::new());
    net.nodes[0] = known;
    let _second = van(&net, &path_to(to, "l1", ""));
    let line = office.read_until("is for another key than this end's");
    assert!(line.contains(&right.public_key), "{line}");
}

#[test]
fn a_dead_link_among_living_ones_does_not_blame_the_server() {
    let name = "a_dead_link_among_living_ones_does_not_blame_the_server";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    FAMILIES.into_iter().for_each(dead_link);
}

fn dead_link(to: &str) {
    let net = Uplinks::new();
    net.lead_out();
    nft(&net.core, "add rule inet isp forward iifname wan2 drop");
    let paths = path_to(to, "l1", "local = 'wan1'") + &path_to(to, "l2", "local = 'wan2'");
    let [_office, mut van] = net.start("", OFFICE, &paths);
    let why =
        format!("no answer from {to}:51900 over this link, and the other paths reach it: look at this link");
    net.wait_why("l2", &why);
    van.read_until(&why);
    let dead = net.wait_for("l2", "a cause", |path| path["cause"] == "link-silent");
    assert!(!dead["why"].as_str().expect("a sentence").contains("key"), "{dead}");
    // A captive portal refuses.
    nft(&net.core, "flush chain inet isp forward");
    nft(&net.core, "add rule inet isp forward iifname wan2 reject with icmpx type port-unreachable");
    net.wait_why("l2", &format!("{to}:51900 is refused over this link, and the other paths reach it"));
    nft(&net.core, "flush chain inet isp forward");
    net.wait_up(&["l1", "l2"]);
}

#[test]
fn another_program_at_the_port_is_told_from_the_peer() {
    let Some(_alone) = namespaces_or_skip("another_program_at_the_port_is_told_from_the_peer") else {
        return;
    };
    another_program(FAMILIES[0], "0.0.0.0:0");
    another_program(FAMILIES[1], "[::]:0");
}

fn another_program(to: &str, any: &str) {
    let net = Uplinks::new();
    let at = format!("{to}:51900");
    let echo = net.office.within(|| std::net::UdpSocket::bind(&at)).expect("a socket");
    let _van = van(&net, &path_to(to, "l1", ""));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2000];
            // Until the test shuts its mouth.
            while let Ok((length, from)) = echo.recv_from(&mut buffer) {
                if length == 0 {
                    break;
                }
                echo.send_to(b"HTTP/1.0 400 Bad Request", from).expect("an answer");
            }
        });
        net.wait_why("l1", &format!("what answers at {at} is not the peer"));
        let end = || std::net::UdpSocket::bind(any).and_then(|s| s.send_to(&[], &at));
        net.office.within(end).expect("the end");
    });
}

#[test]
fn a_link_of_small_packets_says_how_small() {
    let Some(_alone) = namespaces_or_skip("a_link_of_small_packets_says_how_small") else { return };
    FAMILIES.into_iter().for_each(small_packets);
}

fn small_packets(to: &str) {
    let net = Uplinks::new();
    // A router that drops what is too large, and says nothing.
    nft(&net.core, "add rule inet isp forward meta length > 1320 drop");
    let _office = Daemon::start(&net.office, &net.office_file(""));
    let mut van = van(&net, &path_to(to, "l1", ""));
    let carries = "it carries packets of 1320 bytes, so one of 1280 bytes inside goes in 2 datagrams";
    net.wait_why("l1", &format!("{carries}: larger ones vanish without a word"));
    van.read_until(&format!("path l1 to office is up: {carries}"));
}

#[test]
fn a_small_link_is_told_from_a_black_hole() {
    let Some(_alone) = namespaces_or_skip("a_small_link_is_told_from_a_black_hole") else { return };
    // A PPPoE link says that 1500 bytes are too many, and what swallows those of 1340 says nothing.
    let hole = |net: &Uplinks| {
        net.van.ip("link set wan1 mtu 1492");
        nft(&net.core, "add rule inet isp forward meta length > 1320 drop");
    };
    type Make<'a> = &'a dyn Fn(&Uplinks);
    let cases: [(Make<'_>, &str); 3] = [
        (&|net| drop(net.core.ip("link set eth0 mtu 1320")), "a router on the way says so"),
        (&|net| drop(net.van.ip("link set wan1 mtu 1320")), "its own link's MTU says so"),
        (&hole, "larger ones vanish without a word"),
    ];
    for ((make, says), to) in cases.into_iter().flat_map(|case| FAMILIES.map(|to| (case, to))) {
        let net = Uplinks::new();
        make(&net);
        let _office = Daemon::start(&net.office, &net.office_file(""));
        let _van = van(&net, &path_to(to, "l1", ""));
        net.wait_why("l1", &format!("goes in 2 datagrams: {says}"));
    }
}

#[test]
fn a_backup_says_that_it_waits() {
    let Some(_alone) = namespaces_or_skip("a_backup_says_that_it_waits") else { return };
    for to in FAMILIES {
        let net = Uplinks::new();
        let _office = Daemon::start(&net.office, &net.office_file(""));
        let _van = van(&net, &(path_to(to, "l1", "") + &path_to(to, "l2", "backup = true")));
        net.wait_why("l2", "kept for later: other paths carry all");
        let kept = net.wait_for("l2", "up", |path| path["state"] == "up");
        assert_eq!(kept["cause"], "kept");
    }
}

#[test]
fn a_reverse_path_filter_is_suspected() {
    let Some(_alone) = namespaces_or_skip("a_reverse_path_filter_is_suspected") else { return };
    for to in FAMILIES {
        let net = Uplinks::new();
        shell(&net.van, "for i in all wan1 wan2; do echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter; done");
        // IPv6 has no such setting: a firewall does the same.
        nft(
            &net.van,
            "table ip6 rp { chain pre { type filter hook prerouting priority -300; iifname wan2 fib saddr oif wan1 drop\n}\n}",
        );
        net.lead_out();
        let paths = path_to(to, "l1", "local = 'wan1'") + &path_to(to, "l2", "local = 'wan2'");
        let _daemons = net.start("", OFFICE, &paths);
        net.wait_why("l2", "nothing comes in by wan2: rp_filter, or a firewall?");
        net.wait_for("l1", "nothing amiss", |path| path["state"] == "up" && path["why"].is_null());
    }
}

#[test]
fn one_key_at_two_places_is_said() {
    let Some(_alone) = namespaces_or_skip("one_key_at_two_places_is_said") else { return };
    FAMILIES.into_iter().for_each(one_key_twice);
}

fn one_key_twice(to: &str) {
    let net = Uplinks::new();
    let mut office = Daemon::start(&net.office, &net.office_file(""));
    let _first = van(&net, &path_to(to, "l1", ""));
    net.wait_up(&["l1"]);
    // Another host with a copy of the van's file, at the core.
    let _second = Daemon::start(&net.core, &net.van_file("", OFFICE, &path_to(to, "l1", "")));
    office.read_until("two hosts have this peer's key");
    wait_for_path(&net.office, "l1", "there", |_| true);
    let why = net.office.status()["tunnel"]["peers"][0]["why"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("two hosts have this peer's key")), "{why}");
}
