//! Links as they are in the field: what the tunnel makes of them, in virtual time.

mod bond;
mod sim;

use std::time::Duration;

use bond::{Load, Outcome, net_of, net_over, policed, quantile, run_net, run_single};
use link::notation::Ways;
use link::{Bitrate, Jitter, LinkConfig, Loss, Probability, Queue};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Net, plain};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn loss(share: f64) -> Loss {
    Loss::Bernoulli(Probability::new(share).expect("a share"))
}

fn symmetric(links: &[LinkConfig]) -> Vec<Ways> {
    links.iter().map(|link| (link.clone(), link.clone())).collect()
}

/// One TCP flow from end 0 to end 1 over these links, pings and calls beside it.
fn flow(links: &[LinkConfig]) -> Outcome {
    run_net(&mut net_of(symmetric(links), 1), &Load::default())
}

/// What end 1 gets of `mbps` of UDP from end 0 in `time`: the share of packets, and of the last quarter of them.
fn offer(net: &mut Net, mbps: f64, time: Duration) -> (f64, f64) {
    let (begin, size) = (net.now, 1200);
    let gap = Bitrate::from_mbps(mbps).transmit_time(size);
    let mut sent = 0;
    net.run(begin + time, |net| {
        while net.now >= begin + gap * sent {
            net.send(0, u64::from(sent), size);
            sent += 1;
        }
    });
    net.pass(2 * S);
    let numbers = net.numbers(1);
    let last = u64::from(sent) * 3 / 4;
    let came = numbers.iter().filter(|number| **number >= last).count();
    (numbers.len() as f64 / f64::from(sent), came as f64 / (f64::from(sent) / 4.0))
}

#[test]
fn a_path_that_becomes_longer_carries_what_it_did() {
    let steps = vec![(12 * S, 50 * MS)];
    let there = LinkConfig { delay_steps: steps.clone(), ..plain(10.0, 10 * MS) };
    for (there, back) in [
        (there.clone(), there),
        // Only the reports take longer.
        (plain(10.0, 10 * MS), LinkConfig { delay_steps: vec![(12 * S, 510 * MS)], ..plain(10.0, 10 * MS) }),
    ] {
        let mut net = net_of(vec![(there, back)], 1);
        let (_, last) = offer(&mut net, 8.0, 24 * S);
        assert!(last > 0.97, "{last} of 8 Mbit/s on a link of 10");
    }
}

#[test]
fn a_link_that_jitters_loses_nothing_below_its_rate() {
    for sigma in [10, 20, 30, 40] {
        let link = LinkConfig {
            jitter: Jitter::HalfNormal(sigma * MS),
            queue: Queue::Packets(170),
            ..plain(20.0, 40 * MS)
        };
        let all = |seed| offer(&mut net_of(symmetric(std::slice::from_ref(&link)), seed), 14.0, 12 * S).0;
        let mut all: Vec<_> = (1..=9).map(all).collect();
        all.sort_by(f64::total_cmp);
        // A round trip that is longer by half in the mean, as above 25 ms here, may look like a full path while nothing is known:
        // then a start takes longer.
        let least = if sigma > 25 { 0.3 } else { 0.97 };
        assert!(all[0] > least && all[7] > 0.97, "sigma {sigma} ms: {all:.2?} of 14 Mbit/s");
    }
}

#[test]
fn a_ping_does_not_wait_for_the_gaps_of_a_bulk_flow() {
    let outcome = flow(&[plain(20.0, 45 * MS), plain(20.0, 10 * MS), plain(10.0, 150 * MS)]);
    let (idle, loaded) = (quantile(&outcome.idle, 0.95), quantile(&outcome.loaded, 0.95));
    println!("idle {idle} ms, loaded {loaded} ms, {} Mbit/s", outcome.goodput);
    assert!(loaded < idle + 40.0, "{loaded} ms beside a bulk flow, {idle} ms without");
}

#[test]
fn a_link_that_loses_a_third_spoils_neither_pings_nor_the_others_rate() {
    let clean = plain(20.0, 25 * MS);
    let alone = run_single(&(clean.clone(), clean.clone()), &Load::default()).goodput;
    let outcome = flow(&[LinkConfig { loss: loss(0.3), ..plain(20.0, 8 * MS) }, clean]);
    let loaded = quantile(&outcome.loaded, 0.95);
    println!("{} Mbit/s, {alone} alone; ping {loaded} ms", outcome.goodput);
    assert!(outcome.goodput > 0.95 * alone, "{} of {alone} Mbit/s", outcome.goodput);
    assert!(loaded < 100.0, "{loaded} ms");
    assert!(outcome.call_loss < 0.001, "{}", outcome.call_loss);
}

/// All that a flow sends waits for what was lost, so that does not go again by the link that lost it, be that the quicker one.
#[test]
fn a_quick_link_that_loses_a_quarter_costs_a_slow_one_nothing() {
    for (slow, quick) in [(plain(30.0, 100 * MS), 30.0), (plain(12.0, 180 * MS), 60.0)] {
        let sick = LinkConfig { loss: loss(0.25), ..plain(quick, 40 * MS) };
        let seeds = |run: &dyn Fn(Load) -> f64| {
            let mut all: Vec<_> = (1..=5).map(|seed| run(Load { seed, ..Load::default() })).collect();
            all.sort_by(f64::total_cmp);
            quantile(&all, 0.5)
        };
        let alone = seeds(&|load| run_single(&(slow.clone(), slow.clone()), &load).goodput);
        let both = seeds(&|load| {
            run_net(&mut net_of(symmetric(&[slow.clone(), sick.clone()]), load.seed), &load).goodput
        });
        println!("{both} Mbit/s, {alone} alone");
        assert!(both > 0.95 * alone, "{both} of {alone} Mbit/s");
    }
}

/// A path whose round trip is longer than the first time-outs has lost nothing, and is worth its delay.
#[test]
fn a_long_path_that_carries_much_is_used_beside_a_quick_one() {
    for (quick, delay) in [(2.0, 420 * MS), (5.0, 550 * MS)] {
        let outcome = flow(&[plain(quick, 9 * MS), plain(100.0, delay)]);
        println!("{} Mbit/s over {quick} and 100", outcome.goodput);
        assert!(outcome.goodput > 2.0 * quick, "{} Mbit/s", outcome.goodput);
    }
}

/// One TCP flow over these links: Mbit/s, and the share of the first that was lost.
fn flow_and_lost(v6: bool, links: &[LinkConfig]) -> (f64, f64) {
    let mut net = net_over(v6, symmetric(links), 1);
    let outcome = run_net(&mut net, &Load::default());
    let path = &net.peer(0).paths[0];
    (outcome.goodput, path.lost_packets as f64 / path.sent_packets as f64)
}

#[test]
fn a_policed_link_adds_its_rate_and_loses_little() {
    let bursts = [(16.0, 0.085), (64.0, 0.09), (256.0, 0.14), (1000.0, 0.17)];
    for ((burst, most), v6) in bursts.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let limited = LinkConfig { policer: Some(policed(5.0, burst)), ..plain(100.0, 20 * MS) };
        let beside = |ms| flow_and_lost(v6, &[limited.clone(), plain(10.0, ms * MS)]);
        let sum = (28..33).map(beside).fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        let (goodput, lost) = (sum.0 / 5.0, sum.1 / 5.0);
        println!("burst {burst} kB: {goodput} Mbit/s, {lost:.3} lost");
        assert!(goodput > 11.0, "burst {burst} kB: {goodput} of 15 Mbit/s");
        assert!(lost < most, "burst {burst} kB: {lost} of what went over the policed link is lost");
    }
}

/// What a bucket lets pass at once, or what a few packets show by chance, is not what the path carries, and what is lost for it is
/// not the path's own loss.
#[test]
fn a_policed_link_alone_is_not_taken_for_a_quicker_one_that_loses() {
    let mut sum = 0.0;
    for (mbps, burst, delay, share) in (1..=POLICERS).map(any_policer) {
        let limited =
            LinkConfig { policer: Some(policed(mbps, burst)), loss: loss(share), ..plain(100.0, delay) };
        let (goodput, lost) = flow_and_lost(false, &[limited]);
        let (used, lost) = (goodput / mbps, lost - share);
        println!("{mbps:.1} Mbit/s, {burst:.0} kB, {delay:?}, {share:.3}: {used:.2} used, {lost:.3} lost");
        assert!(used > 0.55, "{used} of {mbps} Mbit/s, {burst} kB");
        assert!(lost < 0.27, "{mbps} Mbit/s, {burst} kB: {lost} is lost beyond what the link loses");
        sum += lost;
    }
    let mean = sum / POLICERS as f64;
    assert!(mean < 0.12, "{mean} is lost, start included");
}

/// Policed links that are tried.
const POLICERS: u64 = 24;

/// Mbit/s, kB, one-way delay, and loss of a policed link.
fn any_policer(seed: u64) -> (f64, f64, Duration, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut between =
        |from: f64, to: f64| from * (to / from).powf((rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
    let (mbps, burst, delay) = (between(1.0, 50.0), between(10.0, 1000.0), between(2.0, 150.0));
    let share = [0.0, 0.0, between(0.005, 0.1)][seed as usize % 3];
    (mbps, burst, Duration::from_secs_f64(delay / 1e3), share)
}

#[test]
fn a_thin_way_back_carries_acknowledgements_and_reports() {
    // Of IPv6, an acknowledgement is a sixth larger.
    for (v6, down, up, share) in [(false, 12.0, 0.6, 0.88), (true, 12.0, 0.6, 0.8), (false, 12.0, 0.256, 0.8)]
    {
        let link = (plain(down, 20 * MS), plain(up, 20 * MS));
        let plain = run_single(&link, &Load::default()).goodput;
        let mut net = net_over(v6, vec![link], 1);
        let tunnel = run_net(&mut net, &Load { probes: false, ..Load::default() }).goodput;
        println!("{down}/{up}: {tunnel} Mbit/s, {plain} without the tunnel");
        assert!(tunnel > share * plain, "{down}/{up}: {tunnel} of {plain} Mbit/s");
    }
}

/// A hundred flows over two links fill both, and get equal parts of it (Jain's index).
#[test]
fn a_hundred_flows_get_equal_parts() {
    for v6 in [false, true] {
        let mut net = net_over(v6, symmetric(&[plain(20.0, 15 * MS), plain(20.0, 15 * MS)]), 1);
        let outcome = run_net(&mut net, &Load { flows: 100, ..Load::default() });
        let sum: f64 = outcome.shares.iter().sum();
        let jain = sum * sum / (100.0 * outcome.shares.iter().map(|share| share * share).sum::<f64>());
        let ping = quantile(&outcome.loaded, 0.95);
        println!("{} Mbit/s, Jain {jain:.2}, a ping {ping:.0} ms", outcome.goodput);
        assert!(outcome.goodput > 34.0 && jain > 0.9, "{} of 40 Mbit/s, Jain {jain}", outcome.goodput);
        assert!(ping < 80.0, "{ping} ms");
    }
}

#[test]
fn a_spell_of_reordering_leaves_no_scar() {
    // A repair that is lost as well, as one of a hundred is, takes two round trips: that is the link's, and not in most runs.
    let mut gaps: Vec<_> = (0..21).map(call_gap_after_reordering).collect();
    println!("a call stands still for {gaps:.0?} ms at most");
    gaps.sort_by(f64::total_cmp);
    assert!(gaps[10] <= 200.0 && gaps[20] <= 400.0, "{gaps:?}");
}

/// The longest time for which a call stands still on a link that has reordered, and loses; `other` begins it so much later.
fn call_gap_after_reordering(other: u32) -> f64 {
    let mut net = net_of(symmetric(&[plain(20.0, 40 * MS)]), 1);
    let jitter = LinkConfig { jitter: Jitter::HalfNormalReordering(15 * MS), ..plain(20.0, 40 * MS) };
    let lossy = LinkConfig { loss: loss(0.01), ..plain(20.0, 40 * MS) };
    for (link, time) in [(jitter, 10 * S), (lossy, 10 * S)] {
        net.replace(0, &link, &link);
        offer(&mut net, 10.0, time + other * 7 * MS);
    }
    let outcome = run_net(&mut net, &Load { flows: 0, ..Load::default() });
    assert!(outcome.call_loss < 0.001, "{}", outcome.call_loss);
    outcome.call_gap
}

#[test]
fn a_path_with_a_round_trip_beyond_a_second_loses_nothing() {
    let far = LinkConfig { loss: loss(0.01), queue: Queue::Packets(1000), ..plain(10.0, 700 * MS) };
    let mut net = net_of(symmetric(&[far]), 1);
    net.pass(4 * S);
    let (all, _) = offer(&mut net, 2.0, 20 * S);
    net.pass(5 * S);
    assert!(all > 0.99, "{all} arrive");
}

#[test]
fn a_very_slow_path_is_not_flooded_at_its_start() {
    let outcome =
        flow(&[plain(10.0, 20 * MS), LinkConfig { queue: Queue::Packets(100), ..plain(0.1, 20 * MS) }]);
    let loaded = quantile(&outcome.loaded, 0.99);
    assert!(loaded < 300.0, "{loaded} ms");
}
