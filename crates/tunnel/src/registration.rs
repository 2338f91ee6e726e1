//! A client's side of one session at a relay: sans-IO.

use std::{net::SocketAddr, time::Duration};

use rand_core::RngCore;

use crate::keys::{PrivateKey, PublicKey};

/// One session at one relay, kept alive. After any `handle_*` and after `poll_timeout`'s time has come, drain
/// `poll_transmit`; what it gives goes to the relay, over the path that the session is for.
#[derive(Debug)]
pub struct Registration {}

impl Registration {
    /// Asks `relay` for a session with `destination`. Asks at once.
    pub fn new(
        now: Duration,
        me: &PrivateKey,
        relay: &PublicKey,
        destination: SocketAddr,
        rng: &mut impl RngCore,
    ) -> Self {
        let _ = (now, me, relay, destination, rng);
        todo!()
    }

    /// Takes a datagram of type 2, 3 or 5 from the relay's address; false if it is not for this registration.
    pub fn handle_message(&mut self, now: Duration, message: &[u8]) -> bool {
        let _ = (now, message);
        todo!()
    }

    /// Registers anew, at once but no more often than the back-off allows: the own address has changed, or nothing
    /// comes back. The session keeps its id if the relay still knows it.
    pub fn refresh(&mut self, now: Duration) {
        let _ = now;
        todo!()
    }

    /// What to send to the relay now.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let _ = now;
        todo!()
    }

    /// When to call `poll_transmit` again.
    pub fn poll_timeout(&self) -> Option<Duration> {
        todo!()
    }

    /// The session's id, once the relay forwards and until its lifetime has ended.
    pub fn session(&self) -> Option<u64> {
        todo!()
    }
}
