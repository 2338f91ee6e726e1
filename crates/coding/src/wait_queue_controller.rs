//! The wait queue controller: how many packets of data wait for an ACK (chapter 3).
//!
//! With delayed ACKs a receiver sends one ACK for two packets of data. So, of a run of data, only the later half should
//! wait: for every two packets in a row, one is pushed out and the queue may be one longer.
//!
//! The paper describes the rule twice: by the queue's greatest length `Qlen` (chapter 3, figure 2), and by the variables
//! `force_send` and `max_wq_len` (4.2), without saying how they relate. `Qlen` alone reproduces all ten steps of figure
//! 2: a packet that makes the queue longer than `Qlen` pushes the head out, which is `force_send`.

/// The greatest length that the queue may have now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitQueueController {
    qlen: usize,
}

impl WaitQueueController {
    /// `Qlen`.
    pub fn qlen(&self) -> usize {
        self.qlen
    }

    /// A packet of data went into the queue, which holds `held` now. Whether the head is to be pushed out.
    pub fn inserted(&mut self, held: usize) -> bool {
        let push = held > self.qlen;
        if push {
            self.qlen += 1;
        }
        push
    }

    /// A packet left the queue coded with an ACK, or because its time was over.
    pub fn left(&mut self) {
        self.qlen = self.qlen.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a run of any length, the later half waits.
    #[test]
    fn the_later_half_of_a_run_waits() {
        let mut controller = WaitQueueController::default();
        let mut held = 0;
        for sent in 1..=100 {
            held += 1;
            held -= usize::from(controller.inserted(held));
            assert_eq!(held, sent / 2);
        }
        assert_eq!(controller.qlen(), 50);
        (0..60).for_each(|_| controller.left());
        assert_eq!(controller.qlen(), 0);
    }
}
