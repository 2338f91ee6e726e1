//! What holds on a medium that many share.

use std::time::Duration;

use link::*;
use proptest::prelude::*;

fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(3),
        jitter: Jitter::Uniform(Duration::from_millis(2)),
        loss: Loss::Bernoulli(Probability::new(loss).unwrap()),
        ..LinkConfig::default()
    }
}

/// All that arrives until nothing is left.
fn drain(medium: &mut Medium) -> Vec<Arrival> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    while let Some(now) = medium.poll_timeout() {
        while let Some(arrival) = medium.poll(now) {
            assert_eq!(arrival.time, now, "a frame was there before the medium asked to be polled");
            arrivals.push(arrival);
        }
    }
    arrivals
}

fn hearers(arrivals: &[Arrival]) -> Vec<usize> {
    let mut at: Vec<usize> = arrivals.iter().map(|arrival| arrival.at).collect();
    at.sort_unstable();
    at
}

#[test]
fn exactly_the_neighbours_hear_a_frame() {
    let grid = Adjacency::grid(4, 3);
    let mut medium = Medium::new(&grid, LinkConfig::default(), 1);
    for node in 0..grid.nodes() {
        medium.send(Duration::ZERO, node, &[node as u8]);
        let arrivals = drain(&mut medium);
        assert_eq!(hearers(&arrivals), grid.hearers(node));
        assert!(arrivals.iter().all(|arrival| arrival.from == node && arrival.frame == [node as u8]));
    }
    assert_eq!(medium.transmissions(), 12);
}

#[test]
fn each_hearer_loses_frames_of_its_own() {
    let mut medium = Medium::new(&Adjacency::complete(3), lossy(0.5), 4);
    (0..200).for_each(|index| medium.send(Duration::from_millis(index), 0, &[index as u8]));
    let at = |node: usize, arrivals: &[Arrival]| -> Vec<u8> {
        arrivals.iter().filter(|arrival| arrival.at == node).map(|arrival| arrival.frame[0]).collect()
    };
    let arrivals = drain(&mut medium);
    assert_ne!(at(1, &arrivals), at(2, &arrivals));
}

#[test]
fn who_moved_away_hears_what_was_on_its_way_and_no_more() {
    let far = LinkConfig { delay: Duration::from_millis(1), ..LinkConfig::default() };
    let mut medium = Medium::new(&Adjacency::complete(3), far, 1);
    medium.send(Duration::ZERO, 0, b"before");
    medium.set_adjacency(&Adjacency::chain(3));
    medium.send(Duration::ZERO, 0, b"after");
    let arrivals = drain(&mut medium);
    let heard = |node| arrivals.iter().filter(|arrival| arrival.at == node).count();
    assert_eq!((heard(1), heard(2)), (2, 1));
}

proptest! {
    #[test]
    fn same_seed_same_frames_in_the_order_of_time(
        nodes in 1usize..12,
        sends in prop::collection::vec((0usize..12, 0u64..5000), 0..60),
        loss in 0.0..0.9,
        seed in any::<u64>(),
    ) {
        let mut sends = sends;
        sends.sort_by_key(|&(_, micros)| micros);
        let run = || {
            let mut medium = Medium::new(&Adjacency::chain(nodes), lossy(loss), seed);
            for &(from, micros) in &sends {
                medium.send(Duration::from_micros(micros), from % nodes, &micros.to_le_bytes());
            }
            drain(&mut medium)
        };
        let arrivals = run();
        prop_assert!(arrivals.is_sorted_by_key(|arrival| arrival.time));
        prop_assert_eq!(arrivals, run());
    }
}
