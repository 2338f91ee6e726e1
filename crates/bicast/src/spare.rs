//! `bpf/spare.h` in virtual time: one flow of packets, and what of it is copied to another path that others use or not.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::ffi::RawSpare;

/// A packet takes so long at 10 Mbit/s, and leaves so often.
const PACKET_US: u64 = 1200;
const RTT_US: u64 = 11_000;
const MS: u64 = 1000;
const SECOND_US: u64 = 1_000_000;

/// Reasons, as words: a first transmission, a retransmission, one whose sender asks for a SACK at once.
const FIRST: u32 = 32;
const AGAIN: u32 = 1;
const TAIL: u32 = 4;

/// What a handshake began with: `enum bicast_stack`.
const UNKNOWN: u32 = 0;
const ADDRESSES: u32 = 1;
const EXTENSIONS: u32 = 2;

/// Of an association whose sender's handshake began so.
fn spare_of(stack: u32) -> RawSpare {
    let mut spare = RawSpare::default();
    spare.stack = stack;
    spare
}

/// What copies meet on the other path.
#[derive(Clone, Copy)]
enum Other {
    Idle,
    /// It is full of others' packets: copies wait for so long.
    Full(u64),
    /// Nothing arrives.
    Dead,
}

struct Flow {
    spare: RawSpare,
    dice: ChaCha8Rng,
    loss_percent: u64,
    other: Other,
    now_us: u64,
    tsn: u32,
    /// SACKs under way: when they arrive, of which TSN, and whether it was received twice.
    sacks: VecDeque<(u64, u32, bool)>,
}

impl Flow {
    fn new(loss_percent: u64, other: Other) -> Flow {
        Flow::of(ADDRESSES, loss_percent, other)
    }

    fn of(stack: u32, loss_percent: u64, other: Other) -> Flow {
        let dice = ChaCha8Rng::seed_from_u64(1);
        let spare = spare_of(stack);
        Flow { spare, dice, loss_percent, other, now_us: 0, tsn: 0, sacks: VecDeque::new() }
    }

    fn lost(&mut self) -> bool {
        u64::from(self.dice.next_u32()) % 100 < self.loss_percent
    }

    /// Sends for so long; the share of first transmissions that was copied meanwhile.
    fn run(&mut self, seconds: u64) -> f64 {
        let end_us = self.now_us + seconds * SECOND_US;
        let (mut sent, mut copied) = (0, 0);
        while self.now_us < end_us {
            self.now_us += PACKET_US;
            self.tsn = self.tsn.wrapping_add(1);
            self.take_sacks();
            let copy = self.spare.sent(FIRST, self.tsn, 0, self.now_us) != 0;
            sent += 1;
            copied += u32::from(copy);
            if copy {
                self.spare.copied(FIRST, self.tsn, self.now_us);
            }
            self.deliver(copy);
        }
        f64::from(copied) / f64::from(sent)
    }

    fn take_sacks(&mut self) {
        self.sacks.make_contiguous().sort_unstable();
        while let Some(&(at_us, tsn, twice)) = self.sacks.front().filter(|sack| sack.0 <= self.now_us) {
            self.sacks.pop_front();
            self.spare.acknowledged(tsn, tsn, u32::from(twice), at_us);
        }
    }

    fn deliver(&mut self, copy: bool) {
        let original = (!self.lost()).then_some(self.now_us + RTT_US);
        let copy = copy && !self.lost();
        let copy = match self.other {
            _ if !copy => None,
            Other::Dead => None,
            Other::Idle => Some(self.now_us + RTT_US),
            Other::Full(wait_us) => Some(self.now_us + RTT_US + wait_us),
        };
        let arrivals: Vec<u64> = original.into_iter().chain(copy).collect();
        for (n, at_us) in arrivals.iter().enumerate() {
            if !self.lost() {
                self.sacks.push_back((*at_us, self.tsn, n == 1));
            }
        }
        if arrivals.is_empty() {
            self.spare.sent(AGAIN, self.tsn, 0, self.now_us);
        }
    }
}

#[test]
fn without_losses_nothing_is_copied_after_two_epochs() {
    let mut flow = Flow::new(0, Other::Idle);
    assert!(flow.run(2) > 0.1);
    assert_eq!(flow.run(10), 0.0);
}

#[test]
fn ten_are_copied_from_the_start() {
    let mut spare = spare_of(ADDRESSES);
    let copied: Vec<_> = (1..=11)
        .map(|tsn| {
            let copied = spare.sent(FIRST, tsn, 0, MS) == FIRST;
            if copied {
                spare.copied(FIRST, tsn, MS);
            }
            copied
        })
        .collect();
    assert_eq!(copied, [[true; 10].as_slice(), &[false]].concat());
    // None was reported, so the rest is the shortest.
    spare.sent(FIRST, 12, 0, 127 * MS);
    spare.acknowledged(12, 0, 0, 137 * MS);
    assert_eq!(spare.sent(FIRST, 13, 0, 138 * MS), FIRST, "single ones are tried");
}

#[test]
fn an_idle_path_takes_all_while_packets_are_lost() {
    for loss_percent in [1, 5] {
        let mut flow = Flow::new(loss_percent, Other::Idle);
        assert!(flow.run(20) > 0.95, "{loss_percent} %");
        flow.loss_percent = 0;
        flow.run(2);
        assert_eq!(flow.run(10), 0.0, "and none when losses are over");
    }
}

#[test]
fn copies_follow_others_load_that_changes_in_mid_transfer() {
    let mut flow = Flow::new(5, Other::Idle);
    flow.run(5);
    flow.other = Other::Full(20 * MS);
    flow.run(3);
    let share = flow.run(20);
    assert!(share < 0.01, "{share}");
    flow.other = Other::Idle;
    // The longest rest, and tries some of which are lost.
    flow.run(8);
    let share = flow.run(10);
    assert!(share > 0.95, "{share}");
}

#[test]
fn a_path_that_carries_nothing_is_only_asked() {
    let mut flow = Flow::new(5, Other::Dead);
    flow.run(5);
    let share = flow.run(30);
    assert!(share < 0.02, "{share}: eight times a second");
}

/// All are copied until 250 ms, both paths then have queues, and copies leave off. `own_ms` and `other_ms`: what a packet
/// takes alone. Whether the first eight copies that are tried lead to a run.
fn tried(own_ms: u64, other_ms: u64) -> bool {
    let mut spare = spare_of(ADDRESSES);
    let copy = |spare: &mut RawSpare, tsn, ms| {
        let wanted = spare.sent(FIRST, tsn, 0, ms * MS) == FIRST;
        if wanted {
            spare.copied(FIRST, tsn, ms * MS);
        }
        wanted
    };
    assert!(copy(&mut spare, 1, 1000));
    spare.acknowledged(1, 1, 1, 1010 * MS);
    assert!(copy(&mut spare, 2, 1200));
    spare.acknowledged(2, 2, 1, 1240 * MS);
    assert!(!copy(&mut spare, 3, 1251), "the run is over, and the last report took 40 ms");
    for tsn in [4, 5] {
        spare.sent(AGAIN, tsn, 0, 1251 * MS);
    }
    assert!(!copy(&mut spare, 6, 1291), "copies are still under way");
    let mut now_ms = 1292;
    for tsn in (7..31).step_by(3) {
        assert!(!copy(&mut spare, tsn, now_ms), "asks how long a packet takes by its own path");
        now_ms += own_ms;
        spare.acknowledged(tsn, 0, 0, now_ms * MS);
        if !copy(&mut spare, tsn + 1, now_ms) {
            return false;
        }
        assert!(!copy(&mut spare, tsn + 2, now_ms + 1), "one at a time");
        let (first, second) = (own_ms.min(other_ms), own_ms.max(other_ms));
        spare.acknowledged(tsn + 1, 0, 0, (now_ms + first) * MS);
        spare.acknowledged(tsn + 1, tsn + 1, 1, (now_ms + second) * MS);
        now_ms += second;
    }
    assert!(!copy(&mut spare, 31, now_ms), "asks whether anything waits there any more");
    spare.acknowledged(31, 0, 0, (now_ms + 10) * MS);
    copy(&mut spare, 32, now_ms + 10) && copy(&mut spare, 33, now_ms + 10)
}

#[test]
fn single_copies_tell_whether_the_other_path_has_room() {
    assert!(tried(10, 10), "neither path has a queue");
    assert!(tried(40, 10), "copies overtake");
    assert!(tried(40, 12), "so little is no queue");
    assert!(!tried(10, 40), "the other path has one");
    assert!(!tried(40, 35), "both have");
    assert!(!tried(40, 40));
}

#[test]
fn a_spent_budget_stops_copies_for_a_while() {
    let mut flow = Flow::new(5, Other::Idle);
    flow.run(2);
    assert!(flow.run(2) > 0.99);
    flow.spare.spent(flow.now_us);
    assert!(flow.run(2) < 0.01);
    flow.run(1);
    assert!(flow.run(5) > 0.95);
}

#[test]
fn with_care_all_are_copied_where_nothing_waits() {
    for stack in [UNKNOWN, EXTENSIONS] {
        let mut flow = Flow::of(stack, 5, Other::Idle);
        // Sixteen have to find room, each a round trip after the last; the lost ones are given up later.
        assert!(flow.run(1) < 0.5);
        flow.run(2);
        assert!(flow.run(20) > 0.95);
    }
}

/// Sends a packet after the other, each once the one before it is acknowledged.
struct Slow {
    spare: RawSpare,
    now_us: u64,
    tsn: u32,
}

impl Slow {
    fn of(stack: u32) -> Slow {
        Slow { spare: spare_of(stack), now_us: SECOND_US, tsn: 0 }
    }

    /// A packet is acknowledged after so long, as received twice if a copy of it went, too: whether it did.
    fn send(&mut self, took_us: u64) -> bool {
        self.tsn += 1;
        let copied = self.spare.sent(FIRST, self.tsn, 0, self.now_us) == FIRST;
        if copied {
            self.spare.copied(FIRST, self.tsn, self.now_us);
        }
        self.now_us += took_us;
        self.spare.acknowledged(self.tsn, self.tsn, u32::from(copied), self.now_us);
        copied
    }

    fn send_many(&mut self, count: usize, took_us: u64) -> Vec<bool> {
        (0..count).map(|_| self.send(took_us)).collect()
    }
}

#[test]
fn with_care_copies_wait_until_their_packets_path_has_no_queue() {
    let mut sender = Slow::of(EXTENSIONS);
    assert!(!sender.send(10 * MS), "asks, and learns the least time");
    for nth in 0..16 {
        assert!(sender.send(14 * MS - nth), "tries: 4 ms is no queue");
        assert!(!sender.send(if nth < 15 { 10 * MS } else { 40 * MS }), "and asks again, in turn");
    }
    assert_eq!(
        [30 * MS, 14 * MS + 1].map(|us| sender.send(us)),
        [false; 2],
        "there is room, but its packet waits"
    );
    assert!(!sender.send(14 * MS), "and does not any more");
    assert_eq!([10 * MS, 40 * MS].map(|us| sender.send(us)), [true; 2]);
}

#[test]
fn copies_wait_for_their_packets_path_for_a_second_but_with_care() {
    let mut sender = Slow::of(ADDRESSES);
    assert_eq!(sender.send_many(10, 10 * MS), [true; 10]);
    assert_eq!(sender.send_many(2, 10 * MS), [false; 2], "a rest");
    assert_eq!(sender.send_many(16, 10 * MS), [false, true].repeat(8));
    assert_eq!(sender.send_many(26, 40 * MS), [false; 26]);
    assert!(sender.send(40 * MS), "1040 ms later");
    let mut sender = Slow::of(EXTENSIONS);
    assert_eq!(sender.send_many(32, 10 * MS), [false, true].repeat(16));
    assert_eq!(sender.send_many(100, 40 * MS), [false; 100]);
}

/// With care, after its first run.
fn run_of_slow() -> Slow {
    let mut sender = Slow::of(EXTENSIONS);
    assert_eq!(sender.send_many(32, 10 * MS), [false, true].repeat(16));
    assert!(!sender.send(10 * MS), "nothing waits");
    assert_eq!(sender.send_many(25, 10 * MS), [true; 25]);
    assert!(sender.send(20 * MS), "for 250 ms; then there is a queue");
    assert_eq!(sender.send_many(3, 10 * MS), [false; 3], "until the last copy has left");
    sender
}

#[test]
fn four_tries_are_enough_after_a_run() {
    let mut sender = run_of_slow();
    assert_eq!(sender.send_many(8, 10 * MS), [false, true].repeat(4));
    assert!(!sender.send(10 * MS), "nothing waits");
    assert_eq!(sender.send_many(2, 10 * MS), [true; 2]);
}

#[test]
fn one_late_copy_after_a_run_may_be_chance() {
    let mut sender = run_of_slow();
    assert_eq!([10 * MS, 15 * MS].map(|us| sender.send(us)), [false, true]);
    assert_eq!(sender.send_many(32, 10 * MS), [false, true].repeat(16), "as many tries as at first");
    assert!(!sender.send(10 * MS), "nothing waits");
    assert_eq!(sender.send_many(2, 10 * MS), [true; 2]);
    let mut sender = run_of_slow();
    assert_eq!([10, 15, 10, 15].map(|ms| sender.send(ms * MS)), [false, true, false, true]);
    assert_eq!(sender.send_many(2, 10 * MS), [false; 2], "two are a queue");
}

#[test]
fn a_queue_of_its_packets_path_is_not_taken_for_the_copys() {
    let mut sender = Slow::of(EXTENSIONS);
    // By turns a packet alone and one with a copy, while a queue of their own grows by one packet per round trip.
    let took = [10_000, 11_200, 12_400, 13_600, 14_000, 18_000];
    assert_eq!(took.map(|us| sender.send(us)), [false, true].repeat(3)[..]);
    assert_eq!([15_200, 14_000].map(|us| sender.send(us)), [false, true], "the copy overtakes");
    assert_eq!([14_000, 18_001].map(|us| sender.send(us)), [false, true], "and this one waits");
    assert_eq!([10_000, 10_000].map(|us| sender.send(us)), [false; 2], "so there is a rest");
    let mut sender = Slow::of(EXTENSIONS);
    assert_eq!([10_000, 10_000, 15_200, 14_001].map(|us| sender.send(us)), [false, true, false, true]);
    assert_eq!([10_000, 10_000].map(|us| sender.send(us)), [false; 2], "neither was fast");
}

#[test]
fn with_care_a_tail_is_copied_only_if_its_own_path_has_no_queue() {
    let tail = |own_us| {
        let mut sender = Slow::of(EXTENSIONS);
        assert_eq!([10_000, 10_000, own_us].map(|us| sender.send(us)), [false, true, false]);
        sender.spare.sent(TAIL, 99, 0, sender.now_us)
    };
    assert_eq!([14_000, 14_001].map(tail), [TAIL, 0], "4 ms are one");
    assert_eq!(spare_of(ADDRESSES).sent(TAIL, 1, 0, 0), TAIL);
}

#[test]
fn retransmissions_are_copied_by_what_the_handshake_began_with() {
    let mut spare = spare_of(ADDRESSES);
    assert_eq!(spare.sent(AGAIN, 1, 0, 0), AGAIN, "from the first on");
    let mut spare = spare_of(EXTENSIONS);
    assert_eq!([0, SECOND_US].map(|idle_us| spare.sent(AGAIN, 1, idle_us, 0)), [0, 0]);
    let mut spare = spare_of(UNKNOWN);
    assert_eq!([0, 500 * MS].map(|idle_us| spare.sent(AGAIN, 1, idle_us, 0)), [0, 0]);
    assert_eq!(spare.sent(AGAIN, 1, 500 * MS + 1, 0), AGAIN, "a timer has had to find it");
    assert_eq!(spare.sent(AGAIN, 1, 0, 0), AGAIN, "and so from now on");
}

#[test]
fn retransmissions_go_a_third_time_while_many_are_lost() {
    let third = |spare: &mut RawSpare| {
        spare.sent(AGAIN, 1, 0, 0);
        spare.thrice(AGAIN)
    };
    let mut spare = spare_of(ADDRESSES);
    let first: Vec<_> = (0..13).map(|_| third(&mut spare)).collect();
    assert_eq!(first, [[false; 11].as_slice(), &[true; 2]].concat(), "12 of 512");
    assert!(!spare.thrice(FIRST));
    // To the end of these 512, and as many without: then few are lost.
    (0..512 - 13 + 512).for_each(|tsn| {
        spare.sent(FIRST, 2 + tsn, 0, 0);
    });
    assert!(!third(&mut spare));
    for stack in [UNKNOWN, EXTENSIONS] {
        let mut spare = spare_of(stack);
        assert!(!(0..20).any(|_| third(&mut spare)));
    }
}
