//! Flooding in real namespaces: nodes on a shared medium, and what a hostile or broken one does to them.
//!
//! The medium is a bridge in a namespace of its own, with a port for each node: whatever one sends, all others hear.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use bpf::xdp::Attached;
use common::{Daemon, Namespace, eventually, namespaces_or_skip, output, stderr, succeed};
use device::PacketSocket;
use flood::{Client, ETHERTYPE, Format, Header, Kind, Message, Wire};
use rustix::process::Signal;
use serde_json::Value;

/// What no frame should take longer than, on however busy a machine.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
/// RFC 7748 §6.1: Alice's private key, here the network's.
const KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";

/// Nodes whose interface is `air0`, with the IDs 1, 2, …, all in reach of each other, and `outsider`, who has an interface
/// there too and no daemon.
struct Network {
    nodes: Vec<Namespace>,
    outsider: Namespace,
    folder: tempfile::TempDir,
    _medium: Namespace,
    _passing: Vec<Attached>,
}

impl Network {
    fn new(count: usize) -> Network {
        let medium = Namespace::new();
        medium.ip("link add name medium type bridge mcast_snooping 0");
        medium.ip("link set medium up");
        let mut passing = Vec::new();
        let mut join = |number: usize| {
            let node = Namespace::new();
            medium.ip(&format!("link add port{number} type veth peer name air0 netns {}", node.name()));
            medium.ip(&format!("link set port{number} master medium up"));
            passing.push(medium.within(|| {
                let port =
                    device::Net::open().expect("netlink").link(&format!("port{number}")).expect("a port");
                bpf::xdp::pass(port.index).expect("the kernel takes it")
            }));
            node.ip(&format!("address add 10.9.0.{number}/24 dev air0"));
            node.ip("link set air0 up");
            // Checksums that the kernel leaves to a card are never filled in on the way through a bridge to XDP.
            succeed(&mut node.command("ethtool", ["-K", "air0", "tx", "off"]));
            node
        };
        let nodes = (1..=count).map(&mut join).collect();
        let outsider = join(100);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let key = folder.path().join("flood.key");
        fs::write(&key, KEY).expect("the key file");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("its mode");
        Network { nodes, outsider, folder, _medium: medium, _passing: passing }
    }

    /// Node `number`'s file; `flood.key` is beside it.
    fn file(&self, number: usize, more: &str) -> PathBuf {
        self.file_of(number, number, more)
    }

    fn file_of(&self, number: usize, id: usize, more: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{number}.toml"));
        let text = format!("[[flood]]\ninterface = 'air0'\nid = {id}\n{more}");
        fs::write(&path, text).expect("the configuration file");
        path
    }

    fn start(&self, number: usize, more: &str) -> Daemon {
        Daemon::start(&self.nodes[number - 1], &self.file(number, more))
    }

    fn node(&self, number: usize) -> &Namespace {
        &self.nodes[number - 1]
    }

    /// An application of node `number` that listens.
    fn listen(&self, number: usize) -> Client {
        let client = self.node(number).within(|| Client::connect("air0")).expect("the node runs");
        client.listen().expect("it is there");
        eventually("it listens", || (self.status(number)["receivers"].as_u64() > Some(0)).then_some(()));
        client
    }

    fn status(&self, number: usize) -> Value {
        self.node(number).status()["flood"][0].clone()
    }

    fn counted(&self, number: usize, pointer: &str) -> u64 {
        self.status(number).pointer(pointer).and_then(Value::as_u64).expect(pointer)
    }

    /// Waits until node `number` has counted so many, or more.
    fn wait_for(&self, number: usize, pointer: &str, least: u64) {
        eventually(&format!("{pointer} of {least}"), || {
            (self.counted(number, pointer) >= least).then_some(())
        });
    }

    /// The outsider's way onto the medium.
    fn socket(&self) -> PacketSocket {
        self.outsider.within(|| {
            let index = device::Net::open().expect("netlink").link("air0").expect("air0").index;
            PacketSocket::open(index, Some(ETHERTYPE)).expect("a packet socket")
        })
    }
}

fn ethernet(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 0x64]);
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(frame);
    bytes
}

fn text(message: Option<Message>) -> String {
    String::from_utf8(message.expect("it comes").data).expect("a text")
}

fn key() -> [u8; 16] {
    use base64::Engine;
    let whole = base64::engine::general_purpose::STANDARD.decode(KEY).expect("base64");
    whole[8..24].try_into().expect("16 bytes")
}

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
fn a_frame_goes_as_many_hops_as_its_ttl_says() {
    let Some(_alone) = namespaces_or_skip("a_frame_goes_as_many_hops_as_its_ttl_says") else { return };
    for mode in ["mode = 'driver'\n", "mode = 'driver'\njitter = '1ms'\n"] {
        let network = Network::new(1);
        let _daemon = network.start(1, mode);
        let (receiver, outsider) = (network.listen(1), network.socket());
        let format = Format::new(Wire::One, None);
        for (seq, ttl) in [(1, 255), (2, 2), (3, 1)] {
            let header = Header { id: 9, epoch: 1, seq, ttl, kind: Kind::Data };
            outsider.send(&ethernet(&format.write(&header, b"on its way"))).expect("it goes");
            assert_eq!(receiver.recv(PATIENCE).expect("the node runs").expect("it comes").header.ttl, ttl);
            // What the node sends again is the next thing that the outsider hears of it.
            let mut buffer = [0; 4096];
            let mut heard = || {
                let bytes = outsider.recv(&mut buffer)?;
                Some(format.read(bytes.get(14..)?, flood::Padding::Ethernet).ok()?.header)
            };
            if ttl > 1 {
                assert_eq!(eventually("it goes on", &mut heard), Header { ttl: ttl - 1, ..header });
            } else {
                network.wait_for(1, "/new_frames", 3);
                assert_eq!(heard(), None, "TTL 1 goes no further");
            }
        }
    }
}

#[test]
fn a_restarted_node_is_heard() {
    let Some(_alone) = namespaces_or_skip("a_restarted_node_is_heard") else { return };
    let network = Network::new(2);
    let _other = network.start(2, "key-file = 'flood.key'\n");
    let receiver = network.listen(2);
    let mut epoch = 0;
    for life in ["first", "second"] {
        // Lives are told apart by seconds.
        let daemon = eventually("another second", || {
            let daemon = network.start(1, "key-file = 'flood.key'\n");
            let now = network.counted(1, "/epoch");
            (now > epoch).then(|| {
                epoch = now;
                daemon
            })
        });
        let sender = network.listen(1);
        for _ in 0..300 {
            sender.send(0, life.as_bytes()).expect("it goes");
        }
        for _ in 0..300 {
            assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), life);
        }
        daemon.signal(Signal::KILL);
        daemon.wait();
    }
}

#[test]
fn sequence_numbers_of_8_bits_wrap() {
    let Some(_alone) = namespaces_or_skip("sequence_numbers_of_8_bits_wrap") else { return };
    let network = Network::new(2);
    let _daemons = [1, 2].map(|number| network.start(number, "wire = 0\n"));
    let (sender, receiver) = (network.listen(1), network.listen(2));
    for number in 0..700u32 {
        sender.send(0, &number.to_be_bytes()).expect("it goes");
        let message = receiver.recv(PATIENCE).expect("the node runs").expect("it comes");
        assert_eq!((message.header.seq, message.data), (number % 256, number.to_be_bytes().to_vec()));
    }
}

#[test]
fn two_nodes_with_one_id_make_no_storm() {
    let Some(_alone) = namespaces_or_skip("two_nodes_with_one_id_make_no_storm") else { return };
    let network = Network::new(3);
    let _same = [1, 2].map(|number| Daemon::start(network.node(number), &network.file_of(number, 1, "")));
    let _third = network.start(3, "");
    let (sender, receiver) = (network.listen(1), network.listen(3));
    let other = network.listen(2);
    for number in 0..100 {
        sender.send(0, format!("one {number}").as_bytes()).expect("it goes");
        other.send(0, format!("two {number}").as_bytes()).expect("it goes");
    }
    // One of the two at least is heard, which one depends on who started later; and the third goes on as ever.
    assert!(receiver.recv(PATIENCE).expect("the node runs").is_some());
    let third = network.listen(3);
    third.send(0, b"from the third").expect("it goes");
    for receiver in [&sender, &other] {
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "from the third");
    }
    let relayed = network.counted(3, "/relayed_frames");
    assert!(relayed <= 200, "{relayed} of 200 frames");
}

#[test]
fn what_outsiders_send_goes_no_further() {
    let Some(_alone) = namespaces_or_skip("what_outsiders_send_goes_no_further") else { return };
    // Relayed in the driver, and handed up by it.
    for mode in ["mode = 'driver'\n", "mode = 'driver'\nsuppress = true\n"] {
        let network = Network::new(2);
        let _daemons = [1, 2].map(|number| network.start(number, &format!("{mode}key-file = 'flood.key'\n")));
        let (sender, receiver, outsider) = (network.listen(1), network.listen(2), network.socket());
        let inside = Format::new(Wire::One, Some(key()));
        let header = |seq: u32| Header { id: 9, epoch: 1, seq, ttl: 255, kind: Kind::Data };
        let send = |frame: &[u8]| outsider.send(&ethernet(frame)).expect("it goes");
        // An insider's frame, which the outsider then records.
        send(&inside.write(&header(1), b"good"));
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "good");

        let forged = Format::new(Wire::One, Some([7; 16])).write(&header(2), b"forged");
        let mut lies = inside.write(&header(3), &[0; 100]);
        lies[3] += 1;
        let mut zero = inside.write(&header(4), b"ttl 0");
        zero[1] = 0;
        let mut version = inside.write(&header(5), b"version");
        version[0] = 0x20;
        let own = inside.write(&Header { id: 2, ..header(6) }, b"own");
        let attacks: [(&str, Vec<u8>); 7] = [
            ("bad-tag", forged),
            ("duplicate", inside.write(&header(1), b"good")),
            ("short", inside.write(&header(7), &[])[..20].to_vec()),
            ("length", lies),
            ("ttl", zero),
            ("version", version),
            ("own", own),
        ];
        for (reason, frame) in &attacks {
            let pointer = format!("/dropped_frames/{reason}");
            let before = network.counted(2, &pointer);
            send(frame);
            network.wait_for(2, &pointer, before + 1);
        }
        let before = network.counted(2, "/dropped_frames/old-epoch");
        send(&inside.write(&Header { epoch: 0, ..header(9) }, b"old"));
        network.wait_for(2, "/dropped_frames/old-epoch", before + 1);

        sender.send(0, b"still here").expect("it goes");
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "still here");
        assert_eq!(receiver.recv(Some(Duration::ZERO)).expect("the node runs"), None);
    }
}

#[test]
fn messages_get_through_a_flood_of_garbage() {
    let Some(_alone) = namespaces_or_skip("messages_get_through_a_flood_of_garbage") else { return };
    let network = Network::new(2);
    let _daemons = [1, 2].map(|number| network.start(number, "key-file = 'flood.key'\n"));
    let (sender, receiver, outsider) = (network.listen(1), network.listen(2), network.socket());
    let stranger = Format::new(Wire::One, Some([7; 16]));
    let mut garbage = 0u64;
    for number in 0..200u32 {
        for n in 0..250u32 {
            let seq = number * 250 + n;
            let header = Header { id: seq % 5000, epoch: seq, seq, ttl: 255, kind: Kind::Data };
            garbage += u64::from(outsider.send(&ethernet(&stranger.write(&header, &[0; 64]))).is_ok());
        }
        sender.send(0, &number.to_be_bytes()).expect("it goes");
        let message = receiver.recv(PATIENCE).expect("the node runs").expect("it comes");
        assert_eq!(message.data, number.to_be_bytes());
    }
    network.wait_for(2, "/dropped_frames/bad-tag", 1);
    assert_eq!(network.counted(2, "/new_frames"), 200, "of {garbage} nothing was taken");
}

#[test]
fn applications_need_no_daemon_to_run() {
    let Some(_alone) = namespaces_or_skip("applications_need_no_daemon_to_run") else { return };
    for key in ["", "key-file = 'flood.key'\n"] {
        let network = Network::new(2);
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
                assert_eq!(output(&mut network.node(1).nawa(["down"])).status.code(), Some(3));
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
    // The kernel lets nobody load BPF programs without CAP_BPF.
    let few = [
        "--bounding-set",
        "-all,+net_admin,+net_raw",
        "--inh-caps",
        "-all",
        env!("CARGO_BIN_EXE_nawa"),
        "run",
    ];
    let start = |number: usize| {
        let file = network.file(number, "");
        let file = [file.to_str().expect("UTF-8")];
        Daemon::spawn(&mut network.node(number).command("setpriv", few.into_iter().chain(file)))
    };
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
    let late = output(&mut network.node(1).nawa(["flood", "recv", "air0", "--timeout", "10ms"]));
    assert_eq!((late.status.code(), stderr(&late).lines().count()), (Some(1), 1));
}
