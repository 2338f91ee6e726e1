//! Tunnels and relays as daemons, in network namespaces joined by cables.

mod common;

use std::time::Duration;

use common::{Namespace, join, namespaces_or_skip};
use device::poller::{Poller, monotonic};
use device::udp::{Options, UdpSocket};
use ipnet::IpNet;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tunnel::config::{Bicast, Config, Host, Local, PathConfig, PeerConfig, Via};
use tunnel::daemon::{self, Listen, Running, Settings, StartError};
use tunnel::relay_daemon::{self, RelayRunning};
use tunnel::status::TunnelStatus;
use tunnel::{PresharedKey, PrivateKey, PublicKey};

const PATIENCE: Duration = Duration::from_secs(20);

fn key(seed: u64) -> PrivateKey {
    PrivateKey::generate(&mut ChaCha20Rng::seed_from_u64(seed))
}

/// Two ends: the first lists its paths, the second learns them.
fn settings(end: u8, paths: Vec<PathConfig>) -> Settings {
    let other = 3 - end;
    let routes = [format!("10.77.0.{other}/32"), format!("fd77::{other}/128")];
    let peer = PeerConfig {
        name: format!("end{other}"),
        public_key: key(other.into()).public(),
        preshared_key: PresharedKey::default(),
        routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
        keepalive: None,
        resend: true,
        bicast: Bicast::Off,
        paths,
    };
    Settings {
        interface: "nawa0".into(),
        addresses: vec![net(&format!("10.77.0.{end}/24")), net(&format!("fd77::{end}/64"))],
        listen: Listen::Port(51900),
        fwmark: 0,
        tunnel: Config { peers: vec![peer], ..Config::default() },
        key: key(end.into()),
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn path(name: &str, local: Local, remote: &str, via: Option<Via>) -> PathConfig {
    PathConfig {
        name: name.into(),
        local,
        remote: Host::Address(remote.parse().unwrap()),
        via,
        backup: false,
        receive: true,
        cost: Default::default(),
    }
}

fn run(namespace: &Namespace, settings: Settings) -> Running {
    namespace.within(|| daemon::start(settings, |why| panic!("{why}"))).unwrap()
}

fn relay(namespace: &Namespace, allow: PublicKey) -> RelayRunning {
    let settings =
        relay_daemon::Settings { listen: Listen::Port(51901), tls: None, allow: vec![allow], key: key(9) };
    namespace.within(|| relay_daemon::start(settings, |why| panic!("{why}"))).unwrap()
}

/// The state once it is as `wanted`, asked for again and again.
#[track_caller]
fn eventually(running: &Running, wanted: impl Fn(&TunnelStatus) -> bool) -> TunnelStatus {
    let (deadline, mut poller) = (monotonic() + PATIENCE, Poller::new().unwrap());
    loop {
        let status = running.status().expect("an answer");
        if wanted(&status) {
            return status;
        }
        assert!(monotonic() < deadline, "{status:#?}");
        poller.wait(Some(Duration::from_millis(10))).unwrap().for_each(drop);
    }
}

fn all_up(status: &TunnelStatus) -> bool {
    status.peers.iter().all(|peer| peer.up && peer.paths.iter().all(|path| path.state == "up"))
}

fn ping(from: &Namespace, to: u8) {
    from.run(&format!("ping -c 3 -i 0.2 -W 5 10.77.0.{to}"));
    from.run(&format!("ping -c 3 -i 0.2 -W 5 fd77::{to}"));
}

#[test]
fn packets_pass_over_every_path_and_nothing_is_left() {
    let name = "packets_pass_over_every_path_and_nothing_is_left";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let (left, right) = (Namespace::new(), Namespace::new());
    join("red", (&left, "10.1.0.1"), (&right, "10.1.0.2"));
    join("blue", (&left, "10.2.0.1"), (&right, "10.2.0.2"));
    let paths = vec![
        path("any", Local::Any, "10.1.0.2:51900", None),
        path("interface", Local::Interface("blue".into()), "10.2.0.2:51900", None),
        path("address", Local::Address("10.1.0.1".parse().unwrap()), "10.1.0.2:51900", None),
    ];
    let ends = [run(&left, settings(1, paths)), run(&right, settings(2, Vec::new()))];
    let status = eventually(&ends[0], all_up);
    assert_eq!(status.peers[0].paths.len(), 3);
    ping(&left, 2);
    ping(&right, 1);
    assert!(eventually(&ends[1], all_up).peers[0].paths.iter().all(|path| !path.listed));
    let mtu = eventually(&ends[0], |status| status.mtu > 1400).mtu;
    left.run(&format!("ping -c 1 -W 5 -M do -s {} 10.77.0.2", mtu - 28));
    ends.into_iter().for_each(drop);
    assert_eq!((left.interfaces().len(), right.interfaces().len()), (2, 2));
}

/// Its interface goes before the thread that watches that.
#[test]
fn a_tunnel_that_is_stopped_has_not_failed() {
    let Some(_alone) = namespaces_or_skip("a_tunnel_that_is_stopped_has_not_failed") else { return };
    let (namespace, other) = (Namespace::new(), Namespace::new());
    join("red", (&namespace, "10.1.0.1"), (&other, "10.1.0.2"));
    let (sender, failures) = std::sync::mpsc::channel();
    for _ in 0..10 {
        let sender = sender.clone();
        let on_end = move |why| sender.send(why).unwrap();
        let paths = vec![path("red", Local::Interface("red".into()), "10.1.0.2:51900", None)];
        let running = namespace.within(|| daemon::start(settings(1, paths), on_end)).unwrap();
        let _answering = run(&other, settings(2, Vec::new()));
        eventually(&running, all_up);
        // What watches the interface rests for a while after it has looked: then it looks at once.
        std::process::Command::new("sleep").arg("0.2").status().unwrap();
        drop(running);
    }
    assert_eq!(failures.try_iter().collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn an_interface_may_come_late_and_go() {
    let Some(_alone) = namespaces_or_skip("an_interface_may_come_late_and_go") else { return };
    let (left, right) = (Namespace::new(), Namespace::new());
    let paths = vec![path("late", Local::Interface("red".into()), "10.1.0.2:51900", None)];
    let ends = [run(&left, settings(1, paths)), run(&right, settings(2, Vec::new()))];
    let state = |wanted: &'static str| move |status: &TunnelStatus| status.peers[0].paths[0].state == wanted;
    eventually(&ends[0], state("down"));
    join("red", (&left, "10.1.0.1"), (&right, "10.1.0.2"));
    eventually(&ends[0], all_up);
    ping(&left, 2);
    left.run("ip link set red down");
    eventually(&ends[0], state("down"));
    left.run("ip link set red up");
    eventually(&ends[0], all_up);
}

#[test]
fn a_relay_forwards_both_ways() {
    let Some(_alone) = namespaces_or_skip("a_relay_forwards_both_ways") else { return };
    let (left, middle, right) = (Namespace::new(), Namespace::new(), Namespace::new());
    join("red", (&left, "10.1.0.1"), (&middle, "10.1.0.9"));
    join("blue", (&middle, "10.2.0.9"), (&right, "10.2.0.2"));
    // A second address, which the kernel would not choose by itself.
    middle.run("ip address add 10.1.0.10/24 dev red");
    let relay = relay(&middle, key(1).public());
    let via = Via {
        address: Host::Address("10.1.0.10:51901".parse().unwrap()),
        tls: false,
        public_key: key(9).public(),
    };
    let paths = vec![path("relayed", Local::Any, "10.2.0.2:51900", Some(via))];
    let ends = [run(&left, settings(1, paths)), run(&right, settings(2, Vec::new()))];
    let status = eventually(&ends[0], all_up);
    assert!(status.peers[0].paths[0].relayed);
    ping(&left, 2);
    ping(&right, 1);
    let status = relay.status().unwrap();
    assert_eq!(status.sessions.len(), 1);
    assert!(status.sessions[0].open && status.forwarded_packets > 12, "{status:?}");
    assert!(status.dropped_packets.is_empty(), "{status:?}");
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_is_left() {
    let name = "what_is_in_the_way_is_named_and_nothing_is_left";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let host = Namespace::new();
    let start = || host.within(|| daemon::start(settings(1, Vec::new()), |why| panic!("{why}")));
    let taken = |port: u16| {
        let options = Options { v6_only: true, ..Options::default() };
        host.within(|| UdpSocket::bind(([0, 0, 0, 0], port).into(), options)).unwrap()
    };
    let socket = taken(51900);
    assert!(matches!(start(), Err(StartError::Listen(_))));
    drop(socket);
    // One without a program is the trap: it could be taken over.
    host.run("ip tuntap add dev nawa0 mode tun");
    assert!(matches!(start(), Err(StartError::InterfaceExists(name)) if name == "nawa0"));
    host.run("ip link delete nawa0");
    host.run("ip route add 10.77.0.2/32 dev lo");
    assert!(matches!(start(), Err(StartError::Route(_))));
    assert_eq!(host.interfaces(), [""; 0]);
    host.run("ip route delete 10.77.0.2/32");
    drop(start().unwrap());
    assert_eq!(host.interfaces(), [""; 0]);
    let _socket = taken(51901);
    let settings =
        relay_daemon::Settings { listen: Listen::Port(51901), tls: None, allow: Vec::new(), key: key(9) };
    let started = host.within(|| relay_daemon::start(settings, |why| panic!("{why}")));
    assert!(matches!(started, Err(relay_daemon::StartError::Listen(_))));
}
