//! The largest outer packet that a path carries: packetization-layer path MTU discovery (RFC 8899) by probes that the
//! feedback confirms.

use std::time::Duration;

/// Outer packet sizes to look for (RFC 8899): Ethernet, PPPoE, and what tunnels and mobile networks leave.
const SIZES: [u16; 5] = [1500, 1492, 1460, 1420, 1400];
/// Probes of a size before it is taken not to pass.
const MTU_TRIES: u8 = 3;
const MTU_RETRY: Duration = Duration::from_millis(500);
/// A path's size is looked for again after this long.
const MTU_LIFE: Duration = Duration::from_secs(600);

/// Which sizes are looked for: inner packets of `least` bytes must pass, and, if `search`, larger ones are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuSizes {
    /// Bytes of inner packet that a path must carry to be used.
    pub least: u16,
    /// Look for the largest outer packet that passes.
    pub search: bool,
}

/// One path's search.
#[derive(Debug, Default)]
pub struct MtuSearch {
    /// The largest outer packet that passed; 0 if none did.
    carried: u16,
    /// Place in the falling sizes, and how often that size was probed.
    size: usize,
    tries: u8,
    due: Vec<u16>,
    next: Duration,
}

impl MtuSearch {
    /// Forgets everything.
    pub fn restart(&mut self, now: Duration) {
        *self = MtuSearch { next: now, ..MtuSearch::default() };
    }

    /// Looks for a larger size at once.
    pub fn look_again(&mut self, now: Duration) {
        *self = MtuSearch { next: now, carried: self.carried, ..MtuSearch::default() };
    }

    /// The largest outer packet that is known to pass, 0 before any was.
    pub fn carried(&self) -> u16 {
        self.carried
    }

    /// A packet of `size` passed.
    pub fn handle_carried(&mut self, size: u16) {
        self.carried = self.carried.max(size);
    }

    /// When [`poll`](Self::poll) has something.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Walks down the sizes, one each [`MTU_RETRY`], and until anything passed probes the least beside it, so that the path
    /// is of use while larger ones are tried.
    pub fn poll(&mut self, now: Duration, least: u16, search: bool) -> Option<u16> {
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
