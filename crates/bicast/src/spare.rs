//! `bpf/spare.h` in virtual time: one flow of packets, and what of it is copied to another path whose capacity changes.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::ffi::RawSpare;

/// A packet takes so long at 10 Mbit/s, and leaves so often: the first path is full.
const PACKET_US: u64 = 1200;
const RTT_US: u64 = 11_000;
const SECOND_US: u64 = 1_000_000;

/// Reasons, as words: a first transmission, a retransmission.
const FIRST: u32 = 32;
const AGAIN: u32 = 1;

/// The other path: a queue that serves one packet in `service_us`.
struct Other {
    service_us: u64,
    free_at_us: u64,
}

struct Flow {
    spare: RawSpare,
    dice: ChaCha8Rng,
    loss_percent: u64,
    other: Option<Other>,
    now_us: u64,
    tsn: u32,
    /// Reports under way: when they arrive, and of which TSN.
    reports: VecDeque<(u64, u32)>,
    longest_queue_us: u64,
}

impl Flow {
    fn new(loss_percent: u64, other_mbps: Option<u64>) -> Flow {
        let other = other_mbps.map(|mbps| Other { service_us: 12_000 / mbps, free_at_us: 0 });
        let dice = ChaCha8Rng::seed_from_u64(1);
        let spare = RawSpare::default();
        Flow {
            spare,
            dice,
            loss_percent,
            other,
            now_us: 0,
            tsn: 0,
            reports: VecDeque::new(),
            longest_queue_us: 0,
        }
    }

    fn lost(&mut self) -> bool {
        u64::from(self.dice.next_u32()) % 100 < self.loss_percent
    }

    fn set_capacity(&mut self, mbps: u64) {
        self.other.as_mut().expect("there is another path").service_us = 12_000 / mbps;
    }

    /// Sends for so long; the share of first transmissions that was copied meanwhile.
    fn run(&mut self, seconds: u64) -> f64 {
        let end_us = self.now_us + seconds * SECOND_US;
        let (mut sent, mut copied) = (0, 0);
        self.longest_queue_us = 0;
        while self.now_us < end_us {
            self.now_us += PACKET_US;
            self.tsn = self.tsn.wrapping_add(1);
            while self.reports.front().is_some_and(|(at_us, _)| *at_us <= self.now_us) {
                let (at_us, tsn) = self.reports.pop_front().expect("one is there");
                self.spare.reported(tsn, 1, at_us);
            }
            let copy = self.spare.sent(FIRST, 0) != 0;
            sent += 1;
            copied += u32::from(copy);
            let arrived = !self.lost();
            let twice = copy && self.send_copy(arrived);
            if !arrived && !twice {
                self.spare.sent(AGAIN, 0);
            }
        }
        f64::from(copied) / f64::from(sent)
    }

    /// Whether the copy arrives.
    fn send_copy(&mut self, original_arrived: bool) -> bool {
        self.spare.copied(self.tsn, self.now_us);
        let lost = self.lost();
        let Some(other) = self.other.as_mut().filter(|_| !lost) else { return false };
        let begins_us = other.free_at_us.max(self.now_us);
        let queued_us = begins_us - self.now_us;
        // What is full drops.
        if queued_us > 50 * other.service_us {
            return false;
        }
        other.free_at_us = begins_us + other.service_us;
        self.longest_queue_us = self.longest_queue_us.max(queued_us);
        if original_arrived && !self.lost() {
            self.reports.push_back((self.now_us + RTT_US + queued_us, self.tsn));
        }
        true
    }
}

#[test]
fn without_losses_nothing_is_copied() {
    assert_eq!(Flow::new(0, Some(10)).run(20), 0.0);
    assert!(Flow::new(1, Some(10)).run(20) < 0.1, "one in a hundred is the sender's own to repair");
}

#[test]
fn an_idle_path_takes_all_while_packets_are_lost() {
    let mut flow = Flow::new(5, Some(20));
    flow.run(3);
    assert!(flow.run(10) > 0.95);
    flow.loss_percent = 0;
    flow.run(2);
    assert_eq!(flow.run(10), 0.0, "and none when losses are over");
}

#[test]
fn copies_follow_a_capacity_that_changes_in_mid_transfer() {
    let mut flow = Flow::new(5, Some(20));
    flow.run(10);
    // Room for a fifth, then for all again.
    flow.set_capacity(2);
    flow.run(3);
    let share = flow.run(20);
    assert!((0.05..0.25).contains(&share), "{share}");
    assert!(flow.longest_queue_us < 250_000, "it is never full, at 300 ms: {} µs", flow.longest_queue_us);
    flow.set_capacity(20);
    flow.run(3);
    let share = flow.run(10);
    assert!(share > 0.9, "{share}");
}

#[test]
fn a_path_that_carries_nothing_is_only_asked() {
    let mut flow = Flow::new(5, None);
    flow.run(30);
    let share = flow.run(30);
    assert!(share < 0.1, "{share}");
}

#[test]
fn retransmissions_are_copied_once_the_sender_cannot_repair_alone() {
    let mut spare = RawSpare::default();
    assert_eq!([spare.sent(AGAIN, 0), spare.sent(AGAIN, 100_000)], [0, 0]);
    assert_eq!(spare.sent(AGAIN, SECOND_US), AGAIN, "a timer has had to find it");
    assert_eq!(spare.sent(AGAIN, 0), AGAIN, "and so from now on");
    let mut spare = RawSpare::default();
    let copied: Vec<_> = (0..9).map(|_| spare.sent(AGAIN, 0)).collect();
    assert_eq!(copied, [0, 0, 0, 0, 0, 0, 0, AGAIN, AGAIN], "many are lost");
}

#[test]
fn where_the_other_path_is_full_retransmissions_wait_for_a_timer() {
    let mut flow = Flow::new(5, None);
    flow.run(30);
    assert_eq!(flow.spare.sent(AGAIN, 0), 0);
    assert_eq!(flow.spare.sent(AGAIN, SECOND_US), AGAIN);
}
