//! Connections as they come in, taken one after the other.

use std::io::{self, ErrorKind};

use device::Poller;
use device::poller::REST;

/// Takes connections.
pub struct Incoming {
    /// Made at the start: a rest that takes a descriptor is none where those have run out.
    rest: Poller,
    /// The last could not be taken, and the log says so.
    failed: bool,
}

impl Incoming {
    /// # Errors
    /// Descriptors or memory have run out already.
    pub fn new() -> io::Result<Self> {
        Ok(Self { rest: Poller::new()?, failed: false })
    }

    /// The next that `accept` gives; `place` is what the log calls it.
    pub fn next<S>(&mut self, place: &str, mut accept: impl FnMut() -> io::Result<S>) -> S {
        loop {
            match accept() {
                Ok(stream) => {
                    self.failed = false;
                    return stream;
                }
                // Who came is gone already.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.failed, true) {
                        tracing::warn!(%error, "cannot answer on {place} for a while");
                    }
                    let rested = self.rest.wait(Some(REST)).map(|ready| ready.for_each(drop));
                    if rested.is_err() {
                        std::thread::yield_now();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use device::monotonic;

    use super::*;

    #[test]
    fn it_rests_while_nothing_can_be_taken() {
        let mut incoming = Incoming::new().expect("a descriptor");
        let begin = monotonic();
        let mut given = [ErrorKind::ConnectionAborted, ErrorKind::Other, ErrorKind::Other].into_iter();
        let taken = incoming.next("a test", || given.next().map_or(Ok(7), |kind| Err(kind.into())));
        assert_eq!(taken, 7);
        assert!(monotonic() - begin >= 2 * REST);
    }
}
