//! What of a TCP connection has too little behind it for its loss to be noticed, so that a timer has to find it.
//!
//! Data with few segments under way, since less than three duplicate ACKs can come of its loss; and, for a while after a
//! receiver has missed something, each of its ACKs: the last one of a small window tells the sender to go on.

use bicast::Reasons;
use packet::Tcp;
use packet::tcp::SYN;

/// Segments under way, of which one that is lost may be missed too late: it takes three behind it (RFC 5681 3.2).
const FEW: u32 = 4;
/// How many ACKs after one that asks for a retransmission are worth a copy: some windows of the size that losses leave.
const ACKS: u16 = 256;

/// Of a connection, in the direction in which `sent` goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpTail {
    /// How far the other end has it, if known.
    acknowledged: Option<u32>,
    /// Bytes of data in the largest segment.
    largest: u32,
    /// ACKs yet to be copied.
    acks: u16,
}

impl TcpTail {
    /// A segment goes to the peer, for these reasons; whether nothing would tell of its loss.
    pub fn sent(&mut self, segment: &Tcp, reasons: Reasons) -> bool {
        if segment.flags() & SYN != 0 {
            *self = TcpTail::default();
        }
        if reasons.contains(Reasons::REQUEST) {
            self.acks = ACKS;
        }
        let length = segment.payload().len() as u32;
        if length == 0 {
            self.acks = self.acks.saturating_sub(1);
            return self.acks > 0;
        }
        self.largest = self.largest.max(length);
        let under_way = |acknowledged| segment.sequence().wrapping_add(length).wrapping_sub(acknowledged);
        self.acknowledged.is_some_and(|until| under_way(until) <= FEW * self.largest)
    }

    /// Whether the peer's end has all before `number`.
    pub fn has(&self, number: u32) -> bool {
        self.acknowledged.is_some_and(|until| number.wrapping_sub(until) as i32 <= 0)
    }

    /// The peer's end has all before this sequence number.
    pub fn acknowledged(&mut self, number: u32) {
        let newer = |known: u32| (number.wrapping_sub(known) as i32) > 0;
        if self.acknowledged.is_none_or(newer) {
            self.acknowledged = Some(number);
        }
    }
}
