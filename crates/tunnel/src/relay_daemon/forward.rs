//! The relay's two loops: receive trains, ask the core where each datagram goes, send on as trains what goes the same
//! way.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use device::Waker;
use device::poller::{Interest, Poller, boottime};
use device::udp::{Meta, RecvBatch, Transmit};
use device::worker::{Asked, Inbox, NoState};

use super::tls::Clients;
use crate::daemon::{Sockets, may_be_gone};
use crate::keys::PublicKey;
use crate::relay::{Action, DropReason, RelayControl, RelayStatus, RelayTable};
use crate::wire::{Kind, Message};

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

/// Handshakes and echoes that wait for their thread at most, where they came to the other.
const HANDED: usize = 256;

/// A datagram, and what came with it.
type Handed = (Meta, Vec<u8>);

/// Hands over what came behind data in one train and is for the thread that `waker` wakes.
pub struct Handing {
    sender: SyncSender<Handed>,
    waker: Waker,
}

/// Both ends.
pub fn hand(waker: Waker) -> (Handing, Receiver<Handed>) {
    let (sender, handed) = sync_channel(HANDED);
    (Handing { sender, waker }, handed)
}

impl Handing {
    /// What becomes of a datagram that came to the thread that sends down.
    fn take(&self, now: Duration, table: &RelayTable, meta: &Meta, datagram: &[u8]) -> Action {
        let data = matches!(Kind::of(datagram), Ok(Kind::RelayUp | Kind::RelayDown));
        if data || Message::parse(datagram).is_err() {
            return table.read().forward(now, meta.remote, datagram);
        }
        match self.sender.try_send((*meta, datagram.to_vec())) {
            Ok(()) => {
                self.waker.wake();
                Action::Taken
            }
            Err(_) => table.counters().drop(DropReason::Load),
        }
    }
}

/// What each of the two threads owns.
pub struct Forwarder<S, C = ()> {
    sockets: Sockets,
    replies: Arc<Replies>,
    inbox: Inbox<S, C>,
    poller: Poller,
    batch: RecvBatch,
}

/// What is ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    waker: bool,
    sockets: [bool; 2],
}

impl<S, C> Forwarder<S, C> {
    /// Fails only where descriptors have run out.
    pub fn new(sockets: Sockets, replies: Arc<Replies>, inbox: Inbox<S, C>) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&inbox.waker, WAKER, Interest::Read)?;
        for (token, socket) in (SOCKETS..).zip(sockets.iter()) {
            poller.add(socket, token, Interest::Read)?;
        }
        Ok(Self { sockets, replies, inbox, poller, batch: RecvBatch::default() })
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Ready> {
        let mut all = Ready::default();
        for ready in self.poller.wait(timeout)? {
            match ready.token {
                WAKER => all.waker = true,
                socket => all.sockets[(socket - SOCKETS) as usize] = true,
            }
        }
        Ok(all)
    }

    /// One batch of each socket that is ready. `decide` says what is to be done with each datagram.
    fn forward(&mut self, now: Duration, ready: Ready, mut decide: impl FnMut(&Meta, &[u8]) -> Action) {
        for (index, _) in ready.sockets.iter().enumerate().filter(|(_, ready)| **ready) {
            // What a socket reports here is what became of an earlier datagram, or short memory: it passes.
            let filled = self.sockets.iter().nth(index).map(|socket| socket.fill(&mut self.batch));
            if let Some(Err(error)) = filled {
                tracing::trace!("cannot receive: {error}");
                continue;
            }
            let mut out = Outgoing::default();
            self.batch.trains().for_each(|(meta, train)| out.add(&meta, train, |d| decide(&meta, d)));
            let replies = &self.replies;
            let failed = |transmit: &Transmit<'_>, error: &io::Error| replies.handle_failure(transmit, error);
            self.sockets.send(now, out.runs.iter().map(|run| (0, run.transmit(replies))), failed);
            let answers = out.answers;
            self.send_answers(now, &answers);
        }
    }

    fn send_answers(&mut self, now: Duration, answers: &[(Meta, Vec<u8>)]) {
        let replies = &self.replies;
        let failed = |transmit: &Transmit<'_>, error: &io::Error| replies.handle_failure(transmit, error);
        let answers = answers.iter().map(|(meta, answer)| (0, answer_to(meta, answer)));
        self.sockets.send(now, answers, failed);
    }
}

impl Forwarder<()> {
    /// Sends on what goes down until it is told to stop.
    pub fn run_down(mut self, table: &RelayTable, handing: &Handing) -> io::Result<()> {
        loop {
            let ready = self.wait(None)?;
            if ready.waker && self.inbox.answer(&mut NoState) {
                return Ok(());
            }
            let now = boottime();
            self.forward(now, ready, |meta, datagram| handing.take(now, table, meta, datagram));
        }
    }
}

/// The core, and the time of this turn.
struct Timed {
    now: Duration,
    control: RelayControl,
    tls: Clients,
}

impl Asked<RelayStatus, Vec<PublicKey>> for Timed {
    fn status(&self) -> RelayStatus {
        let mut status = self.control.status(self.now);
        for session in &mut status.sessions {
            if let Some(really) = self.tls.really(session.client) {
                (session.client, session.tls) = (really, true);
            }
        }
        status
    }

    fn change(&mut self, allow: Vec<PublicKey>) -> Result<(), String> {
        self.control.set_allow(allow);
        Ok(())
    }
}

impl Forwarder<RelayStatus, Vec<PublicKey>> {
    /// Does all else until it is told to stop.
    pub fn run_up(
        mut self,
        control: RelayControl,
        tls: Clients,
        handed: &Receiver<Handed>,
    ) -> io::Result<()> {
        let mut timed = Timed { now: boottime(), control, tls };
        loop {
            let timeout = timed.control.poll_timeout().map(|due| due.saturating_sub(boottime()));
            let ready = self.wait(timeout)?;
            let now = boottime();
            timed.now = now;
            if ready.waker && self.inbox.answer(&mut timed) {
                return Ok(());
            }
            let control = &mut timed.control;
            let replies = self.replies.clone();
            let mut decide = |meta: &Meta, datagram: &[u8]| {
                let action = control.handle_datagram(now, meta.remote, datagram);
                if proves_address(&action, datagram) {
                    replies.learn(meta.remote, meta.local);
                }
                action
            };
            self.forward(now, ready, &mut decide);
            self.take_handed(now, handed, decide);
            self.send_own(now, control);
        }
    }

    /// Takes what came to the other thread; none of it is data.
    fn take_handed(
        &mut self,
        now: Duration,
        handed: &Receiver<Handed>,
        mut decide: impl FnMut(&Meta, &[u8]) -> Action,
    ) {
        let all: Vec<_> = handed.try_iter().take(HANDED).collect();
        if all.len() == HANDED {
            self.inbox.waker.wake();
        }
        let answer = |(meta, datagram): &Handed| match decide(meta, datagram) {
            Action::Reply(answer) => Some((*meta, answer)),
            Action::Forward { .. } | Action::Taken | Action::Drop(_) => None,
        };
        let answers: Vec<_> = all.iter().filter_map(answer).collect();
        self.send_answers(now, &answers);
    }

    /// What the core has to say by itself.
    fn send_own(&mut self, now: Duration, control: &mut RelayControl) {
        while let Some((remote, message)) = control.poll_transmit(now) {
            let local = self.replies.from(remote);
            let transmit =
                Transmit { remote, local, interface: None, tos: 0, segment_size: None, contents: &message };
            let failed = |transmit: &Transmit<'_>, error: &io::Error| {
                self.replies.handle_failure(transmit, error);
            };
            self.sockets.send(now, std::iter::once((0, transmit)), failed);
        }
    }
}

/// Whether the core took the datagram as one from an address that the sender is known to receive at: any but the first
/// of a handshake, which anybody could send in another's name.
fn proves_address(action: &Action, datagram: &[u8]) -> bool {
    !matches!(action, Action::Drop(_)) && Kind::of(datagram).is_ok_and(|kind| kind != Kind::Initiation)
}

/// Consecutive datagrams of one train that go to one address.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    to: SocketAddr,
    tos: u8,
    segment_size: usize,
    contents: &'a [u8],
}

impl Run<'_> {
    fn transmit(&self, replies: &Replies) -> Transmit<'_> {
        Transmit {
            remote: self.to,
            local: replies.from(self.to),
            interface: None,
            tos: self.tos,
            segment_size: Some(self.segment_size),
            contents: self.contents,
        }
    }
}

/// What a batch leads to.
#[derive(Debug, Default)]
struct Outgoing<'a> {
    runs: Vec<Run<'a>>,
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
            self.runs.push(Run { to, tos: meta.tos, segment_size: meta.segment_size, contents });
        }
    }
}

fn answer_to<'a>(meta: &Meta, answer: &'a [u8]) -> Transmit<'a> {
    Transmit {
        remote: meta.remote,
        local: meta.local,
        interface: None,
        tos: 0,
        segment_size: None,
        contents: answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::DropReason;

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
        let runs: Vec<_> = out.runs.iter().map(|run| (run.to.port(), run.contents)).collect();
        assert_eq!(runs, [(2, &[2; 4][..]), (3, &[3; 2]), (3, &[3; 2]), (3, &[3; 3])]);
        assert!(out.runs.iter().all(|run| (run.tos, run.segment_size) == (0xb9, 2)));
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
