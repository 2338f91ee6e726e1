//! Loss by the order of transmission and by time (RFC 8985), as Linux's `tcp_recovery.c`.

use std::time::Duration;

use crate::sender::{Sender, Timer};
use crate::state::State;

/// So many recoveries a wider reordering window is kept (`TCP_RACK_RECOVERY_THRESH`).
pub const PERSIST: u32 = 16;
/// Timers are no finer than this (`TCP_TIMEOUT_MIN`).
const TIMER_MIN: Duration = Duration::from_millis(2);
/// So many SACKed segments make a loss without waiting, if nothing was ever reordered (`tcp_reordering`).
const THRESHOLD: u64 = 3;

impl Sender {
    /// `tcp_rack_advance`; `echoed` says whether the retransmission itself was answered.
    pub(crate) fn rack_advance(
        &mut self,
        now: Duration,
        sent: Duration,
        tx: u64,
        ever_again: bool,
        echoed: bool,
    ) {
        let rtt = now - sent;
        if ever_again && (!echoed || self.rtt.min().is_some_and(|min| rtt < min)) {
            return;
        }
        self.rack.advanced = true;
        self.rack.rtt = rtt;
        self.rack.newest = self.rack.newest.max((sent, tx));
    }

    /// `tcp_rack_update_reo_wnd`.
    pub(crate) fn rack_widen(&mut self, prior_delivered: u64) {
        let delivered = self.rate.delivered;
        let rack = &mut self.rack;
        // A round trip has to pass between two steps.
        if prior_delivered < rack.last_delivered {
            rack.duplicate_seen = false;
        }
        if std::mem::take(&mut rack.duplicate_seen) {
            rack.steps = (rack.steps + 1).min(255);
            rack.last_delivered = delivered;
            rack.persist = PERSIST;
        } else if rack.persist == 0 {
            rack.steps = 1;
        }
    }

    /// `tcp_rack_reo_wnd`.
    pub(crate) fn reordering_window(&self) -> Duration {
        if !self.rack.reordering_seen && (self.state >= State::Recovery || self.sacked_out >= THRESHOLD) {
            return Duration::ZERO;
        }
        let steps = self.rtt.min().unwrap_or_default() / 4 * self.rack.steps;
        steps.min(self.rtt.smoothed().unwrap_or_default())
    }

    /// `tcp_rack_detect_loss`: marks what is lost; when more may turn out to be.
    fn rack_detect(&mut self, now: Duration) -> Option<Duration> {
        let patience = self.rack.rtt + self.reordering_window();
        let mut last = None;
        let mut kept = 0;
        while let Some(&(tx, segment)) = self.order.get(kept) {
            let slot = segment.checked_sub(self.una).and_then(|at| self.slots.get(at as usize));
            let Some(slot) = slot.filter(|slot| slot.tx == tx && !slot.sacked && (!slot.lost || slot.again))
            else {
                self.drop_order(kept);
                continue;
            };
            if (slot.sent, tx) >= self.rack.newest {
                break;
            }
            let due = slot.sent + patience;
            if due <= now {
                self.drop_order(kept);
                self.mark_lost(segment);
            } else {
                last = last.max(Some(due));
                kept += 1;
            }
        }
        last
    }

    fn drop_order(&mut self, at: usize) {
        if at == 0 {
            self.order.pop_front();
        } else {
            self.order.remove(at);
        }
    }

    /// `tcp_mark_skb_lost`.
    pub(crate) fn mark_lost(&mut self, segment: u64) {
        let slot = &mut self.slots[(segment - self.una) as usize];
        if slot.sacked {
            return;
        }
        if slot.lost && slot.again {
            slot.again = false;
            self.again_out -= 1;
            self.rate.lost += 1;
        } else if !slot.lost {
            slot.lost = true;
            self.lost_out += 1;
            self.rate.lost += 1;
            if slot.again {
                slot.again = false;
                self.again_out -= 1;
            }
        }
        self.to_repeat.insert(segment);
    }

    /// `tcp_rack_mark_lost`; whether a retransmission was lost.
    pub(crate) fn rack_mark_lost(&mut self, now: Duration) -> bool {
        if !std::mem::take(&mut self.rack.advanced) {
            return false;
        }
        let before = self.again_out;
        if let Some(due) = self.rack_detect(now) {
            self.timer = Some((due + TIMER_MIN, Timer::Reordering));
        }
        self.again_out < before
    }

    /// `tcp_rack_reo_timeout`.
    pub(crate) fn handle_reordering_timer(&mut self, now: Duration) {
        let before = self.in_flight();
        let due = self.rack_detect(now);
        if self.in_flight() != before {
            if self.state != State::Recovery {
                self.enter_recovery();
                if let crate::sender::Control::Cubic(_) = self.control {
                    self.reduce(1, 0, false);
                }
            }
            self.next = crate::sender::Next::Lost;
        }
        match due {
            Some(due) => self.timer = Some((due + TIMER_MIN, Timer::Reordering)),
            None => self.rearm(now),
        }
    }
}
