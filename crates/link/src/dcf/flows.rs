//! What waits above a station's hardware: a queue for each flow, and CoDel in each (FQ-CoDel, RFC 8290), as mac80211 has.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::aqm::Codel;

/// What a flow may send before the next has its turn: a full frame, in bytes.
const QUANTUM: i64 = 1514;

/// What a frame may wait, and for how long it may be more: mac80211's.
const TARGET: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(100);

/// IPv4's addresses and the ports behind them, in a frame without options; all others are one flow.
type Name = [u8; 12];
const NAME_AT: usize = 26;

/// The flow that a frame is of.
pub(super) fn name(frame: &[u8]) -> Name {
    frame.get(NAME_AT..).and_then(|from| from.first_chunk().copied()).unwrap_or_default()
}

/// Frames, each with what belongs to it.
#[derive(Debug)]
pub(super) struct Flows<T> {
    flows: BTreeMap<Name, Flow<T>>,
    /// Flows that begin, and those that have had a turn.
    fresh: VecDeque<Name>,
    old: VecDeque<Name>,
    bytes: u64,
    frames: usize,
}

#[derive(Debug)]
struct Flow<T> {
    /// When each came, its bytes, and it.
    frames: VecDeque<(Duration, u64, T)>,
    deficit: i64,
    codel: Codel,
}

impl<T> Default for Flows<T> {
    fn default() -> Self {
        Flows { flows: BTreeMap::new(), fresh: VecDeque::new(), old: VecDeque::new(), bytes: 0, frames: 0 }
    }
}

impl<T> Flows<T> {
    pub(super) fn len(&self) -> usize {
        self.frames
    }

    /// A frame of the flow `name` and of so many bytes comes; `item` is what it is handed on as.
    pub(super) fn push(&mut self, now: Duration, name: Name, bytes: u64, item: T) {
        self.bytes += bytes;
        self.frames += 1;
        let flow = self.flows.entry(name).or_insert_with(|| {
            self.fresh.push_back(name);
            Flow { frames: VecDeque::new(), deficit: QUANTUM, codel: Codel::new(TARGET, INTERVAL) }
        });
        flow.frames.push_back((now, bytes, item));
    }

    /// The next for the hardware, and how many were dropped before it.
    pub(super) fn pop(&mut self, now: Duration) -> (Option<T>, u64) {
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
            while let Some((since, bytes, item)) = flow.frames.pop_front() {
                self.bytes -= bytes;
                self.frames -= 1;
                if flow.codel.drops(now, now.saturating_sub(since), self.bytes) {
                    dropped += 1;
                    continue;
                }
                flow.deficit -= bytes as i64;
                if begins {
                    self.fresh.push_front(name)
                } else {
                    self.old.push_front(name)
                }
                return (Some(item), dropped);
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
    use super::*;

    fn push(flows: &mut Flows<u8>, flow: u8, length: usize) {
        let mut frame = vec![0; length];
        frame[NAME_AT] = flow;
        flows.push(Duration::ZERO, name(&frame), length as u64, flow);
    }

    fn order(flows: &mut Flows<u8>, count: usize) -> Vec<u8> {
        (0..count).filter_map(|_| flows.pop(Duration::ZERO).0).collect()
    }

    #[test]
    fn flows_take_turns_and_one_that_begins_goes_first() {
        let mut flows = Flows::default();
        (0..4).for_each(|_| push(&mut flows, 1, 1514));
        assert_eq!(order(&mut flows, 1), [1]);
        push(&mut flows, 2, 100);
        (0..2).for_each(|_| push(&mut flows, 3, 1514));
        assert_eq!(order(&mut flows, 9), [2, 3, 1, 3, 1, 1]);
        assert_eq!((flows.len(), flows.bytes), (0, 0));
    }

    #[test]
    fn what_waits_too_long_is_dropped_and_counted() {
        let dropped = |ms: fn(u64) -> u64| -> u64 {
            let mut flows = Flows::default();
            (0..100).for_each(|_| push(&mut flows, 1, 1514));
            (0..20).map(|n| flows.pop(Duration::from_millis(ms(n))).1).sum()
        };
        assert!(dropped(|n| 30 + n * 10) > 0);
        assert_eq!(dropped(|_| 10), 0);
    }
}
