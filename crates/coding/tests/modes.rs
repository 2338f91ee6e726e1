//! What each mode codes and holds, seen from outside.

mod common;

use std::time::Duration;

use coding::ethernet::Frame;
use coding::header::Header;
use coding::{Mode, NcLayer};
use common::{
    FIN, SYN, Tcp, ack, ack_of, data, data_of, forwarded, heard, ip_frame, layer, mac, ms, relay, sent,
};

const THERE: [usize; 3] = [1, 2, 3];
const BACK: [usize; 3] = [3, 2, 1];

/// What a relay sends, in short: `D1`, `A2`, or `D1+A2`; numbers as in [`data`] and [`ack`].
fn names(frames: &[Vec<u8>]) -> Vec<String> {
    let known: Vec<(String, coding::Datagram)> = (1..=40)
        .flat_map(|n| [(format!("D{n}"), data(n)), (format!("A{n}"), ack(n))])
        .map(|(name, packet)| (name, coding::Datagram::parse(forwarded(packet)).unwrap()))
        .collect();
    let name = |wanted: coding::Label| {
        known.iter().find(|(_, packet)| packet.label() == wanted).map(|(name, _)| name.clone()).unwrap()
    };
    let one = |frame: &Vec<u8>| match Header::parse(Frame::parse(frame).unwrap().payload).unwrap() {
        Header::Coded(coded) => format!("{}+{}", name(coded.first), name(coded.second)),
        Header::Plain(packet) => name(coding::Datagram::parse(packet.to_vec()).unwrap().label()),
        Header::Report(report) => format!("{report:?}"),
        Header::Greeting(greeting) => format!("{greeting:?}"),
    };
    frames.iter().map(one).collect()
}

fn send_data(layer: &mut NcLayer, n: u32) -> Vec<String> {
    relay(layer, ms(0), THERE, &data(n));
    names(&sent(layer, ms(0)))
}

fn send_ack(layer: &mut NcLayer, n: u32) -> Vec<String> {
    relay(layer, ms(0), BACK, &ack(n));
    names(&sent(layer, ms(0)))
}

/// Figure 2, whose step 7 prints DATA6 where DATA7 is meant.
#[test]
fn the_papers_example_of_ten_steps() {
    let mut layer = layer(2, Mode::Controlled);
    let qlen = |layer: &NcLayer| layer.flows().longest_qlen();
    let steps: [(u32, &[&str], usize); 7] = [
        (1, &["D1"], 1),
        (2, &[], 1),
        (3, &["D2"], 2),
        (4, &[], 2),
        (5, &["D3"], 3),
        (6, &[], 3),
        (7, &["D4"], 4),
    ];
    for (n, out, length) in steps {
        assert_eq!(send_data(&mut layer, n), out, "DATA{n}");
        assert_eq!(qlen(&layer), length, "DATA{n}");
    }
    assert_eq!(send_ack(&mut layer, 2), ["D5+A2"]);
    assert_eq!(qlen(&layer), 3);
    assert_eq!(send_ack(&mut layer, 4), ["D6+A4"]);
    assert_eq!(qlen(&layer), 2);
    assert_eq!(send_data(&mut layer, 8), [""; 0]);
    assert_eq!(layer.flows().held(), 2, "DATA7 and DATA8");
}

#[test]
fn who_can_code_has_relayed() {
    for mode in [Mode::Piggy, Mode::Delayed, Mode::Controlled, Mode::Off] {
        let mut layer = layer(2, mode);
        layer.handle_master(ms(0), ip_frame(2, 1, &data(1)));
        heard(&mut layer, &[ip_frame(1, 2, &ack(1))]);
        assert!(!layer.can_code(ms(0)), "{mode:?}: an end");
        relay(&mut layer, ms(0), THERE, &data(1));
        assert_eq!(layer.can_code(ms(0)), mode != Mode::Off, "{mode:?}");
    }
}

#[test]
fn an_end_that_overhears_nothing_over_a_radio_is_deaf() {
    for mode in [Mode::Piggy, Mode::Delayed, Mode::Controlled, Mode::Off] {
        let by_monitor = |n| coding::Config { by_monitor: true, ..common::config(n, mode, ms(10)) };
        let [mut end, mut middle] = [1, 2].map(|n| NcLayer::new(by_monitor(n), n as u64));
        assert!(end.unheard(ms(0)).is_none(), "{mode:?}: nobody is there");
        heard(&mut end, &[ip_frame(2, 1, &ack(1))]);
        assert_eq!(end.unheard(ms(0)).is_some(), mode != Mode::Off, "{mode:?}");
        heard(&mut end, &[ip_frame(2, 3, &data(1))]);
        assert!(end.unheard(ms(0)).is_none(), "{mode:?}");
        relay(&mut middle, ms(0), THERE, &data(1));
        assert!(middle.unheard(ms(0)).is_none(), "{mode:?}: between two that are not near each other");
    }
}

#[test]
fn a_hold_that_ends_sends_the_packet_by_itself_and_shortens_the_queue() {
    let mut layer = layer(2, Mode::Controlled);
    for n in 1..=4 {
        send_data(&mut layer, n);
    }
    assert_eq!((layer.flows().held(), layer.flows().longest_qlen()), (2, 2));
    assert_eq!(layer.poll_timeout(), Some(ms(10)));
    assert_eq!(sent(&mut layer, ms(9)).len(), 0);
    assert_eq!(names(&sent(&mut layer, ms(10))), ["D3", "D4"]);
    assert_eq!((layer.flows().held(), layer.flows().longest_qlen()), (0, 0));
    assert_eq!((layer.stats().expired, layer.stats().held, layer.stats().pushed_out), (2, 4, 2));
    assert_eq!(send_ack(&mut layer, 4), ["A4"]);
    assert_eq!(layer.poll_timeout(), None);
}

#[test]
fn delayed_holds_all_data_until_its_time() {
    let mut layer = layer(2, Mode::Delayed);
    for n in 1..=4 {
        assert_eq!(send_data(&mut layer, n), [""; 0]);
    }
    assert_eq!(send_ack(&mut layer, 2), ["D1+A2"]);
    assert_eq!(send_ack(&mut layer, 4), ["D2+A4"]);
    assert_eq!(names(&sent(&mut layer, ms(10))), ["D3", "D4"]);
}

#[test]
fn delayed_without_a_wait_codes_nothing() {
    let mut layer = NcLayer::new(common::config(2, Mode::Delayed, ms(0)), 2);
    assert_eq!(send_data(&mut layer, 1), ["D1"]);
    assert_eq!(send_ack(&mut layer, 1), ["A1"]);
}

#[test]
fn piggy_codes_what_meets_in_the_interface_queue() {
    let mut layer = layer(2, Mode::Piggy);
    assert_eq!(send_data(&mut layer, 1), ["D1"], "alone");
    for n in 2..=4 {
        relay(&mut layer, ms(0), THERE, &data(n));
    }
    relay(&mut layer, ms(0), BACK, &ack(1));
    relay(&mut layer, ms(0), BACK, &ack(2));
    assert_eq!(names(&sent(&mut layer, ms(0))), ["D2+A1", "D3+A2", "D4"]);
    assert_eq!((layer.stats().sent, layer.stats().sent_coded, layer.stats().relayed), (4, 2, 6));
}

#[test]
fn what_waits_goes_by_itself_when_the_mode_changes() {
    for mode in [Mode::Delayed, Mode::Controlled] {
        let mut layer = layer(2, mode);
        let before: Vec<_> = (1..=4).flat_map(|n| send_data(&mut layer, n)).collect();
        layer.reconfigure(ms(1), coding::Config { mode: Mode::Piggy, ..*layer.config() });
        let all = [before, names(&sent(&mut layer, ms(1)))].concat();
        assert_eq!(all, ["D1", "D2", "D3", "D4"], "{mode:?}");
        assert_eq!((layer.kept(ms(1)).held, layer.poll_timeout()), (0, None));
    }
}

#[test]
fn what_waits_when_coding_is_switched_off_leaves_as_it_came() {
    let mut layer = layer(2, Mode::Any);
    let frames = [1, 2, 3].map(|n| ip_frame(2, 3, &data(n)));
    frames.iter().for_each(|frame| layer.handle_master(ms(0), frame.clone()));
    layer.reconfigure(ms(1), coding::Config { mode: Mode::Off, ..*layer.config() });
    assert_eq!(sent(&mut layer, ms(1)), frames);
}

#[test]
fn a_later_ack_takes_an_earlier_ones_place() {
    for mode in Mode::ALL {
        for thin_acks in [false, true] {
            let mut layer = NcLayer::new(coding::Config { thin_acks, ..common::config(2, mode, ms(10)) }, 2);
            // The second is a duplicate, which tells of a loss and replaces nothing; those after it tell of progress.
            for n in [1, 1, 2, 3] {
                relay(&mut layer, ms(0), BACK, &ack(n));
            }
            relay(&mut layer, ms(0), BACK, &ack_of(9, true));
            // AccECN counts marks in a bit beside TCP's flags.
            let mut marked = ack(4);
            marked[32] |= 1;
            relay(&mut layer, ms(0), BACK, &marked);
            sent(&mut layer, ms(0));
            let stats = layer.stats();
            let expected = if thin_acks { (4, 2) } else { (6, 0) };
            assert_eq!((stats.sent - stats.reports, stats.thinned), expected, "{mode:?}");
        }
    }
}

#[test]
fn off_leaves_every_frame_as_it_is() {
    let mut layer = layer(2, Mode::Off);
    for packet in [data(1), data_of(2, true), common::udp(1, 3, b"x")] {
        layer.handle_master(ms(0), ip_frame(2, 3, &packet));
        assert_eq!(sent(&mut layer, ms(0)), [ip_frame(2, 3, &packet)]);
    }
}

#[test]
fn both_neighbours_decode_in_both_versions_of_ip() {
    for six in [false, true] {
        let [mut left, mut middle, mut right] = [1, 2, 3].map(|n| layer(n, Mode::Controlled));
        let (data, ack) = (data_of(2, six), ack_of(1, six));
        left.handle_master(ms(0), ip_frame(1, 2, &data));
        right.handle_master(ms(0), ip_frame(3, 2, &ack));
        let frames = [sent(&mut left, ms(0)), sent(&mut right, ms(0))].concat();
        assert_eq!(frames.len(), 2, "a node's own packets are not held");
        relay(&mut middle, ms(0), THERE, &data_of(1, six)); // opens the queue
        sent(&mut middle, ms(0));
        for (packet, next) in heard(&mut middle, &frames).into_iter().zip([3, 1]) {
            middle.handle_master(ms(0), ip_frame(2, next, &forwarded(packet)));
        }
        let sums = sent(&mut middle, ms(0));
        assert_eq!((sums.len(), middle.stats().sent_coded), (1, 1));
        assert_eq!(Frame::parse(&sums[0]).unwrap().destination, mac(3), "to the data's next hop");
        assert_eq!(heard(&mut right, &sums), [forwarded(data)]);
        assert_eq!(heard(&mut left, &sums), [forwarded(ack)]);
        assert_eq!(heard(&mut layer(9, Mode::Controlled), &sums), [[0; 0]; 0], "not for others");
    }
}

/// ECN marks and TTLs differ between what a neighbour kept and what the relay adds.
#[test]
fn what_routers_change_on_the_way_comes_through() {
    let [mut left, mut middle] = [1, 2].map(|n| layer(n, Mode::Delayed));
    left.handle_master(ms(0), ip_frame(1, 2, &data(1)));
    sent(&mut left, ms(0));
    let mut marked = ack(0);
    marked[1] = 3;
    marked[8] = 9;
    marked = forwarded(marked);
    relay(&mut middle, ms(0), THERE, &data(1));
    relay(&mut middle, ms(0), BACK, &marked);
    assert_eq!(heard(&mut left, &sent(&mut middle, ms(0))), [forwarded(marked)]);
}

#[test]
fn a_flow_begins_with_syn_and_ends_with_fin() {
    let mut layer = layer(2, Mode::Delayed);
    let segment = |flags| Tcp { six: false, from: 1, to: 3, port: 5001, flags, seq: 0, ack: 0, payload: &[] };
    relay(&mut layer, ms(0), THERE, &common::tcp(segment(SYN)));
    assert_eq!((sent(&mut layer, ms(0)).len(), layer.flows().len()), (1, 1));
    assert_eq!(send_data(&mut layer, 1), [""; 0]);
    relay(&mut layer, ms(0), THERE, &common::tcp(segment(FIN)));
    let frames = sent(&mut layer, ms(0));
    assert_eq!((frames.len(), layer.flows().len()), (2, 0));
    assert_eq!(names(&frames[..1]), ["D1"], "what was held goes first");
}

/// Its FIN may have gone another way.
#[test]
fn a_flow_that_is_silent_for_a_minute_is_forgotten() {
    let minute = Duration::from_secs(60);
    let mut layer = layer(2, Mode::Delayed);
    send_data(&mut layer, 1);
    relay(&mut layer, ms(1), BACK, &ack_of(1, true));
    assert_eq!((sent(&mut layer, minute - ms(1)).len(), layer.flows().len()), (2, 2));
    relay(&mut layer, minute - ms(1), THERE, &data(2));
    assert_eq!((sent(&mut layer, minute + ms(1)).len(), layer.flows().len()), (0, 1), "the other is in use");
    assert_eq!((sent(&mut layer, minute * 2).len(), layer.flows().len()), (1, 0));
}

#[test]
fn only_packets_of_opposite_ways_and_one_flow_are_coded() {
    let mut layer = layer(2, Mode::Delayed);
    send_data(&mut layer, 1);
    relay(&mut layer, ms(0), [4, 2, 1], &ack(1));
    assert_eq!(names(&sent(&mut layer, ms(0))), ["A1"], "the neighbour it came from has no use for the data");
    let other =
        Tcp { six: false, from: 3, to: 1, port: 6000, flags: common::ACK, seq: 0, ack: 0, payload: &[] };
    relay(&mut layer, ms(0), BACK, &common::tcp(other));
    assert_eq!((sent(&mut layer, ms(0)).len(), layer.stats().sent_coded), (1, 0), "another flow");
}
