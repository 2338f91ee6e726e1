//! Inner packets sent and not yet confirmed: what a path loses is sent again on another from here.
//!
//! What is late, but not lost for certain, is sent once more as soon as the receiver waits for it.
//!
//! A packet keeps its order sequence however often it is sent; the receiver drops copies by it. It is given up when it
//! could not be confirmed within [`DEADLINE`], or at once where nothing is repeated (the paper's scheduler). The floor, the
//! lowest sequence not confirmed and not given up, tells the receiver which gaps will never be filled.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A packet older than this, and than [`ROUNDS`] round trips, is not sent again: its sender has sent it again itself (RFC 6298 §2.4:
/// one second).
pub const DEADLINE: Duration = Duration::from_secs(1);
/// On paths whose round trip is longer, what is lost is found out only after one.
pub const ROUNDS: u32 = 3;

/// So many packets are kept at most; the oldest is given up for a further one.
const MAX_SLOTS: usize = 1 << 18;

#[derive(Debug)]
struct Slot {
    /// `None` once confirmed or given up, or where nothing is repeated.
    packet: Option<Vec<u8>>,
    /// How far before it the packet is that it must not overtake.
    behind: u16,
    /// Its flow sends little.
    sparse: bool,
    done: bool,
    sent: Duration,
    /// Copies in flight.
    copies: u8,
    /// The path that the last copy went over, and when all that are in flight should be confirmed.
    way: Way,
}

impl Slot {
    fn add_copy(&mut self, way: Way) {
        let due = if self.copies > 0 { way.due.max(self.way.due) } else { way.due };
        (self.copies, self.way) = (self.copies + 1, Way { due, ..way });
    }
}

/// How a packet was sent.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The path's id.
    pub path: u16,
    /// By when it is confirmed if nothing is amiss.
    pub due: Duration,
}

/// A packet to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resend<'a> {
    /// Its order sequence.
    pub order: u64,
    /// How far before it the packet is that it must not overtake.
    pub behind: u16,
    /// Its flow sends little.
    pub sparse: bool,
    /// The id of the path that its last copy went over.
    pub path: u16,
    /// Copies are in flight, and overdue.
    pub overdue: bool,
    /// The inner packet.
    pub packet: &'a [u8],
}

/// The order stream at its sender.
#[derive(Debug)]
pub struct Unconfirmed {
    base: u64,
    slots: VecDeque<Slot>,
    /// What is not of sparse flows goes last; of the others the lowest goes first, for the receiver waits for it.
    resends: BTreeSet<(bool, u64)>,
    bytes: usize,
    max_bytes: usize,
    repeat: bool,
    deadline: Duration,
    given_up: u64,
    resent: u64,
}

impl Unconfirmed {
    /// An empty store. Without `repeat` it keeps no packets and gives up what is lost at once.
    pub fn new(repeat: bool, max_bytes: usize) -> Self {
        Unconfirmed {
            base: 0,
            slots: VecDeque::new(),
            resends: BTreeSet::new(),
            bytes: 0,
            max_bytes,
            repeat,
            deadline: DEADLINE,
            given_up: 0,
            resent: 0,
        }
    }

    /// Holds at most so many bytes of packets from now on.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// The lowest order sequence that may still be sent.
    pub fn floor(&self) -> u64 {
        self.base
    }

    /// The next fresh order sequence.
    pub fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Whether what is lost is sent again.
    pub fn repeats(&self) -> bool {
        self.repeat
    }

    /// From now on what is lost is sent again, or is not; what is kept is kept.
    pub fn set_repeats(&mut self, repeat: bool) {
        self.repeat = repeat;
    }

    /// The round trip of the slowest path in use is `rtt`.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.deadline = DEADLINE.max(ROUNDS * rtt);
    }

    /// Whether there is no room for another packet.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.max_bytes
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets given up, packets sent again.
    pub fn totals(&self) -> (u64, u64) {
        (self.given_up, self.resent)
    }

    /// A packet goes out for the first time, under the sequence [`next`](Self::next).
    pub fn push(&mut self, now: Duration, behind: u16, packet: Vec<u8>, sparse: bool, way: Way) {
        let packet = self.repeat.then_some(packet);
        self.bytes += packet.as_ref().map_or(0, Vec::len);
        self.slots.push_back(Slot { packet, behind, sparse, done: false, sent: now, copies: 1, way });
        if self.slots.len() > MAX_SLOTS {
            self.give_up(self.base);
        }
    }

    /// One more copy of `order` was sent, though nothing says that the last was lost.
    pub fn handle_copied(&mut self, order: u64, way: Way) {
        if let Some(slot) = self.slot(order).filter(|slot| !slot.done) {
            slot.add_copy(way);
        }
    }

    /// A copy arrived.
    pub fn handle_confirmed(&mut self, order: u64) {
        self.finish(order);
        self.trim();
    }

    /// A copy is taken to be lost. It is sent again, or given up, unless those in flight are confirmed before one that is sent now,
    /// `again`.
    pub fn handle_lost(&mut self, now: Duration, again: Duration, order: u64) {
        let deadline = self.deadline;
        let Some(slot) = self.slot(order).filter(|s| !s.done) else { return };
        slot.copies = slot.copies.saturating_sub(1);
        let alone = slot.copies == 0;
        if slot.packet.is_none() || now >= slot.sent + deadline {
            if alone {
                self.give_up(order);
            }
        } else if alone || slot.way.due > again {
            let bulk = !slot.sparse;
            self.resends.insert((bulk, order));
        }
    }

    /// If the packet that the receiver waits for is overdue, puts up all that are to be sent once more, over another path
    /// than the one that they are on: it may have died, which takes longer to be sure of.
    pub fn repeat_overdue(&mut self, now: Duration) {
        if self.front_due().is_none_or(|due| now < due) {
            return;
        }
        let late =
            |slot: &Slot| !slot.done && slot.packet.is_some() && slot.copies == 1 && slot.way.due <= now;
        let overdue = (self.base..).zip(&self.slots).filter(|(_, slot)| late(slot));
        self.resends.extend(overdue.map(|(order, slot)| (!slot.sparse, order)));
    }

    /// When [`repeat_overdue`](Self::repeat_overdue) has something to do.
    pub fn front_due(&self) -> Option<Duration> {
        let front = self.slots.front().filter(|slot| slot.copies == 1 && slot.packet.is_some());
        front.filter(|slot| !self.resends.contains(&(!slot.sparse, self.base))).map(|slot| slot.way.due)
    }

    /// Gives up what has waited too long to be sent again.
    pub fn handle_timeout(&mut self, now: Duration) {
        let deadline = self.deadline;
        while let Some(order) = self.front_resend() {
            if self.slot(order).is_some_and(|s| now < s.sent + deadline) {
                return;
            }
            self.give_up(order);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let (_, order) = *self.resends.first()?;
        self.slots.get(order.checked_sub(self.base)? as usize).map(|s| s.sent + self.deadline)
    }

    /// Whether something waits to be sent again.
    pub fn has_resend(&self) -> bool {
        !self.resends.is_empty()
    }

    /// How many packets wait to be sent again, some of them perhaps confirmed by now.
    pub fn resend_packets(&self) -> usize {
        self.resends.len()
    }

    /// The packet to send again next.
    pub fn peek_resend(&mut self, now: Duration) -> Option<Resend<'_>> {
        let order = self.front_resend()?;
        let &mut Slot { behind, sparse, way, copies, ref packet, .. } = self.slot(order)?;
        let (path, overdue) = (way.path, copies > 0 && way.due <= now);
        Some(Resend { order, behind, sparse, path, overdue, packet: packet.as_deref()? })
    }

    /// A packet that is kept.
    pub fn packet(&mut self, order: u64) -> Option<&[u8]> {
        self.slot(order)?.packet.as_deref()
    }

    /// How far before `order` the packet is that it must not overtake.
    pub fn behind(&mut self, order: u64) -> u16 {
        self.slot(order).map_or(0, |slot| slot.behind)
    }

    /// The packet that [`peek_resend`](Self::peek_resend) showed was sent.
    pub fn pop_resend(&mut self, way: Way) {
        if let Some((_, order)) = self.resends.pop_first()
            && let Some(slot) = self.slot(order)
        {
            slot.add_copy(way);
            self.resent += 1;
        }
    }

    /// The packet that [`peek_resend`](Self::peek_resend) showed fits no path any more.
    pub fn give_up_resend(&mut self) {
        if let Some((_, order)) = self.resends.pop_first() {
            self.give_up(order);
        }
    }

    fn front_resend(&mut self) -> Option<u64> {
        while let Some(&(_, order)) = self.resends.first() {
            if self.slot(order).is_some_and(|s| !s.done) {
                return Some(order);
            }
            self.resends.pop_first();
        }
        None
    }

    fn slot(&mut self, order: u64) -> Option<&mut Slot> {
        self.slots.get_mut(order.checked_sub(self.base)? as usize)
    }

    fn give_up(&mut self, order: u64) {
        self.given_up += 1;
        self.finish(order);
        self.trim();
    }

    fn finish(&mut self, order: u64) {
        let Some(slot) = self.slot(order) else { return };
        slot.done = true;
        let freed = slot.packet.take().map_or(0, |p| p.len());
        self.bytes -= freed;
    }

    fn trim(&mut self) {
        while self.slots.front().is_some_and(|s| s.done) {
            self.slots.pop_front();
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const WAY: Way = Way { path: 7, due: S };
    const AGAIN: Resend =
        Resend { order: 1, behind: 1, sparse: false, path: 7, overdue: false, packet: &[1] };

    fn store(n: u8, repeat: bool) -> Unconfirmed {
        let mut u = Unconfirmed::new(repeat, 1000);
        (0..n).for_each(|i| u.push(Duration::ZERO, 1, vec![i], false, WAY));
        u
    }

    #[test]
    fn the_floor_is_the_lowest_not_confirmed() {
        let mut u = store(3, true);
        u.handle_confirmed(1);
        assert_eq!((u.floor(), u.next(), u.bytes()), (0, 3, 2));
        u.handle_confirmed(0);
        u.handle_confirmed(0);
        assert_eq!((u.floor(), u.next(), u.bytes()), (2, 3, 1));
    }

    #[test]
    fn what_is_lost_is_offered_again_once_per_loss_of_its_last_copy() {
        let mut u = store(2, true);
        u.handle_lost(Duration::ZERO, S, 1);
        assert_eq!(u.peek_resend(2 * S), Some(AGAIN));
        u.pop_resend(WAY);
        assert_eq!(u.peek_resend(2 * S), None);
        u.handle_lost(Duration::ZERO, S, 1);
        assert_eq!(u.peek_resend(2 * S), Some(AGAIN));
        u.handle_confirmed(1);
        assert_eq!(u.peek_resend(2 * S), None, "confirmed after all");
    }

    #[test]
    fn what_is_overdue_is_offered_once_more_if_the_receiver_waits_for_it() {
        let mut u = Unconfirmed::new(true, 1000);
        for (packet, due) in [3, 1, 1].into_iter().enumerate() {
            u.push(Duration::ZERO, 1, vec![packet as u8], false, Way { path: 7, due: due * S });
        }
        u.repeat_overdue(2 * S);
        assert!(!u.has_resend(), "it waits for 0, which is not overdue");
        u.handle_confirmed(0);
        assert_eq!(u.front_due(), Some(S));
        u.repeat_overdue(2 * S);
        assert_eq!((u.resend_packets(), u.front_due()), (2, None));
        assert_eq!(u.peek_resend(2 * S), Some(Resend { overdue: true, ..AGAIN }));
        u.pop_resend(Way { path: 8, due: 5 * S });
        assert_eq!(u.front_due(), None, "two copies are on their way");
        u.handle_lost(2 * S, 3 * S, 1);
        assert_eq!(u.front_due(), Some(5 * S));
        u.handle_confirmed(2);
        assert_eq!(u.peek_resend(2 * S), None, "confirmed after all");
        u.handle_lost(Duration::ZERO, S, 1);
        assert_eq!(u.peek_resend(2 * S), Some(Resend { path: 8, ..AGAIN }));
    }

    #[test]
    fn what_sends_little_goes_first() {
        let mut u = Unconfirmed::new(true, 1000);
        (0..4).for_each(|n| u.push(Duration::ZERO, 1, vec![n], n == 2, WAY));
        (0..4).for_each(|order| u.handle_lost(Duration::ZERO, S, order));
        let next = |u: &mut Unconfirmed| {
            let order = u.peek_resend(2 * S).map(|resend| resend.order);
            u.pop_resend(WAY);
            order
        };
        assert_eq!([(); 5].map(|()| next(&mut u)), [Some(2), Some(0), Some(1), Some(3), None]);
    }

    #[test]
    fn what_went_twice_is_lost_when_both_are() {
        for repeat in [true, false] {
            let mut u = store(2, repeat);
            u.handle_copied(1, Way { path: 8, due: S });
            u.handle_lost(Duration::ZERO, S, 1);
            assert_eq!((u.has_resend(), u.totals().0), (false, 0));
            u.handle_lost(Duration::ZERO, S, 1);
            assert_eq!((u.has_resend(), u.totals().0), (repeat, u64::from(!repeat)));
        }
    }

    #[test]
    fn what_comes_sooner_if_it_is_sent_again_does_not_wait_for_its_copy() {
        for repeat in [true, false] {
            let mut u = store(2, repeat);
            u.handle_copied(1, Way { path: 8, due: 2 * S });
            u.handle_lost(Duration::ZERO, S, 1);
            let again = u.peek_resend(Duration::ZERO);
            assert_eq!(again, repeat.then_some(Resend { path: 8, ..AGAIN }));
            assert_eq!(u.totals().0, 0);
            u.handle_lost(DEADLINE, DEADLINE + S, 1);
            assert_eq!(u.totals().0, 1);
        }
    }

    #[test]
    fn the_deadline_gives_up() {
        let mut u = store(2, true);
        u.handle_lost(Duration::ZERO, S, 0);
        assert_eq!(u.poll_timeout(), Some(DEADLINE));
        u.handle_timeout(S);
        assert_eq!((u.floor(), u.totals().0), (1, 1));
        u.handle_lost(2 * S, 3 * S, 1);
        assert_eq!((u.floor(), u.bytes()), (2, 0));
    }

    #[test]
    fn one_that_nothing_is_heard_of_does_not_make_the_store_grow() {
        let mut u = store(1, true);
        for order in 1..=MAX_SLOTS as u64 {
            u.push(Duration::ZERO, 1, vec![0], false, WAY);
            u.handle_confirmed(order);
        }
        assert_eq!((u.floor(), u.next(), u.bytes()), (u.next(), MAX_SLOTS as u64 + 1, 0));
        assert_eq!(u.totals().0, 1);
    }

    #[test]
    fn without_repetition_a_loss_is_given_up_at_once() {
        let mut u = store(2, false);
        u.handle_lost(Duration::ZERO, S, 0);
        assert_eq!(u.peek_resend(2 * S), None);
        assert_eq!((u.floor(), u.bytes()), (1, 0));
    }
}
