//! One cellular link, whose rate swings from one moment to the next: what is in flight follows it. In virtual time, with
//! the tunnel's own reports as FS-AT's ACKs.

mod sim;

use std::sync::Arc;
use std::time::Duration;

use link::{Capacity, CellularConfig, LinkConfig, Loss, Probability, Queue, Trace};
use sim::{Net, Options, plain};
use tunnel::Scheduler;

const S: Duration = Duration::from_secs(1);
/// Of the link both ways, without a queue.
const RTT_MS: f64 = 60.0;

/// 30 s of as much as the tunnel takes: Mbit/s that arrived, and the 95th percentile of the round trip beyond [`RTT_MS`].
fn load(seed: u64, loss: Loss) -> (f64, f64) {
    let link = |way: u64| LinkConfig {
        capacity: Capacity::Trace(Arc::new(Trace::cellular(2 * seed + way, &CellularConfig::default()))),
        queue: Queue::Bytes(500_000),
        loss,
        ..plain(10.0, Duration::from_millis(30))
    };
    let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed }, vec![(link(0), link(1))]);
    net.pass(S);
    let (mut sent, mut seen, mut queued) = (0, 0, Vec::new());
    net.run(31 * S, |net| {
        while net.ends[1].peers()[0].queue_bytes() < 150_000 {
            net.send(1, sent, 1200);
            sent += 1;
        }
        if net.received[0].len() > seen + 20 {
            seen = net.received[0].len();
            queued.extend(net.peer(1).paths[0].rtt_ms.map(|rtt| rtt - RTT_MS));
        }
    });
    queued.sort_by(f64::total_cmp);
    (net.received[0].len() as f64 * 1200.0 * 8.0 / 30e6, queued[queued.len() * 95 / 100])
}

#[test]
fn a_swinging_link_is_used_without_a_queue_of_its_own() {
    for loss in [Loss::None, Loss::Bernoulli(Probability::new(0.01).expect("a share"))] {
        let runs: Vec<_> = (1..=6).map(|seed| load(seed, loss)).collect();
        let mean = |value: fn(&(f64, f64)) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
        let (goodput, queued) = (mean(|r| r.0), mean(|r| r.1));
        println!("{loss:?}: {goodput:.2} Mbit/s, 95th percentile of the queue {queued:.0} ms");
        // The links carry 10 Mbit/s on the mean, and would hold 400 ms. Virtual time: arithmetic, with room.
        assert!(goodput > 7.2, "{loss:?}: {runs:?}");
        assert!(queued < 140.0, "{loss:?}: {runs:?}");
    }
}
