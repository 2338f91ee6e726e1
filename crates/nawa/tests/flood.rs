//! Flooding in real namespaces, as a user runs it. What hostile nodes do is in flood_hostile.rs.

mod common;

use std::fs;
use std::time::Duration;

use common::flood::{Network, PATIENCE, text};
use common::{Daemon, eventually, namespaces_or_skip, output, stderr, succeed};
use flood::Client;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType, connect, recv, socket};
use rustix::process::Signal;
use serde_json::Value;

const MODES: [&str; 3] = ["mode = 'driver'\n", "mode = 'kernel'\n", "mode = 'application'\n"];

#[test]
fn a_message_reaches_every_application_of_every_node_once() {
    let Some(_alone) = namespaces_or_skip("a_message_reaches_every_application_of_every_node_once") else {
        return;
    };
    for mode in MODES {
        for wire in ["wire = 1\n", "wire = 0\n"] {
            let network = Network::new(3);
            let _daemons = [1, 2, 3].map(|number| network.start(number, &format!("{mode}{wire}")));
            let receivers = [network.listen(2), network.listen(2), network.listen(3)];
            let sender = network.listen(1);
            for number in 0..50 {
                sender.send(0, format!("message {number}").as_bytes()).expect("it goes");
            }
            for receiver in &receivers {
                for number in 0..50 {
                    let message = receiver.recv(PATIENCE).expect("the node runs").expect("it comes");
                    assert_eq!(message.header.id, 1);
                    assert_eq!(message.data, format!("message {number}").as_bytes(), "{mode}{wire}");
                }
            }
            // Each of the two others relays each message once, and nobody delivers what they relay.
            for number in [2, 3] {
                network.wait_for(number, "/relayed_frames", 50);
                network.wait_for(number, "/dropped_frames/duplicate", 50);
                assert_eq!(network.counted(number, "/new_frames"), 50, "{mode}{wire}");
            }
            network.wait_for(1, "/dropped_frames/own", 100);
            assert_eq!(sender.recv(Some(Duration::ZERO)).expect("the node runs"), None);
            let relay = network.status(2)["relay"].clone();
            let expected = match mode {
                _ if mode.contains("driver") => "xdp-native",
                _ if mode.contains("kernel") => "nftables",
                _ => "udp-socket",
            };
            assert_eq!(relay, expected);
        }
    }
}

#[test]
fn who_is_relayed_by_nobody_says_so() {
    let Some(_alone) = namespaces_or_skip("who_is_relayed_by_nobody_says_so") else { return };
    for mode in MODES {
        let network = Network::new(2);
        let _alone = network.start(1, mode);
        let sender = network.connect(1);
        let send = |ttl| (0..5).for_each(|_| sender.send(ttl, b"hello").expect("it goes"));
        let warned = || network.status(1)["warnings"].to_string().contains("nobody has relayed any of the 5");
        send(1);
        assert!(!warned(), "nobody was to");
        send(0);
        eventually("it says so", || warned().then_some(()));
        let shown = succeed(&mut network.node(1).nawa(["status"]));
        assert!(shown.contains("nobody has relayed"), "{shown}");
        let _neighbour = network.start(2, mode);
        send(0);
        network.wait_for(1, "/dropped_frames/own", 1);
        assert_eq!(network.status(1)["warnings"], serde_json::json!([]));
    }
}

#[test]
fn a_ping_is_answered() {
    let Some(_alone) = namespaces_or_skip("a_ping_is_answered") else { return };
    for mode in MODES {
        let network = Network::new(2);
        let _daemons = [1, 2].map(|number| network.start(number, mode));
        let ping = network.node(1).nawa([
            "flood",
            "ping",
            "air0",
            "2",
            "--count",
            "20",
            "--interval",
            "0ms",
            "--timeout",
            "30s",
            "--json",
        ]);
        let report: Value = serde_json::from_str(&succeed(&mut { ping })).expect("JSON");
        assert_eq!((&report["sent"], &report["received"]), (&20.into(), &20.into()), "{mode}: {report}");
        assert!(report["rtt_p99_us"].as_f64() >= report["rtt_min_us"].as_f64(), "{report}");
        assert_eq!(network.counted(2, "/answered_pings"), 20);
        let nobody = output(&mut network.node(1).nawa([
            "flood",
            "ping",
            "air0",
            "77",
            "--count",
            "1",
            "--timeout",
            "100ms",
        ]));
        assert_eq!(nobody.status.code(), Some(1));
        assert_eq!(stderr(&nobody), "nawa: node 77 does not answer\n");
    }
}

#[test]
fn what_waits_before_relaying_reaches_everybody_too() {
    let Some(_alone) = namespaces_or_skip("what_waits_before_relaying_reaches_everybody_too") else { return };
    for more in [
        "suppress = true\n",
        "suppress = true\nbusy-poll = true\n",
        "mode = 'application'\nsuppress = true\n",
        "mode = 'application'\njitter = '5ms'\n",
    ] {
        let network = Network::new(3);
        let _daemons = [1, 2, 3].map(|number| network.start(number, more));
        let (sender, receivers) = (network.listen(1), [network.listen(2), network.listen(3)]);
        for number in 0..30u8 {
            sender.send(0, &[number]).expect("it goes");
        }
        for receiver in &receivers {
            for number in 0..30 {
                let message = receiver.recv(PATIENCE).expect("the node runs").expect("it comes");
                assert_eq!(message.data, [number], "{more}");
            }
        }
        // Each of the others has relayed each message, or found that it need not.
        for number in [2, 3] {
            eventually("all is decided", || {
                let decided =
                    ["/relayed_frames", "/suppressed_frames"].map(|what| network.counted(number, what));
                (decided.iter().sum::<u64>() >= 30).then_some(())
            });
        }
        network.wait_for(1, "/sent_frames", 30);
    }
}

#[test]
fn applications_need_no_daemon_to_run() {
    let Some(_alone) = namespaces_or_skip("applications_need_no_daemon_to_run") else { return };
    // 9000 bytes are too much for native XDP.
    for (mtu, key) in [(1500, ""), (1500, "key-file = 'flood.key'\n"), (9000, "key-file = 'flood.key'\n")] {
        let network = Network::with_mtu(2, mtu);
        let daemons = [1, 2].map(|number| network.start(number, key));
        let (one, two, third) = (network.listen(1), network.listen(2), network.listen(2));
        assert_eq!(network.status(2)["delivery"], "driver");
        daemons.iter().for_each(|daemon| daemon.signal(Signal::STOP));
        for number in 0..100u8 {
            one.send(0, &[number]).expect("it goes");
            for receiver in [&two, &third] {
                let message = receiver.recv(PATIENCE).expect("the node is there").expect("it comes");
                assert_eq!((message.header.id, message.header.seq), (1, number.into()));
                assert_eq!(message.data, [number]);
            }
            two.send(0, b"and back").expect("it goes");
            assert_eq!(text(one.recv(PATIENCE).expect("the node is there")), "and back");
        }
        daemons.iter().for_each(|daemon| daemon.signal(Signal::CONT));
        network.wait_for(2, "/relayed_frames", 100);
        assert_eq!(network.counted(2, "/sent_frames"), 100);
    }
}

#[test]
fn who_does_not_read_loses_the_oldest_and_holds_up_nobody() {
    let Some(_alone) = namespaces_or_skip("who_does_not_read_loses_the_oldest_and_holds_up_nobody") else {
        return;
    };
    for mode in MODES {
        let network = Network::new(2);
        let _daemons = [1, 2].map(|number| network.start(number, mode));
        let (sender, quick, slow) = (network.listen(1), network.listen(2), network.listen(2));
        drop(network.listen(2));
        for number in 0..3000u32 {
            sender.send(0, &number.to_be_bytes()).expect("it goes");
            let message = quick.recv(PATIENCE).expect("the node runs").expect("it comes");
            assert_eq!((message.dropped, message.data), (0, number.to_be_bytes().to_vec()), "{mode}");
        }
        for number in 3000 - 1024..3000u32 {
            let message = slow.recv(PATIENCE).expect("the node runs").expect("it comes");
            assert_eq!(
                (message.dropped, message.data),
                (3000 - 1024, number.to_be_bytes().to_vec()),
                "{mode}"
            );
        }
        network.wait_for(2, "/undelivered_messages", 3000 - 1024);
        assert_eq!(network.counted(2, "/delivered_messages"), 3000);
    }
}

#[test]
fn nothing_is_left_of_a_daemon_that_is_killed_beside_its_applications() {
    let Some(_alone) =
        namespaces_or_skip("nothing_is_left_of_a_daemon_that_is_killed_beside_its_applications")
    else {
        return;
    };
    let network = Network::new(1);
    let shown = || network.node(1).ip("-d link show");
    let before = shown();
    for mode in MODES {
        let daemon = network.start(1, mode);
        let application = network.listen(1);
        daemon.signal(Signal::KILL);
        daemon.wait();
        eventually("no interface is left", || (shown() == before).then_some(()));
        application.recv(PATIENCE).expect_err("the node is gone");
        application.send(0, b"to nobody").expect_err("the node is gone");
    }
}

#[test]
fn nothing_is_left_of_a_daemon() {
    let Some(_alone) = namespaces_or_skip("nothing_is_left_of_a_daemon") else { return };
    let network = Network::new(1);
    let shown = || {
        let nft = succeed(&mut network.node(1).command("nft", ["list", "ruleset"]));
        (network.node(1).ip("-d link show air0"), nft)
    };
    let before = shown();
    for mode in MODES {
        for signal in [Signal::TERM, Signal::KILL] {
            let daemon = network.start(1, mode);
            daemon.signal(signal);
            daemon.wait();
            if signal == Signal::KILL {
                let down = output(&mut network.node(1).nawa(["down"]));
                let left = mode.contains("'kernel'");
                assert_eq!(down.status.code(), Some(3));
                assert_eq!(stderr(&down).contains("had left: nftables' table"), left, "{}", stderr(&down));
            }
            eventually("the interface is as before", || (shown() == before).then_some(()));
        }
    }
}

#[test]
fn three_capabilities_are_enough() {
    let Some(_alone) = namespaces_or_skip("three_capabilities_are_enough") else { return };
    for mode in ["key-file = 'flood.key'\n", MODES[1], MODES[2]] {
        let network = Network::new(2);
        let start = |number: usize| {
            let (file, binary) = (network.file(number, mode), env!("CARGO_BIN_EXE_nawa"));
            let few = ["--bounding-set", "-all,+net_admin,+bpf,+net_raw", "--inh-caps", "-all"];
            let run = [binary, "run", file.to_str().expect("UTF-8")];
            Daemon::spawn(&mut network.node(number).command("setpriv", few.into_iter().chain(run)))
        };
        let _daemons = [start(1), start(2)];
        let (sender, receiver) = (network.listen(1), network.listen(2));
        sender.send(0, b"hello").expect("it goes");
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "hello");
        if mode.contains("key") {
            assert_eq!(network.status(1)["relay"], "xdp-native");
        }
    }
}

#[test]
fn where_the_driver_cannot_a_program_does_and_says_so() {
    let Some(_alone) = namespaces_or_skip("where_the_driver_cannot_a_program_does_and_says_so") else {
        return;
    };
    let network = Network::new(2);
    let start = |number| Daemon::spawn(&mut network.without_bpf(number, &network.file(number, "")));
    let _daemons = [start(1), start(2)];
    let status = network.status(1);
    assert_eq!((&status["mode"], &status["relay"]), (&"driver".into(), &"packet-socket".into()));
    assert!(status["fallback"].as_str().is_some_and(|why| !why.is_empty()), "{status}");
    let (sender, receiver) = (network.listen(1), network.listen(2));
    sender.send(0, b"hello").expect("it goes");
    assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "hello");
    network.wait_for(2, "/relayed_frames", 1);
}

#[test]
fn a_reload_changes_what_it_names_alone() {
    let Some(_alone) = namespaces_or_skip("a_reload_changes_what_it_names_alone") else { return };
    let network = Network::new(2);
    let (mut one, _two) = (network.start(1, ""), network.start(2, ""));
    let sender = network.listen(1);
    network.file(1, "ttl = 16\n");
    one.signal(Signal::HUP);
    one.read_until("the file is taken up");
    let receiver = network.listen(2);
    sender.send(0, b"as before").expect("the same node runs");
    assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "as before");
    network.file(1, "ttl = 3\n");
    one.signal(Signal::HUP);
    one.read_until("the file is taken up");
    sender.recv(PATIENCE).expect_err("the node it was connected to has stopped");
    let sender = network.listen(1);
    assert_eq!(sender.node().ttl, 3);

    let text = fs::read_to_string(network.file(1, "")).expect("the file").replace("air0", "none0");
    fs::write(network.file(1, ""), text).expect("the file");
    one.signal(Signal::HUP);
    one.read_until("cannot flood on `none0`");
    eventually("what ran before runs", || {
        network.node(1).within(|| Client::connect("air0")).ok().filter(|client| client.node().ttl == 3)
    });
}

#[test]
fn a_node_without_descriptors_sleeps_and_takes_applications_once_it_has_some() {
    let name = "a_node_without_descriptors_sleeps_and_takes_applications_once_it_has_some";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let network = Network::new(1);
    let mut daemon = network.start(1, "");
    daemon.allow_descriptors(false);
    let application = network.node(1).within(|| {
        let application = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        let node = SocketAddrUnix::new_abstract_name(b"nawa-flood-air0").expect("a name");
        connect(&application, &node).expect("it listens");
        application
    });
    daemon.read_until("takes no applications for a while");
    eventually("it sleeps", || {
        let mut threads = fs::read_dir(format!("/proc/{}/task", daemon.id())).expect("it runs");
        let sleeps = |status: String| status.starts_with("Name:\tflood\n") && status.contains("State:\tS");
        let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status"));
        threads.any(|thread| thread.and_then(status).is_ok_and(sleeps)).then_some(())
    });
    daemon.allow_descriptors(true);
    eventually("it is taken", || recv(&application, &mut [0; 4096], RecvFlags::DONTWAIT).ok());
}

/// Its interface is away, so that what the file now asks for cannot start, and neither can what ran before.
#[test]
fn a_node_that_waits_outlives_a_reload_that_is_refused() {
    let Some(_alone) = namespaces_or_skip("a_node_that_waits_outlives_a_reload_that_is_refused") else {
        return;
    };
    let mut network = Network::new(2);
    let mut one = network.start(1, "");
    network.unplug(1);
    eventually("it waits", || network.status(1)["waits"].as_str().map(drop));
    network.file(1, "ttl = 3\n");
    one.signal(Signal::HUP);
    one.read_until("cannot flood on `air0`");
    eventually("it waits still", || network.status(1)["waits"].as_str().map(drop));
    network.plug_in(1);
    eventually("it runs", || network.status(1)["relay"].as_str().map(drop));
}

#[test]
fn a_node_comes_back_with_its_interface() {
    let Some(_alone) = namespaces_or_skip("a_node_comes_back_with_its_interface") else { return };
    for mode in MODES {
        let mut network = Network::new(2);
        let _daemons = [1, 2].map(|number| network.start(number, mode));
        let receiver = network.listen(2);
        for life in ["first", "second", "third"] {
            let sender = network.connect(1);
            sender.send(0, life.as_bytes()).expect("it goes");
            assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), life, "{mode}");
            network.unplug(1);
            eventually("it waits", || network.status(1)["waits"].as_str().map(drop));
            sender.recv(PATIENCE).expect_err("the node it was connected to has stopped");
            let shown = succeed(&mut network.node(1).nawa(["status"]));
            assert!(shown.contains("waits: the interface is gone"), "{shown}");
            network.plug_in(1);
            eventually("it runs", || network.status(1)["relay"].as_str().map(drop));
        }
    }
}

#[test]
fn a_changed_address_or_mtu_is_followed() {
    let Some(_alone) = namespaces_or_skip("a_changed_address_or_mtu_is_followed") else { return };
    for mode in MODES {
        let network = Network::new(2);
        let _daemons = [1, 2].map(|number| network.start(number, mode));
        let receiver = network.listen(1);
        let before = network.counted(2, "/data_max_bytes");
        network.node(2).ip("link set air0 address 02:00:00:00:00:77");
        network.node(2).ip("link set air0 mtu 1300");
        eventually("it follows", || {
            (network.status(2)["data_max_bytes"].as_u64() == Some(before - 200)).then_some(())
        });
        if mode.contains("driver") {
            let outsider = network.outsider(false);
            let header = flood::Header { id: 77, epoch: 1, ttl: 9, ..flood::Header::default() };
            outsider.send(&flood::Format::new(flood::Wire::One, None).write(&header, b"hello"));
            eventually("it relays with its new address", || {
                outsider.hear_from().filter(|from| *from == [2, 0, 0, 0, 0, 0x77]).map(drop)
            });
            assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "hello");
        }
        network.connect(2).send(0, b"from there").expect("it goes");
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "from there", "{mode}");
    }
}

#[test]
fn a_node_in_udp_with_another_address_takes_no_frame_of_its_own_for_a_neighbours() {
    let name = "a_node_in_udp_with_another_address_takes_no_frame_of_its_own_for_a_neighbours";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let network = Network::new(2);
    let lines = ["mode = 'application'\n", "mode = 'application'\nsuppress = true\njitter = '1ms'\n"];
    let _daemons = [1, 2].map(|number| network.start(number, lines[number - 1]));
    let epoch = network.counted(2, "/epoch");
    network.node(2).ip("address add 10.9.0.12/16 dev air0");
    network.node(2).ip("address del 10.9.0.2/24 dev air0");
    eventually("it begins anew", || (network.status(2)["epoch"].as_u64()? > epoch).then_some(()));
    let sender = network.connect(1);
    (0..20).for_each(|_| sender.send(0, b"hello").expect("it goes"));
    network.wait_for(2, "/relayed_frames", 20);
    let dropped = &network.status(2)["dropped_frames"];
    assert_eq!(dropped["duplicate"], 0, "{dropped}");
}

#[test]
fn relays_that_vanish_are_told() {
    let Some(_alone) = namespaces_or_skip("relays_that_vanish_are_told") else { return };
    for (relay, veth) in [("xdp-native", true), ("xdp-generic", false)] {
        let mut network = Network::new(2);
        if veth {
            network.swallow_what_is_sent_back();
        } else {
            put_above_what_sends_nothing(&network);
        }
        let _daemons = [1, 2].map(|number| network.start(number, ""));
        assert_eq!(network.status(2)["relay"], relay);
        let sender = network.connect(1);
        (0..20).for_each(|_| sender.send(0, b"hello").expect("it goes"));
        network.wait_for(2, "/relayed_frames", 20);
        let told = eventually("it is told", || {
            let told = network.status(2)["warnings"].to_string();
            told.contains("frames that it was to send").then_some(told)
        });
        assert_eq!(told.contains("on a veth"), veth, "{told}");
    }
}

/// Makes node 2's interface one whose driver knows no XDP, and that counts as dropped whatever it sends.
fn put_above_what_sends_nothing(network: &Network) {
    let node = network.node(2);
    for change in [
        "set air0 down",
        "set air0 name wire0",
        "set wire0 up",
        "add link wire0 name air0 type macvlan mode private",
        "set air0 up",
    ] {
        node.ip(&format!("link {change}"));
    }
    succeed(&mut node.command("tc", "qdisc add dev wire0 root pfifo limit 0".split(' ')));
}

#[test]
fn flushed_rules_come_back() {
    let Some(_alone) = namespaces_or_skip("flushed_rules_come_back") else { return };
    let network = Network::new(2);
    let _daemons = [1, 2].map(|number| network.start(number, "mode = 'kernel'\n"));
    let sender = network.connect(2);
    (0..5).for_each(|_| sender.send(0, b"before").expect("it goes"));
    network.wait_for(2, "/dropped_frames/own", 5);
    let table = ["flush", "table", "ip", "nawa-flood-air0"];
    for (times, flush) in [(1, &["flush", "ruleset"][..]), (2, &["flush", "ruleset"]), (3, &table[..])] {
        succeed(&mut network.node(2).command("nft", flush.iter().copied()));
        let told = eventually("it is mended", || {
            let told = network.status(2)["warnings"].to_string();
            told.contains(&format!("nftables table {times} times")).then_some(told)
        });
        assert!(!told.contains("nobody has relayed"), "{told}");
        network.connect(1).send(0, b"hello").expect("it goes");
        network.wait_for(2, "/relayed_frames", 1);
        let dropped = &network.status(2)["dropped_frames"];
        assert_eq!(dropped["duplicate"], 0, "what it has relayed itself: {dropped}");
    }
}

#[test]
fn a_port_of_a_bridge_floods_by_xdp_alone() {
    let Some(_alone) = namespaces_or_skip("a_port_of_a_bridge_floods_by_xdp_alone") else { return };
    let network = Network::new(2);
    network.node(1).ip("link add lan0 type bridge");
    network.node(1).ip("link set air0 master lan0");
    let refused = |command: &mut std::process::Command| {
        let run = output(command);
        assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
        assert!(stderr(&run).contains("`air0` is a port of a bridge"), "{}", stderr(&run));
    };
    for mode in &MODES[1..] {
        let file = network.file(1, mode);
        refused(&mut network.node(1).nawa(["run", file.to_str().expect("UTF-8")]));
    }
    refused(&mut network.without_bpf(1, &network.file(1, "")));
    let _daemons = [1, 2].map(|number| network.start(number, ""));
    let (sender, receiver) = (network.connect(2), network.listen(1));
    sender.send(0, b"hello").expect("it goes");
    assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "hello");
}

#[test]
fn why_the_driver_refuses_is_shown() {
    let Some(_alone) = namespaces_or_skip("why_the_driver_refuses_is_shown") else { return };
    let network = Network::with_mtu(1, 9000);
    let _daemon = network.start(1, "");
    let status = network.status(1);
    assert_eq!(status["relay"], "xdp-generic");
    assert!(status["fallback"].as_str().is_some_and(|why| why.contains("too large for XDP")), "{status}");
}

#[test]
fn commands_say_what_is_missing() {
    let Some(_alone) = namespaces_or_skip("commands_say_what_is_missing") else { return };
    let network = Network::new(1);
    let nobody = output(&mut network.node(1).nawa(["flood", "send", "air0", "hello"]));
    assert_eq!(nobody.status.code(), Some(3));
    assert!(stderr(&nobody).starts_with("nawa: no node floods on `air0`"), "{}", stderr(&nobody));
    let _daemon = network.start(1, "");
    let long = "x".repeat(2000);
    let refused = output(&mut network.node(1).nawa(["flood", "send", "air0", &long]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    for wrong in [
        &["ping", "air0", "1"][..],
        &["recv", "air0", "--count", "0"],
        &["send", "sixteen-bytes-00", "hello"],
        &["send", "air0", "--ttl", "256", "hello"],
        &["ping", "air0", "2", "--size", "2308"],
    ] {
        let refused = output(&mut network.node(1).nawa(["flood"].iter().chain(wrong).copied()));
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {}", stderr(&refused));
    }
    let late = output(&mut network.node(1).nawa(["flood", "recv", "air0", "--timeout", "10ms"]));
    assert_eq!((late.status.code(), stderr(&late).lines().count()), (Some(1), 1));
}
