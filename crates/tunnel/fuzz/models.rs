//! The two state machines against reference models, and what is small enough for a model of its own. As `targets.rs`,
//! called by the fuzzers and by `tests/corpus.rs`.
#![allow(dead_code, reason = "each fuzzer calls one of these")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tunnel::PrivateKey;
use tunnel::path::registration::Registration;
use tunnel::path::replay::ReplayWindow;
use tunnel::relay::{Action, Limits, RelayControl};
use tunnel::wire::{self, CHALLENGE_LEN, Direction, Message, REGISTERED_LEN};

use crate::sim::{Net, stranger};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// What a script has not said is zero.
struct Script<'a>(std::slice::Iter<'a, u8>);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

/// Sequences, three bytes each, added to one of four bases: each is accepted at most once, never when it is too far
/// below the highest, and always otherwise.
pub fn replay(data: &[u8]) {
    let (mut window, mut seen, mut end) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
    for chunk in data.chunks_exact(3).take(4096) {
        let base = [0, 1 << 20, u64::MAX - (1 << 22), u64::MAX / 2][usize::from(chunk[0] >> 6)];
        let sequence = base + u64::from(u32::from_be_bytes([0, chunk[0] & 63, chunk[1], chunk[2]]));
        let in_window = sequence >= end || end - sequence <= ReplayWindow::SPAN;
        let expected = sequence != u64::MAX && in_window && !seen.contains(&sequence);
        assert_eq!(window.would_accept(sequence), expected, "{sequence} with the end at {end}");
        assert_eq!(window.accept(sequence), expected);
        assert!(!window.accept(sequence), "twice");
        if expected {
            seen.insert(sequence);
            end = end.max(sequence + 1);
        }
    }
}

/// Two endpoints over two wires. The first half of the script says what happens, the second what becomes of each
/// datagram. Whatever it is, each inner packet comes out at most once and only if it went in, and in order unless one was waited
/// for in vain; when the network is good again, nothing is kept and packets pass.
pub fn network(data: &[u8]) {
    let (script, fates) = data.split_at(data.len() / 2);
    let mut net = Net::quick(2, 10 * MS, |_, _| ());
    let recorded = meet_fates(&mut net, fates.to_vec());
    let mut model = Model::default();
    let mut script = Script(script.iter());
    for _ in 0..64 {
        if script.is_empty() {
            break;
        }
        act(&mut net, &mut model, &mut script, &recorded);
        model.check(&net);
    }
    net.tap = None;
    (0..2).for_each(|wire| net.set_up(wire, true));
    // Longer than anything is waited for.
    net.pass(40 * S);
    for end in 0..2 {
        model.send(&mut net, end, 3);
    }
    net.pass(10 * S);
    model.check(&net);
    for end in 0..2 {
        let status = net.peer(end);
        let kept = (status.queue_bytes, status.unconfirmed_bytes, status.reorder_bytes);
        assert_eq!(kept, (0, 0, 0), "end {end} keeps something: {status:#?}");
        assert_eq!(
            net.numbers(end).last().copied(),
            model.last_sent(1 - end),
            "end {end} gets what is sent: {status:#?}"
        );
    }
}

type Recorded = std::rc::Rc<std::cell::RefCell<Vec<(usize, Vec<u8>)>>>;

/// Each datagram meets the next fate: it passes, is lost, or is damaged. Remembers the last ones.
fn meet_fates(net: &mut Net, fates: Vec<u8>) -> Recorded {
    let recorded = Recorded::default();
    let (remembered, mut next) = (recorded.clone(), 0);
    net.tap = Some(Box::new(move |datagram| {
        let fate = fates.get(next % fates.len().max(1)).copied().unwrap_or(0);
        next += 1;
        let mut last = remembered.borrow_mut();
        if last.len() < 256 {
            last.push((datagram.from, datagram.bytes.clone()));
        }
        if fate >= 0xf0 {
            let at = usize::from(fate) * 7 % datagram.bytes.len();
            datagram.bytes[at] ^= fate;
        }
        !(0xc0..0xf0).contains(&fate)
    }));
    recorded
}

fn act(net: &mut Net, model: &mut Model, script: &mut Script<'_>, recorded: &Recorded) {
    let (what, value) = (script.byte(), script.byte());
    let end = usize::from(what >> 7);
    match what & 15 {
        0..=4 => model.send(net, end, usize::from(value)),
        5..=8 => net.pass(MS * u32::from(value)),
        9 => net.pass(20 * MS * u32::from(value)),
        10 => net.set_up(end, value & 1 == 1),
        11 => net.seen_at[end] = stranger(value.into()),
        12 => {
            model.restart(net, end);
            // Never the life of another start.
            net.restart(end, 1000 + model.restarts);
        }
        13 => {
            let bytes = [&[0x10 | value & 15, 0, 0, 0][..], &[value; 255][..usize::from(value)]].concat();
            net.inject(end, stranger(1), &bytes);
        }
        _ => {
            // Again, from somewhere: to whom it was for, or back to who sent it.
            let found = recorded.borrow().get(usize::from(value)).cloned();
            if let Some((from, bytes)) = found {
                let to = if what & 1 == 0 { 1 - from } else { from };
                net.inject(to, stranger(2), &bytes);
            }
        }
    }
}

/// What went in at each end, and what has been seen to come out.
#[derive(Default)]
struct Model {
    sent: [u64; 2],
    /// How many of each end's packets have been checked, in this life.
    checked: [usize; 2],
    restarts: u64,
}

impl Model {
    fn send(&mut self, net: &mut Net, end: usize, count: usize) {
        for _ in 0..count {
            self.sent[end] += 1;
            net.send(end, self.sent[end], 36 + (self.sent[end] as usize * 97) % 1100);
        }
        net.turn(end);
    }

    fn last_sent(&self, end: usize) -> Option<u64> {
        Some(self.sent[end])
    }

    /// What an end got in a former life does not count: it does not know of it either.
    fn restart(&mut self, net: &mut Net, end: usize) {
        self.restarts += 1;
        net.received[end].clear();
        self.checked[end] = 0;
    }

    fn check(&mut self, net: &Net) {
        for end in 0..2 {
            let numbers = net.numbers(end);
            let from = self.checked[end].saturating_sub(1);
            let given_up = net.peer(end).order.timed_out_packets > 0;
            let distinct: std::collections::HashSet<_> = numbers.iter().collect();
            assert_eq!(distinct.len(), numbers.len(), "once: {numbers:?}");
            assert!(given_up || numbers[from..].is_sorted(), "in order: {numbers:?}");
            assert!(numbers.last().is_none_or(|last| *last <= self.sent[1 - end]), "only what went in");
            self.checked[end] = numbers.len();
            let status = net.peer(end);
            let delivered = status.order.delivered_packets;
            // A peer's new life begins with new counts.
            assert!(
                self.restarts > 0 || delivered == numbers.len() as u64,
                "{delivered} of {}",
                numbers.len()
            );
            assert!(status.paths.len() <= 17 && status.unconfirmed_bytes <= 17 << 20);
            assert!(status.paths.iter().all(|p| p.lost_packets <= p.sent_packets), "{status:#?}");
        }
    }
}

/// A relay, three clients of which it allows two, and four places. What the relay sends where is held against what
/// those who are there have said.
pub fn relay_model(data: &[u8]) {
    let mut world = World::new();
    let mut script = Script(data.iter());
    for _ in 0..256 {
        if script.is_empty() {
            break;
        }
        world.act(&mut script);
    }
    world.pass(200 * S);
    assert_eq!(world.relay.table().len(), 0, "who is not heard is forgotten");
    assert_eq!(world.relay.poll_timeout(), None);
}

struct World {
    now: Duration,
    relay: RelayControl,
    clients: Vec<Registration>,
    /// The session ids that have been seen in challenges and answers.
    sessions: Vec<u64>,
    /// Challenges' tokens by session and place.
    tokens: BTreeMap<(u64, usize), [u8; 16]>,
    /// Remote that third messages came from, by the destination named, of clients that are allowed.
    asked: BTreeSet<(usize, usize)>,
    /// Remote that have echoed, or sent a third message.
    willing: BTreeSet<usize>,
    /// Bytes from clients that named each place; bytes of challenges sent there.
    paid: [usize; 4],
    challenged: [usize; 4],
}

const ALLOWED: usize = 2;

fn place(n: usize) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, n as u8], 4000))
}

fn index(address: SocketAddr) -> usize {
    (0..4).find(|n| place(*n) == address).expect("one of the four places")
}

impl World {
    fn new() -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let me = PrivateKey::generate(&mut rng);
        let keys: Vec<_> = (0..3).map(|_| PrivateKey::generate(&mut rng)).collect();
        let now = S;
        // Client 0 wants place 2, client 1 where client 0 is, client 2 place 3.
        let destinations = [2, 0, 3].map(place);
        let client =
            |(key, to): (&PrivateKey, SocketAddr)| Registration::new(now, key, &me.public(), to, &mut rng);
        let clients = keys.iter().zip(destinations).map(client).collect();
        let limits = Limits { sessions_per_key: 2, sessions: 3, pending_per_key: 2, pending: 3 };
        let allow = keys[..ALLOWED].iter().map(PrivateKey::public);
        let relay = RelayControl::new(me, allow, limits, &mut ChaCha20Rng::seed_from_u64(2));
        Self {
            now,
            relay,
            clients,
            sessions: vec![0],
            tokens: BTreeMap::new(),
            asked: BTreeSet::new(),
            willing: BTreeSet::new(),
            paid: [0; 4],
            challenged: [0; 4],
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let (what, value) = (script.byte(), script.byte());
        let at = usize::from(what >> 4 & 3);
        match what & 7 {
            0..=2 => self.client_sends(usize::from(value) % 3, at),
            3 => self.pass(MS * 20 * u32::from(value)),
            4 => self.echo(at, value),
            5 | 6 => {
                let direction = if what & 1 == 0 { Direction::Up } else { Direction::Down };
                let session = self.sessions[usize::from(value) % self.sessions.len()];
                let datagram = [&wire::relay_header(direction, session)[..], b"sealed"].concat();
                self.give(at, &datagram);
            }
            _ => {
                let client = &mut self.clients[usize::from(value) % 3];
                client.refresh(self.now);
            }
        }
    }

    /// A client says what it has to say, from a place.
    fn client_sends(&mut self, client: usize, at: usize) {
        let Some(message) = self.clients[client].poll_transmit(self.now) else { return };
        let destination = index(self.clients[client].destination());
        if client < ALLOWED {
            self.paid[destination] += message.len();
            if message.len() == REGISTERED_LEN {
                self.asked.insert((at, destination));
                self.willing.insert(at);
            }
        }
        if let Action::Reply(reply) = self.give(at, &message) {
            assert!(client < ALLOWED, "an answer to somebody who is not allowed");
            self.clients[client].handle_message(self.now, &reply);
            self.sessions.extend(self.clients[client].session());
        }
    }

    fn echo(&mut self, at: usize, value: u8) {
        let mine: Vec<_> = self.tokens.iter().filter(|((_, place), _)| *place == at).collect();
        let genuine = mine.get(usize::from(value & 7)).map(|((session, _), token)| (*session, **token));
        let (session, mut token) = genuine.unwrap_or((self.sessions[0], [value; 16]));
        if value & 0x80 != 0 {
            token[0] ^= 1;
        } else if genuine.is_some() {
            self.willing.insert(at);
        }
        self.give(at, &wire::echo(session, token));
    }

    fn give(&mut self, from: usize, datagram: &[u8]) -> Action {
        let action = self.relay.handle_datagram(self.now, place(from), datagram);
        match &action {
            Action::Forward { to } => {
                let to = index(*to);
                let (client, destination) = if datagram[0] & 15 == 8 { (from, to) } else { (to, from) };
                assert!(
                    self.asked.contains(&(client, destination)),
                    "nobody there has asked for {destination}"
                );
                assert!(self.willing.contains(&destination), "place {destination} has not consented");
            }
            Action::Reply(reply) => assert!(reply.len() <= datagram.len()),
            Action::Taken | Action::Drop(_) => {}
        }
        self.collect();
        action
    }

    fn collect(&mut self) {
        while let Some((to, message)) = self.relay.poll_transmit(self.now) {
            let to = index(to);
            match Message::parse(&message) {
                Ok(Message::Challenge { session, token }) => {
                    self.challenged[to] += CHALLENGE_LEN;
                    assert!(self.challenged[to] <= self.paid[to], "more challenges than were paid for");
                    self.tokens.insert((session, to), token);
                    self.sessions.push(session);
                }
                Ok(Message::Registered { .. }) => {
                    assert!(self.willing.contains(&to), "an answer to who has not asked");
                    self.clients.iter_mut().for_each(|c| {
                        c.handle_message(self.now, &message);
                    });
                }
                other => panic!("a relay has no reason to send {other:?}"),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.relay.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.collect();
        }
        self.now = end;
        self.collect();
    }
}
