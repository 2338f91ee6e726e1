//! `bpf/rate.h` in virtual time: one flow of packets over a path that loses some, and what of it is copied to another path.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::ffi::RawRate;

const BYTES: u32 = 1500;
/// A packet takes so long at 10 Mbit/s, and leaves so often.
const PACKET_US: u64 = 1200;
const DELAY_US: u64 = 5_000;
const SECOND_US: u64 = 1_000_000;

/// Reasons, as words: a first transmission, a retransmission, a request, one whose sender asks for a SACK at once.
const FIRST: u32 = 32;
const AGAIN: u32 = 1;
const REQUEST: u32 = 2;
const TAIL: u32 = 4;

/// What a handshake began with: `enum bicast_stack`.
const UNKNOWN: u32 = 0;
const ADDRESSES: u32 = 1;
const EXTENSIONS: u32 = 2;

/// The other path, of which others may use some.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// Loses so many percent, and has room.
    Drops(u32),
    /// Passes a tenth of what the flow sends, and drops what is more.
    Policed,
    /// As slow, with a queue of so many packets.
    Queue(u64),
    /// Others' packets wait in its queue for so long.
    Full(u64),
    /// The flow's own path has a queue that copies overtake.
    Overtakes(u64),
}

struct Flow {
    rate: RawRate,
    dice: ChaCha8Rng,
    percent: u32,
    /// Of packets on the flow's own path.
    loss_percent: u32,
    other: Other,
    /// When the other path has sent what waits there.
    free_us: u64,
    now_us: u64,
    tsn: u32,
    /// Arrivals: when, of which TSN, and whether it has arrived before.
    arrivals: VecDeque<(u64, u32, bool)>,
}

/// What a flow did in a time.
#[derive(Debug, Default)]
struct Sent {
    packets: u32,
    /// Copies of first transmissions, and of retransmissions by either way.
    first: u32,
    again: u32,
}

impl Sent {
    fn first_percent(&self) -> f64 {
        100.0 * f64::from(self.first) / f64::from(self.packets)
    }

    fn percent(&self) -> f64 {
        100.0 * f64::from(self.first + self.again) / f64::from(self.packets)
    }
}

impl Flow {
    fn new(percent: u32, loss_percent: u32, other: Other) -> Flow {
        let dice = ChaCha8Rng::seed_from_u64(1);
        let rate = of(ADDRESSES);
        let arrivals = VecDeque::new();
        Flow { rate, dice, percent, loss_percent, other, free_us: 0, now_us: SECOND_US, tsn: 0, arrivals }
    }

    fn lost(&mut self, percent: u32) -> bool {
        self.dice.next_u32() % 100 < percent
    }

    fn run(&mut self, seconds: u64) -> Sent {
        let end_us = self.now_us + seconds * SECOND_US;
        let mut sent = Sent::default();
        while self.now_us < end_us {
            self.now_us += PACKET_US;
            self.tsn = self.tsn.wrapping_add(1);
            self.take_reports();
            sent.packets += 1;
            if !self.send(FIRST, &mut sent.first) {
                // It is lost, and found to be.
                sent.packets += 1;
                self.send(AGAIN, &mut sent.again);
            }
        }
        sent
    }

    /// Sends a packet, and its copies; whether any arrives.
    fn send(&mut self, reasons: u32, copies: &mut u32) -> bool {
        let wanted = self.rate.sent(reasons, BYTES, self.percent, self.now_us);
        let own_us = if let Other::Overtakes(wait_us) = self.other { wait_us } else { 0 };
        let own_us = (!self.lost(self.loss_percent)).then_some(self.now_us + own_us + DELAY_US);
        let mut other_us = None;
        if wanted != 0 && self.rate.affords(BYTES, self.percent, wanted == FIRST) {
            self.rate.copied(wanted, self.tsn, BYTES, 1);
            other_us = self.over_other();
            *copies += 1;
            if wanted == AGAIN && self.rate.affords(BYTES, self.percent, true) {
                self.rate.copied(0, 0, BYTES, 0);
                *copies += 1;
            }
        }
        let mut arrivals: Vec<u64> = own_us.into_iter().chain(other_us).collect();
        arrivals.sort_unstable();
        for (nth, &at_us) in arrivals.iter().enumerate() {
            self.arrivals.push_back((at_us + DELAY_US, self.tsn, nth == 1));
        }
        !arrivals.is_empty()
    }

    /// When a copy that is sent now arrives.
    fn over_other(&mut self) -> Option<u64> {
        let tenth_us = 10 * PACKET_US;
        let (most_us, wait_us) = match self.other {
            Other::Drops(percent) => return (!self.lost(percent)).then_some(self.now_us + DELAY_US),
            Other::Full(wait_us) => return Some(self.now_us + wait_us + DELAY_US),
            Other::Overtakes(_) => return Some(self.now_us + DELAY_US),
            Other::Policed => (0, 0),
            Other::Queue(packets) => (packets * tenth_us, tenth_us),
        };
        let begin_us = self.free_us.max(self.now_us);
        if begin_us - self.now_us > most_us {
            return None;
        }
        self.free_us = begin_us + tenth_us;
        Some(if wait_us == 0 { self.now_us } else { self.free_us } + DELAY_US)
    }

    fn take_reports(&mut self) {
        self.arrivals.make_contiguous().sort_unstable();
        while let Some(&(at_us, tsn, again)) = self.arrivals.front().filter(|one| one.0 <= self.now_us) {
            self.arrivals.pop_front();
            self.rate.acknowledged(tsn, tsn, u32::from(again), self.percent, at_us);
        }
    }
}

/// Of an association whose sender's handshake began so.
fn of(stack: u32) -> RawRate {
    RawRate { stack, ..RawRate::default() }
}

/// What copies do not get through.
const BAD: [Other; 7] = [
    Other::Drops(2),
    Other::Drops(10),
    Other::Drops(50),
    Other::Drops(90),
    Other::Drops(100),
    Other::Policed,
    Other::Queue(3),
];

#[test]
fn a_path_that_drops_is_no_reason_to_copy_more() {
    for other in [Other::Drops(0)].iter().chain(&BAD) {
        let mut flow = Flow::new(15, 0, *other);
        assert_eq!(flow.run(5).percent() + flow.run(20).percent(), 0.0, "{other:?}: nothing is lost");
    }
}

#[test]
fn copies_fall_where_few_arrive_though_their_own_path_loses() {
    for percent in [3, 15, 30] {
        for other in BAD {
            let mut flow = Flow::new(percent, 5, other);
            let begin = flow.run(5);
            let later = flow.run(60);
            println!(
                "{percent} % {other:?}: {:.1} %, then {:.1} % of first transmissions, {:.1} % in all",
                begin.percent(),
                later.first_percent(),
                later.percent()
            );
            assert!(later.percent() <= f64::from(percent) + 0.3, "{percent} % {other:?}: {later:?}");
            // As much as its own path loses is no more than that one does.
            if !matches!(other, Other::Drops(2 | 10)) && percent <= 15 {
                assert!(later.first_percent() < 2.5, "{percent} % {other:?}: {later:?}");
            }
        }
    }
}

#[test]
fn much_is_copied_where_copies_arrive() {
    for (percent, least) in [(3, 2.5), (15, 10.0), (100, 15.0)] {
        let mut flow = Flow::new(percent, 3, Other::Drops(0));
        flow.run(5);
        let sent = flow.run(60);
        assert!(sent.percent() > least, "{percent} %: {sent:?}");
        flow.loss_percent = 0;
        flow.run(1);
        assert_eq!(flow.run(10).percent(), 0.0, "nothing is lost any more");
    }
}

#[test]
fn copies_keep_within_any_budget() {
    let mut dice = ChaCha8Rng::seed_from_u64(39);
    let mut below = move |most: u32| dice.next_u32() % most;
    for _ in 0..300 {
        let other = BAD[below(7) as usize];
        let mut flow = Flow::new(below(101), below(100), other);
        flow.dice = ChaCha8Rng::seed_from_u64(below(1000).into());
        for _ in 0..10 {
            flow.run(1);
            // A reload may raise it.
            flow.percent = (flow.percent + below(2) * below(20)).min(100);
            flow.loss_percent = below(100);
            let RawRate { sent_bytes, copied_bytes, .. } = flow.rate;
            let most = sent_bytes * u64::from(flow.percent) / 100 + 15_000;
            assert!(copied_bytes <= most, "{} % {other:?}: {copied_bytes} of {sent_bytes}", flow.percent);
        }
    }
}

#[test]
fn copies_that_wait_or_overtake_are_few() {
    for other in [Other::Full(4_000), Other::Full(50_000), Other::Overtakes(4_000), Other::Overtakes(50_000)]
    {
        let mut flow = Flow::new(100, 5, other);
        flow.run(5);
        assert!(flow.run(20).first_percent() < 2.0, "{other:?}");
    }
}

#[test]
fn copies_follow_others_load() {
    let mut flow = Flow::new(100, 3, Other::Drops(0));
    flow.run(5);
    flow.other = Other::Full(20_000);
    flow.run(1);
    assert!(flow.run(10).first_percent() < 1.5);
    flow.other = Other::Drops(0);
    flow.run(5);
    assert!(flow.run(20).first_percent() > 10.0);
}

/// Sends a packet at that budget, and its copy if it is to have one.
fn copied(rate: &mut RawRate, reasons: u32, percent: u32) -> u32 {
    let wanted = rate.sent(reasons, BYTES, percent, SECOND_US);
    if wanted == 0 || !rate.affords(BYTES, percent, wanted == FIRST) {
        return 0;
    }
    rate.copied(wanted, 1, BYTES, 1);
    wanted
}

#[test]
fn requests_retransmissions_and_tails_go_first() {
    let mut rate = of(ADDRESSES);
    let allowed = [AGAIN, REQUEST, TAIL, AGAIN, REQUEST, TAIL, AGAIN, REQUEST, TAIL, AGAIN];
    assert_eq!(allowed.map(|reason| copied(&mut rate, reason, 0)), allowed);
    assert_eq!(copied(&mut rate, AGAIN, 0), 0, "ten packets");
    // What has been sent pays for as many as that has cost, and then for a hundred more.
    rate = RawRate { sent_bytes: 733 * u64::from(BYTES), lossy: 10_000, every: 1, wait: 1, ..rate };
    assert_eq!((0..1000).take_while(|_| copied(&mut rate, FIRST, 15) == FIRST).count(), 117);
    let again = (0..1000).take_while(|_| copied(&mut rate, AGAIN, 15) == AGAIN).count();
    assert_eq!(again, 12, "ten are owed, and these pay for two");
}

#[test]
fn retransmissions_are_copied_by_what_the_handshake_began_with() {
    let copied = |stack| of(stack).sent(AGAIN, BYTES, 15, SECOND_US);
    assert_eq!([UNKNOWN, ADDRESSES, EXTENSIONS].map(copied), [0, AGAIN, 0]);
    let both = |stack| of(stack).sent(AGAIN | REQUEST, BYTES, 15, SECOND_US);
    assert_eq!([UNKNOWN, ADDRESSES, EXTENSIONS].map(both), [REQUEST, AGAIN | REQUEST, REQUEST]);
}

/// A person has to hold the law in the head to change it: its file, comments as well, and its constants, each with what it stands for. Beside
/// those defined there are `BICAST_ALLOWANCE` (`bicast.h`) and the two budgets, which are settings.
#[test]
fn the_law_has_120_lines_and_six_constants_at_most() {
    const LAW: &str = include_str!("../bpf/rate.h");
    let defined =
        LAW.lines().filter(|line| line.starts_with("#define ") && line.split_whitespace().nth(2).is_some());
    let (said, silent): (Vec<_>, Vec<_>) = defined.partition(|line| line.contains("/*"));
    assert_eq!(silent, [""; 0], "without a sentence");
    let (lines, constants) = (LAW.lines().count(), said.len() + 3);
    assert!(lines <= 120 && constants <= 6, "{lines} lines, {constants} constants");
}
