//! What was sent and is watched until it is known to have arrived, because its sender would notice its loss by a timer alone.
//!
//! TCP's timers wait for 200 ms and more; a report tells within a round trip. Used where the tunnel itself sends nothing again, by
//! [`copies`](crate::flow::copies): a retransmission whose copy is lost as well, and the last packets of a flow that has fallen
//! silent.

use std::collections::VecDeque;
use std::time::Duration;

/// So many packets are watched, the newest. A flow with more under way hears of most losses by what comes behind them.
const MAX: usize = 128;

/// A packet on its way.
#[derive(Debug)]
pub struct Watched {
    /// Its order sequence.
    pub order: u64,
    /// Its bytes.
    pub packet: Vec<u8>,
    /// The id of the path that it took last.
    pub path: u16,
    /// Its flow.
    pub flow: u64,
    /// Of TCP's: the sequence numbers of its first byte and behind its last.
    pub span: Option<(u32, u32)>,
    /// It is missed though its flow goes on.
    pub always: bool,
    /// When to send it again, if it has not arrived.
    pub due: Duration,
    /// How often it was sent again.
    pub times: u8,
}

/// Packets on their way, by their order sequences.
#[derive(Debug, Default)]
pub struct WatchList(VecDeque<Watched>);

impl WatchList {
    /// Follows one more.
    pub fn insert(&mut self, packet: Watched) {
        let at = self.0.partition_point(|known| known.order < packet.order);
        self.0.insert(at, packet);
        if self.0.len() > MAX {
            self.0.pop_front();
        }
    }

    /// It arrived.
    pub fn handle_confirmed(&mut self, order: u64) {
        if let Ok(at) = self.0.binary_search_by_key(&order, |packet| packet.order) {
            self.0.remove(at);
        }
    }

    /// The sender itself sends the segment of `flow` again that begins at `sequence`.
    pub fn handle_retransmission(&mut self, flow: u64, sequence: u32) {
        self.0.retain(|p| p.flow != flow || p.span.is_none_or(|(first, _)| first != sequence));
    }

    /// The first that is due, of those that are missed in any case if there are any: others wait behind them.
    pub fn take_due(&mut self, now: Duration) -> Option<Watched> {
        let due = self.0.iter().enumerate().filter(|(_, packet)| packet.due <= now);
        let (at, _) = due.min_by_key(|(_, packet)| (!packet.always, packet.order))?;
        self.0.remove(at)
    }

    /// When [`take_due`](Self::take_due) has something.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.0.iter().map(|packet| packet.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn packet(order: u64, due: Duration) -> Watched {
        let span = Some((order as u32 * 10, order as u32 * 10 + 10));
        Watched { order, packet: Vec::new(), path: 1, flow: 7, span, always: false, due, times: 0 }
    }

    #[test]
    fn what_does_not_arrive_is_due_in_order_and_what_is_missed_first() {
        let mut follow = WatchList::default();
        for (order, due) in [(3, 4 * S), (1, 2 * S), (2, 2 * S), (4, 9 * S)] {
            follow.insert(packet(order, due));
        }
        follow.handle_confirmed(1);
        follow.handle_confirmed(9);
        assert_eq!(follow.poll_timeout(), Some(2 * S));
        assert!(follow.take_due(S).is_none());
        follow.insert(Watched { always: true, ..packet(5, S) });
        let due: Vec<_> = std::iter::from_fn(|| follow.take_due(5 * S)).map(|packet| packet.order).collect();
        assert_eq!(due, [5, 2, 3]);
        follow.handle_retransmission(8, 40);
        assert_eq!(follow.poll_timeout(), Some(9 * S));
        follow.handle_retransmission(7, 40);
        assert_eq!(follow.poll_timeout(), None);
    }

    #[test]
    fn the_newest_are_watched() {
        let mut follow = WatchList::default();
        (0..1000).for_each(|order| follow.insert(packet(order, S)));
        assert_eq!(
            (follow.0.len(), follow.take_due(S).map(|packet| packet.order)),
            (MAX, Some(1000 - MAX as u64))
        );
    }
}
