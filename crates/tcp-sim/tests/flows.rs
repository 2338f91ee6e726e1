//! Flows over links: everything arrives, whatever the link does, and the congestion controls do what they are for.

use std::net::Ipv4Addr;
use std::time::Duration;

use link::{Bitrate, Capacity, Jitter, LinkConfig, Loss, Probability, Queue, Reorder};
use tcp_sim::{Config, CongestionControl, Connection, Hosts, LinkPair, Network, Ping, Sender, Socket, run};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const ENDLESS: u64 = u64::MAX >> 8;

fn plain(mbps: f64, delay: Duration) -> LinkConfig {
    let capacity = Capacity::Fixed(Bitrate::from_mbps(mbps));
    LinkConfig { capacity, delay, queue: Queue::Packets(200), ..LinkConfig::default() }
}

fn share(share: f64) -> Probability {
    Probability::new(share).expect("a share")
}

/// A flow of so many bytes from end 0 to end 1.
struct Flow {
    pair: LinkPair,
    hosts: Hosts,
}

impl Flow {
    fn new(control: CongestionControl, link: LinkConfig, bytes: u64) -> Flow {
        let pair = LinkPair::new(link.clone(), link, 1);
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let mut hosts = Hosts::new(addresses);
        let [near, far] = [(addresses[0], 5000), (addresses[1], 5201)].map(|(ip, port)| Socket { ip, port });
        let config = Config { control, mtu: 1500, send: bytes };
        let caller = Connection::connect(pair.now(), config, near, far);
        hosts.connections.push([caller, Connection::listen(Config { send: 0, ..config }, far, near)]);
        Flow { pair, hosts }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.pair.now() + time;
        run(&mut self.pair, &mut self.hosts, until);
    }

    fn sender(&self) -> &Sender {
        self.hosts.connections[0][0].sender().expect("a connection")
    }

    fn received(&self) -> u64 {
        self.hosts.connections[0][1].received()
    }
}

#[test]
fn everything_arrives_once_whatever_the_link_does() {
    let base = plain(10.0, 20 * MS);
    let reorder = Some(Reorder { probability: share(0.05), extra_delay: 15 * MS });
    let links = [
        ("nothing", base.clone()),
        ("loss", LinkConfig { loss: Loss::Bernoulli(share(0.1)), ..base.clone() }),
        ("much loss", LinkConfig { loss: Loss::Bernoulli(share(0.3)), ..base.clone() }),
        ("reordering", LinkConfig { reorder, ..base.clone() }),
        (
            "jitter that reorders",
            LinkConfig { jitter: Jitter::HalfNormalReordering(10 * MS), ..base.clone() },
        ),
        ("duplicates", LinkConfig { duplicate: share(0.1), ..base.clone() }),
        ("ten packets of queue", LinkConfig { queue: Queue::Packets(10), ..base.clone() }),
        ("an outage", LinkConfig { blackouts: vec![1100 * MS..3 * S], ..base }),
    ];
    for control in [CongestionControl::Cubic, CongestionControl::PacedCubic, CongestionControl::Bbr] {
        for (name, link) in &links {
            let bytes = 500_001;
            let mut flow = Flow::new(control, link.clone(), bytes);
            flow.pass(600 * S);
            assert_eq!(flow.received(), bytes, "{control:?}, {name}");
            assert!(flow.sender().is_done(), "{control:?}, {name}");
        }
    }
}

#[test]
fn hystart_ends_slow_start_before_the_queue_overflows() {
    let mut flow = Flow::new(CongestionControl::Cubic, plain(20.0, 40 * MS), ENDLESS);
    flow.pass(2 * S);
    assert!(flow.sender().ssthresh().is_some());
    assert_eq!(flow.pair.links[0].stats().queue_dropped.frames.get(), 0);
}

#[test]
fn cubic_fills_the_queue_and_bbr_does_not() {
    let deep = LinkConfig { queue: Queue::Packets(1000), ..plain(10.0, 20 * MS) };
    let waited = [CongestionControl::Cubic, CongestionControl::Bbr].map(|control| {
        let mut flow = Flow::new(control, deep.clone(), ENDLESS);
        flow.pass(5 * S);
        let start = flow.pair.now();
        flow.hosts.pings.push((0, Ping::new(start, 50 * MS, start + 20 * S)));
        flow.pass(21 * S);
        assert!(flow.received() as f64 * 8.0 / 26e6 > 8.8, "{control:?}: {}", flow.received());
        let (trips, _) = flow.hosts.pings[0].1.round_trips(start, start + 20 * S);
        trips[trips.len() / 2]
    });
    assert!(waited[0] > 300 * MS, "CUBIC: {:?}", waited[0]);
    assert!(waited[1] < 100 * MS, "BBR: {:?}", waited[1]);
}

/// A queue of three packets holds no ten that come at once.
#[test]
fn a_paced_senders_first_window_fits_a_short_queue() {
    let short = LinkConfig { queue: Queue::Packets(3), ..plain(20.0, 20 * MS) };
    let dropped = [CongestionControl::Cubic, CongestionControl::PacedCubic].map(|control| {
        let mut flow = Flow::new(control, short.clone(), ENDLESS);
        flow.pass(75 * MS);
        flow.pair.links[0].stats().queue_dropped.frames.get()
    });
    assert!(dropped[0] > 0 && dropped[1] == 0, "{dropped:?}");
}

#[test]
fn a_time_out_that_was_a_mistake_is_taken_back() {
    // The delay leaps by more than the time-out and falls again.
    let steps = vec![(3 * S, 20 * MS), (2 * S, 700 * MS), (60 * S, 20 * MS)];
    let link = LinkConfig { delay_steps: steps, ..plain(10.0, 20 * MS) };
    let mut flow = Flow::new(CongestionControl::Cubic, link, ENDLESS);
    flow.pass(12 * S);
    let counters = flow.sender().counters();
    assert!(counters.timeouts > 0 && counters.undone > 0, "{counters:?}");
}

#[test]
fn a_link_that_reorders_is_not_taken_for_one_that_loses() {
    let reorder = Some(Reorder { probability: share(0.01), extra_delay: 8 * MS });
    let mut flow =
        Flow::new(CongestionControl::Cubic, LinkConfig { reorder, ..plain(10.0, 20 * MS) }, ENDLESS);
    flow.pass(10 * S);
    assert!(flow.received() as f64 * 8.0 / 10e6 > 8.5, "{}: {:?}", flow.received(), flow.sender().counters());
}

#[test]
fn the_receivers_window_grows_to_what_a_long_link_needs() {
    let long = LinkConfig { queue: Queue::Packets(2000), ..plain(50.0, 150 * MS) };
    let mut flow = Flow::new(CongestionControl::Cubic, long, ENDLESS);
    flow.pass(10 * S);
    assert!(flow.sender().receive_window() > 2_000_000, "{}", flow.sender().receive_window());
}

#[test]
fn the_same_seed_gives_the_same_flow() {
    let link = LinkConfig { loss: Loss::Bernoulli(share(0.01)), ..plain(20.0, 10 * MS) };
    let [a, b] = [0; 2].map(|_| {
        let mut flow = Flow::new(CongestionControl::Bbr, link.clone(), ENDLESS);
        flow.pass(5 * S);
        (flow.received(), flow.sender().counters().retransmitted)
    });
    assert_eq!(a, b);
}
