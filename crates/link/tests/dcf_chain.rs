//! A chain of stations carries what one in ns-3 3.44 carries: 24.8, 12.6 and 8.3 Mbit/s of TCP goodput over 1, 2 and 3
//! hops of 802.11g at 54 Mbit/s.

use std::collections::BTreeMap;
use std::time::Duration;

use link::dcf::{DcfConfig, Destination, Medium, Phy, Position};
use link::{PacketCount, Probability};

/// 1448 bytes of data with headers of TCP, IP and Ethernet; an ACK of it.
const DATA: usize = 1514;
const ACK: usize = 66;
const SEGMENT_BITS: f64 = 1448.0 * 8.0;

/// A transfer as TCP's: a window of segments, one ACK for two of them. What is given up on the way is not sent again.
struct Transfer {
    medium: Medium,
    last: usize,
    window: u64,
    sent: u64,
    acknowledged: u64,
    arrived: u64,
}

impl Transfer {
    fn new(config: DcfConfig, window: u64, seed: u64) -> Transfer {
        let last = config.stations.len() - 1;
        let medium = Medium::new(config, seed);
        Transfer { medium, last, window, sent: 0, acknowledged: 0, arrived: 0 }
    }

    fn send(&mut self, now: Duration, from: usize, to: usize, number: u64, length: usize) {
        let mut frame = vec![0; length];
        frame[..8].copy_from_slice(&number.to_be_bytes());
        self.medium.send(now, from, Destination::Station(to), frame).expect("queues hold a window");
    }

    fn fill_window(&mut self, now: Duration) {
        while self.sent < self.acknowledged + self.window {
            self.sent += 1;
            self.send(now, 0, 1, self.sent, DATA);
        }
    }

    fn run(&mut self, time: Duration) -> f64 {
        self.fill_window(Duration::ZERO);
        while let Some(now) = self.medium.poll_timeout().filter(|now| *now < time) {
            while let Some(arrival) = self.medium.poll(now).filter(|arrival| !arrival.overheard) {
                let number = u64::from_be_bytes(arrival.frame[..8].try_into().unwrap());
                self.arrive(now, arrival.station, number, arrival.frame.len());
            }
        }
        self.arrived as f64 * SEGMENT_BITS / time.as_secs_f64() / 1e6
    }

    fn arrive(&mut self, now: Duration, station: usize, number: u64, length: usize) {
        match (station, length) {
            (0, ACK) => {
                self.acknowledged = self.acknowledged.max(number);
                self.fill_window(now);
            }
            (last, DATA) if last == self.last => {
                self.arrived += 1;
                if self.arrived.is_multiple_of(2) {
                    self.send(now, last, last - 1, number, ACK);
                }
            }
            (relay, DATA) => self.send(now, relay, relay + 1, number, DATA),
            (relay, _) => self.send(now, relay, relay - 1, number, ACK),
        }
    }
}

fn chain(hops: usize) -> DcfConfig {
    let stations = Position::chain(hops + 1, 90.0);
    DcfConfig { queue: PacketCount(1000), ..DcfConfig::new(Phy::g54(), stations) }
}

#[test]
fn tcp_over_a_chain_gets_what_ns_3_says() {
    for (hops, ns3) in [(1, 24.8), (2, 12.6), (3, 8.3)] {
        let goodput = Transfer::new(chain(hops), 64, 1).run(Duration::from_secs(10));
        println!("{hops} hops: {goodput:.2} Mbit/s, ns-3 {ns3}");
        assert!((goodput / ns3 - 1.0).abs() < 0.1, "{hops} hops: {goodput} Mbit/s instead of {ns3}");
    }
}

#[test]
fn the_same_seed_gives_the_same_frames_however_it_is_polled() {
    let arrivals = |step: Option<Duration>| {
        let mut medium = Medium::new(DcfConfig { loss: Probability::new(0.2).unwrap(), ..chain(3) }, 7);
        for n in 0..50u8 {
            let to = if n % 5 == 0 {
                Destination::Broadcast
            } else {
                Destination::Station(usize::from(n + 1) % 4)
            };
            medium.send(Duration::ZERO, usize::from(n) % 4, to, vec![n; 600]).unwrap();
        }
        let (mut now, mut all) = (Duration::ZERO, Vec::new());
        while let Some(next) = medium.poll_timeout() {
            now = step.map_or(next, |step| now + step);
            all.extend(std::iter::from_fn(|| medium.poll(now)));
        }
        all
    };
    assert_eq!(arrivals(None), arrivals(Some(Duration::from_millis(3))));
}

#[test]
fn neighbours_overhear_unicast_with_a_loss_of_its_own() {
    let mut config = DcfConfig::new(Phy::g54(), Position::chain(3, 45.0));
    config.overhearing_loss = Probability::new(0.25).unwrap();
    let mut medium = Medium::new(DcfConfig { queue: PacketCount(4000), ..config }, 3);
    for _ in 0..4000 {
        medium.send(Duration::ZERO, 1, Destination::Station(0), vec![0; 100]).unwrap();
    }
    let mut counts = BTreeMap::new();
    while let Some(now) = medium.poll_timeout() {
        while let Some(arrival) = medium.poll(now) {
            *counts.entry((arrival.station, arrival.overheard)).or_insert(0) += 1;
        }
    }
    assert_eq!(counts[&(0, false)], 4000, "link ACKs make up for nothing that was lost in overhearing");
    assert!((2900..3100).contains(&counts[&(2, true)]), "{counts:?}");
    assert_eq!(medium.stats(2).overheard.frames, PacketCount(counts[&(2, true)]));
}

#[test]
fn hidden_stations_collide_at_the_one_between_and_repeat() {
    let mut config = DcfConfig::new(Phy::g54(), Position::chain(3, 90.0));
    config.reach.sense_m = Some(100.0);
    config.attempts = 100;
    let mut medium = Medium::new(config, 1);
    for station in [0, 2] {
        for _ in 0..50 {
            medium.send(Duration::ZERO, station, Destination::Station(1), vec![0; 1514]).unwrap();
        }
    }
    while let Some(now) = medium.poll_timeout() {
        while medium.poll(now).is_some() {}
    }
    assert_eq!(medium.stats(1).received.frames, PacketCount(100));
    let repeated = medium.stats(0).repeated + medium.stats(2).repeated;
    assert!(repeated.0 > 10, "their frames are longer than most backoffs: {repeated}");
}

#[test]
fn a_full_queue_gives_the_frame_back() {
    let config = DcfConfig { queue: PacketCount(2), ..chain(1) };
    let mut medium = Medium::new(config, 1);
    for n in 0..2 {
        medium.send(Duration::ZERO, 0, Destination::Station(1), vec![n; 100]).unwrap();
    }
    let refused = medium.send(Duration::ZERO, 0, Destination::Station(1), vec![2; 100]).unwrap_err();
    assert_eq!((refused.station, &*refused.frame), (0, &[2; 100][..]));
    while medium.room(0) == PacketCount(0) {
        let now = medium.poll_timeout().unwrap();
        medium.poll(now);
    }
    medium.send(Duration::ZERO, 0, Destination::Station(1), refused.frame).unwrap();
}
