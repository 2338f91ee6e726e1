//! What a link counted.

use serde::Serialize;

use crate::units::{ByteCount, PacketCount};

/// A number of frames and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Frames.
    pub frames: PacketCount,
    /// Bytes of these frames as given, link-layer header included.
    pub bytes: ByteCount,
}

impl Tally {
    pub(crate) fn add(&mut self, frame: &[u8]) {
        self.frames += PacketCount(1);
        self.bytes += ByteCount(frame.len() as u64);
    }

    pub(crate) fn remove(&mut self, frame: &[u8]) {
        self.frames -= PacketCount(1);
        self.bytes -= ByteCount(frame.len() as u64);
    }
}

/// Counters of one link since it was made, as of the last call of a method that takes `now`.
///
/// Every frame is counted once: `offered + duplicated = delivered + lost + policer_dropped +
/// queue_dropped + blackout_dropped +` what is still in the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Handed to `send`.
    pub offered: Tally,
    /// Handed out by `poll`, copies included.
    pub delivered: Tally,
    /// Dropped by the loss model, or given up by the ARQ.
    pub lost: Tally,
    /// Dropped because they exceeded the policer's rate.
    pub policer_dropped: Tally,
    /// Dropped because the queue was full.
    pub queue_dropped: Tally,
    /// Sent while the link was down, or in transmission when it went down.
    pub blackout_dropped: Tally,
    /// Additional copies.
    pub duplicated: Tally,
    /// Copies with a bit flipped.
    pub corrupted: Tally,
    /// Repetitions by the ARQ.
    pub repeated: Tally,
    /// Waiting for transmission now; the frame in transmission does not count.
    pub queue: Tally,
    /// The most frames that ever waited at once.
    pub queue_max_frames: PacketCount,
    /// The most bytes that ever waited at once.
    pub queue_max_bytes: ByteCount,
}

impl Stats {
    pub(crate) fn enqueue(&mut self, frame: &[u8]) {
        self.queue.add(frame);
        self.queue_max_frames = self.queue_max_frames.max(self.queue.frames);
        self.queue_max_bytes = self.queue_max_bytes.max(self.queue.bytes);
    }
}
