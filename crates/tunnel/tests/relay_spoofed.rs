//! A running relay, a host that takes another's address: what reaches that other one; and a relay that gets another address itself.

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use common::{Namespace, join, namespaces_or_skip};
use device::poller::{Interest, Poller, monotonic};
use device::raw::{RawSender, Sniffer};
use device::udp::{Options, RecvBatch, Transmit};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use tunnel::PrivateKey;
use tunnel::daemon::Listen;
use tunnel::handshake::cookie::CookieJar;
use tunnel::path::registration::Registration;
use tunnel::relay::RelayStatus;
use tunnel::relay_daemon::{self, RelayRunning};
use tunnel::wire::{self, CHALLENGE_LEN, Direction, Message};

const PATIENCE: Duration = Duration::from_secs(20);
const RELAY: ([u8; 4], u16) = ([10, 7, 0, 1], 51901);
const VICTIM: ([u8; 4], u16) = ([10, 8, 0, 2], 7000);
/// What the relay's socket holds, and more.
const AT_ONCE: usize = 200;

fn key(seed: u64) -> PrivateKey {
    PrivateKey::generate(&mut ChaCha20Rng::seed_from_u64(seed))
}

fn relay_address() -> SocketAddr {
    RELAY.into()
}

/// A relay (key 9, for key 1), a client beside it, an attacker, and a victim that never asked for anything.
struct Net {
    relay: RelayRunning,
    attacker: RawSender,
    victim: Sniffer,
    client: UdpSocket,
    office: UdpSocket,
    sent: u64,
    namespaces: [Namespace; 4],
}

impl Net {
    fn new() -> Self {
        let all = [Namespace::new(), Namespace::new(), Namespace::new(), Namespace::new()];
        let [middle, home, attacker, victim] = &all;
        join("green", (home, "10.7.0.2"), (middle, "10.7.0.1"));
        join("blue", (victim, "10.8.0.2"), (middle, "10.8.0.1"));
        join("red", (attacker, "10.9.0.2"), (middle, "10.9.0.1"));
        attacker.run("ip route add default via 10.9.0.1");
        middle.within(|| {
            for name in ["all", "red"] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
            }
        });
        let allow = vec![key(1).public()];
        let settings =
            relay_daemon::Settings { listen: Listen::Port(RELAY.1), tls: None, allow, key: key(9) };
        let relay = middle.within(|| relay_daemon::start(settings, |why| panic!("{why}"))).unwrap();
        let bind = |port: u16| {
            let socket = home.within(|| UdpSocket::bind(("10.7.0.2", port))).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        Self {
            relay,
            attacker: attacker.within(RawSender::new).unwrap(),
            victim: victim.within(|| Sniffer::new("blue")).unwrap(),
            client: bind(1000),
            office: bind(2000),
            sent: 0,
            namespaces: all,
        }
    }

    /// Sends datagrams, so many times all, in the victim's name, and waits until the relay has dealt with them.
    fn spoof(&mut self, datagrams: &[Vec<u8>], times: usize) {
        let all: Vec<_> = std::iter::repeat_n(datagrams, times).flatten().collect();
        for some in all.chunks(AT_ONCE) {
            let packets: Vec<_> = some.iter().map(|payload| packet(VICTIM, RELAY, payload)).collect();
            assert_eq!(self.attacker.send(packets.iter().map(Vec::as_slice)), some.len());
            self.sent += some.len() as u64;
            let sent = self.sent;
            self.eventually(|status| status.dropped_packets.values().sum::<u64>() >= sent);
        }
    }

    #[track_caller]
    fn eventually(&self, wanted: impl Fn(&RelayStatus) -> bool) -> RelayStatus {
        let (deadline, mut poller) = (monotonic() + PATIENCE, Poller::new().unwrap());
        loop {
            let status = self.relay.status().expect("an answer");
            if wanted(&status) {
                return status;
            }
            assert!(monotonic() < deadline, "{status:#?}");
            poller.wait(Some(Duration::from_millis(5))).unwrap().for_each(drop);
        }
    }

    /// What packets of IPv4 that reached the victim's host since the last call carry, behind 28 bytes of headers.
    fn seen_by_victim(&self) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let mut seen = Vec::new();
        while let Some(packet) = self.victim.next(&mut buffer) {
            seen.push(packet[28.min(packet.len())..].to_vec());
        }
        seen
    }

    /// Registers client 1 for `destination` as far as its third message: all that it sent.
    fn ask(&self, client: &mut Registration) -> Vec<Vec<u8>> {
        let first = client.poll_transmit(monotonic()).expect("an initiation");
        self.client.send_to(&first, relay_address()).unwrap();
        assert!(client.handle_message(monotonic(), &receive(&self.client)));
        let third = client.poll_transmit(monotonic()).expect("a third message");
        self.client.send_to(&third, relay_address()).unwrap();
        vec![first, third]
    }
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let (length, _) = socket.recv_from(&mut buffer).expect("a datagram in time");
    buffer[..length].to_vec()
}

fn packet((from, source): ([u8; 4], u16), (to, port): ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let length = (28 + payload.len()) as u16;
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet[20..22].copy_from_slice(&source.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet[24..26].copy_from_slice(&(length - 20).to_be_bytes());
    packet.extend(payload);
    packet
}

/// Every type, with every length around its own, of random bytes.
fn shapes(rng: &mut ChaCha20Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in 0..=15 {
        for length in [1, 12, 13, 27, 28, 29, 39, 40, 41, 63, 64, 65, 123, 124, 125, 167, 168, 169, 1400] {
            let mut bytes = vec![0; length];
            rng.fill_bytes(&mut bytes);
            bytes[0] = 0x10 | kind;
            bytes[1..length.min(4)].fill(0);
            all.push(bytes);
        }
    }
    all
}

/// Initiations of strangers: one stamped for the relay's public key, one as an allowed client stamps it.
fn strangers_initiations(rng: &mut ChaCha20Rng, count: u64) -> Vec<Vec<u8>> {
    let relay = key(9).public();
    let mut all = Vec::new();
    for seed in 0..count {
        let destination = SocketAddr::from(VICTIM);
        let mut stranger = Registration::new(monotonic(), &key(100 + seed), &relay, destination, rng);
        let asked = stranger.poll_transmit(monotonic()).expect("an initiation");
        let mut stamped = asked.clone();
        CookieJar::new(&relay).stamp(monotonic(), &mut stamped);
        all.extend([asked, stamped]);
    }
    all
}

#[test]
fn a_relay_sends_nothing_to_a_host_whose_address_somebody_takes() {
    let name = "a_relay_sends_nothing_to_a_host_whose_address_somebody_takes";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let mut net = Net::new();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    // A genuine session, all of whose messages the attacker has recorded.
    let office = net.office.local_addr().unwrap();
    let mut client = Registration::new(monotonic(), &key(1), &key(9).public(), office, &mut rng);
    let mut recorded = net.ask(&mut client);
    let challenge = receive(&net.office);
    let Ok(Message::Challenge { session, token }) = Message::parse(&challenge) else {
        panic!("no challenge")
    };
    recorded.push(wire::echo(session, token).to_vec());
    net.office.send_to(&wire::echo(session, token), relay_address()).unwrap();
    assert!(client.handle_message(monotonic(), &receive(&net.client)));
    for direction in [Direction::Up, Direction::Down] {
        recorded.push([&wire::relay_header(direction, session)[..], b"sealed"].concat());
    }
    let before = net.relay.status().unwrap();

    net.spoof(&shapes(&mut rng), 1);
    net.spoof(&recorded, 1);
    // Long enough that there is a flood: nobody gets a cookie either.
    net.spoof(&strangers_initiations(&mut rng, 20), 50);
    net.spoof(&recorded[..1], 2000);

    let mut after = net.relay.status().unwrap();
    let dropped: u64 = after.dropped_packets.values().sum();
    assert_eq!((dropped, after.pending_handshakes), (net.sent, 0), "every datagram was counted as dropped");
    after.sessions[0].idle_s = before.sessions[0].idle_s;
    assert_eq!(after.sessions, before.sessions);
    // What the client and the office send still passes.
    net.client.send_to(&recorded[3], relay_address()).unwrap();
    assert_eq!(receive(&net.office), recorded[3]);
    assert_eq!(net.seen_by_victim(), Vec::<Vec<u8>>::new(), "not one byte");
}

#[test]
fn a_host_that_a_client_names_gets_challenges_only_and_few() {
    let name = "a_host_that_a_client_names_gets_challenges_only_and_few";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Net::new();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    for n in 0..20 {
        let destination = SocketAddr::from((Ipv4Addr::from(VICTIM.0), VICTIM.1 + n));
        let mut client = Registration::new(monotonic(), &key(1), &key(9).public(), destination, &mut rng);
        net.ask(&mut client);
        let status = net.eventually(|status| status.sessions.len() == usize::from(n) + 1);
        assert!(status.sessions.iter().all(|session| !session.open));
    }
    // Data for each of them.
    let challenges = net.seen_by_victim();
    let session = |bytes: &Vec<u8>| match Message::parse(bytes) {
        Ok(Message::Challenge { session, .. }) => session,
        other => panic!("{other:?} instead of a challenge"),
    };
    let sessions: Vec<_> = challenges.iter().map(session).collect();
    assert!(!sessions.is_empty(), "the sniffer sees what comes");
    for session in &sessions {
        let datagram = [&wire::relay_header(Direction::Up, *session)[..], &[7; 1000]].concat();
        net.client.send_to(&datagram, relay_address()).unwrap();
    }
    net.eventually(|status| status.dropped_packets.values().sum::<u64>() == sessions.len() as u64);
    let all = [challenges, net.seen_by_victim()].concat();
    assert!(all.iter().all(|bytes| bytes.len() == CHALLENGE_LEN));
    assert!(all.len() <= 10, "{} challenges", all.len());
}

/// The kernel gives a train to a thread by its first datagram, and joins an answer to the data before it.
#[test]
fn an_answer_behind_data_in_one_train_is_heard() {
    let Some(_alone) = namespaces_or_skip("an_answer_behind_data_in_one_train_is_heard") else { return };
    let net = Net::new();
    let office = net.namespaces[1]
        .within(|| device::UdpSocket::bind(([10, 7, 0, 2], 2001).into(), Options::default()));
    let office = office.unwrap();
    assert!(office.cuts_trains(), "the kernel sends no trains");
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let to = office.local_address().unwrap();
    let mut client = Registration::new(monotonic(), &key(1), &key(9).public(), to, &mut rng);
    net.ask(&mut client);
    let (mut batch, mut poller) = (RecvBatch::default(), Poller::new().unwrap());
    poller.add(&office, 0, Interest::Read).unwrap();
    assert!(poller.wait(Some(PATIENCE)).unwrap().next().is_some(), "no challenge");
    let mut asked = Vec::new();
    office.recv(&mut batch, |_, datagram| asked.push(datagram.to_vec())).unwrap();
    let Ok(Message::Challenge { session, token }) = Message::parse(&asked[0]) else { panic!("no challenge") };

    let data = [&wire::relay_header(Direction::Down, session)[..], &[7; 100]].concat();
    let train = [&data[..], &data, &wire::echo(session, token)].concat();
    let transmit = Transmit {
        remote: relay_address(),
        local: None,
        interface: None,
        tos: 0,
        segment_size: Some(data.len()),
        contents: &train,
    };
    assert!(office.send(&[transmit]).is_empty());
    assert!(client.handle_message(monotonic(), &receive(&net.client)), "the session is open");
}

#[test]
fn a_relay_that_gets_another_address_goes_on_forwarding() {
    let Some(_alone) = namespaces_or_skip("a_relay_that_gets_another_address_goes_on_forwarding") else {
        return;
    };
    let net = Net::new();
    let office = net.office.local_addr().unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut client = Registration::new(monotonic(), &key(1), &key(9).public(), office, &mut rng);
    net.ask(&mut client);
    let Ok(Message::Challenge { session, token }) = Message::parse(&receive(&net.office)) else {
        panic!("no challenge")
    };
    net.office.send_to(&wire::echo(session, token), relay_address()).unwrap();
    assert!(client.handle_message(monotonic(), &receive(&net.client)));

    let middle = &net.namespaces[0];
    middle.run("ip address del 10.7.0.1/24 dev green");
    middle.run("ip address add 10.7.0.9/24 dev green");
    net.office.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let data = [&wire::relay_header(Direction::Up, session)[..], b"sealed"].concat();
    let arrives = || {
        net.client.send_to(&data, ("10.7.0.9", RELAY.1)).unwrap();
        net.office.recv_from(&mut [0; 2048]).is_ok_and(|(_, from)| from == ([10, 7, 0, 9], RELAY.1).into())
    };
    // The relay hears of the address when the kernel says so.
    let deadline = monotonic() + PATIENCE;
    while !arrives() {
        assert!(monotonic() < deadline, "nothing comes from the new address");
    }
}
