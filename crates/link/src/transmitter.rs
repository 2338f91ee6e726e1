//! The bottleneck: how long bytes take to leave.

use std::time::Duration;

use crate::config::Capacity;
use crate::trace::TracePosition;

/// Serves one transmission after the other at the configured capacity.
#[derive(Debug)]
pub(crate) struct Transmitter {
    capacity: Capacity,
    /// Behind the last transmission, and before it.
    position: TracePosition,
    before: TracePosition,
}

impl Transmitter {
    pub(crate) fn new(capacity: Capacity) -> Transmitter {
        Transmitter { capacity, position: TracePosition::default(), before: TracePosition::default() }
    }

    /// Transmits `bytes` from `start` on, which must not lie before the end of the last transmission: when
    /// it is done.
    pub(crate) fn transmit(&mut self, start: Duration, bytes: usize) -> Duration {
        match &self.capacity {
            Capacity::Unlimited => start,
            Capacity::Fixed(rate) => start.saturating_add(rate.transmit_time(bytes)),
            Capacity::Trace(trace) => {
                let (done, position) = trace.carry(self.position, start, bytes);
                self.before = std::mem::replace(&mut self.position, position);
                done
            }
        }
    }

    /// The last transmission was cut off: what it would still have used is free again.
    pub(crate) fn abort(&mut self) {
        self.position = self.before;
    }
}
