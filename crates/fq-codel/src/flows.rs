//! A queue for each flow, and CoDel in each (FQ-CoDel, RFC 8290), as mac80211 has.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{Codel, FRAME};

/// What a flow may send before the next has its turn, in bytes.
const QUANTUM: i64 = FRAME as i64;

/// What a frame may wait, and for how long it may be more: mac80211's.
const TARGET: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(100);

/// Frames, each of a flow named `N`; an `I` is what it is handed on as.
#[derive(Debug)]
pub struct Flows<N, I> {
    flows: BTreeMap<N, Flow<I>>,
    /// Flows that begin, and those that have had a turn.
    fresh: VecDeque<N>,
    old: VecDeque<N>,
    frames: usize,
    has_codel: bool,
}

/// Where a frame waits: its flow, and its number there.
pub type Place<N> = (N, usize);

#[derive(Debug)]
struct Flow<I> {
    frames: VecDeque<Frame<I>>,
    bytes: u64,
    deficit: i64,
    codel: Option<Codel>,
}

#[derive(Debug)]
struct Frame<I> {
    since: Duration,
    bytes: u64,
    item: I,
}

impl<N, I> Default for Flows<N, I> {
    fn default() -> Self {
        Flows {
            flows: BTreeMap::new(),
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            frames: 0,
            has_codel: true,
        }
    }
}

impl<N: Copy + Ord, I> Flows<N, I> {
    /// Without CoDel.
    pub fn without_codel() -> Self {
        Flows { has_codel: false, ..Self::default() }
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// A frame of the flow `name` and of so many bytes comes.
    pub fn push(&mut self, now: Duration, name: N, bytes: u64, item: I) {
        self.frames += 1;
        let flow = self.flows.entry(name).or_insert_with(|| {
            self.fresh.push_back(name);
            let codel = self.has_codel.then(|| Codel::new(TARGET, INTERVAL));
            Flow { frames: VecDeque::new(), bytes: 0, deficit: QUANTUM, codel }
        });
        flow.bytes += bytes;
        flow.frames.push_back(Frame { since: now, bytes, item });
    }

    /// The frame whose turn it is. Those that CoDel drops before it go to `dropped`.
    pub fn pop(&mut self, now: Duration, mut dropped: impl FnMut(I)) -> Option<I> {
        loop {
            let begins = !self.fresh.is_empty();
            let name = self.fresh.pop_front().or_else(|| self.old.pop_front())?;
            let Some(flow) = self.flows.get_mut(&name) else { continue };
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                self.old.push_back(name);
                continue;
            }
            while let Some(frame) = flow.remove(0) {
                self.frames -= 1;
                if flow.drops(now, &frame) {
                    dropped(frame.item);
                    continue;
                }
                flow.deficit -= frame.bytes as i64;
                if begins {
                    self.fresh.push_front(name)
                } else {
                    self.old.push_front(name)
                }
                return Some(frame.item);
            }
            // One that begins goes behind the others once more, lest it begin again at once.
            if begins && !self.old.is_empty() {
                self.old.push_back(name);
            } else {
                self.flows.remove(&name);
            }
        }
    }

    /// Takes a frame out of its turn; its flow pays for it all the same, with no more than a turn: one from which others take for
    /// long would wait as long when they stop. `Err` if CoDel drops it.
    pub fn take(&mut self, now: Duration, (name, at): Place<N>) -> Option<Result<I, I>> {
        let flow = self.flows.get_mut(&name)?;
        let frame = flow.remove(at)?;
        self.frames -= 1;
        if flow.drops(now, &frame) {
            return Some(Err(frame.item));
        }
        flow.deficit = (flow.deficit - frame.bytes as i64).max(-QUANTUM);
        Some(Ok(frame.item))
    }

    /// Takes the first frame of the flow that has most bytes waiting.
    pub fn drop_longest(&mut self) -> Option<I> {
        let (_, longest) = self.flows.iter_mut().max_by_key(|(_, flow)| flow.bytes)?;
        let frame = longest.remove(0)?;
        self.frames -= 1;
        Some(frame.item)
    }

    /// All frames, where they wait and since when: one flow after the other.
    pub fn iter(&self) -> impl Iterator<Item = (Place<N>, Duration, &I)> {
        self.flows.iter().flat_map(|(name, flow)| {
            (0..).zip(&flow.frames).map(|(at, frame)| ((*name, at), frame.since, &frame.item))
        })
    }

    /// Those of a flow, in its order.
    pub fn flow_mut(&mut self, name: N) -> impl DoubleEndedIterator<Item = &mut I> {
        self.flows
            .get_mut(&name)
            .into_iter()
            .flat_map(|flow| flow.frames.iter_mut().map(|frame| &mut frame.item))
    }
}

impl<I> Flow<I> {
    fn remove(&mut self, at: usize) -> Option<Frame<I>> {
        let frame = self.frames.remove(at)?;
        self.bytes -= frame.bytes;
        Some(frame)
    }

    fn drops(&mut self, now: Duration, frame: &Frame<I>) -> bool {
        let sojourn = now.saturating_sub(frame.since);
        self.codel.as_mut().is_some_and(|codel| codel.drops(now, sojourn, self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    fn push(flows: &mut Flows<u8, u8>, flow: u8, length: u64) {
        flows.push(ZERO, flow, length, flow);
    }

    fn order(flows: &mut Flows<u8, u8>, count: usize) -> Vec<u8> {
        (0..count).filter_map(|_| flows.pop(ZERO, drop)).collect()
    }

    #[test]
    fn flows_take_turns_and_one_that_begins_goes_first() {
        let mut flows = Flows::default();
        (0..4).for_each(|_| push(&mut flows, 1, 1514));
        assert_eq!(order(&mut flows, 1), [1]);
        push(&mut flows, 2, 100);
        (0..2).for_each(|_| push(&mut flows, 3, 1514));
        assert_eq!(order(&mut flows, 9), [2, 3, 1, 3, 1, 1]);
        assert!(flows.is_empty() && flows.flows.is_empty());
    }

    #[test]
    fn what_waits_too_long_is_dropped() {
        let dropped = |ms: fn(u64) -> u64| -> usize {
            let (mut flows, mut dropped) = (Flows::default(), 0);
            (0..100).for_each(|_| push(&mut flows, 1, 1514));
            let left =
                (0..20).filter_map(|n| flows.pop(Duration::from_millis(ms(n)), |_| dropped += 1)).count();
            assert_eq!((left, flows.len()), (20, 80 - dropped));
            dropped
        };
        assert!(dropped(|n| 30 + n * 10) > 0);
        assert_eq!(dropped(|_| 10), 0);
    }

    #[test]
    fn what_is_taken_out_of_its_turn_may_be_dropped_too() {
        let mut flows = Flows::default();
        (0..100).for_each(|_| push(&mut flows, 1, 1514));
        let mut taken = |ms| flows.take(Duration::from_millis(ms), (1, 0));
        assert_eq!([taken(30), taken(131)], [Some(Ok(1)), Some(Err(1))]);
    }

    #[test]
    fn a_flow_pays_for_what_is_taken_out_of_its_turn() {
        let mut flows = Flows::default();
        (0..2).for_each(|_| push(&mut flows, 1, 1514));
        push(&mut flows, 2, 1514);
        assert_eq!(flows.take(ZERO, (1, 0)), Some(Ok(1)));
        assert_eq!(order(&mut flows, 2), [2, 1]);
    }

    #[test]
    fn what_was_taken_for_long_makes_its_flow_wait_no_longer_than_a_turn() {
        let mut flows = Flows::default();
        (0..1002).for_each(|_| push(&mut flows, 1, 1514));
        assert!((0..1000).all(|_| flows.take(ZERO, (1, 0)) == Some(Ok(1))));
        (0..4).for_each(|_| push(&mut flows, 2, 1514));
        assert_eq!(order(&mut flows, 4), [2, 2, 1, 2]);
    }

    #[test]
    fn the_longest_flow_loses_its_first() {
        let mut flows = Flows::default();
        flows.push(ZERO, 1, 100, 'a');
        ['b', 'c'].into_iter().for_each(|item| flows.push(ZERO, 2, 60, item));
        assert_eq!(
            (flows.drop_longest(), flows.drop_longest(), flows.drop_longest()),
            (Some('b'), Some('a'), Some('c'))
        );
        assert_eq!((flows.drop_longest(), flows.len()), (None, 0));
    }
}
