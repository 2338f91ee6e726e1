//! What waits above a station's hardware: a queue for each flow, and CoDel in each (FQ-CoDel, RFC 8290), as mac80211 has.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::station::Outgoing;
use crate::aqm::Codel;

/// What a flow may send before the next has its turn: a full frame, in bytes.
const QUANTUM: i64 = 1514;

/// What a frame may wait, and for how long it may be more: mac80211's.
const TARGET: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(100);

/// IPv4's addresses and the ports behind them, in a frame without options; all others are one flow.
type Name = [u8; 12];
const NAME_AT: usize = 26;

#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<Name, Flow>,
    /// Flows that begin, and those that have had a turn.
    fresh: VecDeque<Name>,
    old: VecDeque<Name>,
    bytes: u64,
    frames: usize,
}

#[derive(Debug)]
struct Flow {
    frames: VecDeque<(Duration, Outgoing)>,
    deficit: i64,
    codel: Codel,
}

impl Flows {
    pub(super) fn len(&self) -> usize {
        self.frames
    }

    pub(super) fn push(&mut self, now: Duration, outgoing: Outgoing) {
        let name =
            outgoing.frame.get(NAME_AT..).and_then(|from| from.first_chunk().copied()).unwrap_or_default();
        self.bytes += outgoing.frame.len() as u64;
        self.frames += 1;
        let flow = self.flows.entry(name).or_insert_with(|| {
            self.fresh.push_back(name);
            Flow { frames: VecDeque::new(), deficit: QUANTUM, codel: Codel::new(TARGET, INTERVAL) }
        });
        flow.frames.push_back((now, outgoing));
    }

    /// The next for the hardware, and how many were dropped before it.
    pub(super) fn pop(&mut self, now: Duration) -> (Option<Outgoing>, u64) {
        let mut dropped = 0;
        loop {
            let begins = !self.fresh.is_empty();
            let Some(name) = self.fresh.pop_front().or_else(|| self.old.pop_front()) else {
                return (None, dropped);
            };
            let Some(flow) = self.flows.get_mut(&name) else { continue };
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                self.old.push_back(name);
                continue;
            }
            while let Some((since, outgoing)) = flow.frames.pop_front() {
                self.bytes -= outgoing.frame.len() as u64;
                self.frames -= 1;
                if flow.codel.drops(now, now.saturating_sub(since), self.bytes) {
                    dropped += 1;
                    continue;
                }
                flow.deficit -= outgoing.frame.len() as i64;
                if begins {
                    self.fresh.push_front(name)
                } else {
                    self.old.push_front(name)
                }
                return (Some(outgoing), dropped);
            }
            // One that begins goes behind the others once more, lest it begin again at once.
            if begins && !self.old.is_empty() {
                self.old.push_back(name);
            } else {
                self.flows.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::station::Destination;
    use super::*;

    fn frame(flow: u8, length: usize) -> Outgoing {
        let mut frame = vec![0; length];
        frame[NAME_AT] = flow;
        Outgoing::new(Destination::Broadcast, frame)
    }

    fn order(flows: &mut Flows, now: Duration, count: usize) -> Vec<u8> {
        (0..count).filter_map(|_| flows.pop(now).0).map(|outgoing| outgoing.frame[NAME_AT]).collect()
    }

    #[test]
    fn flows_take_turns_and_one_that_begins_goes_first() {
        let mut flows = Flows::default();
        (0..4).for_each(|_| flows.push(Duration::ZERO, frame(1, 1514)));
        assert_eq!(order(&mut flows, Duration::ZERO, 1), [1]);
        flows.push(Duration::ZERO, frame(2, 100));
        (0..2).for_each(|_| flows.push(Duration::ZERO, frame(3, 1514)));
        assert_eq!(order(&mut flows, Duration::ZERO, 9), [2, 3, 1, 3, 1, 1]);
        assert_eq!((flows.len(), flows.bytes), (0, 0));
    }

    #[test]
    fn what_waits_too_long_is_dropped_and_counted() {
        let mut flows = Flows::default();
        (0..100).for_each(|_| flows.push(Duration::ZERO, frame(1, 1514)));
        let dropped = |flows: &mut Flows, from: u64| -> u64 {
            (from..from + 20).map(|n| flows.pop(Duration::from_millis(30 + n * 10)).1).sum()
        };
        assert!(dropped(&mut flows, 0) > 0);
        let mut short = Flows::default();
        (0..100).for_each(|_| short.push(Duration::ZERO, frame(1, 1514)));
        assert_eq!((0..100).map(|_| short.pop(Duration::from_millis(10)).1).sum::<u64>(), 0);
    }
}
