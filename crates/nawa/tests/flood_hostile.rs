//! What a hostile or a broken node does to the others, whatever relays there: no loop, no storm, no crash, and messages
//! arrive as ever. [`CASES`] by [`Relay`], one test for each relay.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::flood::{Network, Outsider, PATIENCE, ethernet, key, text};
use common::{Daemon, eventually, namespaces_or_skip};
use flood::{Client, Format, Header, Kind, Wire};
use rustix::process::Signal;
use serde_json::Value;

/// Nodes: the first sends, dies and lends its ID; the second listens all the time; the third is there.
const NODES: usize = 3;
/// Long enough for a frame that arrives at all, on a machine that is not too busy.
const SHORT: Duration = Duration::from_millis(200);

/// What relays.
struct Relay {
    /// As state has it.
    name: &'static str,
    /// Of the section in the file.
    lines: &'static str,
    udp: bool,
    /// Of the interfaces; one that is large keeps XDP programs out of the driver.
    mtu: u32,
    /// Whether daemons may load BPF programs.
    bpf: bool,
    /// Sent for each message by one node, at most.
    transmissions: u64,
}

const DRIVER: Relay =
    Relay { name: "xdp-native", lines: "", udp: false, mtu: 1500, bpf: true, transmissions: 1 };

/// Its name, what happens and what has to come of it.
type Case = (&'static str, fn(&mut Arena));

const CASES: [Case; 9] = [
    ("a frame forged, replayed, cut short, TTL 0, LEN lying", no_frames),
    ("a TTL of 255", the_greatest_ttl),
    ("a node's own frame coming back", own_frames_come_back),
    ("SEQ wrapped", sequence_numbers_wrap),
    ("sent past everybody's hearing", sent_to_one_node),
    ("in a VLAN", sent_in_a_vlan),
    ("two nodes with one ID", two_nodes_have_one_id),
    ("a node restarted", a_node_restarts),
    ("a flood of garbage at full rate", garbage),
];

#[test]
fn hostile_nodes_and_the_driver() {
    withstands("hostile_nodes_and_the_driver", &DRIVER);
}

#[test]
fn hostile_nodes_and_generic_xdp() {
    withstands("hostile_nodes_and_generic_xdp", &Relay { name: "xdp-generic", mtu: 9000, ..DRIVER });
}

#[test]
fn hostile_nodes_and_a_packet_socket() {
    withstands("hostile_nodes_and_a_packet_socket", &Relay { name: "packet-socket", bpf: false, ..DRIVER });
}

#[test]
fn hostile_nodes_and_what_waits_before_relaying() {
    let relay = Relay { lines: "suppress = true\njitter = '1ms'\n", transmissions: 2, ..DRIVER };
    withstands("hostile_nodes_and_what_waits_before_relaying", &relay);
}

#[test]
fn hostile_nodes_and_nftables() {
    let relay = Relay { name: "nftables", lines: "mode = 'kernel'\n", udp: true, ..DRIVER };
    withstands("hostile_nodes_and_nftables", &relay);
}

#[test]
fn hostile_nodes_and_a_udp_socket() {
    let relay = Relay { name: "udp-socket", lines: "mode = 'application'\n", udp: true, ..DRIVER };
    withstands("hostile_nodes_and_a_udp_socket", &relay);
}

fn withstands(test: &str, relay: &Relay) {
    let Some(_alone) = namespaces_or_skip(test) else { return };
    let network = Network::with_mtu(NODES, relay.mtu);
    let keyed = (relay.name != "nftables").then(|| Format::new(Wire::One, Some(key())));
    let formats = [Some(Format::new(Wire::Paper, None)), Some(Format::new(Wire::One, None)), keyed];
    for format in formats.into_iter().flatten() {
        let mut arena = Arena::new(&network, relay, format);
        for (case, happens) in CASES {
            // Shown if it fails.
            eprintln!("{}, wire {}, {case}", relay.name, format.wire() as u8);
            happens(&mut arena);
        }
    }
}

/// Nodes of one kind, and what goes on among them.
struct Arena<'a> {
    network: &'a Network,
    relay: &'a Relay,
    format: Format,
    daemons: Vec<Daemon>,
    /// An application of the second node.
    listener: Client,
    outsider: Outsider,
    /// IDs of nodes that only the outsider plays, so far; none is played twice.
    played: u32,
    /// Messages that [`Arena::works`] has sent.
    worked: u32,
}

impl<'a> Arena<'a> {
    fn new(network: &'a Network, relay: &'a Relay, format: Format) -> Arena<'a> {
        let outsider = network.outsider(relay.udp);
        let start = |number| start(network, relay, format, number, number);
        let daemons = (1..=NODES).map(start).collect();
        for number in 1..=NODES {
            assert_eq!(network.status(number)["relay"], relay.name);
        }
        let listener = network.listen(2);
        Arena { network, relay, format, daemons, listener, outsider, played: 100, worked: 0 }
    }

    /// A header of a node that only the outsider plays.
    fn play(&mut self) -> Header {
        self.played += 1;
        let epoch = if self.format.wire() == Wire::One { 1 } else { 0 };
        Header { id: self.played, epoch, seq: 1, ttl: 9, kind: Kind::Data }
    }

    fn send(&self, frame: &[u8]) {
        assert!(self.outsider.send(frame), "there is room for it");
    }

    fn expect(&self, what: &str) {
        assert_eq!(text(self.listener.recv(PATIENCE).expect("the node runs")), what);
    }

    /// Has the first node send messages until one is heard by the second; nothing else is heard before it.
    fn works(&mut self) {
        let sender = self.network.connect(1);
        eventually("a message arrives", || {
            self.worked += 1;
            let message = format!("works {}", self.worked);
            sender.send(0, message.as_bytes()).expect("it goes");
            loop {
                let heard = self.listener.recv(Some(SHORT)).expect("the node runs")?;
                if heard.data == message.as_bytes() {
                    return Some(());
                }
                // One that was slow; the next has been sent by then.
                assert!(heard.data.starts_with(b"works "), "{heard:?} was not to arrive");
            }
        });
    }

    fn statuses(&self) -> Vec<Value> {
        (1..=NODES).map(|number| self.network.status(number)).collect()
    }

    /// What all nodes have counted, when nothing is under way any more.
    fn settled(&self) -> Vec<Value> {
        eventually("nothing is under way", || {
            let (before, after) = (self.statuses(), self.statuses());
            (before == after).then_some(after)
        })
    }

    /// What node 2 has counted.
    fn counts(&self) -> Value {
        self.network.status(2)
    }

    /// Waits until all nodes have decided of so many messages more than in `before` whether they relay them, and checks
    /// that none sent more than it may.
    fn await_relays(&self, before: &[Value], nodes: &[usize], messages: u64) {
        for &number in nodes {
            let of = |status: &Value, name: &str| status[name].as_u64().expect("a number");
            let before = &before[number - 1];
            eventually("all is relayed", || {
                let now = self.network.status(number);
                let more = |name| of(&now, name) - of(before, name);
                let (relayed, suppressed) = (more("relayed_frames"), more("suppressed_frames"));
                assert!(
                    relayed <= messages * self.relay.transmissions,
                    "node {number}: a storm of {relayed}"
                );
                (relayed + suppressed >= messages).then_some(())
            });
        }
    }
}

fn start(network: &Network, relay: &Relay, format: Format, number: usize, id: usize) -> Daemon {
    let key = if format.is_keyed() { "key-file = 'flood.key'\n" } else { "" };
    let more = format!("wire = {}\n{key}{}", format.wire() as u8, relay.lines);
    let file = network.file_of(number, id, &more);
    if relay.bpf {
        return Daemon::start(network.node(number), &file);
    }
    Daemon::spawn(&mut network.without_bpf(number, Path::new(&file)))
}

fn dropped(status: &Value, reason: &str) -> u64 {
    status["dropped_frames"][reason].as_u64().unwrap_or_else(|| panic!("no {reason} in {status}"))
}

/// Each is dropped for its own reason, is not relayed, and what it was made from is heard once.
fn no_frames(arena: &mut Arena) {
    let (format, header) = (arena.format, arena.play());
    let (one, header_bytes) = (format.wire() == Wire::One, format.wire().header_bytes());
    let write = |seq: u32, data: &[u8]| format.write(&Header { seq, ..header }, data);
    let spoilt = |seq: u32, at: usize, value: u8| {
        let mut frame = write(seq, &[0; 100]);
        frame[at] = value;
        frame
    };
    let (ttl, len) = if one { (1, 3) } else { (2, 4) };
    let good = write(1, b"good");
    let before = arena.settled();
    arena.send(&good);
    arena.expect("good");
    // nftables remember what is of the paper's format for a second: its duplicate goes at once, beside those of the two other nodes.
    let forgets = arena.relay.name == "nftables" && !one;
    if forgets {
        arena.send(&good);
    }
    arena.await_relays(&before, &[1, 2, 3], 1);
    let duplicates = |counts: &Value| dropped(counts, "duplicate") - dropped(&before[1], "duplicate");
    eventually("a duplicate is counted", || (!forgets || duplicates(&arena.counts()) >= 3).then_some(()));

    let before = arena.settled()[1].clone();
    let own = format.write(&Header { id: 2, ..header }, b"own");
    let mut attacks = vec![
        ("short", write(2, &[])[..header_bytes - 1].to_vec()),
        ("short", Vec::new()),
        ("length", spoilt(3, len, 101)),
        ("length", spoilt(4, len, 99)),
        ("length", spoilt(5, len - 1, 0xff)),
        ("ttl", spoilt(6, ttl, 0)),
        ("own", own),
    ];
    if !forgets {
        attacks.push(("duplicate", good));
    }
    if one {
        attacks.push(("version", spoilt(7, 0, 0x20)));
        attacks.push(("version", spoilt(8, 0, 0x1f)));
        attacks.push(("old-epoch", format.write(&Header { epoch: 0, seq: 9, ..header }, b"old")));
    }
    if format.is_keyed() {
        let stranger = Format::new(Wire::One, Some([7; 16]));
        attacks.push(("bad-tag", stranger.write(&Header { seq: 10, ..header }, b"forged")));
        attacks.push(("bad-tag", Format::new(Wire::One, None).write(&Header { seq: 11, ..header }, b"none")));
    }
    attacks.iter().for_each(|(_, frame)| arena.send(frame));
    for (reason, _) in &attacks {
        let least = attacks.iter().filter(|(other, _)| other == reason).count() as u64;
        eventually(&format!("{reason} is counted"), || {
            (dropped(&arena.counts(), reason) >= dropped(&before, reason) + least).then_some(())
        });
    }
    // nftables do not know which epoch is the newest: they relay what nobody takes.
    let relayed = if arena.relay.name == "nftables" && one { 1 } else { 0 };
    let after = arena.counts();
    assert_eq!(after["relayed_frames"].as_u64(), before["relayed_frames"].as_u64().map(|n| n + relayed));
    assert_eq!(after["new_frames"], before["new_frames"]);
    arena.works();
}

/// It goes on with 254; each node sends it on once.
fn the_greatest_ttl(arena: &mut Arena) {
    let header = arena.play();
    let before = arena.settled();
    while arena.outsider.hear().is_some() {}
    for (seq, ttl) in [(1, 1), (2, 255)] {
        let message = format!("with TTL {ttl}");
        arena.send(&arena.format.write(&Header { seq, ttl, ..header }, message.as_bytes()));
        arena.expect(&message);
    }
    let mut heard = || {
        let bytes = arena.outsider.hear()?;
        let frame = arena.format.read(&bytes, arena.outsider.padding()).ok()?.header;
        (frame.id == header.id).then_some(frame)
    };
    let first = eventually("it goes on", &mut heard);
    assert_eq!((first.seq, first.ttl), (2, 254), "a TTL of 1 goes no further");
    arena.await_relays(&before, &[1, 2, 3], 1);
    for copy in std::iter::from_fn(heard) {
        assert!(copy.seq == 2 && copy.ttl > 250, "{copy:?}");
    }
    arena.works();
}

/// A hundred copies of what it has sent, as fresh as an outsider can make them.
fn own_frames_come_back(arena: &mut Arena) {
    let before = arena.settled();
    while arena.outsider.hear().is_some() {}
    arena.network.connect(1).send(0, b"recorded").expect("it goes");
    arena.expect("recorded");
    let mut frame = eventually("the outsider hears it", || {
        let bytes = arena.outsider.hear()?;
        let frame = arena.format.read(&bytes, arena.outsider.padding()).ok()?;
        let length = arena.format.wire().header_bytes() + frame.data.len();
        (frame.data == b"recorded").then(|| bytes[..length].to_vec())
    });
    arena.await_relays(&before, &[2, 3], 1);
    // The TTL is not in the tag: relays change it.
    frame[if arena.format.wire() == Wire::One { 1 } else { 2 }] = 255;
    let before = arena.settled();
    (0..100).for_each(|_| arena.send(&frame));
    let copies = |number: usize| if number == 1 { "own" } else { "duplicate" };
    for (number, before) in (1..).zip(&before) {
        let reason = copies(number);
        let pointer = format!("/dropped_frames/{reason}");
        arena.network.wait_for(number, &pointer, dropped(before, reason) + 100);
        for name in ["relayed_frames", "new_frames"] {
            assert_eq!(arena.network.status(number)[name], before[name], "node {number}");
        }
    }
    arena.works();
}

/// Every message before and after the wrap is heard once.
fn sequence_numbers_wrap(arena: &mut Arena) {
    let header = arena.play();
    let wire = arena.format.wire();
    let mut seq = if wire == Wire::One { u32::MAX - 150 } else { 0 };
    for number in 0..300u32 {
        let frame = arena.format.write(&Header { seq, ..header }, &number.to_be_bytes());
        // To nftables, a number of 8 bits is the same message as long as the set has it.
        let patience =
            if arena.relay.name == "nftables" && wire == Wire::Paper { Some(SHORT) } else { PATIENCE };
        let heard = eventually("the next message", || {
            arena.send(&frame);
            arena.listener.recv(patience).expect("the node runs")
        });
        assert_eq!((heard.header.seq, heard.data), (seq, number.to_be_bytes().to_vec()));
        seq = wire.next(seq);
        // With a number of 8 bits, what a slow node relays 128 messages late is a new message.
        if number % 64 == 63 {
            arena.settled();
        }
    }
    arena.works();
}

/// What is no broadcast, which might come from far away.
fn sent_to_one_node(arena: &mut Arena) {
    let header = arena.play();
    let frame = arena.format.write(&header, b"to one node");
    match &arena.outsider {
        Outsider::Frames(socket) => arena.network.send_frame_to_one(socket, 2, &frame),
        Outsider::Datagrams { .. } => arena.network.send_to_one(2, &frame),
    }
    arena.works();
}

/// What is in another network on the same wire.
fn sent_in_a_vlan(arena: &mut Arena) {
    let header = arena.play();
    if let Outsider::Frames(socket) = &arena.outsider {
        let mut bytes = ethernet(&arena.format.write(&header, b"in a VLAN"));
        bytes.splice(12..12, [0x81, 0, 0, 5]);
        socket.send(&bytes).expect("it goes");
    }
    arena.works();
}

/// Whoever of the two is heard, the others go on.
fn two_nodes_have_one_id(arena: &mut Arena) {
    drop(arena.daemons.pop());
    arena.daemons.push(start(arena.network, arena.relay, arena.format, 3, 1));
    let before = arena.settled();
    let (one, other) = (arena.network.listen(1), arena.network.listen(3));
    let mut heard = 0;
    for number in 0..50 {
        one.send(0, format!("one {number}").as_bytes()).expect("it goes");
        other.send(0, format!("two {number}").as_bytes()).expect("it goes");
    }
    eventually("one of the two is heard", || {
        let message = arena.listener.recv(Some(SHORT)).expect("the node runs");
        heard += u64::from(message.is_some());
        (heard > 0 && message.is_none()).then_some(())
    });
    assert!(heard <= 100, "{heard} of 100 messages");
    arena.network.connect(2).send(0, b"from the second").expect("it goes");
    for receiver in [&one, &other] {
        assert_eq!(text(receiver.recv(PATIENCE).expect("the node runs")), "from the second");
    }
    let relayed = |status: &Value| status["relayed_frames"].as_u64().unwrap_or(0);
    let relayed = relayed(&arena.counts()) - relayed(&before[1]);
    assert!(relayed <= 100 * arena.relay.transmissions, "{relayed} of 100 frames");
    drop(arena.daemons.pop());
    arena.daemons.push(start(arena.network, arena.relay, arena.format, 3, 3));
    // The others believe the one who began later: the first is heard again in its next life, which is the next case.
}

/// What it sends in its new life is heard, although it begins to count anew.
fn a_node_restarts(arena: &mut Arena) {
    let epoch = |network: &Network| network.status(1)["epoch"].as_u64();
    // Twice in the same second, most likely.
    for _ in 0..2 {
        let before = epoch(arena.network);
        arena.daemons[0].signal(Signal::KILL);
        arena.daemons.remove(0).wait();
        arena.daemons.insert(0, start(arena.network, arena.relay, arena.format, 1, 1));
        assert!(before.is_none() || epoch(arena.network) > before);
    }
    // In wire version 0, once it was silent for a second.
    arena.works();
}

/// None of it is taken for a message, and messages get through.
fn garbage(arena: &mut Arena) {
    let header = arena.play();
    let (stop, before) = (AtomicBool::new(false), arena.counts());
    let sent = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood_with_garbage(arena.format, &arena.outsider, header, &stop));
        let sender = arena.network.connect(1);
        // Once nodes have heard of it, so that there is some.
        let reason = if arena.format.is_keyed() { "bad-tag" } else { "length" };
        arena.network.wait_for(2, &format!("/dropped_frames/{reason}"), dropped(&before, reason) + 1000);
        for number in 0..10u32 {
            let message = format!("through it {number}");
            eventually("a message arrives", || {
                sender.send(0, message.as_bytes()).expect("it goes");
                loop {
                    let heard = arena.listener.recv(Some(SHORT)).expect("the node runs")?;
                    if heard.data == message.as_bytes() {
                        return Some(());
                    }
                    assert!(heard.data.starts_with(b"through it "), "{heard:?} was not to arrive");
                }
            });
        }
        stop.store(true, Ordering::Relaxed);
        flood.join().expect("it has ended")
    });
    eprintln!("{sent} frames of garbage");
    // What still comes of the tenth.
    while arena.listener.recv(Some(SHORT)).expect("the node runs").is_some() {}
    arena.works();
}

/// Frames that no node may take, one after the other until `stop`; how many.
fn flood_with_garbage(format: Format, outsider: &Outsider, header: Header, stop: &AtomicBool) -> u64 {
    let one = format.wire() == Wire::One;
    let stranger = Format::new(format.wire(), format.is_keyed().then_some([7; 16]));
    let mut sent = 0;
    for number in 0u32.. {
        let id = if one { number % 5000 + 1000 } else { header.id };
        let seq = if one { number } else { number & 255 };
        let mut frame =
            stranger.write(&Header { id, epoch: if one { number } else { 0 }, seq, ..header }, &[0; 64]);
        if !format.is_keyed() {
            // LEN says one more.
            frame[if one { 3 } else { 4 }] += 1;
        }
        if number % 4 == 0 {
            frame.truncate(number as usize / 4 % frame.len());
        }
        sent += u64::from(outsider.send(&frame));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    sent
}
