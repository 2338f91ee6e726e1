//! Mode `any`, seen from outside.

mod common;

use std::time::Duration;

use coding::ethernet::{self, Frame};
use coding::header::{Greeting, Header, Report};
use coding::{Mac, Mode, NcLayer};
use common::{
    ACK, LATER, Tcp, acquaint, config, forwarded, frame, greeting, greeting_in, heard, ip_frame, layer, mac,
    ms, relay, sent, trying, trying_relay, udp,
};

const THERE: [usize; 3] = [1, 2, 3];
const BACK: [usize; 3] = [3, 2, 1];

/// The relay gets a datagram each way. What it sends, at `now` or, if both wait, when it waits no longer.
fn exchange(layer: &mut NcLayer, now: &mut Duration, n: u8) -> Vec<Vec<u8>> {
    relay(layer, *now, THERE, &datagram(true, n, 300));
    relay(layer, *now, BACK, &datagram(false, n, 200));
    let frames = sent(layer, *now);
    if !frames.is_empty() {
        return frames;
    }
    *now = layer.poll_timeout().expect("packets wait");
    sent(layer, *now)
}

/// A datagram of host 1 for host 3, or of 3 for 1, of `length` bytes, numbered.
fn datagram(there: bool, n: u8, length: usize) -> Vec<u8> {
    let (from, to) = if there { (1, 3) } else { (3, 1) };
    udp(from, to, &vec![n; length])
}

fn coded(frame: &[u8]) -> (Mac, coding::header::Coded<'_>) {
    let frame = Frame::parse(frame).unwrap();
    match Header::parse(frame.payload) {
        Ok(Header::Coded(coded)) => (frame.destination, coded),
        other => panic!("{other:?} is no sum"),
    }
}

#[test]
fn packets_of_any_protocol_are_coded_and_others_have_no_header() {
    let mut middle = trying_relay();
    let [mut left, mut right] = [1, 3].map(|n| layer(n, Mode::Any));
    let (there, back) = (datagram(true, 1, 300), datagram(false, 2, 200));
    for (layer, n, packet) in [(&mut left, 1, &there), (&mut right, 3, &back)] {
        layer.handle_master(ms(0), ip_frame(n, 2, packet));
        assert_eq!(sent(layer, ms(0)), [ip_frame(n, 2, packet)]);
    }
    relay(&mut middle, LATER, THERE, &there);
    relay(&mut middle, LATER, BACK, &back);
    let sums = sent(&mut middle, LATER);
    assert_eq!((sums.len(), coded(&sums[0]).0), (1, mac(3)), "to the longer packet's next hop");
    assert_eq!(heard(&mut left, &sums), [forwarded(back)]);
    assert_eq!(heard(&mut right, &sums), [forwarded(there)]);
}

#[test]
fn nothing_is_coded_for_neighbours_that_never_said_that_they_decode() {
    let mut layer = layer(2, Mode::Any);
    acquaint(&mut layer, &[1]);
    relay(&mut layer, ms(0), THERE, &datagram(true, 1, 300));
    relay(&mut layer, ms(0), BACK, &datagram(false, 2, 200));
    let frames = sent(&mut layer, ms(0));
    assert_eq!((frames.len(), layer.stats().sent_coded), (2, 0));
}

#[test]
fn what_was_not_overheard_is_reported_and_sent_again() {
    let (mut middle, answer) = trying();
    let mut left = layer(1, Mode::Any);
    heard(&mut left, &[greeting(2, mac(1), Greeting { asks: true, nonce: answer })]);
    assert!(!greeting_in(&sent(&mut left, ms(0))[0]).asks);
    let (mut sums, mut now) = (Vec::new(), LATER);
    for n in 0..4 {
        left.handle_master(ms(0), ip_frame(1, 2, &datagram(true, n, 300)));
        sent(&mut left, ms(0));
        sums.extend(exchange(&mut middle, &mut now, n));
        if n < 2 {
            // The more are known to have been overheard, the more are tried without a report.
            let mut payload = Vec::new();
            Report { newest: n.into(), answer, ..Report::default() }.emit(&mut payload);
            middle.handle_slave(now, &frame(1, mac(2), ethernet::NC, &payload));
        }
    }
    assert_eq!(sums.iter().map(|sum| coded(sum).1.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    heard(&mut left, &sums[..1]);
    let sums = &sums[1..];
    assert_eq!(heard(&mut left, &[sums[0].clone(), sums[2].clone()]).len(), 2);
    let reports = sent(&mut left, ms(0));
    assert_eq!(reports.len(), 1, "a gap before what is wanted again is reported at once");
    middle.handle_slave(now, &reports[0]);
    let again = forwarded(datagram(false, 2, 200));
    assert_eq!(sent(&mut middle, now), [ip_frame(2, 1, &again)]);
    assert_eq!(middle.stats().sent_again, 1);
}

#[test]
fn what_a_restarted_relay_sends_is_reported_and_sent_again() {
    let (mut middle, nonce) = trying();
    let mut left = layer(1, Mode::Any);
    heard(&mut left, &[greeting(2, mac(1), Greeting { asks: true, nonce })]);
    let mut now = LATER;
    for n in (0..200).cycle().take(600) {
        left.handle_master(now, ip_frame(1, 2, &datagram(true, n, 300)));
        sent(&mut left, now);
        middle.handle_slave(now, &greeting(3, mac(2), Greeting { asks: false, nonce }));
        let sums = exchange(&mut middle, &mut now, n);
        sums.iter().for_each(|sum| left.handle_slave(now, sum));
        sent(&mut left, now).iter().for_each(|report| middle.handle_slave(now, report));
    }
    assert_eq!(middle.stats().sent_coded, 600);
    middle = trying_relay();
    let sums = exchange(&mut middle, &mut LATER.clone(), 200);
    assert_eq!(coded(&sums[0]).1.number, 0);
    // Node 1 has not sent its packet.
    sums.iter().for_each(|sum| left.handle_slave(now, sum));
    sent(&mut left, now).iter().for_each(|report| middle.handle_slave(LATER, report));
    assert_eq!(middle.stats().sent_again, 1);
}

#[test]
fn a_report_for_another_relay_says_only_that_its_sender_decodes() {
    let mut layer = trying_relay();
    let mut payload = Vec::new();
    Report { newest: 9, lost: 9, missing: u64::MAX, answer: 0 }.emit(&mut payload);
    heard(&mut layer, &[frame(1, mac(7), ethernet::NC, &payload)]);
    assert_eq!((sent(&mut layer, LATER).len(), layer.kept(LATER).left_out), (0, 0));
}

/// How many sums a relay sends whose neighbour 1 decodes, and whose neighbour 3 has said what `say` makes of the relay's nonce.
fn sums_past_a_stranger(say: impl Fn(u64) -> Vec<u8>) -> u64 {
    let mut layer = layer(2, Mode::Any);
    let nonce = acquaint(&mut layer, &[1]);
    heard(&mut layer, &[say(nonce)]);
    let mut now = LATER;
    (0..20).for_each(|n| drop(exchange(&mut layer, &mut now, n)));
    layer.stats().sent_coded
}

#[test]
fn a_greeting_counts_that_answers_this_relay_lately_and_no_other() {
    let say = |asks, nonce| greeting(3, mac(2), Greeting { asks, nonce });
    assert!(sums_past_a_stranger(|nonce| say(false, nonce)) > 0);
    assert_eq!(sums_past_a_stranger(|nonce| say(false, nonce + 1)), 0, "forged");
    assert_eq!(sums_past_a_stranger(|nonce| say(true, nonce)), 0, "a question");
    let mut before = NcLayer::new(common::config(2, Mode::Any, ms(10)), 99);
    let stale = acquaint(&mut before, &[]);
    assert_eq!(sums_past_a_stranger(|_| say(false, stale)), 0, "of an earlier life");
}

#[test]
fn no_other_nc_frame_makes_a_host_one_that_decodes() {
    let mut report = Vec::new();
    Report { newest: 9, ..Report::default() }.emit(&mut report);
    for payload in [report, vec![0x21; 40], vec![0x20]] {
        let sums = sums_past_a_stranger(|_| frame(3, mac(2), ethernet::NC, &payload));
        assert_eq!(sums, 0, "{payload:?}");
    }
}

#[test]
fn over_a_radio_only_a_relay_that_is_overheard_is_told_that_this_node_decodes() {
    let config = coding::Config { by_monitor: true, ..config(1, Mode::Any, ms(10)) };
    let mut left = NcLayer::new(config, 1);
    let mut asked = |millis: u64, relay: usize, to: usize| {
        let question = greeting(relay, mac(to), Greeting { asks: true, nonce: 7 });
        left.handle_slave(ms(millis), &question);
        (sent(&mut left, ms(millis)).len(), left.unheard(ms(millis)))
    };
    let relay = Some(mac(2).to_string());
    assert_eq!(asked(0, 2, 1), (0, relay.clone()), "nothing was overheard yet");
    assert_eq!(asked(1, 4, 3), (0, relay.clone()), "another relay was");
    assert_eq!(asked(2, 2, 3), (0, None), "now it was");
    assert_eq!(asked(3, 2, 1), (1, None));
    assert_eq!(asked(8002, 2, 1), (0, relay), "that was too long ago");
    assert_eq!(asked(16_002, 4, 3), (0, None), "it asks no more");
}

#[test]
fn a_first_receiver_that_falls_silent_is_coded_for_no_longer_than_eight_seconds() {
    let mut layer = trying_relay();
    let mut now = LATER;
    exchange(&mut layer, &mut now, 0);
    let coded = layer.stats().sent_coded;
    assert!(coded > 0);
    now = LATER + ms(8000);
    (1..10).for_each(|n| drop(exchange(&mut layer, &mut now, n)));
    assert_eq!(layer.stats().sent_coded, coded);
}

#[test]
fn who_decodes_no_longer_still_does_while_a_relay_may_code_for_it() {
    let (mut middle, nonce) = trying();
    let mut left = layer(1, Mode::Any);
    heard(&mut left, &[greeting(2, mac(1), Greeting { asks: true, nonce })]);
    sent(&mut left, ms(0));
    left.reconfigure(ms(0), config(1, Mode::Off, ms(10)));
    let mut now = LATER;
    left.handle_master(now, ip_frame(1, 2, &datagram(true, 1, 300)));
    assert_eq!(sent(&mut left, now), [ip_frame(1, 2, &datagram(true, 1, 300))]);
    let sums = exchange(&mut middle, &mut now, 1);
    assert_eq!(heard(&mut left, &sums), [forwarded(datagram(false, 1, 200))]);
    sent(&mut left, now).iter().for_each(|report| middle.handle_slave(now, report));
    // It does not have the second's partner.
    let sums = exchange(&mut middle, &mut now, 2);
    assert_eq!(heard(&mut left, &sums), [] as [Vec<u8>; 0]);
    sent(&mut left, now).iter().for_each(|report| middle.handle_slave(now, report));
    assert_eq!(middle.stats().sent_again, 1);
    let (over, copies) = (ms(16_000), left.kept(now).copies);
    left.handle_master(over, ip_frame(1, 2, &datagram(true, 3, 300)));
    assert_eq!((sent(&mut left, over).len(), left.kept(over).copies), (1, copies));
}

#[test]
fn a_hold_ends_when_the_medium_falls_silent() {
    let mut layer = trying_relay();
    relay(&mut layer, LATER, BACK, &datagram(false, 1, 200));
    sent(&mut layer, LATER);
    relay(&mut layer, LATER, THERE, &datagram(true, 1, 200));
    relay(&mut layer, LATER, THERE, &datagram(true, 2, 200));
    sent(&mut layer, LATER);
    relay(&mut layer, LATER, BACK, &datagram(false, 2, 200));
    assert_eq!((sent(&mut layer, LATER).len(), layer.kept(LATER).held), (0, 1));
    let silent = layer.poll_timeout().unwrap();
    assert!(silent < LATER + ms(10), "{silent:?}");
    assert_eq!((sent(&mut layer, silent).len(), layer.kept(silent).held), (1, 0));
}

#[test]
fn who_passes_by_does_not_keep_others_from_being_counted() {
    let mut layer = layer(2, Mode::Any);
    let mut overhear = |from: usize| {
        layer.handle_slave(ms(from as u64), &ip_frame(from, 1, &datagram(true, 0, 20)));
        layer.neighbours(ms(0)).get(&mac(from)).map_or(0, |one| one.overheard)
    };
    assert_eq!((100..164).map(&mut overhear).sum::<u64>(), 64);
    assert_eq!([300; 10].map(&mut overhear), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!([overhear(101), overhear(100)], [2, 1], "the one that was silent for longest gave way");
}

/// Relay 2 after a hundred sums for neighbour 1 to overhear, of which it missed the last few.
fn after_missing(missed: u16) -> (NcLayer, Duration) {
    let (mut middle, answer) = trying();
    let mut now = LATER;
    for newest in 0..100 {
        exchange(&mut middle, &mut now, newest as u8);
        let lost = if newest == 99 { missed } else { 0 };
        let mut report = Vec::new();
        Report { newest, lost, missing: 0, answer }.emit(&mut report);
        if newest < 100 - missed || newest == 99 {
            middle.handle_slave(now, &frame(1, mac(2), ethernet::NC, &report));
        }
    }
    assert_eq!(middle.stats().sent_coded, 100);
    (middle, now)
}

#[test]
fn who_can_code_is_a_relay_between_two_that_are_not_left_out() {
    let (relay, now) = after_missing(0);
    assert!(relay.can_code(now) && !relay.can_code(now + Duration::from_secs(60)));
    let (relay, now) = after_missing(30);
    assert!(!relay.can_code(now));
    let mut end = layer(1, Mode::Any);
    heard(&mut end, &[greeting(2, mac(1), Greeting { asks: true, nonce: 7 })]);
    end.handle_master(ms(0), ip_frame(1, 2, &datagram(true, 0, 300)));
    heard(&mut end, &[ip_frame(2, 1, &datagram(false, 0, 300))]);
    assert!(!end.can_code(ms(0)));
}

/// Neighbour 1 overhears too little of what is wanted again to be sent that in sums but for a trial, and enough for its ACKs to be waited
/// for while many packets wait.
#[test]
fn packets_that_may_not_be_its_partners_keep_none_back() {
    let (mut middle, mut now) = after_missing(7);
    let before = *middle.stats();
    for n in 0..100 {
        (0..8).for_each(|_| relay(&mut middle, now, BACK, &datagram(false, n, 200)));
        relay(&mut middle, now, THERE, &datagram(true, n, 300));
        sent(&mut middle, now);
        now += ms(20);
        sent(&mut middle, now);
    }
    let (held, trials) = (middle.stats().held - before.held, middle.stats().sent_coded - before.sent_coded);
    assert!(trials == 1 && held < 25, "{held} of 900 held for nothing, {trials} trials");
}

/// A segment of a connection from host 1 to 3 or back, or an ACK of the other's data, on the same way.
fn segment(there: bool, n: u32, payload: &[u8]) -> Vec<u8> {
    let ((from, to), port) =
        (if there { (1, 3) } else { (3, 1) }, if there == payload.is_empty() { 2 } else { 1 });
    common::tcp(Tcp { six: false, from, to, port, flags: ACK, seq: n * 1000, ack: n * 1000, payload })
}

#[test]
fn an_ack_that_leaves_data_to_data_waits_for_another_ack() {
    let (mut middle, now) = after_missing(0);
    relay(&mut middle, now, THERE, &segment(true, 1, &[]));
    for (way, n) in [(THERE, 0..20), (BACK, 20..40)] {
        n.for_each(|n| relay(&mut middle, now, way, &segment(way == THERE, n, &[n as u8; 1000])));
    }
    // The medium falls silent, and none is held any longer.
    let silent = now + ms(1);
    let mut frames: Vec<_> = (0..10).filter_map(|_| middle.poll_slave(silent)).collect();
    relay(&mut middle, silent, BACK, &segment(false, 1, &[]));
    [silent, now + ms(11)].iter().for_each(|now| frames.extend(sent(&mut middle, *now)));
    let of_acks: Vec<_> = frames.iter().filter(|frame| frame.len() < 1000).collect();
    assert_eq!(of_acks.len(), 1, "both in one frame");
    coded(of_acks[0]);
}

/// How long a relay is silent that overhears a sum, after so many others, having had a packet to send, while so many more wait there.
fn silent_after_a_sum(others: u8, waiting: u8) -> Duration {
    let (mut middle, answer) = trying();
    let mut left = layer(1, Mode::Any);
    heard(&mut left, &[greeting(2, mac(1), Greeting { asks: true, nonce: answer })]);
    let mut now = LATER;
    for n in 0..others {
        left.handle_master(now, ip_frame(1, 2, &datagram(true, n, 300)));
        let before = sent(&mut left, now);
        let sums = exchange(&mut middle, &mut now, n);
        sums.iter().for_each(|sum| left.handle_slave(now, sum));
        while left.poll_master().is_some() {}
        before.iter().chain(&sent(&mut left, now)).for_each(|report| middle.handle_slave(now, report));
        while middle.poll_master().is_some() {}
    }
    left.handle_master(now, ip_frame(1, 2, &datagram(true, others, 300)));
    sent(&mut left, now);
    let sums = exchange(&mut middle, &mut now, others);
    assert_eq!(middle.stats().sent_coded, u64::from(others) + 1);
    // Node 1 is a relay as well, from 4 to 2.
    (0..=waiting).for_each(|n| relay(&mut left, now, [4, 1, 2], &datagram(true, n, 400)));
    left.handle_slave(now, &sums[0]);
    let began = now;
    let is_data = |frame: &Vec<u8>| Frame::parse(frame).unwrap().ethertype != ethernet::NC;
    while !sent(&mut left, now).iter().any(is_data) {
        now = left.poll_timeout().expect("packets wait");
    }
    now - began
}

#[test]
fn a_relay_that_overheard_a_sum_lets_the_other_receiver_go_first_while_many_wait() {
    assert_eq!(silent_after_a_sum(5, 20), Duration::ZERO, "whether it overhears sums is not known");
    assert_eq!(silent_after_a_sum(150, 1), Duration::ZERO, "a small window waits for every packet");
    let silent = silent_after_a_sum(150, 20);
    assert!((Duration::from_micros(400)..ms(20)).contains(&silent), "{silent:?}");
}
