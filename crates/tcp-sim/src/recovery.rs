//! What follows from losses: proportional rate reduction, recovery, time-outs, and taking them back where they were
//! mistaken, as Linux's `tcp_input.c`.

use std::time::Duration;

use crate::cubic::INFINITE;
use crate::sender::{Control, Force, Next, Sender, Timer};
use crate::state::State;

/// What an acknowledgement was like.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub advanced: bool,
    pub newly_sacked: bool,
    pub orig_sacked: bool,
    /// Nothing new, but something beyond a gap: a duplicate.
    pub duplicate: bool,
    pub lost_again: bool,
    /// What was retransmitted arrived twice.
    pub duplicate_reported: bool,
    /// The timestamp that it echoes.
    pub echo: Option<u32>,
}

impl Sender {
    /// `tcp_init_cwnd_reduction`.
    fn begin_reduction(&mut self) {
        self.probe = None;
        self.prior_cwnd = self.window.cwnd;
        (self.prr_delivered, self.prr_out) = (0, 0);
        self.window.count = 0;
        self.window.ssthresh = self.new_ssthresh();
    }

    fn new_ssthresh(&mut self) -> u64 {
        match &mut self.control {
            Control::Cubic(cubic) => cubic.ssthresh(self.window.cwnd),
            Control::Bbr(bbr) => {
                bbr.save(self.window.cwnd);
                self.window.ssthresh
            }
        }
    }

    /// `tcp_cwnd_reduction`.
    pub(crate) fn reduce(&mut self, delivered: u64, lost: u64, advanced: bool) {
        if delivered == 0 || self.prior_cwnd == 0 {
            return;
        }
        self.prr_delivered += delivered;
        let flying = self.in_flight();
        let send = if flying > self.window.ssthresh {
            let goal = (self.window.ssthresh * self.prr_delivered).div_ceil(self.prior_cwnd);
            goal.saturating_sub(self.prr_out)
        } else {
            let allowed = self.prr_delivered.saturating_sub(self.prr_out).max(delivered);
            (allowed + u64::from(advanced && lost == 0)).min(self.window.ssthresh - flying)
        };
        self.window.cwnd = flying + send.max(u64::from(self.prr_out == 0));
    }

    /// `tcp_end_cwnd_reduction`.
    fn end_reduction(&mut self) {
        if matches!(self.control, Control::Bbr(_)) {
            return;
        }
        if self.window.ssthresh < INFINITE && (self.state == State::Reduced || self.undo.is_some()) {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    fn init_undo(&mut self) {
        self.undo = Some(self.una);
        self.undo_again = (self.again_out > 0).then_some(self.again_out);
    }

    fn current_ssthresh(&self) -> u64 {
        if self.in_reduction() {
            self.window.ssthresh
        } else {
            self.window.ssthresh.max(self.window.cwnd * 3 / 4)
        }
    }

    /// `tcp_enter_recovery`.
    pub(crate) fn enter_recovery(&mut self) {
        self.counters.recoveries += 1;
        self.init_undo();
        if !self.in_reduction() {
            self.prior_ssthresh = self.current_ssthresh();
            self.begin_reduction();
        }
        self.state = State::Recovery;
        self.high = self.end();
    }

    /// `tcp_process_tlp_ack`.
    pub(crate) fn end_probe(&mut self, ack: u64, told: &Told) {
        let Some((end, again)) = self.probe else { return };
        if ack < end {
            return;
        }
        if !again || told.duplicate_reported {
            self.probe = None;
        } else if ack > end {
            // The probe repaired a loss.
            self.begin_reduction();
            self.state = State::Reduced;
            self.end_reduction();
            self.keep_open();
        } else if !told.advanced && !told.newly_sacked {
            self.probe = None;
        }
    }

    /// `tcp_try_keep_open`.
    fn keep_open(&mut self) {
        let calm = self.sacked_out == 0 && self.lost_out == 0 && self.again_out == 0;
        let state = if calm { State::Open } else { State::Disorder };
        if state != self.state {
            self.state = state;
            self.high = self.end();
        }
    }

    // ---- taking back --------------------------------------------------------------------------------------------

    /// `tcp_packet_delayed`: an original arrived after all.
    fn was_delayed(&self, told: &Told) -> bool {
        match (self.again_since, told.echo) {
            (Some(since), Some(echo)) => {
                (echo.wrapping_sub(crate::segment::timestamp(since))).cast_signed() < 0
            }
            _ => false,
        }
    }

    fn may_undo(&self, told: &Told) -> bool {
        self.undo.is_some() && (self.undo_again == Some(0) || self.was_delayed(told))
    }

    /// `tcp_undo_cwnd_reduction`.
    fn take_back(&mut self, unmark: bool) {
        if unmark {
            for slot in self.slots.iter_mut().filter(|slot| slot.lost) {
                slot.lost = false;
            }
            self.lost_out = 0;
            self.to_repeat.clear();
            self.rebuild_order();
        }
        if self.prior_ssthresh > 0 {
            self.window.cwnd = match &mut self.control {
                Control::Cubic(_) => self.window.cwnd.max(self.prior_cwnd),
                Control::Bbr(bbr) => {
                    bbr.undo();
                    self.window.cwnd
                }
            };
            self.window.ssthresh = self.window.ssthresh.max(self.prior_ssthresh);
        }
        self.undo = None;
        self.rack.advanced = true;
        self.counters.undone += 1;
    }

    /// What was marked lost left the order of transmission; now it is back.
    pub(crate) fn rebuild_order(&mut self) {
        let una = self.una;
        let flying = self.slots.iter().enumerate().filter(|(_, s)| !s.sacked && (!s.lost || s.again));
        let mut order: Vec<_> = flying.map(|(at, slot)| (slot.tx, una + at as u64)).collect();
        order.sort_unstable();
        self.order = order.into();
    }

    /// `tcp_try_undo_recovery`.
    fn undo_recovery(&mut self, told: &Told) {
        if self.may_undo(told) {
            self.take_back(false);
        } else if self.rack.persist > 0 {
            self.rack.persist -= 1;
        }
    }

    /// `tcp_try_undo_dsack`.
    fn undo_by_duplicates(&mut self) -> bool {
        let undoes = self.undo.is_some() && self.undo_again == Some(0);
        if undoes {
            self.rack.persist = (self.rack.persist + 1).min(crate::rack::PERSIST);
            self.take_back(false);
        }
        undoes
    }

    /// `tcp_try_undo_partial`; whether nothing more is to be done.
    fn undo_partly(&mut self, told: &Told) -> bool {
        if self.undo.is_none() || !self.was_delayed(told) {
            return false;
        }
        self.rack.reordering_seen = true;
        if self.again_out > 0 {
            return true;
        }
        if !self.slots.iter().any(|slot| slot.ever_again) {
            self.again_since = None;
        }
        self.take_back(true);
        self.keep_open();
        true
    }

    /// `tcp_try_undo_loss`.
    fn undo_time_out(&mut self, told: &Told, by_order: bool) -> bool {
        let undoes = by_order || self.may_undo(told);
        if undoes {
            self.take_back(true);
            self.expired = 0;
            self.state = State::Open;
        }
        undoes
    }

    // ---- acknowledgements ---------------------------------------------------------------------------------------

    /// `tcp_fastretrans_alert`.
    pub(crate) fn judge(&mut self, now: Duration, told: &mut Told) {
        if self.state == State::Open {
            self.again_since = None;
        } else if self.una >= self.high {
            match self.state {
                State::Reduced if self.una != self.high => {
                    self.end_reduction();
                    self.state = State::Open;
                }
                State::Recovery => {
                    self.undo_recovery(told);
                    self.end_reduction();
                    self.state = State::Open;
                }
                _ => {}
            }
        }
        match self.state {
            State::Recovery => {
                if told.advanced && self.undo_partly(told) {
                    return;
                }
                if self.undo_by_duplicates() {
                    self.keep_open();
                }
                self.find_losses(now, told);
                if self.state != State::Recovery {
                    if self.lost_out == 0 {
                        return;
                    }
                    self.enter_recovery();
                }
            }
            State::Loss => {
                let next = self.process_loss(told);
                self.find_losses(now, told);
                self.next = next;
                if self.state != State::Open && !told.lost_again {
                    return;
                }
                self.look_for_trouble(now, told);
            }
            _ => self.look_for_trouble(now, told),
        }
    }

    fn find_losses(&mut self, now: Duration, told: &mut Told) {
        told.lost_again |= self.rack_mark_lost(now);
    }

    fn look_for_trouble(&mut self, now: Duration, told: &mut Told) {
        if self.state <= State::Disorder {
            self.undo_by_duplicates();
        }
        self.find_losses(now, told);
        if self.lost_out > 0 {
            self.enter_recovery();
            self.next = Next::Lost;
        } else if !self.in_reduction() {
            self.keep_open();
        }
    }

    /// `tcp_process_loss`, with F-RTO (RFC 5682).
    fn process_loss(&mut self, told: &Told) -> Next {
        let recovered = self.una >= self.high;
        if told.advanced && self.undo_time_out(told, false) {
            return Next::Lost;
        }
        if self.frto {
            if told.orig_sacked && self.undo_time_out(told, true) {
                return Next::Lost;
            }
            if self.end() > self.high {
                self.frto &= !(told.newly_sacked || told.duplicate);
            } else if told.advanced && !recovered {
                self.high = self.end();
                return Next::New(self.end());
            }
        }
        if recovered {
            self.undo_recovery(told);
            self.state = State::Open;
        }
        Next::Lost
    }

    // ---- time-outs ----------------------------------------------------------------------------------------------

    /// `tcp_retransmit_timer`.
    pub(crate) fn time_out(&mut self, now: Duration) {
        self.force = Some(Force::First);
        if !self.slots.is_empty() {
            self.counters.timeouts += 1;
            self.enter_loss(now);
        }
        self.expired += 1;
        self.backoff += 1;
        self.arm(now, Timer::Retransmission, self.rtt.rto(self.backoff));
    }

    /// `tcp_enter_loss`.
    fn enter_loss(&mut self, now: Duration) {
        let fresh = self.state < State::Recovery;
        // What was sent a short while ago is not judged yet.
        let patience = self.rack.rtt;
        for segment in self.una..self.end() {
            let slot = &self.slots[(segment - self.una) as usize];
            if segment == self.una || slot.sent + patience <= now {
                self.mark_lost(segment);
            }
        }
        if self.state <= State::Disorder
            || self.una >= self.high
            || (self.state == State::Loss && self.expired == 0)
        {
            self.prior_ssthresh = self.current_ssthresh();
            self.prior_cwnd = self.window.cwnd;
            self.window.ssthresh = self.new_ssthresh();
            self.init_undo();
        }
        self.window.cwnd = self.in_flight() + 1;
        self.window.count = 0;
        self.state = State::Loss;
        self.high = self.end();
        self.frto = fresh || self.expired > 0;
        self.probe = None;
        let end = self.end();
        match &mut self.control {
            Control::Cubic(cubic) => cubic.restart(now, end),
            Control::Bbr(bbr) => bbr.handle_time_out(now, self.rate.delivered, self.rate.lost),
        }
    }
}
