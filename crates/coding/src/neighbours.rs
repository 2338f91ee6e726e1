//! Which neighbours can be coded for, and what of it they miss (mode `any`).
//!
//! A neighbour has to have said that it decodes, in answer to this node's nonce (`greetings.rs`); reports say so as well.
//! The one that overhears reports what it missed. What is worth it is sent again; and a neighbour that misses too much,
//! or reports nothing, is not coded for until it is given another chance, later each time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::ethernet::Mac;
use crate::header::Report;
use crate::reception::REPORT_DELAY;
use crate::transit::Transit;

/// Neighbours known at once.
const MAX_NEIGHBOURS: usize = 64;
/// Copies kept for each, to be sent again: as many as a report names.
const MAX_COPIES: usize = 64;
/// A neighbour that has not answered for so long may not decode any more: what goes to one that has stopped is lost until then. Half
/// of it, with twice the questions, costs up to 1.2 % of goodput where half of all sums are not overheard.
pub const KNOWN_FOR: Duration = Duration::from_secs(8);
/// Sums without a report after which overhearing has failed.
const MAX_UNREPORTED: u32 = 256;
/// Reported sums that are enough to judge by.
const JUDGED_FROM: u32 = 16;
/// Reported sums after which all counts are halved.
const HALVED_AT: u32 = 256;
/// More than one of so many missed is too much. A later ACK makes up for one that is missed, and who misses one of ten is hardly
/// ever taken for one that misses more than this.
const TOO_MUCH: u32 = 5;
/// More than one of so many missed is too much to wait for, while few packets wait: a hold has its price, and then not even that
/// is sure. It is too much for what is wanted again as well: that comes late, and a flow takes it for lost.
const TOO_MUCH_LATE: u32 = 16;
/// For so long after a neighbour came, or came back, nothing that is wanted again goes past it while too little is known: pure
/// ACKs are to try it, which are reported by then; and for as long again for each that it missed. To a small window one packet of
/// data that comes late is a time-out.
const TRIAL_BY_ACKS: Duration = Duration::from_millis(500);
/// How long a neighbour is left out, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));

/// A neighbour, as one that sums are sent past.
#[derive(Debug)]
struct Neighbour {
    known_until: Duration,
    /// What it asked with last.
    nonce: u64,
    /// Of the next sum that it is to overhear.
    number: u16,
    /// Sums that no report covers yet, and when the last was numbered.
    unreported: u32,
    last: Duration,
    copies: VecDeque<(u16, Transit)>,
    /// Its latest report: it counts from the first sum that it heard.
    reported: Report,
    expected: u32,
    missed: u32,
    /// Until then it is left out, or was: since then it can be coded for.
    out_until: Duration,
    pause: Duration,
}

/// By MAC address.
#[derive(Debug, Default)]
pub struct Neighbours(BTreeMap<Mac, Neighbour>);

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbourhood {
    /// Frames of its for other nodes that this node has heard.
    pub overheard: u64,
    /// Whether it said lately that it decodes.
    pub decodes: bool,
    /// Whether it is not coded for at present.
    pub left_out: bool,
}

impl Neighbours {
    /// A neighbour has shown that it decodes at present, by a nonce that counts until `until`: so it is asked anew in time.
    pub fn note(&mut self, now: Duration, mac: Mac, until: Duration) {
        let known = self.entry(now, mac);
        known.known_until = known.known_until.max(until.min(now + KNOWN_FOR));
    }

    /// A neighbour asked with this nonce.
    pub fn learn(&mut self, now: Duration, mac: Mac, nonce: u64) {
        self.entry(now, mac).nonce = nonce;
    }

    /// What a report to this neighbour has to name.
    pub fn nonce(&self, mac: Mac) -> u64 {
        self.0.get(&mac).map_or(0, |known| known.nonce)
    }

    /// Whether it is not known for much longer that this neighbour decodes.
    pub fn is_to_be_asked(&self, now: Duration, mac: Mac) -> bool {
        self.0.get(&mac).is_none_or(|known| known.known_until < now + KNOWN_FOR / 2)
    }

    fn entry(&mut self, now: Duration, mac: Mac) -> &mut Neighbour {
        if self.0.len() >= MAX_NEIGHBOURS && !self.0.contains_key(&mac) {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.known_until).map(|(mac, _)| *mac);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.entry(mac).or_insert_with(|| Neighbour::new(now))
    }

    /// Whether sums are worth sending past this neighbour, and to it.
    pub fn decodes(&self, now: Duration, mac: Mac) -> bool {
        self.0.get(&mac).is_some_and(|known| known.decodes(now))
    }

    /// How many neighbours that is so of.
    pub fn decoding(&self, now: Duration) -> usize {
        self.0.values().filter(|known| known.decodes(now)).count()
    }

    /// Whether few enough sums are missed by this neighbour that packets are worth holding for it, while many wait here or few.
    /// One that was left out is first to show it by what can be coded without.
    pub fn is_worth_waiting_for(&self, mac: Mac, many_wait: bool) -> bool {
        let few = |known: &Neighbour| {
            let is_on_trial = known.pause > PAUSE.0 && known.expected < JUDGED_FROM;
            let too_much = if many_wait { TOO_MUCH } else { TOO_MUCH_LATE };
            !is_on_trial && known.missed * too_much <= known.expected.max(JUDGED_FROM)
        };
        self.0.get(&mac).is_some_and(few)
    }

    /// How many neighbours that decode packets are worth holding for.
    pub fn worth_waiting_for(&self, now: Duration, many_wait: bool) -> usize {
        let decoding = self.0.iter().filter(|(_, known)| known.decodes(now));
        decoding.filter(|(mac, _)| self.is_worth_waiting_for(**mac, many_wait)).count()
    }

    /// Whether the next hop of `packet` can be trusted to overhear it, or is tried by it: one that has missed too much can show that it
    /// overhears again by a trial after each report. Where none comes of a trial it was not heard; the next is made ever later.
    pub fn overhears(&self, now: Duration, packet: &Transit) -> bool {
        let is_tried = |known: &Neighbour| {
            known.unreported == 0 || now >= known.last.saturating_add(2 * REPORT_DELAY * known.unreported)
        };
        let trusted = |known: &Neighbour| match known.expected {
            JUDGED_FROM.. => known.missed * TOO_MUCH_LATE <= known.expected || is_tried(known),
            _ if now < known.out_until.saturating_add(TRIAL_BY_ACKS * (1 + known.missed)) => false,
            // The more of them, the more have been overheard so far.
            _ => is_tried(known) || (known.missed == 0 && known.unreported <= known.expected),
        };
        !packet.is_wanted() || self.0.get(&packet.next_hop).is_some_and(trusted)
    }

    /// The number of a sum that the next hop of `packet` is to overhear. A copy is kept of what is wanted again.
    pub fn number(&mut self, now: Duration, packet: &Transit) -> u16 {
        let Some(known) = self.0.get_mut(&packet.next_hop) else { return 0 };
        let number = known.number;
        known.number = number.wrapping_add(1);
        known.unreported += 1;
        known.last = now;
        if known.unreported >= MAX_UNREPORTED {
            known.leave_out(now);
        }
        if packet.is_wanted() {
            known.copies.push_back((number, packet.clone()));
            if known.copies.len() > MAX_COPIES {
                known.copies.pop_front();
            }
        }
        number
    }

    /// A neighbour reports what it overheard. Returns what to send again.
    pub fn handle_report(&mut self, now: Duration, mac: Mac, report: &Report) -> Vec<Transit> {
        match self.0.get_mut(&mac) {
            Some(known) => known.handle_report(now, report),
            None => Vec::new(),
        }
    }

    /// What is known at `now` of each neighbour that sent NC frames.
    pub fn all(&self, now: Duration) -> BTreeMap<Mac, Neighbourhood> {
        let one = |known: &Neighbour| Neighbourhood {
            overheard: 0,
            decodes: now < known.known_until,
            left_out: now < known.out_until,
        };
        self.0.iter().map(|(mac, known)| (*mac, one(known))).collect()
    }

    /// Neighbours that are left out at `now`.
    pub fn left_out(&self, now: Duration) -> usize {
        self.0.values().filter(|known| now < known.out_until).count()
    }
}

impl Neighbour {
    fn new(now: Duration) -> Self {
        Self {
            known_until: Duration::ZERO,
            nonce: 0,
            number: 0,
            unreported: 0,
            last: now,
            copies: VecDeque::new(),
            reported: Report { newest: u16::MAX, ..Report::default() },
            expected: 0,
            missed: 0,
            out_until: now,
            pause: PAUSE.0,
        }
    }

    fn decodes(&self, now: Duration) -> bool {
        now < self.known_until && now >= self.out_until
    }

    fn handle_report(&mut self, now: Duration, report: &Report) -> Vec<Transit> {
        let expected = report.newest.wrapping_sub(self.reported.newest);
        let missed = report.lost.wrapping_sub(self.reported.lost);
        self.reported = *report;
        // Those that were under way are the next report's. More than were sent: one of both began anew.
        let under_way = u32::from(self.number.wrapping_sub(report.newest).wrapping_sub(1));
        let sent = self.unreported;
        self.unreported = if under_way <= sent { under_way } else { 0 };
        if u32::from(expected) <= sent && missed <= expected {
            self.judge(now, expected.into(), missed.into());
        }
        let is_missing = |number: u16| {
            let behind = report.newest.wrapping_sub(number);
            behind < 64 && report.missing >> behind & 1 == 1
        };
        // What it covers it never names again, but numbers come again.
        let is_covered = |number: u16| report.newest.wrapping_sub(number) <= u16::MAX / 2;
        let (covered, waiting) = self.copies.drain(..).partition(|(number, _)| is_covered(*number));
        self.copies = waiting;
        let again = VecDeque::into_iter(covered).filter(|(number, _)| is_missing(*number));
        again.map(|(_, packet)| packet).collect()
    }

    fn judge(&mut self, now: Duration, expected: u32, missed: u32) {
        self.expected += expected;
        self.missed += missed;
        // Whoever has missed too many for the first few sums need not be asked about the rest of them.
        if self.missed * TOO_MUCH > self.expected.max(JUDGED_FROM) {
            self.leave_out(now);
        } else if self.expected >= HALVED_AT {
            (self.expected, self.missed) = (self.expected / 2, self.missed / 2);
            self.pause = PAUSE.0;
        }
    }

    fn leave_out(&mut self, now: Duration) {
        (self.expected, self.missed, self.unreported) = (0, 0, 0);
        self.out_until = now.saturating_add(self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Datagram;

    const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 0, 3]);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn packet(n: u8) -> Transit {
        let mut bytes = vec![n; 60];
        bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 20, 17, 9]);
        let datagram = Datagram::parse(bytes).unwrap();
        Transit { datagram, previous_hop: Some(Mac([2; 6])), next_hop: NEIGHBOUR, came: s(0) }
    }

    fn send(neighbours: &mut Neighbours, now: Duration, count: u16) -> u16 {
        (0..count).map(|n| neighbours.number(now, &packet(n as u8))).last().unwrap()
    }

    fn known() -> Neighbours {
        let mut neighbours = Neighbours::default();
        neighbours.note(s(0), NEIGHBOUR, s(100));
        neighbours.handle_report(s(0), NEIGHBOUR, &Report { newest: u16::MAX, ..Report::default() });
        neighbours
    }

    #[test]
    fn one_that_says_nothing_is_not_coded_for() {
        let mut neighbours = Neighbours::default();
        assert!(!neighbours.decodes(s(0), NEIGHBOUR));
        neighbours.note(s(0), NEIGHBOUR, s(100));
        assert!(neighbours.decodes(s(7), NEIGHBOUR) && !neighbours.decodes(s(8), NEIGHBOUR));
    }

    #[test]
    fn what_is_missing_is_sent_again_once() {
        let mut neighbours = known();
        let newest = send(&mut neighbours, s(0), 5);
        let report = Report { newest, lost: 1, missing: 0b100, answer: 0 };
        assert_eq!(neighbours.handle_report(s(0), NEIGHBOUR, &report), [packet(2)]);
        assert_eq!(neighbours.handle_report(s(0), NEIGHBOUR, &report), []);
    }

    #[test]
    fn what_was_heard_is_not_sent_again_when_numbers_come_again() {
        let mut neighbours = known();
        let newest = send(&mut neighbours, s(0), 5);
        let report = Report { newest, ..Report::default() };
        assert_eq!(neighbours.handle_report(s(0), NEIGHBOUR, &report), []);
        // 65,534 pure ACKs later.
        let report = Report { newest: newest - 2, lost: 1, missing: 0b10, answer: 0 };
        assert_eq!(neighbours.handle_report(s(100), NEIGHBOUR, &report), []);
    }

    #[test]
    fn one_that_misses_too_much_is_left_out_for_longer_each_time() {
        let mut neighbours = known();
        let (mut now, mut lost) = (s(0), 0);
        for pause in [1, 2, 4] {
            let newest = send(&mut neighbours, now, 20);
            lost += 10;
            neighbours.handle_report(now, NEIGHBOUR, &Report { newest, lost, missing: 0, answer: 0 });
            neighbours.note(now + s(pause), NEIGHBOUR, s(100));
            assert!(!neighbours.decodes(now + s(pause) - s(1) / 1000, NEIGHBOUR), "{pause}");
            assert!(neighbours.decodes(now + s(pause), NEIGHBOUR), "{pause}");
            now += s(pause);
        }
    }

    #[test]
    fn nothing_is_held_for_one_that_was_left_out_before_it_has_shown_that_it_overhears() {
        let mut neighbours = known();
        assert!(neighbours.is_worth_waiting_for(NEIGHBOUR, false));
        let newest = send(&mut neighbours, s(0), 20);
        neighbours.handle_report(s(0), NEIGHBOUR, &Report { newest, lost: 10, missing: 0, answer: 0 });
        assert!(!neighbours.is_worth_waiting_for(NEIGHBOUR, false));
        let newest = send(&mut neighbours, s(1), 16);
        neighbours.handle_report(s(1), NEIGHBOUR, &Report { newest, lost: 10, missing: 0, answer: 0 });
        assert!(neighbours.is_worth_waiting_for(NEIGHBOUR, false));
    }

    #[test]
    fn one_that_misses_a_tenth_is_worth_waiting_for_while_many_wait() {
        let mut neighbours = known();
        let newest = send(&mut neighbours, s(0), 100);
        neighbours.handle_report(s(0), NEIGHBOUR, &Report { newest, lost: 10, missing: 0, answer: 0 });
        assert_eq!([true, false].map(|many| neighbours.is_worth_waiting_for(NEIGHBOUR, many)), [true, false]);
    }

    #[test]
    fn what_is_wanted_again_takes_more_trust() {
        let mut neighbours = known();
        assert!(!neighbours.overhears(s(0), &packet(0)), "pure ACKs go first");
        let mut report = Report { newest: u16::MAX, ..Report::default() };
        for trials in [1, 2, 4, 8] {
            for _ in 0..trials {
                assert!(neighbours.overhears(s(1), &packet(0)));
                report.newest = send(&mut neighbours, s(1), 1);
            }
            assert!(!neighbours.overhears(s(1), &packet(0)), "{trials} trials without a report");
            neighbours.handle_report(s(1), NEIGHBOUR, &report);
        }
        for (count, lost, trusted) in [(60, 1, true), (30, 6, false), (250, 0, true)] {
            report = Report {
                newest: send(&mut neighbours, s(1), count),
                lost: report.lost + lost,
                missing: 0,
                answer: 0,
            };
            neighbours.handle_report(s(1), NEIGHBOUR, &report);
            assert!(neighbours.overhears(s(1), &packet(0)), "a trial after each report");
            send(&mut neighbours, s(1), 1);
            assert_eq!(
                (neighbours.overhears(s(1), &packet(0)), neighbours.decodes(s(1), NEIGHBOUR)),
                (trusted, true)
            );
        }
    }

    #[test]
    fn one_that_did_not_hear_a_trial_is_tried_again_ever_later() {
        let mut neighbours = known();
        let newest = send(&mut neighbours, s(0), 20);
        neighbours.handle_report(s(0), NEIGHBOUR, &Report { newest, lost: 2, missing: 0, answer: 0 });
        let mut tried = Vec::new();
        for second in 0..20 {
            if neighbours.overhears(s(second), &packet(0)) {
                tried.push(second);
                send(&mut neighbours, s(second), 1);
            }
        }
        assert_eq!(tried, [0, 2, 6, 12]);
    }

    #[test]
    fn one_that_missed_a_trial_gets_one_at_a_time() {
        let mut neighbours = known();
        let newest = send(&mut neighbours, s(1), 4);
        neighbours.handle_report(s(1), NEIGHBOUR, &Report { newest, lost: 1, missing: 0b10, answer: 0 });
        assert!(neighbours.overhears(s(1), &packet(0)));
        send(&mut neighbours, s(1), 1);
        assert!(!neighbours.overhears(s(1), &packet(0)));
    }

    #[test]
    fn one_that_reports_nothing_is_left_out() {
        let mut neighbours = known();
        send(&mut neighbours, s(0), 255);
        assert!(neighbours.decodes(s(0), NEIGHBOUR));
        send(&mut neighbours, s(0), 1);
        assert_eq!((neighbours.decodes(s(0), NEIGHBOUR), neighbours.left_out(s(0))), (false, 1));
    }

    #[test]
    fn what_was_under_way_when_a_report_came_is_judged_by_the_next() {
        let mut neighbours = known();
        for (count, newest, lost) in [(10, 7, 0), (2, 11, 4)] {
            assert!(neighbours.decodes(s(0), NEIGHBOUR));
            send(&mut neighbours, s(0), count);
            neighbours.handle_report(s(0), NEIGHBOUR, &Report { newest, lost, missing: 0, answer: 0 });
        }
        assert!(!neighbours.decodes(s(0), NEIGHBOUR));
    }

    #[test]
    fn a_report_that_cannot_be_true_decides_nothing() {
        let mut neighbours = known();
        send(&mut neighbours, s(0), 20);
        neighbours.handle_report(
            s(0),
            NEIGHBOUR,
            &Report { newest: 30_000, lost: 30_000, missing: u64::MAX, answer: 0 },
        );
        assert!(neighbours.decodes(s(0), NEIGHBOUR));
    }

    #[test]
    fn neighbours_and_copies_are_bounded() {
        let mut neighbours = known();
        send(&mut neighbours, s(0), 1000);
        assert_eq!(neighbours.0[&NEIGHBOUR].copies.len(), MAX_COPIES);
        for n in 0..1000u32 {
            let [_, _, high, low] = n.to_be_bytes();
            neighbours.note(s(n.into()), Mac([4, 0, 0, 0, high, low]), s(2000));
        }
        assert_eq!(neighbours.0.len(), MAX_NEIGHBOURS);
    }
}
