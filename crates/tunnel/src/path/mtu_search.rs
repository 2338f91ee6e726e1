//! The largest outer packet that a path carries: packetization-layer path MTU discovery (RFC 8899) by probes that the
//! feedback confirms.

use std::time::Duration;

use crate::why::Larger;

/// Outer packet sizes to look for (RFC 8899), the largest first: Ethernet, PPPoE, what tunnels and mobile networks leave, what IPv6
/// guarantees and what tunnels in it leave, RFC 1191's plateau, and what IPv4 guarantees.
const SIZES: [u16; 11] = [1500, 1492, 1460, 1420, 1400, 1340, 1320, 1280, 1200, 1006, 576];
/// Probes of a size before it is taken not to pass.
const MTU_TRIES: u8 = 3;
const MTU_RETRY: Duration = Duration::from_millis(500);
/// A path's size is looked for again after this long.
const MTU_LIFE: Duration = Duration::from_secs(600);

/// A path that carries too little is asked again after this.
const TOO_SMALL_LIFE: Duration = Duration::from_secs(30);
/// What a path must carry of an inner packet: what is left of 576 bytes (RFC 791 §3.2) by IPv6, a relay and this tunnel outside.
pub const MIN_CARRIED: u16 = 460;

/// Which sizes are looked for: inner packets of `least` bytes should pass, and, if `search`, larger ones are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuSizes {
    /// Bytes of inner packet that a path should carry in one datagram.
    pub least: u16,
    /// What it must carry, in whatever pieces, where it does not carry that.
    pub floor: u16,
    /// In how many pieces the peer takes a packet.
    pub pieces: u8,
    /// Look for the largest outer packet that passes.
    pub search: bool,
}

impl MtuSizes {
    /// Bytes that one datagram must carry of an inner packet.
    pub fn reserve(&self) -> u16 {
        self.floor.div_ceil(self.pieces.into()).max(MIN_CARRIED)
    }
}

/// One path's search.
#[derive(Debug, Default)]
pub struct MtuSearch {
    /// The largest outer packet that passed; 0 if none did.
    carried: u16,
    /// The smallest that was larger than a link carries, and what says so.
    refused: Option<(u16, Larger)>,
    /// The least that is of use, as asked for last, and how often it was probed in vain.
    least: u16,
    vain: u8,
    /// Rounds of probes since the search began.
    rounds: u8,
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
        (self.rounds, self.next) = (0, now);
        self.due.clear();
    }

    /// The largest outer packet that is known to pass, 0 before any was.
    pub fn carried(&self) -> u16 {
        self.carried
    }

    /// Whether that is enough.
    pub fn suffices(&self) -> bool {
        self.carried > 0 && self.carried >= self.least
    }

    /// What is carried, and what would have to be, where the latter has been tried in vain and the former is known.
    pub fn too_small(&self) -> Option<(u16, u16)> {
        (self.carried > 0 && !self.suffices()).then_some((self.carried, self.least))
    }

    /// A packet of `size` passed.
    pub fn handle_carried(&mut self, size: u16) {
        if self.carried == 0 {
            (self.rounds, self.next) = (1, Duration::ZERO);
        }
        self.carried = self.carried.max(size);
        self.refused.take_if(|(refused, _)| *refused <= size);
    }

    /// A packet of `size` was too large, as `by` says.
    pub fn handle_too_large(&mut self, size: u16, by: Larger) {
        if self.refused.is_none_or(|(refused, _)| size <= refused) && size > self.carried {
            self.refused = Some((size, by));
        }
    }

    /// What becomes of what is larger than passes. A size between that passes no more than others has nobody who says so.
    pub fn larger(&self) -> Larger {
        let sizes = SIZES.into_iter().chain([self.least]);
        let next = sizes.filter(|size| *size > self.carried).min().unwrap_or(u16::MAX);
        self.refused.filter(|(refused, _)| *refused <= next).map_or(Larger::Vanish, |(_, by)| by)
    }

    /// When [`poll`](Self::poll) has something.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Probes the largest size, which most paths carry, and, until enough has passed, the least beside it. Once anything passes, all
    /// sizes that may still pass are probed at once, [`MTU_TRIES`] times: a connection that begins meanwhile has small segments for
    /// good. Where the least does not pass, smaller ones tell what does, and `reserve` is enough; each search begins with them again.
    pub fn poll(&mut self, now: Duration, least: u16, reserve: u16, search: bool) -> Option<u16> {
        self.least = if self.vain < MTU_TRIES { least } else { reserve };
        if self.due.is_empty() && now >= self.next {
            self.start_round(now, least, search);
        }
        self.due.pop()
    }

    fn start_round(&mut self, now: Duration, least: u16, search: bool) {
        if self.carried < least && (self.rounds == 0 || !self.suffices()) {
            if self.vain >= MTU_TRIES {
                let smaller = SIZES.into_iter().filter(|size| *size < least && *size > self.carried);
                self.due.extend(smaller.rev());
            }
            self.due.push(least);
            self.vain = (self.vain + 1).min(MTU_TRIES);
        }
        // The last goes out first: the largest, so that its report does not come after the least one's.
        let sizes = match self.carried {
            0 => &SIZES[..1],
            _ if self.rounds <= MTU_TRIES => &SIZES,
            _ => &[],
        };
        let larger = sizes.iter().filter(|size| search && **size > least.max(self.carried));
        self.due.extend(larger.rev());
        self.rounds = self.rounds.saturating_add(1);
        if self.due.is_empty() {
            // The largest that passes is known. Later, it is looked for again from the top.
            (self.rounds, self.next) = (0, now + MTU_LIFE);
        } else if self.rounds >= 2 * MTU_TRIES {
            // The least, and then smaller ones, were probed [`MTU_TRIES`] times each.
            self.next = now + TOO_SMALL_LIFE;
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
            while let Some(size) = search.poll(now, least, least, true) {
                sizes.push(size);
                if size <= mtu {
                    search.handle_carried(size);
                }
            }
            now += MTU_RETRY;
        }
        (sizes, search.carried)
    }

    #[test]
    fn the_largest_size_that_passes_is_found() {
        assert_eq!(probes(1500, 1364), (vec![1500, 1364], 1500));
        assert_eq!(probes(1492, 1364), (vec![1500, 1364, 1500, 1492, 1460, 1420, 1400, 1500, 1500], 1492));
        assert_eq!(probes(1364, 1364).1, 1364);
        assert_eq!(probes(1300, 1364).1, 1280);
        assert_eq!(probes(500, 1364).1, 0);
    }

    /// What is larger than passes goes in as few datagrams as it can.
    #[test]
    fn below_a_fixed_size_the_largest_that_passes_is_found() {
        for (mtu, found) in [(9000, 8972), (1500, 1500), (1430, 1420), (1344, 1340), (575, 0)] {
            let (mut search, mut now) = (MtuSearch::default(), Duration::ZERO);
            for _ in 0..8 {
                let probed: Vec<_> = std::iter::from_fn(|| search.poll(now, 8972, 1200, false)).collect();
                probed.into_iter().filter(|size| *size <= mtu).for_each(|size| search.handle_carried(size));
                now += MTU_RETRY;
            }
            assert_eq!(search.carried, found, "{mtu}");
        }
    }

    /// Two round trips tell what passes, whatever it is.
    #[test]
    fn a_link_smaller_than_ethernet_is_known_before_a_connection_begins() {
        for mtu in [1492, 1474, 1430, 1400] {
            let (mut search, passed) = (MtuSearch::default(), |size: &u16| *size <= mtu);
            for round_trip in 0..2 {
                let now = round_trip * MTU_RETRY / 5;
                let probed: Vec<_> = std::iter::from_fn(|| search.poll(now, 1364, 1364, true)).collect();
                probed.into_iter().filter(passed).for_each(|size| search.handle_carried(size));
            }
            assert_eq!(Some(search.carried), SIZES.into_iter().find(passed));
        }
    }

    /// A size that is fixed is looked for as seldom as others, whatever passes.
    #[test]
    fn a_search_ends_whatever_passes() {
        for (mtu, search) in
            [0, 500, 576, 1300, 1364, 1500].into_iter().flat_map(|mtu| [(mtu, true), (mtu, false)])
        {
            let (mut sizes, mut probes, hour) = (MtuSearch::default(), 0, Duration::from_secs(3600));
            let mut now = Duration::ZERO;
            while now < hour {
                while let Some(size) = sizes.poll(now, 1364, 576, search) {
                    probes += 1;
                    if size <= mtu {
                        sizes.handle_carried(size);
                    }
                }
                now += MTU_RETRY;
            }
            let most = if mtu < 576 { 1000 } else { 200 };
            assert!(probes < most, "{mtu}, {search}: {probes} probes in an hour");
        }
    }

    #[test]
    fn what_carries_less_is_used_where_that_is_enough() {
        for (mtu, reserve, enough) in [(1300, 576, true), (576, 576, true), (1300, 1364, false)] {
            let (mut search, mut now) = (MtuSearch::default(), Duration::ZERO);
            for round in 0..8 {
                assert!(round > 3 || !search.suffices(), "the usual size is tried first");
                while let Some(size) = search.poll(now, 1364, reserve, true) {
                    search.carried = if size <= mtu { search.carried.max(size) } else { search.carried };
                }
                now += MTU_RETRY;
            }
            search.look_again(now);
            search.poll(now, 1364, reserve, true);
            assert_eq!((search.suffices(), search.too_small().is_some()), (enough, !enough), "{mtu}");
            // It comes to carry more.
            now += MTU_LIFE;
            for _ in 0..40 {
                while let Some(size) = search.poll(now, 1364, reserve, true) {
                    search.carried = if size <= 1340 { search.carried.max(size) } else { search.carried };
                }
                now += MTU_LIFE / 20;
            }
            assert_eq!(search.carried, 1340);
        }
    }

    /// A link of 1492 bytes says so, and one of 1330 behind it says nothing.
    #[test]
    fn who_says_what_does_not_pass() {
        let mut search = MtuSearch { least: 1364, ..MtuSearch::default() };
        let refuse = |search: &mut MtuSearch, sizes: &[u16], by| {
            sizes.iter().for_each(|size| search.handle_too_large(*size, by));
        };
        search.handle_carried(1320);
        refuse(&mut search, &[1500, 1300], Larger::NotSent);
        assert_eq!(search.larger(), Larger::Vanish);
        refuse(&mut search, &[1340, 1500], Larger::Refused);
        assert_eq!(search.larger(), Larger::Refused);
        search.look_again(Duration::ZERO);
        assert_eq!(search.larger(), Larger::Refused, "it is so until more passes");
        search.handle_carried(1364);
        assert_eq!(search.larger(), Larger::Vanish);
        search.restart(Duration::ZERO);
        refuse(&mut search, &[576], Larger::NotSent);
        assert_eq!(search.larger(), Larger::NotSent);
    }
}
