//! One TCP flow through the tunnel beside the same flow over the best of its links, in virtual time; and how near the
//! simulated TCP comes to the kernel's. `cargo run --release -p tunnel --example bond` shows the same with pings and calls.

mod bond;
mod sim;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bond::fetches::{Fetch, over_bond, over_single};
use bond::{Case, Load, Outcome, cases, demo, given, quantile, random, rough, run_bond, run_single};
use tcp_sim::CongestionControl;

/// Random sets that are tried.
const SETS: u64 = 120;
/// The least that a flow may get through the tunnel, as a share of the best link alone: where a long link's start overflows, what is
/// lost is found out a second later.
const LEAST: f64 = 0.5;
/// So many sets may be below .9 of it: what is around each packet takes .06.
const BELOW: usize = 6;
/// Nor may more with troubles: thin links beside fast ones whose rate swings, most of them.
const BELOW_ROUGH: usize = 8;

/// `one` for each of `items`, on two threads.
fn each<'a, T: Sync, R: Send>(items: &'a [T], one: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        numbers.map_while(|at| Some((at, one(items.get(at)?)))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn median(runs: impl Iterator<Item = f64>) -> f64 {
    let mut runs: Vec<f64> = runs.collect();
    runs.sort_by(f64::total_cmp);
    quantile(&runs, 0.5)
}

/// Mbit/s of the best link alone: the median of three runs each.
fn best_single(case: &Case, control: CongestionControl) -> f64 {
    let run = |link, seed| run_single(link, &Load { control, seed, ..Load::default() }).goodput;
    let one = |link| median((1..=3).map(|seed| run(link, seed)));
    case.links.iter().map(one).fold(0.0, f64::max)
}

#[test]
fn one_link_carries_what_it_does_for_the_kernel() {
    for control in [CongestionControl::Cubic, CongestionControl::Bbr] {
        let cases = cases();
        let ratios = each(&cases, |case| {
            let kernel = case.kernel(control).expect("a named case has the kernel's figures");
            best_single(case, control) / kernel
        });
        for (case, ratio) in cases.iter().zip(&ratios) {
            println!("{control:?} {:12} {ratio:.2}", case.name);
        }
        let near = ratios.iter().filter(|ratio| (0.94..1.06).contains(*ratio)).count();
        // The kernel's are single runs, and of CUBIC with losses such runs differ by a quarter.
        assert!(near >= 15, "{control:?}: within 6 % of the kernel in {near} cases of {}", ratios.len());
        assert!(ratios.iter().all(|ratio| (0.6..1.6).contains(ratio)), "{control:?}: {ratios:?}");
    }
}

#[test]
fn a_flow_over_random_sets_of_links_gets_no_less_than_over_the_best() {
    check_sets(random, BELOW);
}

#[test]
fn nor_over_links_with_troubles() {
    check_sets(rough, BELOW_ROUGH);
}

/// How much a flow gets of what it gets on the best link alone, and over how many sets that is less than .9. Where that is less than
/// the least, the median of five runs counts: of two links of half a second, the start of a single run is chance.
fn check_sets(set: fn(u64) -> Case, most_below: usize) {
    let sets: Vec<Case> = (1..=SETS).map(set).collect();
    let load = Load { probes: false, ..Load::default() };
    let mut ratios = each(&sets, |case| {
        let best = case.links.iter().map(|link| run_single(link, &load).goodput).fold(0.0, f64::max);
        let run = |seed| run_bond(case, &Load { seed, ..load }).goodput;
        let first = run(1);
        let goodput = if first < LEAST * best { median((1..=5).map(run)) } else { first };
        (goodput / best, best, case)
    });
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("through the tunnel over the best link alone, Mbit/s of that, and the links:");
    for (ratio, best, case) in ratios.iter().take(10) {
        println!("{ratio:.2} {best:6.2} {}: {}", case.name, case.describe());
    }
    let below = |share: f64| ratios.iter().filter(|(ratio, ..)| *ratio < share).count();
    println!("below .9: {} of {SETS}, below .5: {}", below(0.9), below(0.5));
    assert!(ratios[0].0 >= LEAST, "{:?}", ratios[0]);
    assert!(below(0.9) <= most_below, "{} sets are below .9", below(0.9));
}

/// What a path carries that was never used is found out with copies: nothing waits for those.
#[test]
fn a_thin_link_of_long_delay_is_tried_without_holding_a_flow_up() {
    let load = Load { probes: false, time: Duration::from_secs(4), ..Load::default() };
    for links in ["0.34@172 q262, 103@8 q379", "3.6@3 q356, 0.3@351 q280", "0.36@85 q163, 286@68 q345"] {
        let case = given(links).expect("links");
        let best = case.links.iter().map(|link| run_single(link, &load).goodput).fold(0.0, f64::max);
        let goodput = run_bond(&case, &load).goodput;
        assert!(goodput > 0.85 * best, "{links}: {goodput:.1} of {best:.1} Mbit/s");
    }
}

/// Acknowledgements that wait for room on their path give way to later ones; sent at once they would wait in the modem, all of them.
#[test]
fn a_download_is_not_held_up_by_its_acknowledgements() {
    let load = Load { probes: false, ..Load::default() };
    let case = Case { v6: true, ..given("12@20 b0.256").expect("a link") };
    let alone = run_single(&case.links[0], &load).goodput;
    let goodput = run_bond(&case, &load).goodput;
    assert!(goodput > 0.4 * alone, "{goodput:.1} of {alone:.1} Mbit/s");
}

/// A thin link that a call and a download fill is slow to answer. If that were taken for silence, and all that it holds were sent into
/// it once more, pings would take seven seconds and most of the call would be lost.
#[test]
fn a_thin_link_that_is_full_is_not_filled_with_repeats() {
    let case = given("0.2@40 q50").expect("a link");
    let runs = each(&[1, 2, 3], |seed| run_bond(&case, &Load { seed: *seed, ..Load::default() }));
    let pings: Vec<f64> = runs.iter().map(|run| quantile(&run.loaded, 0.5)).collect();
    let lost: Vec<f64> = runs.iter().map(|run| run.call_loss).collect();
    assert!(pings.iter().all(|ms| *ms < 1500.0), "pings take {pings:.0?} ms");
    assert!(lost.iter().all(|share| *share < 0.35), "the call loses {lost:.2?}");
}

/// The round trip is longer than the least by what delays vary: with less in flight than that holds a link would stand idle in between.
/// CUBIC alone has 93 Mbit/s here.
#[test]
fn a_link_that_jitters_by_more_than_its_round_trip_is_used() {
    let case = given("100@1±5 q500").expect("a link");
    let mut rates =
        each(&[1, 2, 3, 4, 5], |seed| run_bond(&case, &Load { seed: *seed, ..Load::default() }).goodput);
    rates.sort_by(f64::total_cmp);
    assert!(rates[2] > 75.0, "{rates:.1?} Mbit/s");
}

/// Over a way back of 256 kbit/s a call, pings and acknowledgements fill what is there. Were two full packets left in flight while the
/// round trip is probed, their queue would be taken for a longer path, time and again: pings would take a second in the median.
#[test]
fn small_packets_do_not_stand_in_a_thin_uplink() {
    let case = given("12@20 q100 b0.256").expect("a link");
    let runs = each(&[1, 2, 3], |seed| run_bond(&case, &Load { seed: *seed, ..Load::default() }));
    let pings: Vec<f64> = runs.iter().map(|run| quantile(&run.loaded, 0.5)).collect();
    assert!(pings.iter().all(|ms| *ms < 400.0), "pings take {pings:.0?} ms");
}

/// A full packet takes 12 or 30 ms there. Were that taken for jitter, or were two more in flight than the path holds, each ping would wait
/// for several.
#[test]
fn pings_wait_for_a_packet_or_two_on_a_thin_path() {
    for (text, most) in [("1@10 q200", 60.0), ("0.4@4 q400, 2.6@148 q300", 200.0)] {
        let case = given(text).expect("links");
        let mut p50 = each(&[1, 2, 3, 4, 5], |seed| {
            quantile(&run_bond(&case, &Load { seed: *seed, ..Load::default() }).loaded, 0.5)
        });
        p50.sort_by(f64::total_cmp);
        assert!(p50[2] < most, "{text}: pings of {p50:.0?} ms");
    }
}

/// Two pings that wait are still few: were they to wait behind a flow and what it has lost, they would take seconds once the quick path
/// is as thin as here.
#[test]
fn pings_do_not_wait_for_what_a_flow_has_lost() {
    let case = given("113.4@97 26.6% q47, 4.22@2±1 7.5% q40, 40.52@87±10 0.1% q68").expect("links");
    let p95 = each(&[1, 2, 3], |seed| {
        quantile(&run_bond(&case, &Load { seed: *seed, ..Load::default() }).loaded, 0.95)
    });
    assert!(p95.iter().all(|ms| *ms < 400.0), "pings of {p95:.0?} ms");
}

/// What little is sent gets a copy where its path loses, so a loss costs hardly anything: it need not take the slow path for it.
#[test]
fn pings_stay_on_a_quick_path_that_loses() {
    let case = given("14@10 5% q100, 10@40 q100").expect("links");
    let mut p95 = each(&[1, 2, 3, 4, 5], |seed| {
        quantile(&run_bond(&case, &Load { seed: *seed, ..Load::default() }).loaded, 0.95)
    });
    p95.sort_by(f64::total_cmp);
    assert!(p95[2] < 80.0, "pings of {p95:.0?} ms");
}

/// A copy on a path of 200 ms is still under way when what was lost on the quick one could long be there again.
#[test]
fn pings_do_not_wait_for_a_copy_that_is_slower_than_a_repair() {
    let case = given("1@200, 30@8 q8").expect("links");
    let load = Load { time: Duration::from_secs(6), ..Load::default() };
    let pings = quantile(&run_bond(&case, &load).loaded, 0.5);
    assert!(pings < 60.0, "pings of {pings:.0} ms");
}

/// Pings and a call fill nothing: a link whose delay has risen would carry less and less of them if that were taken for their queue.
#[test]
fn a_link_that_becomes_longer_carries_what_it_did() {
    for text in ["25@10 q200 s60/4", "6@40 q60 s100/2.5"] {
        let case = given(text).expect("a link");
        let load = Load::default();
        let alone = run_single(&case.links[0], &load).goodput;
        let run = run_bond(&case, &load);
        let idle = quantile(&run.idle, 0.95);
        assert!(idle < 300.0, "{text}: pings of {idle:.0} ms while nothing else is sent");
        assert!(run.goodput > 0.7 * alone, "{text}: {:.1} of {alone:.1} Mbit/s", run.goodput);
    }
}

/// A call's packets do not wait for one that was lost: it alone is late, by a round trip and more.
#[test]
fn a_call_does_not_wait_for_what_it_has_lost() {
    let case = given("20@60 3% q100").expect("a link");
    let gaps = each(&[1, 2, 3], |seed| run_bond(&case, &Load { seed: *seed, ..Load::default() }).call_gap);
    assert!(gaps.iter().all(|ms| *ms < 200.0), "ms without a packet of the call: {gaps:.0?}");
}

/// Of what is sent again a tenth is lost as well. If the receiver waited for that, the round trips that BBR sees would be so much longer
/// than the least that it would send a quarter of what the link carries, and leave the rest of it idle.
#[test]
fn what_is_sent_again_goes_twice_while_the_path_is_idle() {
    let case = given("99.6@21 10.7% q463").expect("a link");
    let load = Load { control: CongestionControl::Bbr, probes: false, ..Load::default() };
    let runs = each(&[1, 2, 3, 4, 5], |seed| run_bond(&case, &Load { seed: *seed, ..load }).goodput);
    assert!(quantile(&runs, 0.5) > 45.0, "{runs:.1?} Mbit/s");
}

/// Its acknowledgements never fill the way back, and stand there in a queue all the same: once that shows to be theirs, the rate is
/// known, and later ones wait where they take the place of earlier ones.
#[test]
fn acknowledgements_of_bbr_fill_a_thin_uplink_only_once() {
    let load = Load { control: CongestionControl::Bbr, probes: false, ..Load::default() };
    let case = given("12@20 q100 b0.256").expect("a link");
    let goodput = each(&[1, 2, 3], |seed| run_bond(&case, &Load { seed: *seed, ..load }).goodput);
    assert!(goodput.iter().all(|mbps| *mbps > 5.0), "{goodput:.1?} Mbit/s");
}

/// A sender that is told of the tunnel's queue by a loss leaves its receiver without anything for as long as packets wait
/// in that queue.
#[test]
fn a_flow_over_three_bad_links_never_stalls() {
    let cases: Vec<Case> = (1..=8).map(demo).collect();
    let mut stalls = each(&cases, |case| run_bond(case, &Load::default()).stall);
    stalls.sort_by(f64::total_cmp);
    assert!(stalls[4] < 120.0 && stalls[7] < 400.0, "ms: {stalls:?}");
}

/// Beside one flow of CUBIC that fills a deep queue, paths hold two fifths in the mean of what TCP without the tunnel does, where a path
/// that takes their queue for its own would hold a tenth.
#[test]
fn a_path_holds_its_own_beside_others() {
    let texts = ["10@20±1 q400", "50@20±1 q200", "5@150±1 q300", "20@40±1 q400"];
    let cases: Vec<Case> = texts.iter().map(|text| given(text).expect("links")).collect();
    let time = Duration::from_secs(30);
    let ratios = each(&cases, |case| {
        let mean = |one: &dyn Fn(&Load) -> f64| {
            (1..=3)
                .map(|seed| one(&Load { seed, time, beside: 1, probes: false, ..Load::default() }))
                .sum::<f64>()
        };
        mean(&|load| run_bond(case, load).goodput) / mean(&|load| run_single(&case.links[0], load).goodput)
    });
    println!("{ratios:.2?}");
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean >= 0.4 && ratios.iter().all(|ratio| *ratio >= 0.2), "{ratios:.2?} of what TCP gets");
}

/// A round trip is shorter than reports wait: what start-up may have in flight is more than what the round trip carries.
#[test]
fn a_short_path_is_filled() {
    let cases: Vec<Case> =
        ["300@0.05 q300", "100@1 q300"].iter().map(|text| given(text).expect("links")).collect();
    let load = Load { time: Duration::from_secs(4), probes: false, ..Load::default() };
    let ratios =
        each(&cases, |case| run_bond(case, &load).goodput / run_single(&case.links[0], &load).goodput);
    assert!(ratios.iter().all(|ratio| *ratio >= 0.85), "{ratios:.2?} of what TCP gets");
}

/// They would, for each takes the others' queue for a stranger's, if not all were probed at once.
#[test]
fn paths_over_the_same_link_do_not_compete() {
    let sets: [(&[&str], usize, f64); 2] = [
        (&["20@20 q400, 1@1"], 1, 90.0),
        (&["1.5@30 q100, 1@1, 1@1", "1.4@30 q100, 1@1, 1@1", "1.2@40 q80, 1@1, 1@1"], 4, 340.0),
    ];
    for (texts, flows, most_ms) in sets {
        let load = Load { flows, shared: true, time: Duration::from_secs(30), ..Load::default() };
        let pings = each(texts, |text| quantile(&run_bond(&given(text).expect("links"), &load).loaded, 0.5));
        println!("{texts:?}: {pings:.0?} ms");
        let mean = pings.iter().sum::<f64>() / pings.len() as f64;
        assert!(mean < most_ms, "{texts:?}: pings of {pings:.0?} ms");
    }
}

/// The pacer is owed what the host was late.
#[test]
fn a_host_that_stands_still_half_of_the_time_fills_its_links() {
    let case = given("50@5, 10@5").expect("links");
    let load = Load { probes: false, ..Load::default() };
    let busy = Some([Duration::from_millis(3); 2]);
    let goodputs = each(&[load, Load { busy, ..load }], |load| run_bond(&case, load).goodput);
    assert!(goodputs[1] >= 0.9 * goodputs[0], "{goodputs:.1?} Mbit/s");
}

/// How long fetches take through the tunnel, of the time that they take over the best link alone, for each set of links.
fn fetch_ratios(sets: &[&str], kilobytes: u64, every: Duration, time: Duration) -> Vec<f64> {
    let (fetch, load) = (Fetch { bytes: kilobytes * 1000, every }, Load { time, ..Load::default() });
    each(sets, |text| {
        let case = given(text).expect("links");
        let alone = case.links.iter().map(|link| median(over_single(link, &load, fetch).into_iter()));
        median(over_bond(&case, &load, fetch).into_iter()) / alone.fold(f64::INFINITY, f64::min)
    })
}

/// What the first fetch has lost says nothing of a path that is idle for seconds after it.
#[test]
fn what_is_fetched_again_and_again_comes_as_soon_as_over_the_best_link() {
    let sets = ["50@20 q100, 20@30 q100", "30@15 q60, 30@40 q60"];
    let ratios = fetch_ratios(&sets, 2000, Duration::from_secs(4), Duration::from_secs(20));
    assert!(ratios.iter().all(|ratio| *ratio < 1.4), "{ratios:.2?} of the time that the best link takes");
}

/// Wi-Fi that others use too, beside LTE: what it holds up now and then does not make it slow.
const WIFI_AND_LTE: [&str; 2] = ["50@5 o80/0.5 q200, 20@35±5 q200ms", "60@4 o40/0.2 q300, 30@45±10 q300ms"];

#[test]
fn a_quick_link_that_stops_now_and_then_is_used_for_what_is_fetched() {
    let ratios = fetch_ratios(&WIFI_AND_LTE, 500, Duration::from_secs(2), Duration::from_secs(40));
    assert!(ratios.iter().all(|ratio| *ratio < 1.25), "{ratios:.2?} of the time that the best link takes");
}

#[test]
fn pings_go_over_a_second_link_too_where_the_quick_one_stops_now_and_then() {
    let outcome = run_bond(&given(WIFI_AND_LTE[1]).expect("links"), &Load::default());
    let [idle, median] = [0.95, 0.5].map(|share| quantile(&outcome.idle, share));
    assert!(idle < 90.0 && median < 20.0, "p95 {idle:.0} ms, median {median:.0}");
}

/// A flow goes on over the other link, and gets both when the first is well again.
#[test]
fn a_link_whose_rate_falls_at_once_holds_no_flow_for_long() {
    let median_of = |set, of: fn(Outcome) -> f64| {
        let load = |seed| Load { seed, time: Duration::from_secs(32), probes: false, ..Load::default() };
        median((1..=5).map(|seed| of(run_bond(&given(set).expect("links"), &load(seed)))))
    };
    let stall = median_of("30@15 r1/10 q3000, 5@50 q200", |outcome| outcome.stall);
    assert!(stall < 1500.0, "nothing arrives for {stall:.0} ms");
    let goodput = median_of("50@10 r1/8 q100ms, 20@20", |outcome| outcome.goodput);
    assert!(goodput > 32.0, "{goodput:.1} of 45 Mbit/s");
}
