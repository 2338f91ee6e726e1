//! What a layer counted. All counts are packets (frames on the slave's side), times are sums.

use std::time::Duration;

/// Counters since the layer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames handed to the slave: the paper's "packets sent", repetitions by the MAC apart.
    pub sent: u64,
    /// Of these, sums of two.
    pub sent_coded: u64,
    /// Packets of other nodes that were relayed, in sums or not.
    pub relayed: u64,
    /// Packets that waited for a partner.
    pub held: u64,
    /// Of these, sent by themselves because their time was over.
    pub expired: u64,
    /// Of these, sent by themselves because the wait queue controller or its bound pushed them out.
    pub pushed_out: u64,
    /// Of these, gone within a millisecond.
    pub held_1ms: u64,
    /// Of these, gone within ten.
    pub held_10ms: u64,
    /// How long all of them waited together.
    pub held_time: Duration,
    /// Packets decoded.
    pub decoded: u64,
    /// Sums for this node whose other packet it has no copy of; dropped.
    pub missing_partner: u64,
    /// Sums for this node that came out wrong; dropped.
    pub wrong_partner: u64,
    /// Frames with the NC EtherType that are none; dropped.
    pub malformed: u64,
    /// Packets sent again because the neighbour that should have overheard them did not (mode `any`).
    pub sent_again: u64,
    /// Reports and greetings sent (mode `any`).
    pub reports: u64,
    /// Pure ACKs that a later one took the place of.
    pub thinned: u64,
    /// Frames dropped from the interface queue: it was full, or they had waited in it for too long (CoDel).
    pub queue_dropped: u64,
}

/// What a layer keeps at present, each bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Entries of the interface queue.
    pub queued: usize,
    /// Packets that wait for a partner.
    pub held: usize,
    /// Flows known.
    pub flows: usize,
    /// Copies of sent packets in the decoding buffer.
    pub copies: usize,
    /// Neighbours that are not coded for at present, because they miss too much of it (mode `any`).
    pub left_out: usize,
    /// Packets handed to IP whose senders are remembered.
    pub arrivals: usize,
}

impl Stats {
    /// A packet that was held leaves after `held`.
    pub(crate) fn released(&mut self, held: Duration) {
        self.held += 1;
        self.held_time += held;
        self.held_1ms += u64::from(held <= Duration::from_millis(1));
        self.held_10ms += u64::from(held <= Duration::from_millis(10));
    }
}
