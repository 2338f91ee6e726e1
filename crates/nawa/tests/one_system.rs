//! One file with several strands: one that fails is started again while the others go on; peers come and go; fragments.

mod common;

use std::path::PathBuf;

use common::uplinks::{Uplinks, path};
use common::{
    Daemon, Namespace, Node, eventually, keep_state_beside, namespaces_or_skip, output, replace, stderr,
    succeed,
};
use rustix::process::Signal;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// Both hosts, the van's file with its content, and a section by which it relays for the office.
fn van_that_may_relay() -> (Uplinks, PathBuf, String, String) {
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", OFFICE, &path("l1", ""));
    let text = std::fs::read_to_string(&file).expect("the file");
    let relay = format!("[relay]\nlisten = 51901\nallow = ['{}']\n", net.nodes[1].public_key);
    (net, file, text, relay)
}

#[test]
fn a_strand_that_fails_is_started_again() {
    let Some(_alone) = namespaces_or_skip("a_strand_that_fails_is_started_again") else { return };
    let (net, file, text, relay) = van_that_may_relay();
    std::fs::write(&file, format!("{text}{relay}")).expect("the file");
    let _office = Daemon::start(&net.office, &net.office_file(""));
    let mut van = Daemon::start(&net.van, &file);
    net.wait_up(&["l1"]);
    let pid = net.van.status()["pid"].clone();
    // A live edit outlives the failure.
    succeed(&mut net.van.nawa(["path", "add", "office", "l2", "--remote", "203.0.113.7:51900"]));
    for failures in [1, 2] {
        net.van.ip("link delete nawa0");
        van.read_until("it is started again");
        let failed = eventually("the failure is in the status", || {
            let state = net.van.status();
            let failed = state["failed"][0].clone();
            assert!(state["relay"].is_object(), "the relay goes on: {state}");
            (failed["failures"] == failures).then_some(failed)
        });
        assert_eq!(failed["strand"], "tunnel");
        eventually("the interface is back", || net.van.has_interface("nawa0").then_some(()));
        net.wait_up(&["l1", "l2"]);
        net.ping("10.77.0.2");
    }
    assert!(succeed(&mut net.van.nawa(["status"])).contains("tunnel: failed 2 times in a row, runs again: "));
    assert_eq!(net.van.status()["pid"], pid);
    // While it waits it takes edits, and an end.
    net.van.ip("link delete nawa0");
    van.read_until("it is started again");
    succeed(&mut net.van.nawa(["path", "del", "office", "l2"]));
    // A reload does not leave it to wait: what was wrong may be mended.
    van.signal(Signal::HUP);
    van.read_until("the file is taken up");
    let failed = net.van.status()["failed"][0].clone();
    assert!(failed["starts_again_in_s"].as_f64().is_none_or(|wait| wait == 0.0), "{failed}");
    eventually("the interface is back", || net.van.has_interface("nawa0").then_some(()));
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
}

#[test]
fn peers_come_and_go_while_it_runs() {
    let Some(_alone) = namespaces_or_skip("peers_come_and_go_while_it_runs") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let key = net.nodes[0].public_key.clone();
    let lonely = Node::new().public_key;
    let office = net.office_file("").with_file_name("office.toml");
    let text = std::fs::read_to_string(net.office_file("")).expect("the file");
    std::fs::write(
        &office,
        text.replace(&key, &lonely)
            .replace("'van'", "'nobody'")
            .replace("10.77.0.1/32", "10.77.0.9/32")
            .replace("fd77::1/128", "fd77::9/128"),
    )
    .expect("the file");
    let _office = Daemon::start(&net.office, &office);
    let _van = Daemon::start(&net.van, &net.van_file("", OFFICE, &path("l1", "")));
    let add =
        ["peer", "add", "van", "--public-key", &key, "--route", "10.77.0.1/32", "--route", "fd77::1/128"];
    succeed(&mut net.office.nawa(add));
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    let shown = succeed(&mut net.office.nawa(["peer", "show", "van"]));
    assert!(shown.contains(&key) && shown.contains("1 of 1") && shown.contains("10.77.0.1/32"), "{shown}");
    // What contradicts others is refused, and nothing changes.
    for (again, why) in [
        (
            ["peer", "add", "van", "--public-key", &lonely, "--route", "10.9.0.1/32"],
            "two peers are called van",
        ),
        (["peer", "add", "x", "--public-key", &key, "--route", "10.9.0.1/32"], "has the key of another peer"),
    ] {
        let refused = output(&mut net.office.nawa(again));
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    }
    succeed(&mut net.office.nawa(["peer", "del", "van"]));
    net.wait_for("l1", "not up", |path| path["state"] != "up");
    let left = succeed(&mut net.office.nawa(["peer", "show", "--json"]));
    let left: serde_json::Value = serde_json::from_str(&left).expect("one JSON object");
    assert_eq!(left["peers"].as_array().map(Vec::len), Some(1), "{left}");
    assert!(!net.office.ip("route").contains("10.77.0.1"), "{}", net.office.ip("route"));
}

#[test]
fn a_fragment_brings_a_peer() {
    let Some(_alone) = namespaces_or_skip("a_fragment_brings_a_peer") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let file = node.write("[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n");
    let folder = file.with_extension("toml.d");
    std::fs::create_dir(&folder).expect("a folder");
    let peer = |name: &str, route: u8| {
        let key = Node::new().public_key;
        let text =
            format!("[[peer]]\nname = '{name}'\npublic-key = '{key}'\nroutes = ['10.77.0.{route}/32']\n");
        std::fs::write(folder.join(format!("{name}.toml")), text).expect("a fragment");
    };
    peer("office", 2);
    let mut daemon = Daemon::start(&namespace, &file);
    let names = || {
        let peers = namespace.status()["tunnel"]["peers"].clone();
        peers
            .as_array()
            .expect("peers")
            .iter()
            .map(|peer| peer["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["office"]);
    peer("home", 3);
    daemon.signal(Signal::HUP);
    daemon.read_until("the file is taken up");
    assert_eq!(names(), ["home", "office"]);
}

#[test]
fn a_path_whose_monthly_cap_is_spent_is_a_backup_also_after_a_restart() {
    let name = "a_path_whose_monthly_cap_is_spent_is_a_backup_also_after_a_restart";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", OFFICE, &(path("l1", "") + &path("l2", "monthly-cap = '1kB'")));
    keep_state_beside(&file);
    let _office = Daemon::start(&net.office, &net.office_file(""));
    for _ in 0..2 {
        let _van = Daemon::start(&net.van, &file);
        net.wait_why("l2", "its monthly cap of 1000 bytes is spent");
        let spent = net.wait_for("l2", "a backup", |path| path["backup"] == true && path["state"] == "up");
        assert_eq!(spent["cause"], "spent");
        let there = |path: &serde_json::Value| path["backup"] == true;
        common::uplinks::wait_for_path(&net.office, "l2", "a backup there too", there);
        succeed(&mut net.van.nawa(["path", "set", "office", "l2", "--monthly-cap", "1GB"]));
        net.wait_for("l2", "used again", |path| path["backup"] == false);
    }
}

/// The bytes of the last seconds before an end are counted, and status says how many there are.
#[test]
fn what_a_path_carried_before_a_stop_counts() {
    let Some(_alone) = namespaces_or_skip("what_a_path_carried_before_a_stop_counts") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", OFFICE, &path("l1", "monthly-cap = '1GB'"));
    keep_state_beside(&file);
    let _office = Daemon::start(&net.office, &net.office_file(""));
    let van = Daemon::start(&net.van, &file);
    net.wait_up(&["l1"]);
    succeed(&mut net.van.command("ping", ["-c", "20", "-i", "0.01", "-s", "1000", "-w", "30", "10.77.0.2"]));
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
    let van = Daemon::start(&net.van, &file);
    let used =
        |path: &serde_json::Value| path["monthly_used_bytes"].as_u64().is_some_and(|used| used > 40_000);
    let counted = net.wait_for("l1", "counted", used);
    assert_eq!(counted["monthly_cap_bytes"], 1_000_000_000);
    let shown = succeed(&mut net.van.nawa(["status"]));
    assert!(shown.contains(" of 1000.0 MB used this month, resets on 20"), "{shown}");
    assert!(!shown.contains("forgotten"), "{shown}");
    // Where it cannot be kept, status says so.
    drop(van);
    replace(&file, "'state'", "'/dev/null/state'");
    let _van = Daemon::start(&net.van, &file);
    net.wait_for("l1", "not kept", |path| path["monthly_unsaved"].is_string());
    let shown = succeed(&mut net.van.nawa(["status"]));
    assert!(shown.contains("forgotten at the next start, for /dev/null/state cannot be written"), "{shown}");
}

/// Each tunnel counts from nothing.
#[test]
fn what_a_path_carries_once_its_tunnel_has_failed_counts() {
    let Some(_alone) = namespaces_or_skip("what_a_path_carries_once_its_tunnel_has_failed_counts") else {
        return;
    };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", OFFICE, &path("l1", "monthly-cap = '1GB'"));
    keep_state_beside(&file);
    let _office = Daemon::start(&net.office, &net.office_file(""));
    let _van = Daemon::start(&net.van, &file);
    let used_after = |pings: &str| {
        net.wait_up(&["l1"]);
        succeed(
            &mut net.van.command("ping", ["-c", pings, "-i", "0.01", "-s", "1000", "-w", "30", "10.77.0.2"]),
        );
        // What has been carried is counted before anything changes.
        succeed(&mut net.van.nawa(["path", "set", "office", "l1", "--metered", "false"]));
        let status = net.van.status();
        status
            .pointer("/tunnel/peers/0/paths/0/monthly_used_bytes")
            .and_then(|used| used.as_u64())
            .expect("a count")
    };
    let before = used_after("20");
    net.van.ip("link delete nawa0");
    eventually("it has failed", || net.van.status()["failed"].is_array().then_some(()));
    let after = used_after("40");
    assert!(after - before > 80_000, "{before} and {after} bytes");
}

/// What fails late in a reload undoes what came before it.
#[test]
fn a_reload_is_taken_up_as_a_whole_or_not_at_all() {
    let Some(_alone) = namespaces_or_skip("a_reload_is_taken_up_as_a_whole_or_not_at_all") else { return };
    let (net, file, text, relay) = van_that_may_relay();
    let _office = Daemon::start(&net.office, &net.office_file(""));
    std::fs::write(&file, format!("{text}{relay}")).expect("the file");
    let mut van = Daemon::start(&net.van, &file);
    net.wait_up(&["l1"]);
    let name = net.nodes[0].public_key.clone();
    succeed(&mut net.van.nawa([
        "peer",
        "add",
        "boat",
        "--public-key",
        &Node::new().public_key,
        "--route",
        "10.9.0.1/32",
    ]));
    // A tunnel with other routes and no relay, and a flood on an interface that is not there.
    let bad = text.replace(OFFICE, &format!("{OFFICE}, '10.99.0.0/16'"))
        + "[[flood]]\ninterface = 'nosuch0'\nid = 7\n";
    std::fs::write(&file, bad).expect("the file");
    van.signal(Signal::HUP);
    van.read_until("nosuch0");
    let state = eventually("it is refused", || {
        let state = net.van.status();
        state["reload_refused"].is_array().then_some(state)
    });
    assert!(state["relay"].is_object() && state["tunnel"]["public_key"] == name, "{state}");
    assert_eq!(state["tunnel"]["peers"].as_array().map(Vec::len), Some(2), "{state}");
    let routes = net.van.ip("route");
    assert!(!routes.contains("10.99.0.0/16") && routes.contains("10.9.0.1"), "{routes}");
    net.ping("10.77.0.2");
    // A peer that such a file leaves out keeps what its tunnel knows.
    let received = || net.van.status().pointer("/tunnel/peers/0/paths/0/received_packets")?.as_u64();
    let before = received().expect("the path's count");
    let (section, _) = text.split_once("[[peer]]").expect("a peer");
    std::fs::write(&file, format!("{section}[[flood]]\ninterface = 'nosuch1'\nid = 7\n")).expect("the file");
    van.signal(Signal::HUP);
    van.read_until("nosuch1");
    eventually("it is refused", || {
        net.van.status()["reload_refused"].to_string().contains("nosuch1").then_some(())
    });
    assert!(before > 0 && received() >= Some(before), "{before}: {}", net.van.status());
    // A peer that is not in the file goes with a reload, which says so.
    std::fs::write(&file, &text).expect("the file");
    van.signal(Signal::HUP);
    van.read_until("peer boat goes with this reload");
    eventually("it is taken up", || net.van.status()["relay"].is_null().then_some(()));
}

#[test]
fn status_is_answered_while_a_reload_stops_a_strand() {
    let Some(_alone) = namespaces_or_skip("status_is_answered_while_a_reload_stops_a_strand") else { return };
    let (net, file, text, relay) = van_that_may_relay();
    let mut van = Daemon::start(&net.van, &file);
    for more in [relay.as_str(), ""].repeat(20) {
        std::fs::write(&file, format!("{text}{more}")).expect("the file");
        van.signal(Signal::HUP);
        (0..5).for_each(|_| drop(net.van.status()));
        van.read_until("the file is taken up");
    }
}

#[test]
fn a_monthly_cap_counts_that_a_running_daemon_is_given() {
    let Some(_alone) = namespaces_or_skip("a_monthly_cap_counts_that_a_running_daemon_is_given") else {
        return;
    };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", OFFICE, &path("l1", ""));
    keep_state_beside(&file);
    let _office = Daemon::start(&net.office, &net.office_file(""));
    let _van = Daemon::start(&net.van, &file);
    net.wait_up(&["l1"]);
    let carry = ["-c", "20", "-i", "0.01", "-s", "1000", "-w", "30", "10.77.0.2"];
    succeed(&mut net.van.command("ping", carry));
    succeed(&mut net.van.nawa(["path", "set", "office", "l1", "--monthly-cap", "20kB"]));
    let capped = net.wait_for("l1", "capped", |path| path["monthly_cap_bytes"] == 20_000);
    let used = capped["monthly_used_bytes"].as_u64();
    assert!(used.is_some_and(|used| used < 20_000), "what came before does not count: {capped}");
    succeed(&mut net.van.command("ping", carry));
    net.wait_why("l1", "its monthly cap of 20000 bytes is spent");
}

#[test]
fn the_routes_into_the_tunnel_name_a_congestion_control() {
    let name = "the_routes_into_the_tunnel_name_a_congestion_control";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let (namespace, node, peer) = (Namespace::new(), Node::new(), Node::new().public_key);
    let write = |addresses: &str, key: &str| {
        node.write(&format!(
            "[tunnel]\ninterface = 'nawa0'\nlisten = 51900\naddresses = [{addresses}]\n{key}\n[[peer]]\nname = 'office'\n\
             public-key = '{peer}'\nroutes = ['10.77.0.0/24', '10.78.0.0/16', 'fd77::/64', '0.0.0.0/0']\n"
        ))
    };
    let [first, other] = ["'10.77.0.2/24', 'fd77::2/64'", "'10.77.0.3/24', 'fd77::3/64'"];
    let daemon = Daemon::start(&namespace, &write(first, "congestion-control = 'cubic'"));
    let as_wanted = |wanted: Option<&str>| {
        let main = ["-4 route show dev nawa0", "-6 route show dev nawa0", "route show table 0x6e617761"];
        let routes: Vec<_> = main.iter().map(|show| namespace.ip(show)).collect();
        let mut lines = routes.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with("fe80:"));
        let count = lines.clone().filter(|line| !line.starts_with("ff00:")).count();
        let named = format!("congctl {}", wanted.unwrap_or_default());
        (count == 4
            && lines
                .all(|line| if wanted.is_some() { line.contains(&named) } else { !line.contains(&named) }))
        .then_some(())
        .filter(|()| namespace.status()["tunnel"]["congestion_control"].as_str() == wanted)
    };
    eventually("the routes as the file has them", || as_wanted(Some("cubic")));
    for (addresses, key, wanted) in [
        (first, "congestion-control = 'reno'", Some("reno")),
        (other, "congestion-control = 'reno'", Some("reno")),
        (other, "", None),
        (other, "congestion-control = 'cubic'", Some("cubic")),
    ] {
        write(addresses, key);
        daemon.signal(Signal::HUP);
        eventually("the routes as the file has them", || as_wanted(wanted));
        let way = namespace.ip("route get 10.77.0.9");
        assert!(way.contains(&format!("src {} ", &addresses[1..10])), "{way}");
    }
    write(first, "congestion-control = 'nobody'");
    daemon.signal(Signal::HUP);
    eventually("it is refused", || namespace.status()["reload_refused"].is_array().then_some(()));
    eventually("all is as before", || as_wanted(Some("cubic")));
    assert!(
        succeed(&mut namespace.nawa(["status"])).contains("TCP connections of this host into it use cubic")
    );
}

/// As the kernel's own routes of such a prefix, which stand beside one another.
#[test]
fn a_network_that_has_the_tunnels_prefix_does_not_stop_it() {
    let name = "a_network_that_has_the_tunnels_prefix_does_not_stop_it";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let (namespace, neighbour, node) = (Namespace::new(), Namespace::new(), Node::new());
    Namespace::connect((&namespace, "lan", "10.77.0.9/24"), (&neighbour, "lan", "10.77.0.2/24"));
    let file = "[tunnel]\ninterface = 'nawa0'\nlisten = 51900\naddresses = ['10.77.0.1/24']\n";
    let mut daemon = Daemon::start(&namespace, &node.write(file));
    assert!(namespace.ip("route get 10.77.0.2").contains("dev lan"));
    daemon.signal(Signal::HUP);
    daemon.read_until("packets to that prefix do not go into nawa0");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(namespace.ip("route get 10.77.0.2").contains("dev lan"));
}
