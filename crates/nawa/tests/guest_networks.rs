//! Flooding, the tunnel and bicast on other kernels; see [`common::guest`]. One guest does all, since booting takes longest.

mod common;

use std::net::{Ipv4Addr, SocketAddrV4};

use common::flood::{Network, PATIENCE, text};
use common::guest::Guest;
use common::{Daemon, Namespace, Node, eventually, output, stderr, succeed};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::Signal;
use serde_json::Value;

fn run_on(name: &str, version: &str) {
    let guest = Guest {
        inside: "inside_a_guest",
        programs: &["ip", "ethtool", "nft", "ping", "tc", "setpriv"],
        modules: &[
            "llc",
            "stp",
            "bridge",
            "garp",
            "mrp",
            "8021q",
            "veth",
            "tun",
            "nfnetlink",
            "crc32c_generic",
            "libcrc32c",
            "nf_tables",
            "nf_dup_ipv4",
            "nft_dup_ipv4",
            "nft_limit",
            "nft_objref",
            "sch_ingress",
            "cls_bpf",
            "udp_tunnel",
            "ip6_udp_tunnel",
            "sctp",
        ],
    };
    guest.runs_on(name, version);
}

#[test]
fn networks_run_on_linux_6_1() {
    run_on("networks_run_on_linux_6_1", "6.1");
}

#[test]
fn networks_run_on_linux_6_12() {
    run_on("networks_run_on_linux_6_12", "6.12");
}

#[test]
#[ignore = "started by others, inside a guest"]
fn inside_a_guest() {
    messages_are_flooded();
    a_vlan_whose_tags_are_taken_off_is_told();
    the_tunnel_carries_packets();
    bicast_looks_at_packets();
    bicast_knows_linux_in_the_midst();
    coding_leaves_nothing();
}

fn messages_are_flooded() {
    let network = Network::new(3);
    let left = || {
        let nft = succeed(&mut network.node(2).command("nft", ["list", "ruleset"]));
        (network.node(2).ip("-d link show air0"), nft)
    };
    let before = left();
    for (relay, lines) in [
        ("xdp-native", "key-file = 'flood.key'\nrate-limit = 1000\n"),
        ("xdp-native", "wire = 0\n"),
        ("xdp-native", "suppress = true\njitter = '1ms'\nkey-file = 'flood.key'\n"),
        ("nftables", "mode = 'kernel'\nrate-limit = 1000\n"),
        ("nftables", "mode = 'kernel'\nwire = 0\n"),
        ("udp-socket", "mode = 'application'\nkey-file = 'flood.key'\n"),
    ] {
        eprintln!("after {} s, {relay}: {lines}", device::monotonic().as_secs());
        let _others = [network.start(1, lines), network.start(3, lines)];
        let daemon = network.start(2, lines);
        let status = network.status(2);
        assert_eq!((&status["relay"], &status["fallback"]), (&relay.into(), &Value::Null), "{status}");
        let (sender, receivers) = (network.connect(1), [network.listen(2), network.listen(3)]);
        succeed(&mut network.node(1).nawa(["flood", "send", "air0", "message 0"]));
        for number in 0..20 {
            let message = format!("message {number}");
            if number > 0 {
                sender.send(0, message.as_bytes()).expect("it goes");
            }
            for receiver in &receivers {
                assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), message);
            }
        }
        eventually("all is relayed", || {
            let count = |name| network.counted(2, name);
            (count("/relayed_frames") + count("/suppressed_frames") >= 20).then_some(())
        });
        if !lines.contains("wire = 0") {
            let ping =
                ["flood", "ping", "air0", "2", "--count", "5", "--interval", "0ms", "--timeout", "30s"];
            succeed(&mut network.node(1).nawa(ping));
        }
        daemon.signal(Signal::KILL);
        daemon.wait();
        assert_eq!(output(&mut network.node(2).nawa(["down"])).status.code(), Some(3));
        eventually("the interface is as before", || (left() == before).then_some(()));
    }
    without_cap_bpf(&network);
    above_the_driver();
}

/// Generic XDP relays, and delivers, and wakes who sleeps.
fn above_the_driver() {
    let network = Network::with_mtu(2, 9000);
    let _daemons = [1, 2].map(|number| network.start(number, "key-file = 'flood.key'\n"));
    let (sender, receiver) = (network.connect(1), network.listen(2));
    let status = network.status(2);
    assert_eq!(
        (&status["relay"], &status["delivery"]),
        (&"xdp-generic".into(), &"driver".into()),
        "{status}"
    );
    for number in 0..20 {
        let message = format!("message {number}");
        sender.send(0, message.as_bytes()).expect("it goes");
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), message);
    }
    network.wait_for(2, "/relayed_frames", 20);
}

/// A packet socket relays.
fn without_cap_bpf(network: &Network) {
    let run = |number| Daemon::spawn(&mut network.without_bpf(number, &network.file(number, "")));
    let _daemons = [run(1), run(2)];
    assert_eq!(network.status(2)["relay"], "packet-socket");
    let receiver = network.listen(2);
    network.connect(1).send(0, b"by a packet socket").expect("it goes");
    assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "by a packet socket");
}

/// XDP does not see such a tag, and takes its floods for this network's.
fn a_vlan_whose_tags_are_taken_off_is_told() {
    let network = Network::new(1);
    let _daemon = network.start(1, "");
    let told = || network.status(1)["warnings"].to_string().contains("takes their tags off");
    assert!(!told(), "there is no VLAN");
    network.node(1).ip("link add link air0 name air0.5 type vlan id 5");
    assert!(told());
    succeed(&mut network.node(1).command("ethtool", ["-K", "air0", "rxvlan", "off"]));
    assert!(!told(), "tags are left on");
}

fn the_tunnel_carries_packets() {
    let (near, far) = (Namespace::new(), Namespace::new());
    Namespace::connect((&near, "wan0", "10.1.0.1/24"), (&far, "wan0", "10.1.0.2/24"));
    let nodes = [Node::new(), Node::new()];
    let file = |of: usize, listen: &str, path: &str| {
        let (key, own, other) = (&nodes[1 - of].public_key, of + 1, 2 - of);
        nodes[of].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.{own}/24']\n{listen}\n\
             [[peer]]\nname = 'other'\npublic-key = '{key}'\nroutes = ['10.77.0.{other}/32']\n{path}"
        ))
    };
    let path = "[[peer.path]]\nname = 'wan'\nlocal = 'wan0'\nremote = '10.1.0.2:51900'\n";
    let (one, other) = (file(0, "", path), file(1, "listen = 51900", ""));
    let _daemons = [Daemon::start(&far, &other), Daemon::start(&near, &one)];
    succeed(&mut near.command("ping", ["-c", "3", "-i", "0.2", "-w", "30", "10.77.0.2"]));
}

/// What a killed daemon leaves on kernels without TCX links (before 6.6), `nawa down` removes.
fn bicast_looks_at_packets() {
    let (near, far) = (Namespace::new(), Namespace::new());
    for (interface, net) in [("wlan0", 1), ("wlan1", 2)] {
        let (here, there) = (format!("10.{net}.0.1/24"), format!("10.{net}.0.2/24"));
        Namespace::connect((&near, interface, &here), (&far, interface, &there));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    std::fs::write(&file, "[bicast]\ninterfaces = ['wlan0', 'wlan1']\n").expect("a file");
    for _life in ["first", "second"] {
        let daemon = Daemon::start(&near, &file);
        let state = near.status()["bicast"].clone();
        assert_eq!(state["idle_because"], Value::Null, "{state}");
        daemon.signal(Signal::KILL);
        daemon.wait();
    }
    let filters = |hook| succeed(&mut near.command("tc", ["filter", "show", "dev", "wlan0", hook]));
    // Linux 6.6 and later leave nothing.
    let left = !filters("egress").is_empty();
    let down = output(&mut near.nawa(["down"]));
    assert_eq!(down.status.code(), Some(3));
    assert_eq!(stderr(&down).contains("the filters of bicast in tc on wlan0"), left, "{}", stderr(&down));
    assert_eq!((filters("ingress"), filters("egress")), (String::new(), String::new()));
}

/// A daemon that is started again copies the retransmissions of an association of the kernel's SCTP that goes on.
fn bicast_knows_linux_in_the_midst() {
    let (near, far) = (Namespace::new(), Namespace::new());
    for (interface, net) in [("wlan0", 1), ("wlan1", 2)] {
        let (here, there) = (format!("10.{net}.0.1/24"), format!("10.{net}.0.2/24"));
        Namespace::connect((&near, interface, &here), (&far, interface, &there));
    }
    let socket = |namespace: &Namespace| {
        namespace.within(|| {
            std::fs::write("/proc/sys/net/sctp/hb_interval", "100").expect("ms between HEARTBEATs");
            net::socket(AddressFamily::INET, SocketType::STREAM, Some(net::ipproto::SCTP)).expect("SCTP")
        })
    };
    let (client, server) = (socket(&near), socket(&far));
    net::bind(&server, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5000)).expect("all addresses");
    net::listen(&server, 1).expect("it listens");
    net::connect(&client, &SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 2), 5000)).expect("an association");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    std::fs::write(&file, "[bicast]\ninterfaces = ['wlan0', 'wlan1']\n").expect("a file");
    let _daemon = Daemon::start(&near, &file);
    eventually("both paths are known", || {
        let status = near.status();
        let remotes = status["bicast"]["associations"][0]["remote_addresses"].as_array()?.clone();
        (remotes.len() == 2 && remotes.iter().all(|remote| remote["usable"] == true)).then_some(())
    });
    for rules in [
        "add table ip drops",
        "add chain ip drops input { type filter hook input priority 0; }",
        "add rule ip drops input iifname wlan0 meta length > 500 drop",
    ] {
        succeed(&mut far.command("nft", [rules]));
    }
    rustix::io::write(&client, &[7; 1000]).expect("it goes");
    eventually("its retransmission is copied", || {
        let association = near.status()["bicast"]["associations"][0].clone();
        (association["duplicated_packets"]["retransmission"].as_u64() > Some(0)).then_some(())
    });
}

/// What a killed daemon leaves on kernels without TCX links keeps IP off the interface: the next one removes it.
fn coding_leaves_nothing() {
    let (near, far) = (Namespace::new(), Namespace::new());
    near.ip(&format!("link add mesh0 type veth peer name mesh0 netns {}", far.name()));
    [&near, &far].iter().for_each(|host| drop(host.ip("link set mesh0 up")));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    let text = "[[coding]]\ninterface = 'mesh0'\nmaster = 'nc0'\naddresses = ['10.88.0.1/24']\n";
    std::fs::write(&file, text).expect("a file");
    let daemon = Daemon::start(&near, &file);
    daemon.signal(Signal::KILL);
    daemon.wait();
    let daemon = Daemon::start(&near, &file);
    daemon.signal(Signal::TERM);
    daemon.wait();
    let left = succeed(&mut near.command("tc", ["filter", "show", "dev", "mesh0", "ingress"]));
    assert_eq!(left, "");
}
