//! One path: its address and whether the peer is known to receive there, the packet size it carries, and when it has
//! something to say.

use std::time::Duration;

use rand_core::RngCore;

use crate::address::{Address, LocalAddress, Train};
use crate::config::PathConfig;
use crate::cookie::CookieJar;
use crate::frame::{DATA_HEADER, put_challenge};
use crate::keys::PublicKey;
use crate::recv_enqueue::Received;
use crate::registration::Registration;
use crate::replay::ReplayWindow;
use crate::sent::{Content, Sent};
use crate::sessions::Session;
use crate::weights::Weight;
use crate::wire::{HEADER_LEN, RELAY_HEADER_LEN, TAG_LEN, TransportHeader};

/// IPv6's least MTU (RFC 8200 §5): what the inner interface always has.
pub const MIN_INNER_MTU: u16 = 1280;
/// Outer packet sizes to look for (RFC 8899): Ethernet, PPPoE, and what tunnels and mobile networks leave.
const SIZES: [u16; 5] = [1500, 1492, 1460, 1420, 1400];
/// Probes of a size before it is taken not to pass.
const MTU_TRIES: u8 = 3;
const MTU_RETRY: Duration = Duration::from_millis(500);
/// A path's size is looked for again after this long.
const MTU_LIFE: Duration = Duration::from_secs(600);
/// Markers keep at least this distance.
const SHORTEST_MARKER: Duration = Duration::from_millis(20);
/// A challenge is repeated after this, then after twice as long each time, up to sixteen times as long.
const CHALLENGE_RETRY: Duration = Duration::from_millis(300);
const CHALLENGE_DOUBLINGS: u8 = 4;
/// Bytes of a packet with a challenge.
const CHALLENGE: usize = RELAY_HEADER_LEN + HEADER_LEN + 12 + TAG_LEN;
/// Bytes to an address that has not proved that it receives, over bytes from it (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;

/// An address that the peer was heard from, and what it may be sent.
#[derive(Debug)]
struct Place {
    address: Address,
    validated: bool,
    received: u64,
    sent: u64,
    token: u64,
    tries: u8,
    next_challenge: Duration,
}

impl Place {
    fn unproved(address: Address, now: Duration, rng: &mut impl RngCore) -> Self {
        let token = rng.next_u64();
        Place { address, validated: false, received: 0, sent: 0, token, tries: 0, next_challenge: now }
    }

    fn may_take(&self, bytes: usize) -> bool {
        self.validated || self.sent + bytes as u64 <= AMPLIFICATION * self.received
    }

    fn challenge_at(&self) -> Option<Duration> {
        (!self.validated && self.may_take(CHALLENGE)).then_some(self.next_challenge)
    }
}

/// A way to the peer.
pub struct Path {
    /// Unique in the life of the daemon that lists it.
    pub id: u16,
    /// Its name, as its lister calls it.
    pub name: String,
    /// Used only while no other path works.
    pub backup: bool,
    /// How this end was told to reach the peer; `None` on a path that the peer lists.
    pub config: Option<PathConfig>,
    /// The session at the relay, on a path that this end lists through one.
    pub registration: Option<Registration>,
    /// Cookies for handshakes over this path.
    pub jar: CookieJar,
    /// What was sent.
    pub sent: Sent,
    /// What was received.
    pub received: Received,
    /// Which sequences were received.
    pub replay: ReplayWindow,
    /// The paper's weight.
    pub weight: Weight,
    /// Bytes given to it over its weight.
    pub virtual_time: f64,
    /// Smoothed one-way delay to the peer, µs, with an offset common to all paths.
    pub delay: Option<i64>,
    /// A response to send.
    pub response: Option<u64>,
    /// A probe is to be sent, for whatever reason.
    pub probe_wanted: bool,
    /// Announcements still to be sent in place of probes.
    pub announcements: u8,
    /// Takes part in the rotation by weight.
    pub in_rotation: bool,
    /// When to say that nothing more was sent.
    pub next_marker: Option<Duration>,
    marker_step: Duration,
    last_sent: Duration,
    place: Option<Place>,
    candidate: Option<Place>,
    local: Option<LocalAddress>,
    mtu: MtuSearch,
}

impl Path {
    /// A path of the peer's or, with `config`, of this end's.
    pub fn new(id: u16, peer: &PublicKey, config: Option<PathConfig>) -> Self {
        Path {
            id,
            name: config.as_ref().map_or_else(|| format!("path{id}"), |c| c.name.clone()),
            backup: config.as_ref().is_some_and(|c| c.backup),
            config,
            registration: None,
            jar: CookieJar::new(peer),
            sent: Sent::default(),
            received: Received::default(),
            replay: ReplayWindow::default(),
            weight: Weight::default(),
            virtual_time: 0.0,
            delay: None,
            response: None,
            probe_wanted: false,
            announcements: 0,
            in_rotation: false,
            next_marker: None,
            marker_step: Duration::ZERO,
            last_sent: Duration::ZERO,
            place: None,
            candidate: None,
            local: None,
            mtu: MtuSearch::default(),
        }
    }

    /// Where to send, if anywhere is known.
    pub fn address(&self) -> Option<&Address> {
        self.place.as_ref().map(|p| &p.address)
    }

    /// Where this path leaves the host; `None` while its interface is not there.
    pub fn local(&self) -> Option<LocalAddress> {
        self.local
    }

    /// The interface or address that a path of this end's leaves by came (or went: `None`).
    pub fn set_local(&mut self, local: Option<LocalAddress>) {
        self.local = local;
    }

    /// Sends to `address` from now on, which this end's configuration or relay vouches for.
    pub fn set_address(&mut self, now: Duration, address: Option<Address>) {
        if self.address() == address.as_ref() {
            return;
        }
        self.candidate = None;
        self.place = address.map(|address| Place {
            address,
            validated: true,
            received: 0,
            sent: 0,
            token: 0,
            tries: 0,
            next_challenge: now,
        });
        self.mtu.restart(now);
    }

    /// An authenticated packet came from `from`. `newest`: none sent later on this path has come before. What this end's
    /// configuration says is not given up for it: two ends that both followed a forwarder who then goes would never
    /// meet again.
    pub fn handle_arrival(
        &mut self,
        now: Duration,
        from: &Address,
        bytes: usize,
        newest: bool,
        rng: &mut impl RngCore,
    ) {
        let place = match &mut self.place {
            // Its interface is not there, whatever comes in by another.
            None if self.config.is_some() => return,
            None => self.place.insert(Place::unproved(*from, now, rng)),
            Some(p) if p.address.is_same_place(from) => p,
            Some(_) if !newest || self.config.is_some() => return,
            Some(_) => match &mut self.candidate {
                Some(c) if c.address.is_same_place(from) => c,
                candidate => candidate.insert(Place::unproved(*from, now, rng)),
            },
        };
        place.received += bytes as u64;
    }

    /// The peer answered a challenge from `from`: it receives there. True if that moved the path.
    pub fn handle_response(&mut self, now: Duration, from: &Address, token: u64) -> bool {
        let proves = |p: &Place| !p.validated && p.token == token && p.address.is_same_place(from);
        if self.candidate.as_ref().is_some_and(proves) {
            self.place = self.candidate.take();
        } else if !self.place.as_ref().is_some_and(proves) {
            return false;
        }
        if let Some(place) = &mut self.place {
            place.validated = true;
        }
        self.mtu.restart(now);
        self.next_marker = Some(now);
        true
    }

    /// Whether the peer is known to receive at the path's address.
    pub fn is_validated(&self) -> bool {
        self.place.as_ref().is_some_and(|p| p.validated)
    }

    /// Whether data may be sent: somewhere to go, room for an inner packet of the least size, no silence.
    pub fn is_up(&self) -> bool {
        self.is_validated() && self.mtu.carried > 0 && !self.sent.is_silent()
    }

    /// Whether data may be tried for want of anything better: as [`is_up`](Self::is_up), but silent for a moment.
    pub fn is_perhaps_up(&self) -> bool {
        self.is_validated() && self.mtu.carried > 0 && self.sent.silences() <= 2
    }

    /// The largest inner packet that is known to pass, 0 before any was.
    pub fn inner_mtu(&self) -> u16 {
        let carried = usize::from(self.mtu.carried);
        carried.saturating_sub(self.overhead()) as u16
    }

    /// The largest outer packet that is known to pass, 0 before any was.
    pub fn mtu(&self) -> u16 {
        self.mtu.carried
    }

    /// A size that was probed passed.
    pub fn handle_probed(&mut self, size: u16) {
        self.mtu.carried = self.mtu.carried.max(size);
    }

    /// Bytes of UDP payload for `inner` bytes of inner packet.
    pub fn payload_size(&self, inner: usize) -> usize {
        let relay = self.address().map_or(0, Address::relay_header_len);
        relay + HEADER_LEN + DATA_HEADER + inner + TAG_LEN
    }

    /// Bytes around an inner packet.
    pub fn overhead(&self) -> usize {
        self.address().map_or(28, Address::overhead) + HEADER_LEN + DATA_HEADER + TAG_LEN
    }

    /// Sends a packet whose plaintext `write` writes. Counts it as sent.
    pub fn pack(
        &mut self,
        now: Duration,
        session: &Session,
        tos: u8,
        content: Content,
        train: &mut Train,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(address) = self.address().copied() else { return false };
        let size = self.seal(session, &address, tos, train, write);
        if let Some(place) = &mut self.place {
            place.sent += size as u64;
        }
        self.count(now, size, content);
        true
    }

    /// The challenge that is due, to the address that it is about.
    pub fn pack_challenge(&mut self, now: Duration, session: &Session, train: &mut Train) -> bool {
        let due = |p: &&mut Place| p.challenge_at().is_some_and(|t| t <= now);
        let Some(place) = [&mut self.candidate, &mut self.place].into_iter().flatten().find(due) else {
            return false;
        };
        place.next_challenge = now + CHALLENGE_RETRY * (1 << place.tries);
        place.tries = (place.tries + 1).min(CHALLENGE_DOUBLINGS);
        place.sent += CHALLENGE as u64;
        let (address, token) = (place.address, place.token);
        let size = self.seal(session, &address, 0, train, |out| put_challenge(out, token, false));
        // Not in flight: that it is not answered says nothing about the path's present address.
        self.count(now, size, Content::Report);
        true
    }

    /// Whether `bytes` may be sent to the path's address.
    pub fn may_take(&self, bytes: usize) -> bool {
        self.place.as_ref().is_some_and(|p| p.may_take(bytes))
    }

    /// The size of an outer packet to probe now, and the bytes of plaintext that make it so large.
    pub fn poll_mtu_probe(&mut self, now: Duration, sizes: MtuSizes) -> Option<(u16, usize)> {
        let around = self.address()?.overhead() + HEADER_LEN + TAG_LEN;
        if !self.is_validated() {
            return None;
        }
        let least = sizes.least + self.overhead() as u16;
        let size = self.mtu.poll(now, least, sizes.search)?;
        Some((size, usize::from(size) - around))
    }

    /// Looks for the size anew: the path may lead elsewhere now.
    pub fn restart_mtu(&mut self, now: Duration) {
        self.mtu.restart(now);
    }

    /// When [`poll_mtu_probe`](Self::poll_mtu_probe) or [`pack_challenge`](Self::pack_challenge) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let challenge =
            [&self.candidate, &self.place].into_iter().flatten().filter_map(Place::challenge_at).min();
        let probe = self.is_validated().then_some(self.mtu.next);
        challenge.into_iter().chain(probe).min()
    }

    /// Something that the peer has to see was sent: if nothing follows, a marker does after `step`, `4 step`, …
    pub fn restart_marker(&mut self, now: Duration, step: Duration) {
        self.marker_step = step;
        self.next_marker = Some(now + step);
    }

    /// The marker is being sent: the next comes later, at the latest after `longest`.
    pub fn back_off_marker(&mut self, now: Duration, longest: Duration) {
        self.marker_step = (self.marker_step * 4).clamp(SHORTEST_MARKER, longest);
        self.next_marker = Some(now + self.marker_step);
    }

    /// When something was last sent.
    pub fn last_sent(&self) -> Duration {
        self.last_sent
    }

    fn seal(
        &mut self,
        session: &Session,
        address: &Address,
        tos: u8,
        train: &mut Train,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let sequence = self.sent.next_sequence();
        let header = TransportHeader { path: self.id, receiver: session.remote_index, sequence }.to_bytes();
        let before = train.contents.len();
        train.put(address, tos, |out| {
            out.extend(header);
            let body = out.len();
            write(out);
            out.resize(out.len() + TAG_LEN, 0);
            session.sealing.seal(self.id, sequence, &header, &mut out[body..]);
        });
        train.contents.len() - before
    }

    fn count(&mut self, now: Duration, size: usize, content: Content) {
        self.last_sent = now;
        self.sent.handle_sent(now, size, content);
    }
}

/// Which sizes are looked for: inner packets of `least` bytes must pass, and, if `search`, larger ones are tried.
#[derive(Clone, Copy, Debug)]
pub struct MtuSizes {
    /// Bytes of inner packet that a path must carry to be used.
    pub least: u16,
    /// Look for the largest outer packet that passes.
    pub search: bool,
}

/// Packetization-layer path MTU discovery (RFC 8899) by probes that the feedback confirms.
#[derive(Debug, Default)]
struct MtuSearch {
    /// The largest outer packet that passed; 0 if none did.
    carried: u16,
    /// Place in the falling sizes, and how often that size was probed.
    size: usize,
    tries: u8,
    due: Vec<u16>,
    next: Duration,
}

impl MtuSearch {
    fn restart(&mut self, now: Duration) {
        *self = MtuSearch { next: now, ..MtuSearch::default() };
    }

    /// Walks down the sizes, one each [`MTU_RETRY`], and until anything passed probes the least beside it, so that the path
    /// is of use while larger ones are tried.
    fn poll(&mut self, now: Duration, least: u16, search: bool) -> Option<u16> {
        if self.due.is_empty() && now >= self.next {
            self.start_round(now, least, search);
        }
        self.due.pop()
    }

    fn start_round(&mut self, now: Duration, least: u16, search: bool) {
        let mut larger = SIZES.into_iter().filter(|s| search && *s > least);
        let candidate = larger.nth(self.size).filter(|s| *s > self.carried);
        // The last goes out first: the larger one, so that its report does not come after the other's.
        if self.carried == 0 {
            self.due.push(least);
        }
        if let Some(size) = candidate {
            self.due.push(size);
            self.tries += 1;
            if self.tries == MTU_TRIES {
                (self.size, self.tries) = (self.size + 1, 0);
            }
        }
        if self.due.is_empty() {
            // The largest that passes is known. Later, it is looked for again from the top.
            (self.size, self.tries, self.next) = (0, 0, now + MTU_LIFE);
        } else {
            self.next = now + MTU_RETRY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes probed until nothing more is, over a path that carries `mtu`.
    fn probes(mtu: u16, least: u16) -> (Vec<u16>, u16) {
        let (mut search, mut now, mut sizes) = (MtuSearch::default(), Duration::ZERO, Vec::new());
        for _ in 0..30 {
            while let Some(size) = search.poll(now, least, true) {
                sizes.push(size);
                if size <= mtu {
                    search.carried = search.carried.max(size);
                }
            }
            now += MTU_RETRY;
        }
        (sizes, search.carried)
    }

    #[test]
    fn the_largest_size_that_passes_is_found() {
        assert_eq!(probes(1500, 1364), (vec![1500, 1364], 1500));
        assert_eq!(probes(1492, 1364), (vec![1500, 1364, 1500, 1500, 1492], 1492));
        assert_eq!(probes(1364, 1364).1, 1364);
        assert_eq!(probes(1300, 1364).1, 0);
    }
}
