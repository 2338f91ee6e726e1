use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn send(s: &mut Sent, at: u32, n: u64) {
    for _ in 0..n {
        let order = s.next_sequence();
        s.handle_sent(at * MS, 1000, Content::Data(order, Piece::WHOLE));
    }
}

fn report(s: &mut Sent, at: u32, ranges: &[(u64, u64)]) -> Outcome {
    let mut out = Outcome::default();
    let ranges = ranges.iter().map(|r| r.0..=r.1).collect();
    s.handle_report(at * MS, &Report { ranges, arrival: at * 1000, ..Report::default() }, &mut out);
    out
}

#[test]
fn a_packet_is_lost_when_three_later_ones_arrived() {
    let mut s = Sent::default();
    send(&mut s, 0, 5);
    assert_eq!(report(&mut s, 20, &[(1, 2)]).lost, []);
    let out = report(&mut s, 21, &[(1, 3)]);
    assert_eq!((out.confirmed, out.lost), (vec![3], vec![0]));
    assert_eq!(s.in_flight(), 1000);
    assert_eq!(s.totals().2, 1);
}

#[test]
fn a_packet_in_pieces_has_arrived_with_the_last_of_them_and_is_lost_with_the_first() {
    let mut s = Sent::default();
    send(&mut s, 0, 1);
    // 100 goes in 1 to 3, 101 in 4 and 5.
    for (order, of) in [(100, 3), (101, 2)] {
        (0..of).for_each(|index| s.handle_sent(MS, 600, Content::Data(order, Piece { index, of })));
    }
    let mut told = |at, ranges: &[(u64, u64)]| {
        let out = report(&mut s, at, ranges);
        (out.confirmed, out.lost)
    };
    assert_eq!(told(20, &[(1, 1), (0, 0)]), (vec![0], vec![]));
    assert_eq!(told(21, &[(3, 3), (0, 1)]), (vec![], vec![]));
    // 2 and 4 are lost, by what came later.
    assert_eq!(told(22, &[(5, 5), (3, 3), (0, 1)]), (vec![], vec![100]));
    send(&mut s, 22, 3);
    let mut told = |at, ranges: &[(u64, u64)]| {
        let out = report(&mut s, at, ranges);
        (out.confirmed, out.lost)
    };
    assert_eq!(told(42, &[(5, 8), (3, 3), (0, 1)]), (vec![6, 7, 8], vec![101]));
    // They come after all.
    assert_eq!(told(43, &[(3, 8), (0, 1)]), (vec![101], vec![]));
    assert_eq!(told(44, &[(0, 8)]), (vec![100], vec![]));
    assert_eq!(s.in_flight(), 0);
    // All are lost: the packet once.
    (0..3).for_each(|index| s.handle_sent(50 * MS, 600, Content::Data(200, Piece { index, of: 3 })));
    let mut out = Outcome::default();
    s.abandon(&mut out);
    assert_eq!((out.lost, out.confirmed, s.totals().2), (vec![200], vec![], 3));
}

/// What is under way when this host is suspended is reported with what it sends first.
#[test]
fn how_long_a_host_stood_still_is_no_round_trip() {
    let mut s = Sent::default();
    for round in 0..50 {
        send(&mut s, 20 * round, 2);
        let last = s.next_sequence() - 1;
        report(&mut s, 20 * round + 20, &[(0, last)]);
    }
    send(&mut s, 1000, 2);
    let (window, rtt, hour) = (s.window(1000 * MS), s.rtt().smoothed(), 3_600_000);
    s.handle_stop(hour * MS);
    let last = s.next_sequence() - 1;
    report(&mut s, hour, &[(0, last)]);
    assert_eq!((s.window(hour * MS), s.rtt().smoothed()), (window, rtt));
    assert!(s.probe_timeout() < Duration::from_secs(1) && s.rate.min_rtt() == Some(20 * MS));
}

/// A host that was paused with its clock, as a virtual machine is.
#[test]
fn a_clock_that_stood_still_is_no_jitter() {
    let mut s = Sent::default();
    for round in 0..50 {
        send(&mut s, 20 * round, 2);
        let last = s.next_sequence() - 1;
        let mut out = Outcome::default();
        let paused = if round < 40 { 0 } else { 30_000_000 };
        let arrival = (20 * round + 10) * 1000 + paused;
        let report = Report { ranges: vec![0..=last], arrival, ..Report::default() };
        s.handle_report((20 * round + 20) * MS, &report, &mut out);
    }
    assert!(s.rate.jitter() < 20 * MS, "{:?}", s.rate.jitter());
}

/// A report that never arrives is nobody's loss, and nobody acknowledges it.
#[test]
fn a_report_that_is_lost_holds_nothing_behind_it() {
    let mut s = Sent::default();
    s.handle_sent(Duration::ZERO, 100, Content::Report);
    for round in 1..=3 {
        let (first, at) = (s.next_sequence(), round as u32 * 100);
        send(&mut s, at, REMEMBERED);
        let last = s.next_sequence() - 1;
        report(&mut s, at + 20, &[(first, last)]);
    }
    assert_eq!(s.packets.len(), 0);
}

#[test]
fn what_arrives_after_all_was_no_loss_of_the_path() {
    let mut s = Sent::default();
    let mut out = Outcome::default();
    // Its round trip is longer than one that nobody has measured is taken to be.
    send(&mut s, 0, 2);
    s.handle_timeout(400 * MS, &mut out);
    assert!(s.rate.loss() > 0.0 && out.lost == [0, 1], "{:?}", out.lost);
    assert_eq!(report(&mut s, 401, &[(0, 1)]).confirmed, [0, 1]);
    assert_eq!((s.rate.loss(), s.totals().2), (0.0, 0));
}

#[test]
fn a_path_that_reorders_is_told_by_time_until_it_has_not_for_long() {
    let mut s = Sent::default();
    send(&mut s, 0, 20);
    assert_eq!(report(&mut s, 20, &[(1, 5)]).lost, [0]);
    let out = report(&mut s, 25, &[(0, 5)]);
    assert_eq!((out.confirmed, s.totals().2), (vec![0], 0));
    // Late once: later ones that arrived do not count, but the time since.
    assert_eq!(report(&mut s, 26, &[(7, 12), (0, 5)]).lost, []);
    let mut out = Outcome::default();
    let due = s.poll_timeout().unwrap();
    assert!(due > 30 * MS && due < 36 * MS, "{due:?}");
    s.handle_timeout(due, &mut out);
    assert_eq!(out.lost, [6]);
    for t in 2..200 {
        send(&mut s, 20 * t, 1);
        let last = s.next_sequence() - 1;
        report(&mut s, 20 * t + 20, &[(7, last), (0, 5)]);
    }
    let next = s.next_sequence();
    send(&mut s, 5000, 5);
    assert_eq!(report(&mut s, 5020, &[(next + 1, next + 4), (7, next - 1), (0, 5)]).lost, [next]);
}

#[test]
fn what_is_in_flight_stays_so_in_a_silence_which_ends_with_an_answer() {
    let mut s = Sent::default();
    send(&mut s, 0, 4);
    report(&mut s, 20, &[(0, 0)]);
    let timeout = s.poll_timeout().unwrap();
    send(&mut s, 30, 1);
    let mut out = Outcome::default();
    assert!(!s.handle_timeout(timeout - MS, &mut out));
    assert!(s.handle_timeout(timeout, &mut out));
    assert_eq!((&out.lost[..], s.in_flight(), s.is_silent()), (&[][..], 4000, true));
    // There is another path: all of it goes there, once.
    (0..2).for_each(|_| s.hand_over(&mut out));
    assert_eq!((&out.lost[..], s.in_flight()), (&[1, 2, 3, 4][..], 4000));
    let again = s.poll_timeout().unwrap();
    assert!(again > timeout && again <= timeout + MAX_PROBE_INTERVAL);
    assert_eq!(report(&mut s, 900, &[(0, 3)]).confirmed, [1, 2, 3]);
    assert_eq!((s.in_flight(), s.is_silent()), (1000, false));
}

#[test]
fn a_packet_or_two_that_are_not_reported_put_a_path_in_doubt_and_no_more() {
    let mut s = Sent::default();
    send(&mut s, 0, 3);
    report(&mut s, 20, &[(0, 0)]);
    let mut out = Outcome::default();
    assert!(s.handle_timeout(s.poll_timeout().unwrap(), &mut out));
    assert_eq!((&out.lost[..], s.is_silent()), (&[1, 2][..], false));
    s.handle_sent(100 * MS, 50, Content::Probe(None));
    assert!(s.handle_timeout(s.poll_timeout().unwrap(), &mut out));
    assert!(s.is_silent());
}

#[test]
fn a_path_that_was_silent_for_long_is_measured_anew() {
    for (silent_until, anew) in [(700, false), (1900, true)] {
        let mut s = Sent::default();
        send(&mut s, 0, 3);
        report(&mut s, 20, &[(0, 0)]);
        send(&mut s, 20, 4);
        report(&mut s, 40, &[(0, 3)]);
        let before = s.rate.bytes_per_second().unwrap();
        let mut out = Outcome::default();
        assert!(s.handle_timeout(s.poll_timeout().unwrap(), &mut out));
        s.handle_sent(500 * MS, 50, Content::Probe(None));
        report(&mut s, silent_until, &[(7, 7)]);
        assert!(!s.is_silent());
        let after = s.rate.bytes_per_second().unwrap_or(0.0);
        assert_eq!(after < before / 10.0, anew, "{after} of {before}");
    }
}

/// Whether a path with packets under way that fell silent is so still when, 80 ms later, a report says that the first
/// of them arrived `transit` ms after it was sent.
fn silent_after(transit: u32) -> bool {
    let mut s = Sent::default();
    send(&mut s, 0, 1);
    report(&mut s, 20, &[(0, 0)]);
    send(&mut s, 30, 3);
    let falls_silent = s.poll_timeout().unwrap();
    assert!(s.handle_timeout(falls_silent, &mut Outcome::default()) && s.is_silent());
    let late = Report { arrival: (30 + transit) * 1000, ranges: vec![0..=1], ..Report::default() };
    s.handle_report(falls_silent + 80 * MS, &late, &mut Outcome::default());
    s.is_silent()
}

#[test]
fn a_late_report_of_what_arrived_in_time_ends_no_silence_and_what_arrived_late_does() {
    assert!(silent_after(20));
    assert!(!silent_after(130));
}

#[test]
fn a_path_that_goes_hands_everything_back_at_once() {
    let mut s = Sent::default();
    send(&mut s, 0, 3);
    let mut out = Outcome::default();
    s.abandon(&mut out);
    assert_eq!((&out.lost[..], s.in_flight(), s.next_sequence()), (&[0, 1, 2][..], 0, 3));
}

#[test]
fn markers_in_a_pause_do_not_lower_what_the_path_is_taken_to_carry() {
    let mut s = Sent::default();
    for t in 0..200 {
        send(&mut s, t, 1);
        if let Some(arrived) = t.checked_sub(20) {
            report(&mut s, t, &[(0, arrived.into())]);
        }
    }
    let rate = s.rate.bytes_per_second().unwrap();
    assert!(rate > 900_000.0, "{rate}: a packet of 1000 bytes each millisecond");
    for t in (300..6000).step_by(250) {
        let marker = s.next_sequence();
        s.handle_sent(t * MS, 60, Content::Probe(None));
        report(&mut s, t + 20, &[(0, marker)]);
    }
    assert!(s.rate.bytes_per_second().unwrap() >= rate);
}

#[test]
fn a_wait_that_no_report_has_is_no_part_of_a_round_trip() {
    let mut s = Sent::default();
    send(&mut s, 0, 1);
    report(&mut s, 50, &[(0, 0)]);
    // The receiver's clock was set forward by 45 ms between an arrival and its report.
    send(&mut s, 100, 1);
    let set = Report { path: 0, report_delay: 45_000, ranges: vec![0..=1], ..Report::default() };
    s.handle_report(150 * MS, &set, &mut Outcome::default());
    assert_eq!((s.in_flight(), s.rate.min_rtt()), (0, Some(50 * MS)));
}

#[test]
fn reports_of_what_was_never_sent_change_nothing() {
    let mut s = Sent::default();
    assert!(!report(&mut s, 1, &[(0, 9)]).progress);
    send(&mut s, 1, 2);
    assert!(!report(&mut s, 2, &[(5, u64::MAX - 1)]).progress);
    assert_eq!(report(&mut s, 3, &[(0, u64::MAX - 1)]).confirmed, [0, 1]);
    assert_eq!((s.in_flight(), s.next_sequence()), (0, 2));
}

/// Sends a packet of so many bytes at each of these times.
fn send_sized(s: &mut Sent, size: usize, at: impl IntoIterator<Item = u32>) {
    for at in at {
        let order = s.next_sequence();
        s.handle_sent(at * MS, size, Content::Data(order, Piece::WHOLE));
    }
}

#[test]
fn an_outage_is_no_smaller_mtu() {
    let mut s = Sent::default();
    // A link that is gone for half a second, and then takes large packets again.
    send_sized(&mut s, 1400, (0..14).map(|n| 50 * n));
    report(&mut s, 700, &[(10, 13)]);
    assert!(!s.take_swallowing());
    // From now on it takes small ones only.
    send_sized(&mut s, 1400, (14..24).map(|n| 50 * n));
    send_sized(&mut s, 100, (24..28).map(|n| 50 * n));
    report(&mut s, 1400, &[(24, 27)]);
    assert!(s.take_swallowing());
    // What a path that leads elsewhere hands back has vanished nowhere.
    send_sized(&mut s, 1400, (28..44).map(|n| 50 * n));
    s.handle_move(true, &mut Outcome::default());
    assert!(!s.take_swallowing());
}

#[test]
fn after_a_pause_a_longer_round_trip_is_no_reason_to_send_less() {
    let mut s = Sent::default();
    for round in 0..50 {
        send(&mut s, 20 * round, 4);
        let last = s.next_sequence() - 1;
        report(&mut s, 20 * round + 20, &[(0, last)]);
    }
    let window = s.window(1000 * MS);
    send(&mut s, 30_000, 4);
    let last = s.next_sequence() - 1;
    report(&mut s, 30_025, &[(0, last)]);
    let after = s.window(30_025 * MS);
    assert!(!s.rate.take_call() && after >= window, "{after} of {window}");
}

/// The receiver's clock steps, or drifts by 500 ppm, and then the way back fills: none of it is a queue on the way there.
#[test]
fn a_clock_that_steps_or_drifts_makes_no_queue_of_the_way_back() {
    for (step, drift) in [(0, 0), (2_000_000, 0), (3_600_000_000, 0), (0, 50)] {
        let mut s = Sent::default();
        let mut offset = 0u32;
        let mut round = |s: &mut Sent, number: u32, back: u32| {
            let at = 100 * number;
            send(s, at, 4);
            let arrival = (at * 1000 + 10_000).wrapping_add(offset);
            let ranges = vec![0..=s.next_sequence() - 1];
            let report = Report { ranges, arrival, ..Report::default() };
            s.handle_report((at + 10 + back) * MS, &report, &mut Outcome::default());
            offset = offset.wrapping_add(drift);
            if number == 60 {
                offset = offset.wrapping_add(step);
            }
            s.window((at + 10 + back) * MS)
        };
        let before = (0..60).map(|number| round(&mut s, number, 10)).last().unwrap();
        let _ = (60..65).map(|number| round(&mut s, number, 10)).last();
        let after = (65..85).map(|number| round(&mut s, number, 60)).min().unwrap();
        assert!(!s.rate.take_call() && after >= before, "{step} {drift}: {after} of {before}");
    }
}

#[test]
fn what_was_handed_back_and_arrives_is_no_reordering() {
    let mut s = Sent::default();
    send(&mut s, 0, 2);
    s.abandon(&mut Outcome::default());
    report(&mut s, 20, &[(0, 1)]);
    send(&mut s, 21, 4);
    assert_eq!(report(&mut s, 41, &[(3, 5), (0, 1)]).lost, [2], "by the third that arrived");
}

/// As one that ends by a report does.
#[test]
fn a_silence_that_a_move_of_the_host_ends_is_over() {
    let mut s = Sent::default();
    send(&mut s, 0, 4);
    report(&mut s, 20, &[(0, 3)]);
    send(&mut s, 30, 4);
    let mut out = Outcome::default();
    while !s.is_silent() {
        let at = s.poll_timeout().unwrap();
        s.handle_timeout(at, &mut out);
    }
    s.handle_move(true, &mut out);
    s.end_silence(3000 * MS);
    send(&mut s, 3000, 1);
    let at = s.poll_timeout().unwrap();
    assert!(
        s.handle_timeout(at, &mut out) && !s.is_silent(),
        "one packet that is overdue leaves it in doubt"
    );
}

#[test]
fn a_full_window_that_grows_while_reports_wait_is_used_before_the_next_one() {
    let mut s = Sent::default();
    // 1 ms there and back; a report waits for 4 ms.
    for round in 0..20 {
        send(&mut s, 5 * round, 40);
        let (arrival, ranges) = (5000 * round + 500, vec![0..=u64::from(40 * round + 39)]);
        let waited = Report { arrival, report_delay: 4000, ranges, ..Report::default() };
        s.handle_report((5 * round + 5) * MS, &waited, &mut Outcome::default());
    }
    while s.in_flight() < s.window(100 * MS) {
        send(&mut s, 100, 1);
    }
    // Whatever wakes the path meanwhile puts it off by less than a report takes.
    let rooms = [100 * MS + MS / 2, 101 * MS].map(|now| s.room_at(now));
    assert!(rooms.iter().all(|room| room.is_some_and(|room| room < 103 * MS)), "{rooms:?}");
}

/// What earlier reports have named is passed over, in whatever order and however they overlap, and nothing else.
#[test]
fn what_reports_name_has_arrived_however_often_they_name_it() {
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut s = Sent::default();
        send(&mut s, 0, 40);
        let mut named = [false; 40];
        for at in 0..8 {
            let [a, b] = [0; 2].map(|_: u64| u64::from(rng.next_u32() % 40));
            let (low, high) = (a.min(b), a.max(b));
            (low..=high).for_each(|sequence| named[sequence as usize] = true);
            report(&mut s, 20 + at, &[(low, high)]);
            let arrived = |i: usize| s.packets[i - s.base as usize].state == State::Acked;
            (s.base as usize..40).for_each(|i| assert_eq!(arrived(i), named[i], "{i} of seed {seed}"));
            assert!((0..s.base as usize).all(|i| named[i]), "seed {seed}");
        }
    }
}

#[test]
fn a_report_is_not_lost_with_its_way() {
    let mut s = Sent::default();
    s.handle_sent(MS, 100, Content::Report);
    send(&mut s, 1, 1);
    s.abandon(&mut Outcome::default());
    assert_eq!(s.totals().2, 1);
}

/// Reports of what comes the other way take sequences too: a path that data fill is full all the same.
#[test]
fn reports_among_data_say_nothing_of_want() {
    for reports in [0, 1] {
        let (mut s, mut ends) = (Sent::default(), Vec::new());
        for round in 0..60 {
            send(&mut s, 10 * round, 20);
            (0..reports).for_each(|_| s.handle_sent(10 * round * MS, 100, Content::Report));
            ends.push(s.next_sequence() - 1);
            if let Some(arrived) = ends.iter().rev().nth(2) {
                report(&mut s, 10 * round, &[(0, *arrived)]);
            }
        }
        assert!(!s.rate.is_starting(), "with {reports} reports");
    }
}
