//! Clocks that disagree: what passes through the tunnel does not depend on them.

mod sim;

use std::time::Duration;

use link::{Bitrate, LinkConfig};
use sim::{Clock, Net, Options, plain};
use tunnel::Scheduler;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Every clock that the ends may have: by name, end 0's and end 1's.
fn clocks() -> Vec<(&'static str, [Clock; 2])> {
    let same = Clock::default();
    let offset = Clock { offset: HOUR, ..Clock::default() };
    let ppm = |ppm| Clock { ppm, ..Clock::default() };
    let steps =
        |by: Duration| Clock { steps: (1..20).map(|n| (S + n * 700 * MS, by)).collect(), ..Clock::default() };
    vec![
        ("same", [same.clone(), same.clone()]),
        ("receiver an hour ahead", [offset.clone(), same.clone()]),
        ("sender an hour ahead", [same.clone(), offset]),
        ("drift +400 ppm", [ppm(200), ppm(-200)]),
        ("drift -400 ppm", [ppm(-200), ppm(200)]),
        ("receiver steps by 50 ms", [steps(50 * MS), same.clone()]),
        ("sender steps by 50 ms", [same.clone(), steps(50 * MS)]),
        ("receiver steps by 10 ms", [steps(10 * MS), same.clone()]),
        ("sender steps by 10 ms", [same, steps(10 * MS)]),
    ]
}

/// Offers `mbps` from end 1 to end 0 for four seconds, after one to get going; Mbit/s of inner packets that came.
fn goodput(scheduler: Scheduler, links: &[LinkConfig], mbps: f64, clocks: [Clock; 2]) -> f64 {
    let links = links.iter().map(|l| (l.clone(), l.clone())).collect();
    let mut net = Net::new(&Options { scheduler, seed: 1 }, links);
    net.clocks = clocks;
    net.pass(S);
    let (begin, size) = (net.now, usize::from(net.ends[1].inner_mtu()));
    let gap = Bitrate::from_mbps(mbps).transmit_time(size);
    let (mut number, mut warm) = (0, 0);
    net.run(begin + 5 * S, |net| {
        while net.now >= begin + gap * number as u32 {
            net.send(1, number, size);
            number += 1;
        }
        if net.now < begin + S {
            warm = net.received[0].len();
        }
    });
    let bytes: usize = net.received[0][warm..].iter().map(Vec::len).sum();
    bytes as f64 * 8.0 / 4.0 / 1e6
}

/// Virtual time: not a timing but arithmetic.
fn assert_no_bend(scheduler: Scheduler, links: &[LinkConfig], mbps: f64) {
    let same = goodput(scheduler, links, mbps, <[Clock; 2]>::default());
    assert!(same > 0.8 * mbps, "{same} of {mbps} Mbit/s offered");
    for (name, clocks) in clocks() {
        let rate = goodput(scheduler, links, mbps, clocks);
        // Where a clock steps each .7 s, by as much as a queue, each step is a queue until a packet comes back quickly.
        assert!(rate > 0.8 * same, "{name}: {rate} instead of {same} Mbit/s over {} paths", links.len());
    }
}

#[test]
fn equal_paths_carry_the_same_whatever_the_clocks_show() {
    for paths in [1, 3, 10] {
        assert_no_bend(Scheduler::Auto, &vec![plain(10.0, Duration::ZERO); paths], 11.0 * paths as f64);
    }
}

#[test]
fn unequal_paths_carry_the_same_whatever_the_clocks_show() {
    let links = [plain(20.0, 45 * MS), plain(15.0, 10 * MS), plain(5.0, 120 * MS)];
    assert_no_bend(Scheduler::Auto, &links, 44.0);
}

#[test]
fn the_papers_equations_do_not_bend_either() {
    assert_no_bend(Scheduler::Paper, &vec![plain(10.0, Duration::ZERO); 3], 33.0);
}

/// The paper's table 2: with clocks apart, traffic ends up on a few of the paths. It does so with absolute delays if the
/// clocks differ by about what queues take: where delays change their sign, paths whose delay is negative get a
/// negative share, stay empty, and so keep their negative delay.
#[test]
fn absolute_delays_bend_where_clocks_differ_by_a_queue() {
    let links = vec![plain(10.0, Duration::ZERO); 3];
    let behind = |ms: u32| [Clock::default(), Clock { offset: ms * MS, ..Clock::default() }];
    let rate = |clocks| goodput(Scheduler::PaperAbsolute, &links, 33.0, clocks);
    let same = rate(<[Clock; 2]>::default());
    // Which of the paths starves, and for how long, hangs on a few packets at the start.
    let bent = [20, 30, 40, 50, 60, 70, 80, 100].map(|ms| rate(behind(ms)));
    assert!(bent.iter().any(|bent| *bent < 0.75 * same), "{bent:?} of {same} Mbit/s");
    // So far apart that all delays look alike, nothing is lost.
    let hour = rate(behind(3_600_000));
    assert!(hour > 0.97 * same, "{hour} of {same} Mbit/s");
}

#[test]
fn a_clock_that_jumps_by_an_hour_costs_a_handshake() {
    for end in 0..2 {
        let links = vec![(plain(10.0, 10 * MS), plain(10.0, 10 * MS)); 2];
        let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links);
        net.clocks[end].steps = vec![(4 * S, HOUR)];
        let (mut number, mut next) = (0, 2 * S);
        net.run(8 * S, |net| {
            while net.now >= next {
                (0..2).for_each(|end| net.send(end, number, 500));
                (number, next) = (number + 1, next + 10 * MS);
            }
        });
        net.pass(2 * S);
        for receiver in 0..2 {
            let numbers = net.numbers(receiver);
            assert!(numbers.windows(2).all(|w| w[0] < w[1]), "once and in order");
            let late: Vec<_> = numbers.iter().filter(|n| **n >= 300).collect();
            assert_eq!(late.len(), 300, "end {end} jumped: everything arrives from a second after it on");
        }
    }
}

#[test]
fn drift_is_measured_and_shown() {
    let links = [plain(10.0, 45 * MS), plain(15.0, 10 * MS), plain(5.0, 120 * MS)];
    let mut net =
        Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links.map(|l| (l.clone(), l)).into());
    net.clocks[1].ppm = 200;
    let (mut number, mut next) = (0, net.now);
    net.run(90 * S, |net| {
        while net.now >= next {
            (0..2).for_each(|end| net.send(end, number, 100));
            (number, next) = (number + 1, next + 20 * MS);
        }
    });
    let skew = [0, 1].map(|end| net.peer(end).clock_skew_ppm);
    assert!((skew[0] - 200.0).abs() < 20.0 && (skew[1] + 200.0).abs() < 20.0, "{skew:?}");
}
