//! What users of such tunnels have reported, in virtual time: cases that no other file has.

mod bond;
mod sim;

use std::time::Duration;

use bond::{Load, Outcome, backups, net_over, net_with, quantile, run_marked, run_net};
use link::{LinkConfig, Loss, Probability};
use sim::{Net, Options, inner, once_and_in_order, plain};
use tcp_sim::{Call, Hosts, Ping};
use tunnel::Scheduler;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options { scheduler: Scheduler::Auto, seed: 1 }
}

/// Two of three links lead nowhere at the start: the third one's round trip is all that the first packet waits for.
#[test]
fn dead_links_at_the_start_delay_nothing() {
    for v6 in [false, true] {
        let mut net = Net::quick_over(v6, 3, 10 * MS, |_, _| ());
        (0..2).for_each(|wire| net.set_up(wire, false));
        net.send(0, 7, 500);
        net.pass(100 * MS);
        assert_eq!(net.numbers(1), [7]);
    }
}

/// All links are dead for two minutes, and somebody pings meanwhile or nobody does: a ping is answered within two seconds of the return of
/// the first of them.
#[test]
fn a_tunnel_is_back_soon_after_the_first_of_its_links() {
    for (v6, asked) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut net = Net::quick_over(v6, 3, 10 * MS, |_, _| ());
        net.pass(5 * S);
        (0..3).for_each(|wire| net.set_up(wire, false));
        let mut hosts = Hosts::new([inner(0), inner(1)]);
        let back = net.now + 120 * S;
        if asked {
            hosts.pings.push((0, Ping::new(net.now, S, back)));
        }
        tcp_sim::run(&mut net, &mut hosts, back);
        net.set_up(1, true);
        hosts.pings.push((0, Ping::new(back, 100 * MS, back + 2 * S)));
        tcp_sim::run(&mut net, &mut hosts, back + 2 * S);
        let ping = hosts.pings.pop().expect("it was just put there").1;
        assert!(ping.sent.iter().any(|(_, answered)| answered.is_some()));
    }
}

/// The peer of an idle tunnel goes away: all paths say so soon after the first of them, and none blames its link alone.
#[test]
fn a_peer_that_goes_while_nothing_is_sent_is_not_taken_for_a_dead_link() {
    for v6 in [false, true] {
        let mut net = Net::quick_over(v6, 3, 10 * MS, |_, _| ());
        net.pass(60 * S);
        (0..3).for_each(|wire| net.set_up(wire, false));
        let silent = |net: &Net| net.peer(0).paths.iter().filter(|path| path.state == "silent").count();
        while silent(&net) == 0 {
            assert!(net.now < 120 * S, "no path falls silent");
            net.pass(100 * MS);
        }
        net.pass(2 * S);
        assert_eq!(silent(&net), 3);
        net.pass(4 * S);
        let causes: Vec<_> = net.peer(0).paths.iter().map(|path| path.cause).collect();
        assert_eq!(causes, ["no-answer"; 3]);
        // One link alone is still told.
        net.set_up(0, true);
        net.set_up(1, true);
        net.pass(40 * S);
        assert_eq!(net.peer(0).paths[2].cause, "link-silent");
    }
}

/// Two thousand flows of five packets a second, which begin within two seconds: every packet arrives, and a ping beside them hardly waits.
#[test]
fn two_thousand_sparse_flows_lose_nothing() {
    for v6 in [false, true] {
        let links = [20.0, 20.0].map(|mbps| (plain(mbps, 15 * MS), plain(mbps, 15 * MS)));
        let mut net = Net::with(&options(), links.to_vec(), v6, |_, _| ());
        net.pass(5 * S);
        let mut hosts = Hosts::new([inner(0), inner(1)]);
        let until = net.now + 12 * S;
        // Ten at a time.
        let flows = (0..2000).map(|flow| (0, Call::new(net.now + 10 * MS * (flow / 10), S / 5, until)));
        hosts.calls.extend(flows);
        hosts.pings.push((0, Ping::new(net.now, 50 * MS, until)));
        tcp_sim::run(&mut net, &mut hosts, until + S);
        let packets = || hosts.calls.iter().flat_map(|(_, call)| &call.sent);
        let lost = packets().filter(|(_, arrived)| arrived.is_none()).count();
        assert_eq!(lost, 0, "of {}", packets().count());
        let (pings, lost) = hosts.pings[0].1.round_trips(Duration::ZERO, until);
        let p95 = pings[pings.len() * 95 / 100];
        assert!(lost == 0 && p95 < 80 * MS, "{lost} pings are lost, others take {p95:?}");
    }
}

/// Two links that carry 2,700 packets of 10,000 bits a second are offered so many for ten seconds: the numbers of those that arrive, and
/// how many of them do so in each of the last eight seconds.
fn offer_udp(v6: bool, rate: u32) -> (Vec<u64>, usize) {
    let links =
        [(18.0, 15 * MS), (9.0, 40 * MS)].map(|(mbps, delay)| (plain(mbps, delay), plain(mbps, delay)));
    let mut net = Net::with(&options(), links.to_vec(), v6, |_, _| ());
    net.pass(5 * S);
    let mut early = 0;
    for number in 0..10 * u64::from(rate) {
        net.send(0, number, 1250);
        net.pass(S / rate);
        if number + 1 == 2 * u64::from(rate) {
            early = net.received[1].len();
        }
    }
    let each_second = (net.received[1].len() - early) / 8;
    net.pass(2 * S);
    (net.numbers(1), each_second)
}

/// UDP at half of what two links carry, and at nearly all of it: in order, and next to none lost.
#[test]
fn udp_below_the_sum_arrives_in_order() {
    // And how many may be lost.
    for (rate, lost, v6) in [(1400, 10, false), (1400, 10, true), (2400, 100, false), (2400, 100, true)] {
        let (numbers, _) = offer_udp(v6, rate);
        assert!(once_and_in_order(&numbers, false));
        assert!(numbers.len() + lost >= 10 * rate as usize, "{} of {rate} a second", numbers.len());
    }
}

/// UDP at more than two links carry: what they carry arrives, in order.
#[test]
fn udp_above_the_sum_is_carried_as_far_as_that() {
    for v6 in [false, true] {
        let (numbers, each_second) = offer_udp(v6, 3000);
        assert!(once_and_in_order(&numbers, false));
        assert!(each_second >= 2700 * 9 / 10, "{each_second} a second");
    }
}

/// The main link comes to lose three or six packets of ten, to be four seconds long, or to carry a third of what is sent: what is
/// sent comes through all the same, in time, and the backup has carried it.
#[test]
fn a_main_link_that_is_next_to_useless_is_helped_by_the_backup() {
    let main = plain(20.0, 15 * MS);
    let loses = |share| LinkConfig {
        loss: Loss::Bernoulli(Probability::new(share).expect("a probability")),
        ..main.clone()
    };
    let worse = [
        (loses(0.3), 30_000),
        (loses(0.6), 200_000),
        (plain(20.0, 4 * S), 400_000),
        (plain(0.064, 15 * MS), 300_000),
    ];
    for ((bad, least), v6) in worse.into_iter().flat_map(|case| [(case.clone(), false), (case, true)]) {
        let backup = plain(5.0, 50 * MS);
        let links = vec![(main.clone(), main.clone()), (backup.clone(), backup)];
        let mut net = Net::with(&options(), links, v6, backups);
        net.pass(10 * S);
        net.replace(0, &bad, &bad);
        for number in 0..1000 {
            net.send(0, number, 500);
            net.pass(20 * MS);
        }
        // Those of the last half are there within a second: each of them, but for two in a hundred.
        net.pass(S);
        let recent = net.numbers(1).into_iter().filter(|number| *number >= 500).count();
        let carried = net.peer(0).paths[1].sent_bytes;
        assert!(recent >= 490 && carried > least, "{bad:?}: {recent} of 500, {carried} bytes by the backup");
        // The main link is well again: the backup waits.
        net.replace(0, &main, &main);
        let mut before = 0;
        for number in 1000..2500 {
            if number == 2000 {
                before = net.peer(0).paths[1].sent_bytes;
            }
            net.send(0, number, 500);
            net.pass(20 * MS);
        }
        let carried = net.peer(0).paths[1].sent_bytes - before;
        assert!(carried < 20_000, "{bad:?}: {carried} bytes by the backup");
    }
}

/// What a flow and pings get after the backup, of 5 Mbit/s and 50 ms, has taken over from a main link that has become `bad`; and what they
/// get on the backup alone.
fn after_taking_over(v6: bool, bad: &LinkConfig) -> [Outcome; 2] {
    let ways = |link: &LinkConfig| (link.clone(), link.clone());
    let (main, backup) = (ways(&plain(20.0, 15 * MS)), ways(&plain(5.0, 50 * MS)));
    let load = Load { time: 20 * S, ..Load::default() };
    let mut net = net_with(v6, vec![main, backup.clone()], 1, backups);
    net.replace(0, bad, bad);
    // Meanwhile it takes over.
    run_net(&mut net, &load);
    [run_net(&mut net, &load), run_net(&mut net_over(v6, vec![backup], 1), &load)]
}

/// What is known of a dead path says nothing of those that are left.
#[test]
fn a_backup_helps_beside_a_dead_main_link_and_a_late_one() {
    let main = plain(20.0, 15 * MS);
    let ways = || (main.clone(), main.clone());
    let backup = plain(5.0, 50 * MS);
    let mut net = net_with(false, vec![ways(), ways(), (backup.clone(), backup)], 1, |_, config| {
        config.peers[0].paths.iter_mut().skip(2).for_each(|path| path.backup = true);
    });
    net.pass(10 * S);
    net.set_up(0, false);
    net.replace(1, &plain(20.0, 4 * S), &plain(20.0, 4 * S));
    // Meanwhile it takes over.
    run_net(&mut net, &Load { time: 20 * S, ..Load::default() });
    let run = run_net(&mut net, &Load { time: 10 * S, ..Load::default() });
    assert!(run.goodput >= 3.5, "{:.2} of 5 Mbit/s", run.goodput);
}

/// 60 ms more than the backup's own round trip.
fn assert_short(pings: &[f64]) {
    let p95 = quantile(pings, 0.95);
    assert!(p95 < 160.0, "pings of {p95:.0} ms");
}

#[test]
fn a_backup_carries_all_that_it_can_beside_a_main_link_of_four_seconds_or_one_that_loses_most() {
    let loss = Loss::Bernoulli(Probability::new(0.6).expect("a probability"));
    let (late, loses) = (plain(20.0, 4 * S), LinkConfig { loss, ..plain(20.0, 15 * MS) });
    for (bad, v6) in [(&late, false), (&late, true), (&loses, false), (&loses, true)] {
        let [run, alone] = after_taking_over(v6, bad);
        assert!(run.goodput >= 0.9 * alone.goodput, "{:.2} of {:.2} Mbit/s", run.goodput, alone.goodput);
        if bad.loss == late.loss {
            assert_short(&run.idle);
            assert_short(&run.loaded);
        }
    }
}

#[test]
fn pings_take_the_backup_beside_a_main_link_that_is_next_to_full() {
    for v6 in [false, true] {
        let [run, _] = after_taking_over(v6, &plain(0.064, 15 * MS));
        assert_short(&run.idle);
        assert_short(&run.loaded);
    }
}

/// Pings have a mark, and nothing else has one.
fn ping_mark(packet: &[u8]) -> u8 {
    if packet[9] == 1 { 0xb8 } else { 0 }
}

/// A link has a queue that goes first, and pings with a mark pass what a flow has waiting there: that is no loss, neither of what was passed
/// nor of the mark, and leaves no scar. When the queue has gone and the link loses a packet in a hundred, a call stands still no longer
/// than in a tunnel that is new.
#[test]
fn a_queue_that_prefers_marked_packets_hurts_nobody() {
    let link = plain(10.0, 20 * MS);
    let loss = Loss::Bernoulli(Probability::new(0.01).expect("a probability"));
    let lossy = LinkConfig { loss, ..link.clone() };
    let ways = |link: &LinkConfig| vec![(link.clone(), link.clone())];
    let load = Load { time: 14 * S, ..Load::default() };
    let call = Load { flows: 0, ..Load::default() };
    for v6 in [false, true] {
        let without = run_marked(&mut net_over(v6, ways(&link), 1), ping_mark, &load);
        let (mut after, mut fresh) = (Vec::new(), Vec::new());
        for seed in 1..=7 {
            let mut net = net_over(v6, ways(&link), seed);
            net.prioritize(0, &link, &link);
            let run = run_marked(&mut net, ping_mark, &load);
            let resent: u64 = [0, 1].map(|end| net.peer(end).resent_packets).iter().sum();
            println!("{:.2} of {:.2} Mbit/s, {resent} sent again", run.goodput, without.goodput);
            assert!(run.goodput > 0.9 * without.goodput, "{} of {} Mbit/s", run.goodput, without.goodput);
            assert_eq!((run.pings_lost, run.timeouts), (0, 0));
            let [with, alone] = [&run, &without].map(|run| quantile(&run.loaded, 0.95));
            assert!(with < alone + 20.0, "pings take {with:.0} ms, {alone:.0} in one queue");
            // Of 12,000 packets of the flow, some 1100 are passed by a ping or its answer.
            assert!(resent < 300, "{resent} packets are sent again, and none was lost");
            for end in [0, 1] {
                assert!(net.peer(end).paths[0].marks_left_off.is_empty(), "a mark is taken to be dropped");
            }
            net.replace(0, &lossy, &lossy);
            after.push(run_net(&mut net, &call).call_gap);
            fresh.push(run_net(&mut net_over(v6, ways(&lossy), seed), &call).call_gap);
        }
        println!("a call stands still for {after:.0?} ms, for {fresh:.0?} in a tunnel that is new");
        for gaps in [&mut after, &mut fresh] {
            gaps.sort_by(f64::total_cmp);
        }
        assert!(after[3] < fresh[3] + 30.0, "a call stands still for {after:.0?} ms, for {fresh:.0?} before");
    }
}
