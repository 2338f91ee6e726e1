//! The loop of the relay's two threads: receive trains, ask the core where each datagram goes, send on as trains what goes the same
//! way.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use device::poller::{Interest, Poller, boottime};
use device::udp::{Meta, RecvBatch, Transmit};
use device::worker::{Asked, Inbox};

use super::tls::Clients;
use crate::daemon::{Sockets, may_be_gone};
use crate::keys::PublicKey;
use crate::relay::{Action, RelayControl, RelayStatus, RelayTable};
use crate::wire::Kind;

const WAKER: u64 = 0;
/// The sockets' tokens start here.
const SOCKETS: u64 = 1;
/// Clients whose way back is remembered; beyond that all are forgotten, and learned again.
const MAX_REPLIES: usize = 1 << 16;

/// Which of the relay's addresses each client uses: what goes down to it has to leave from there, or no NAT and no
/// client would know it. Learned from what the core accepts.
#[derive(Debug, Default)]
pub struct Replies(RwLock<HashMap<SocketAddr, IpAddr>>);

impl Replies {
    fn from(&self, client: SocketAddr) -> Option<IpAddr> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&client).copied()
    }

    fn learn(&self, client: SocketAddr, local: Option<IpAddr>) {
        let Some(local) = local.filter(|local| self.from(client) != Some(*local)) else { return };
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REPLIES {
            known.clear();
        }
        known.insert(client, local);
    }

    /// Where the address that a datagram was to leave from is gone, the next one there leaves from where the routing table says.
    fn handle_failure(&self, failed: &Transmit<'_>, error: &io::Error) {
        if may_be_gone(error) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&failed.remote);
        }
    }
}

/// The core, for both threads. The kernel gives a train to one of them by its first datagram: a handshake or an echo behind
/// data comes to either.
pub struct Core {
    control: Mutex<RelayControl>,
    table: Arc<RelayTable>,
    tls: Clients,
    replies: Replies,
}

impl Core {
    /// With the clients that come by TLS.
    pub fn new(control: RelayControl, tls: Clients) -> Self {
        Self { table: control.table(), control: Mutex::new(control), tls, replies: Replies::default() }
    }

    fn control(&self) -> MutexGuard<'_, RelayControl> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done with a datagram. If it is no data, the core was `asked`.
    fn decide(&self, now: Duration, meta: &Meta, datagram: &[u8], asked: &mut bool) -> Action {
        let kind = Kind::of(datagram);
        let action = if matches!(kind, Ok(Kind::RelayUp | Kind::RelayDown)) {
            self.table.forward(now, meta.remote, datagram)
        } else {
            *asked = true;
            self.control().handle_datagram(now, meta.remote, datagram)
        };
        // Anybody could send the first of a handshake in another's name.
        if !matches!(kind, Ok(Kind::Initiation | Kind::RelayDown)) && !matches!(action, Action::Drop(_)) {
            self.replies.learn(meta.remote, meta.local);
        }
        action
    }
}

impl Asked<RelayStatus, Vec<PublicKey>> for &Core {
    fn status(&self) -> RelayStatus {
        let mut status = self.control().status(boottime());
        for session in &mut status.sessions {
            if let Some(really) = self.tls.really(session.client) {
                (session.client, session.tls) = (really, true);
            }
        }
        status
    }

    fn change(&mut self, allow: Vec<PublicKey>) -> Result<(), String> {
        self.control().set_allow(allow);
        Ok(())
    }
}

/// What each of the two threads owns.
pub struct Forwarder {
    sockets: Sockets,
    core: Arc<Core>,
    inbox: Inbox<RelayStatus, Vec<PublicKey>>,
    poller: Poller,
    batch: RecvBatch,
}

impl Forwarder {
    /// Fails only where descriptors have run out.
    pub fn new(
        sockets: Sockets,
        core: Arc<Core>,
        inbox: Inbox<RelayStatus, Vec<PublicKey>>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&inbox.waker, WAKER, Interest::Read)?;
        for (token, socket) in (SOCKETS..).zip(sockets.iter()) {
            poller.add(socket, token, Interest::Read)?;
        }
        Ok(Self { sockets, core, inbox, poller, batch: RecvBatch::default() })
    }

    /// Runs until it is told to stop. Of what the core is to do later each thread sees to what it has asked it for, so that one that
    /// has only data waits for no handshake that the other is about.
    pub fn run(mut self) -> io::Result<()> {
        let (mut due, mut asked) = (None, true);
        loop {
            if asked {
                due = self.core.control().poll_timeout();
            }
            let timeout = due.map(|due: Duration| due.saturating_sub(boottime()));
            let ready: Vec<_> = self.poller.wait(timeout)?.map(|ready| ready.token).collect();
            if ready.contains(&WAKER) && self.inbox.answer(&mut &*self.core) {
                return Ok(());
            }
            asked = self.turn(boottime(), &ready, due);
        }
    }

    /// Does what is ready and what is due. Whether the core was asked for anything.
    fn turn(&mut self, now: Duration, ready: &[u64], due: Option<Duration>) -> bool {
        let asked = self.forward(now, ready) || ready.contains(&WAKER) || due.is_some_and(|due| due <= now);
        if asked {
            self.send_own(now);
        }
        asked
    }

    /// One batch of each socket that is ready. Whether anything but data was there.
    fn forward(&mut self, now: Duration, ready: &[u64]) -> bool {
        let mut asked = false;
        for (_, socket) in (SOCKETS..).zip(self.sockets.iter()).filter(|(token, _)| ready.contains(token)) {
            // What a socket reports here is what became of an earlier datagram, or short memory: it passes.
            if let Err(error) = socket.fill(&mut self.batch) {
                tracing::trace!("cannot receive: {error}");
                continue;
            }
            let (core, mut out) = (&self.core, Outgoing::default());
            self.batch
                .trains()
                .for_each(|(meta, train)| out.add(&meta, train, |d| core.decide(now, &meta, d, &mut asked)));
            let (runs, answers) = (out.runs.iter(), out.answers.iter());
            let runs = runs.map(|run| Transmit { local: core.replies.from(run.remote), ..*run });
            let all = runs.chain(answers.map(|(meta, answer)| to(meta.remote, meta.local, answer)));
            self.sockets.send(all.map(|transmit| (0, transmit)), |transmit, error| {
                core.replies.handle_failure(transmit, error)
            });
        }
        asked
    }

    /// What the core has to say by itself.
    fn send_own(&self, now: Duration) {
        let core = &self.core;
        let next = || core.control().poll_transmit(now);
        while let Some((remote, message)) = next() {
            let transmit = to(remote, core.replies.from(remote), &message);
            self.sockets.send(std::iter::once((0, transmit)), |transmit, error| {
                core.replies.handle_failure(transmit, error)
            });
        }
    }
}

fn to(remote: SocketAddr, local: Option<IpAddr>, contents: &[u8]) -> Transmit<'_> {
    Transmit { remote, local, interface: None, tos: 0, segment_size: None, contents }
}

/// What a batch leads to.
#[derive(Debug, Default)]
struct Outgoing<'a> {
    /// Consecutive datagrams of one train that go to one address; from where is not decided yet.
    runs: Vec<Transmit<'a>>,
    answers: Vec<(Meta, Vec<u8>)>,
}

impl<'a> Outgoing<'a> {
    /// Adds what `decide` says of each datagram of a train.
    fn add(&mut self, meta: &Meta, train: &'a [u8], mut decide: impl FnMut(&[u8]) -> Action) {
        let (mut start, mut current) = (0, None);
        for (index, datagram) in train.chunks(meta.segment_size).enumerate() {
            let to = match decide(datagram) {
                Action::Forward { to } => Some(to),
                Action::Reply(answer) => {
                    self.answers.push((*meta, answer));
                    None
                }
                Action::Taken | Action::Drop(_) => None,
            };
            let at = index * meta.segment_size;
            if to != current {
                self.add_run(meta, current, &train[start..at]);
                (start, current) = (at, to);
            }
        }
        self.add_run(meta, current, &train[start..]);
    }

    fn add_run(&mut self, meta: &Meta, to: Option<SocketAddr>, contents: &'a [u8]) {
        if let Some(to) = to.filter(|_| !contents.is_empty()) {
            let segment_size = Some(meta.segment_size);
            self.runs.push(Transmit { tos: meta.tos, segment_size, ..self::to(to, None, contents) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use device::worker::watch;
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

    use super::*;
    use crate::daemon::Listen;
    use crate::keys::PrivateKey;
    use crate::path::registration::Registration;
    use crate::relay::{DropReason, Limits};
    use crate::wire::{self, Direction, Message};

    /// A relay, and a client with a session that waits for the consent of its destination.
    struct World {
        relay: Forwarder,
        at: SocketAddr,
        client: UdpSocket,
        destination: UdpSocket,
        session: u64,
        consent: [u8; wire::CHALLENGE_LEN],
        /// When the destination was asked for it first.
        asked: Duration,
    }

    impl World {
        fn new() -> Self {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            let [me, other] = [(); 2].map(|()| PrivateKey::generate(&mut rng));
            let [client, destination] = [(); 2].map(|()| {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                socket
            });
            let (from, to) = (client.local_addr().unwrap(), destination.local_addr().unwrap());
            let (asked, public) = (boottime(), me.public());
            let mut control = RelayControl::new(me, [other.public()], Limits::default(), &mut rng);
            let mut registration = Registration::new(asked, &other, &public, to, &mut rng);
            let initiation = registration.poll_transmit(asked).unwrap();
            let Action::Reply(response) = control.handle_datagram(asked, from, &initiation) else {
                panic!("no response")
            };
            assert!(registration.handle_message(asked, &response));
            let third = registration.poll_transmit(asked).unwrap();
            assert_eq!(control.handle_datagram(asked, from, &third), Action::Taken);
            let (session, token) = challenge(&control.poll_transmit(asked).unwrap().1);
            let consent = wire::echo(session, token);
            let listen = Listen::Address((Ipv4Addr::LOCALHOST, 0).into());
            let sockets = Sockets::bind(listen, device::udp::Options::default()).unwrap();
            let at = sockets.local_address().unwrap();
            let core = Arc::new(Core::new(control, Clients::default()));
            let relay = Forwarder::new(sockets, core, watch().unwrap().1).unwrap();
            Self { relay, at, client, destination, session, consent, asked }
        }

        /// The client sends data, or the destination its consent.
        fn give(&self, datagram: &[u8]) {
            let from = if datagram == self.consent { &self.destination } else { &self.client };
            from.send_to(datagram, self.at).unwrap();
        }

        fn turn(&mut self, now: Duration, due: Option<Duration>) -> bool {
            let ready: Vec<_> = self.relay.poller.wait(None).unwrap().map(|ready| ready.token).collect();
            self.relay.turn(now, &ready, due)
        }

        fn data(&self) -> Vec<u8> {
            [&wire::relay_header(Direction::Up, self.session)[..], b"sealed"].concat()
        }

        /// What comes to the destination.
        fn heard(&self) -> Vec<u8> {
            let mut buffer = [0; 2048];
            let length = self.destination.recv(&mut buffer).unwrap();
            buffer[..length].to_vec()
        }
    }

    fn challenge(message: &[u8]) -> (u64, [u8; wire::TAG_LEN]) {
        match Message::parse(message) {
            Ok(Message::Challenge { session, token }) => (session, token),
            other => panic!("{other:?} instead of a challenge"),
        }
    }

    #[test]
    fn what_is_due_is_done_while_nothing_but_data_comes() {
        let mut world = World::new();
        let (data, due) = (world.data(), world.relay.core.control().poll_timeout());
        world.give(&data);
        assert!(!world.turn(world.asked, due));
        world.give(&data);
        assert!(world.turn(world.asked + Duration::from_secs(1), due));
        assert_eq!(challenge(&world.heard()).0, world.session, "the destination is asked again");
    }

    /// As while the other thread is about a handshake.
    #[test]
    fn data_does_not_wait_for_who_asks_the_core() {
        let mut world = World::new();
        world.give(&world.consent);
        assert!(world.turn(world.asked, None));
        let data = world.data();
        world.give(&data);
        let core = Arc::clone(&world.relay.core);
        let busy = core.control();
        let (sender, turned) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(world.turn(world.asked, None)));
            let turned = turned.recv_timeout(Duration::from_secs(20));
            drop(busy);
            assert_eq!(turned, Ok(false));
        });
        assert_eq!(world.heard(), data);
    }

    #[test]
    fn a_train_is_cut_only_where_its_way_changes() {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let meta = Meta { remote: address(1), local: None, interface: 0, tos: 0xb9, segment_size: 2 };
        let decide = |datagram: &[u8]| match datagram[0] {
            0 => Action::Drop(DropReason::Malformed),
            1 => Action::Reply(vec![9]),
            port => Action::Forward { to: address(port.into()) },
        };
        let mut out = Outgoing::default();
        out.add(&meta, &[2, 2, 2, 2, 3, 3, 0, 0, 3, 3, 1, 1, 3, 3, 3], decide);
        let runs: Vec<_> = out.runs.iter().map(|run| (run.remote.port(), run.contents)).collect();
        assert_eq!(runs, [(2, &[2; 4][..]), (3, &[3; 2]), (3, &[3; 2]), (3, &[3; 3])]);
        assert!(out.runs.iter().all(|run| (run.tos, run.segment_size) == (0xb9, Some(2))));
        assert_eq!(out.answers, [(meta, vec![9])]);
    }

    #[test]
    fn the_way_back_is_remembered_within_bounds() {
        let replies = Replies::default();
        let client = |n: u32| SocketAddr::from((n.to_be_bytes(), 1));
        let local = Some(IpAddr::from([192, 0, 2, 1]));
        replies.learn(client(0), None);
        assert_eq!(replies.from(client(0)), None);
        (0..=MAX_REPLIES as u32).for_each(|n| replies.learn(client(n), local));
        assert_eq!(replies.from(client(MAX_REPLIES as u32)), local);
        assert!(replies.0.read().unwrap().len() <= MAX_REPLIES);
    }
}
