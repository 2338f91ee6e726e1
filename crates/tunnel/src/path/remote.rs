//! Where one path leads: the peer's address, whether the peer is known to receive there, and where else it may be.
//!
//! An authenticated packet from elsewhere that is the newest on its path makes that address a candidate, which gets a
//! challenge; the path moves when the peer answers it from there (RFC 9000 §9.3, path validation §8.2). An address that has
//! proved nothing gets at most three times the bytes that came from it (§8.1).
//!
//! What this end's configuration says is `home`. A path that moved away from it and falls silent asks for the peer at home
//! again: so two ends that both followed a forwarder who then went away meet again. Through a relay there is only home.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand_core::RngCore;

use crate::wire::address::{Address, LocalAddress};
use crate::wire::{HEADER_LEN, RELAY_HEADER_LEN, TAG_LEN};

/// A challenge is repeated after this, then after twice as long each time, up to sixteen times as long.
const CHALLENGE_RETRY: Duration = Duration::from_millis(300);
const CHALLENGE_DOUBLINGS: u8 = 4;
/// Bytes of a packet with a challenge.
const CHALLENGE: usize = RELAY_HEADER_LEN + HEADER_LEN + 12 + TAG_LEN;
/// Bytes to an address that has not proved that it receives, over bytes from it (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;

/// Counted as received from an address that the configuration names: it may be sent challenges as often as those are repeated.
const VOUCHED: u64 = u64::MAX / 4;

/// An address of the peer's, and what it may be sent.
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
    fn unproved(now: Duration, address: Address, rng: &mut impl RngCore) -> Self {
        let token = rng.next_u64();
        Place { address, validated: false, received: 0, sent: 0, token, tries: 0, next_challenge: now }
    }

    fn proved(now: Duration, address: Address) -> Self {
        Place { address, validated: true, received: 0, sent: 0, token: 0, tries: 0, next_challenge: now }
    }

    fn may_take(&self, bytes: usize) -> bool {
        self.validated || self.sent + bytes as u64 <= AMPLIFICATION * self.received
    }

    fn challenge_at(&self) -> Option<Duration> {
        (!self.validated && self.may_take(CHALLENGE)).then_some(self.next_challenge)
    }
}

/// What an answered challenge changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proved {
    /// Nothing: no such challenge is open.
    Nothing,
    /// The peer receives where the path leads.
    Here,
    /// The path leads elsewhere now; if `same_host`, to another port of the same address.
    Moved {
        /// Only the port is another: a NAT's doing, over the same links.
        same_host: bool,
    },
}

/// Where a path leads.
#[derive(Debug, Default)]
pub struct Remote {
    here: Option<Place>,
    candidate: Option<Place>,
    /// What this end's configuration or relay says, which needs no proof.
    pub(super) home: Option<Address>,
    /// Where the configuration says that the peer may be instead: its name has an address of the other family.
    pub(super) rival: Option<Address>,
}

impl Remote {
    /// Where to send, if anywhere is known.
    pub fn address(&self) -> Option<&Address> {
        self.here.as_ref().map(|p| &p.address)
    }

    /// Whether the peer is known to receive there.
    pub fn is_validated(&self) -> bool {
        self.here.as_ref().is_some_and(|p| p.validated)
    }

    /// Whether `bytes` may be sent there.
    pub fn may_take(&self, bytes: usize) -> bool {
        self.here.as_ref().is_some_and(|p| p.may_take(bytes))
    }

    /// This end's configuration or relay says where the peer is, or (`None`) that it is out of reach. False if that is
    /// what it said before.
    pub fn set_home(&mut self, now: Duration, address: Option<Address>) -> bool {
        if self.home == address {
            return false;
        }
        self.home = address;
        self.candidate = None;
        self.here = address.map(|address| Place::proved(now, address));
        true
    }

    /// The peer answered a handshake from `from`. True if the path leads there now: it was asked there as well.
    pub fn handle_answer(&mut self, now: Duration, from: &Address) -> bool {
        let Some(rival) = self.rival.filter(|rival| rival.is_same_place(from)) else { return false };
        let home = self.home;
        self.set_home(now, Some(rival)) && {
            self.rival = home;
            true
        }
    }

    /// An authenticated packet came from `from`. `newest`: none sent later on this path has come before.
    pub fn handle_arrival(
        &mut self,
        now: Duration,
        from: &Address,
        bytes: usize,
        newest: bool,
        rng: &mut impl RngCore,
    ) {
        let relayed = self.home.is_some_and(|home| home.via.is_some());
        let back = self.way_back(from);
        let place = match &mut self.here {
            None => self.here.insert(Place::unproved(now, *from, rng)),
            Some(p) if p.address.is_same_place(from) => {
                if newest {
                    // Replies leave from the address that was hit.
                    p.address.local = back.local;
                }
                p
            }
            Some(_) if !newest || relayed => return,
            Some(_) => match &mut self.candidate {
                Some(c) if c.address.is_same_place(from) => c,
                candidate => candidate.insert(Place::unproved(now, back, rng)),
            },
        };
        place.received += bytes as u64;
    }

    /// How to answer what came from `from`: where this end was told to leave by, it goes on to leave by.
    pub fn way_back(&self, from: &Address) -> Address {
        Address { local: self.home.map_or(from.local, |home| home.local), ..*from }
    }

    /// `source` is no address of this host any more. True if what goes to `remote` left from there, and leaves from
    /// elsewhere now.
    pub fn forget_source(&mut self, remote: SocketAddr, source: IpAddr) -> bool {
        let leaves = |p: &&mut Place| p.address.remote == remote && p.address.local.ip == Some(source);
        match self.here.as_mut().filter(leaves).filter(|_| self.home.is_none()) {
            Some(here) => {
                here.address.local = LocalAddress::default();
                true
            }
            None => false,
        }
    }

    /// The path is silent: is the peer where the configuration says, or where that says that it may be instead?
    pub fn look_at_home(&mut self, now: Duration, rng: &mut impl RngCore) {
        let away = |place: &&Address| self.address().is_some_and(|here| !here.is_same_place(place));
        let asked = |place: &Address| self.candidate.as_ref().is_some_and(|c| c.address == *place);
        // One after the other, where the path leads to neither.
        let places = [&self.home, &self.rival].into_iter().flatten().filter(away);
        if let Some(place) = places.copied().find(|place| !asked(place)) {
            self.candidate = Some(Place { received: VOUCHED, ..Place::unproved(now, place, rng) });
        }
    }

    /// The path answers where it leads: the peer is looked for elsewhere no more.
    pub fn end_look(&mut self) {
        self.candidate.take_if(|place| place.received >= VOUCHED);
    }

    /// The peer answered a challenge from `from`: it receives there.
    pub fn handle_response(&mut self, from: &Address, token: u64) -> Proved {
        let proves = |p: &Place| !p.validated && p.token == token && p.address.is_same_place(from);
        if let Some(mut found) = self.candidate.take_if(|p| proves(p)) {
            found.validated = true;
            let new = found.address;
            let old = self.here.replace(found).map(|p| p.address);
            let same_host = old.is_some_and(|old| old.remote.ip() == new.remote.ip() && old.via == new.via);
            return Proved::Moved { same_host };
        }
        match self.here.as_mut().filter(|p| proves(p)) {
            Some(here) => {
                here.validated = true;
                Proved::Here
            }
            None => Proved::Nothing,
        }
    }

    /// The challenge that is due, and the address that it is about; it is counted as sent.
    pub fn poll_challenge(&mut self, now: Duration) -> Option<(Address, u64)> {
        let due = |p: &&mut Place| p.challenge_at().is_some_and(|t| t <= now);
        let place = [&mut self.candidate, &mut self.here].into_iter().flatten().find(due)?;
        place.next_challenge = now + CHALLENGE_RETRY * (1 << place.tries);
        place.tries = (place.tries + 1).min(CHALLENGE_DOUBLINGS);
        place.sent += CHALLENGE as u64;
        Some((place.address, place.token))
    }

    /// When [`poll_challenge`](Self::poll_challenge) has something.
    pub fn poll_timeout(&self) -> Option<Duration> {
        [&self.candidate, &self.here].into_iter().flatten().filter_map(Place::challenge_at).min()
    }

    /// So many bytes were sent where the path leads.
    pub fn handle_sent(&mut self, bytes: usize) {
        if let Some(here) = &mut self.here {
            here.sent += bytes as u64;
        }
    }
}
