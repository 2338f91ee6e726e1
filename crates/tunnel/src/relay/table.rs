//! Forwarding: what both directions' threads share. The only writer is `RelayControl`, for one entry at a time.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{Action, DropReason};
use crate::wire::{Direction, Message};

/// Sessions by their id, which the relay draws at random: nobody can choose ids that collide.
type Sessions = HashMap<u64, Entry>;

/// What is forwarded to where.
#[derive(Debug, Default)]
pub struct RelayTable {
    sessions: RwLock<Sessions>,
    counters: Counters,
}

/// One session as the data sees it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The client's confirmed address.
    pub client: SocketAddr,
    pub destination: SocketAddr,
    /// The destination has consented.
    pub open: bool,
    /// When the client was last heard, µs since the epoch.
    heard: AtomicU64,
    /// When the destination was last heard or consented, µs since the epoch.
    answered: AtomicU64,
    /// Bytes from the client that have not been forwarded: what a destination may be asked with.
    credit: AtomicU64,
}

impl Entry {
    pub fn new(now: Duration, client: SocketAddr, destination: SocketAddr, credit: usize) -> Self {
        let (heard, credit) = (AtomicU64::new(micros(now)), AtomicU64::new(credit as u64));
        Self { client, destination, open: false, heard, answered: AtomicU64::new(0), credit }
    }

    pub fn hear(&self, now: Duration) {
        self.heard.fetch_max(micros(now), Relaxed);
    }

    pub fn heard(&self) -> Duration {
        Duration::from_micros(self.heard.load(Relaxed))
    }

    pub fn answer(&self, now: Duration) {
        self.answered.fetch_max(micros(now), Relaxed);
    }

    pub fn answered(&self) -> Duration {
        Duration::from_micros(self.answered.load(Relaxed))
    }

    pub fn add_credit(&self, bytes: usize) {
        self.credit.fetch_add(bytes as u64, Relaxed);
    }

    /// Takes `bytes` of what the client has sent, if it has sent so many.
    pub fn spend(&self, bytes: usize) -> bool {
        self.credit.fetch_update(Relaxed, Relaxed, |credit| credit.checked_sub(bytes as u64)).is_ok()
    }
}

impl RelayTable {
    /// Where a datagram of type 8 or 9 goes, byte for byte; every datagram of a train goes the same way.
    pub fn forward(&self, now: Duration, source: SocketAddr, datagram: &[u8]) -> Action {
        match self.route(now, super::canonical(source), datagram) {
            Ok(to) => {
                self.counters.forwarded(datagram.len());
                Action::Forward { to }
            }
            Err(reason) => self.counters.drop(reason),
        }
    }

    fn route(&self, now: Duration, source: SocketAddr, datagram: &[u8]) -> Result<SocketAddr, DropReason> {
        let Ok(message) = Message::parse(datagram) else { return Err(DropReason::Malformed) };
        let Message::Relayed { direction, session, .. } = message else {
            return Err(DropReason::NotForRelay);
        };
        let sessions = self.read();
        let entry = sessions.get(&session).ok_or(DropReason::UnknownSession)?;
        match direction {
            Direction::Up => up(now, source, datagram, entry),
            Direction::Down => down(now, source, entry),
        }
    }

    /// Sessions known now.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has been forwarded and dropped since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn read(&self) -> RwLockReadGuard<'_, Sessions> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Sessions> {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `look` sees of a session; `None` if it is not known.
    pub(super) fn with<T>(&self, session: u64, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.read().get(&session).map(look)
    }
}

/// Only what comes from the client keeps its session alive.
fn up(now: Duration, source: SocketAddr, datagram: &[u8], entry: &Entry) -> Result<SocketAddr, DropReason> {
    if source != entry.client {
        return Err(DropReason::WrongSource);
    }
    entry.hear(now);
    if !entry.open {
        entry.add_credit(datagram.len());
        return Err(DropReason::NotOpen);
    }
    Ok(entry.destination)
}

fn down(now: Duration, source: SocketAddr, entry: &Entry) -> Result<SocketAddr, DropReason> {
    if source != entry.destination {
        return Err(DropReason::WrongSource);
    }
    if !entry.open {
        return Err(DropReason::NotOpen);
    }
    entry.answer(now);
    Ok(entry.client)
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    drops: [AtomicU64; DropReason::ALL.len()],
}

impl Counters {
    /// Datagrams (trains, if the caller forwards trains) and bytes forwarded.
    pub fn forwarded_total(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Datagrams dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].load(Relaxed)
    }

    pub(super) fn drop(&self, reason: DropReason) -> Action {
        self.drops[reason as usize].fetch_add(1, Relaxed);
        Action::Drop(reason)
    }

    fn forwarded(&self, bytes: usize) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

fn micros(now: Duration) -> u64 {
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
