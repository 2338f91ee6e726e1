//! What leaves a sender: the choice of segments, pacing, and the timers, as Linux's `tcp_output.c` and `tcp_timer.c`.

use std::time::Duration;

use crate::sender::{BUFFER, Control, Force, Next, Outgoing, Sender, Slot, Timer};
use crate::state::State;

impl Sender {
    fn bytes(&self, segment: u64) -> Outgoing {
        let start = segment * self.mss;
        Outgoing { start, len: (self.total - start).min(self.mss) as usize }
    }

    fn fits(&self, segment: u64) -> bool {
        let bytes = self.bytes(segment);
        bytes.start + bytes.len as u64 <= self.edge.min(self.written)
    }

    /// The next segment that may leave.
    pub fn poll(&mut self, now: Duration) -> Option<Outgoing> {
        if let Some(force) = self.force.take() {
            return self.poll_forced(now, force);
        }
        if now < self.next_send && self.burst == 0 {
            return None;
        }
        let room = self.in_flight() < self.window.cwnd;
        let segment = if room { self.candidate() } else { None };
        let Some(segment) = segment else {
            self.validate(!room);
            return None;
        };
        if self.paced && self.burst == 0 {
            self.burst = match &self.control {
                Control::Bbr(bbr) => bbr.burst(),
                // `tcp_tso_autosize`: a millisecond's.
                Control::Cubic(_) => {
                    let rate = self.pacing_rate().unwrap_or_default();
                    ((rate / self.mss as f64 / 1024.0) as u64).clamp(2, 44)
                }
            };
        }
        self.transmit(now, segment);
        Some(self.bytes(segment))
    }

    fn poll_forced(&mut self, now: Duration, force: Force) -> Option<Outgoing> {
        let new = self.end() < self.segments() && self.fits(self.end());
        let segment = match force {
            Force::First if self.slots.is_empty() => self.end(),
            Force::First => self.una,
            Force::Probe if new => self.end(),
            Force::Probe => self.end() - 1,
        };
        let again = segment < self.end();
        self.transmit(now, segment);
        if force == Force::Probe {
            self.probe = Some((self.end(), again));
            self.rearm(now);
        }
        Some(self.bytes(segment))
    }

    fn candidate(&mut self) -> Option<u64> {
        let new = Some(self.end()).filter(|end| *end < self.segments() && self.fits(*end));
        if let Next::New(from) = self.next {
            if new.is_some() && self.end() < from + 2 {
                return new;
            }
            self.next = Next::Lost;
            self.frto &= self.end() > from;
            if self.end() > from {
                return None;
            }
        }
        let repeat = self.to_repeat.first().copied().filter(|s| self.fits(*s) || *s == self.una);
        repeat.or(new)
    }

    fn transmit(&mut self, now: Duration, segment: u64) {
        let tx = self.next_tx;
        self.next_tx += 1;
        let snapshot = self.rate.snapshot(now, self.slots.is_empty());
        let index = (segment - self.una) as usize;
        if index == self.slots.len() {
            let was_empty = self.slots.is_empty();
            self.slots.push_back(Slot { sent: now, tx, rate: snapshot, ..Slot::default() });
            if was_empty || !matches!(self.timer, Some((_, Timer::Reordering | Timer::Retransmission))) {
                self.schedule(now);
            }
        } else {
            self.counters.retransmitted += 1;
            self.again_since.get_or_insert(now);
            self.undo_again = Some(self.undo_again.unwrap_or(0) + 1);
            let slot = &mut self.slots[index];
            if !slot.again {
                self.again_out += 1;
            }
            (slot.sent, slot.tx, slot.again, slot.ever_again, slot.rate) = (now, tx, true, true, snapshot);
            self.to_repeat.remove(&segment);
            if segment == self.una && !matches!(self.timer, Some((_, Timer::Reordering))) {
                self.arm(now, Timer::Retransmission, self.rtt.rto(self.backoff));
            }
        }
        self.order.push_back((tx, segment));
        if self.in_reduction() {
            self.prr_out += 1;
        }
        self.sent = true;
        self.pace(now);
    }

    pub(crate) fn in_reduction(&self) -> bool {
        matches!(self.state, State::Reduced | State::Recovery)
    }

    /// The application hands over what there is room for.
    pub(crate) fn refill(&mut self) {
        let acknowledged = self.acknowledged();
        if self.written - acknowledged <= BUFFER / 3 * 2 {
            self.written = (acknowledged + BUFFER).min(self.total);
        }
    }

    /// `tcp_cwnd_validate`.
    fn validate(&mut self, limited: bool) {
        if !std::mem::take(&mut self.sent) && !limited {
            return;
        }
        let out = self.slots.len() as u64;
        if self.una >= self.usage_end || limited || (!self.cwnd_limited && out > self.max_out) {
            self.cwnd_limited = limited;
            self.max_out = out;
            self.usage_end = self.end();
        }
        let ran_out = (self.end() + 1) * self.mss > self.written;
        if !limited && ran_out && self.lost_out <= self.again_out {
            self.rate.note_app_limited(self.in_flight());
        }
    }

    /// `tcp_is_cwnd_limited`.
    pub(crate) fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited || (self.window.in_slow_start() && self.window.cwnd < 2 * self.max_out)
    }

    // ---- pacing -------------------------------------------------------------------------------------------------

    /// Bytes per second: BBR's, or `tcp_update_pacing_rate`, once a round trip is known.
    pub(crate) fn pacing_rate(&self) -> Option<f64> {
        if let Control::Bbr(bbr) = &self.control {
            return Some(bbr.pacing_rate());
        }
        let gain = if self.window.cwnd < self.window.ssthresh / 2 { 2.0 } else { 1.2 };
        let out = self.window.cwnd.max(self.slots.len() as u64) as f64;
        self.rtt.smoothed().map(|srtt| gain * out * self.mss as f64 / srtt.as_secs_f64())
    }

    /// `tcp_update_skb_after_send`.
    fn pace(&mut self, now: Duration) {
        let Some(rate) = self.pacing_rate().filter(|_| self.paced) else { return };
        self.burst = self.burst.saturating_sub(1);
        let time = Duration::from_secs_f64((self.mss as f64 / rate).min(1.0));
        let late = now.saturating_sub(self.next_send);
        self.next_send = self.next_send.max(now) + time - late.min(time / 2);
    }

    // ---- timers -------------------------------------------------------------------------------------------------

    /// When [`Sender::handle_timeout`] or [`Sender::poll`] is due.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let may_send = self.in_flight() < self.window.cwnd
            && (!self.to_repeat.is_empty() || self.end() < self.segments() && self.fits(self.end()));
        let pace = (may_send && self.next_send > now).then_some(self.next_send);
        self.timer.map(|(at, _)| at).into_iter().chain(pace).min()
    }

    pub(crate) fn arm(&mut self, now: Duration, timer: Timer, after: Duration) {
        self.timer = Some((now + after, timer));
    }

    /// `tcp_rearm_rto`: from when the first was sent.
    pub(crate) fn rearm(&mut self, now: Duration) {
        let Some(first) = self.slots.front() else {
            self.timer = None;
            return;
        };
        let due = first.sent + self.rtt.rto(self.backoff);
        self.timer = Some((due.max(now + Duration::from_millis(1)), Timer::Retransmission));
    }

    /// `tcp_schedule_loss_probe`, else the retransmission time-out.
    pub(crate) fn schedule(&mut self, now: Duration) {
        self.rearm(now);
        let Some((rto, _)) = self.timer else { return };
        let calm = matches!(self.state, State::Open | State::Reduced) && self.sacked_out == 0;
        let Some(srtt) = self.rtt.smoothed().filter(|_| calm && self.probe.is_none()) else { return };
        let delayed = if self.slots.len() == 1 { crate::rtt::RTO_MIN } else { Duration::from_millis(2) };
        self.timer = Some((rto.min(now + 2 * srtt + delayed), Timer::Probe));
    }

    /// Something expired, or nothing did.
    pub fn handle_timeout(&mut self, now: Duration) {
        let Some((_, timer)) = self.timer.take_if(|(at, _)| *at <= now) else { return };
        match timer {
            Timer::Probe => self.force = Some(Force::Probe),
            Timer::Reordering => self.handle_reordering_timer(now),
            Timer::Retransmission => self.time_out(now),
        }
    }

    /// Nothing is under way, for the window is closed: ask again.
    pub(crate) fn probe_closed_window(&mut self, now: Duration) {
        if self.slots.is_empty()
            && self.end() < self.segments()
            && !self.fits(self.end())
            && self.timer.is_none()
        {
            self.arm(now, Timer::Retransmission, self.rtt.rto(self.backoff));
        }
    }
}
