//! The medium's saturation throughput is that of Bianchi, "Performance Analysis of the IEEE 802.11 Distributed
//! Coordination Function" (JSAC 2000), with a limit on attempts as Wu et al. (INFOCOM 2002) added it.

use std::time::Duration;

use link::dcf::{DcfConfig, Destination, Medium, Phy, Position};

const FRAME: usize = 1514;
const ATTEMPTS: u32 = 7;

/// Probability that a station transmits in a slot, given that an attempt fails with `failure`: attempts over slots, per
/// frame (Bianchi's (7), as a renewal argument that takes any limit).
fn transmits(phy: &Phy, failure: f64) -> f64 {
    let reached = |attempt: u32| failure.powi(attempt as i32);
    let slots = |attempt: u32| 1.0 + f64::from(phy.contention_window(attempt)) / 2.0;
    let attempts: f64 = (0..ATTEMPTS).map(reached).sum();
    attempts / (0..ATTEMPTS).map(|attempt| reached(attempt) * slots(attempt)).sum::<f64>()
}

/// The fixed point of (7) and (9).
fn fixed_point(phy: &Phy, stations: i32) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let tau = (low + high) / 2.0;
        let failure = 1.0 - (1.0f64 - tau).powi(stations - 1);
        if transmits(phy, failure) > tau { low = tau } else { high = tau }
    }
    low
}

/// Frames per second of all stations together (13).
fn bianchi(phy: &Phy, stations: i32) -> f64 {
    let tau = fixed_point(phy, stations);
    let some = 1.0 - (1.0 - tau).powi(stations);
    let one = f64::from(stations) * tau * (1.0 - tau).powi(stations - 1);
    let data = phy.data_time(FRAME);
    let success = (data + phy.sifs() + phy.ack_time() + phy.difs()).as_secs_f64();
    let collision = (data + phy.eifs()).as_secs_f64();
    one / ((1.0 - some) * phy.slot().as_secs_f64() + one * success + (some - one) * collision)
}

/// Each station always has a frame for the next one; all are at one place, so that none is captured.
fn simulate(phy: Phy, stations: usize, time: Duration) -> f64 {
    let mut medium = Medium::new(DcfConfig::new(phy, vec![Position::default(); stations]), 1);
    let mut frames = 0;
    let fill = |medium: &mut Medium, now, station| {
        let to = Destination::Station((station + 1) % stations);
        while medium.room(station).0 > 98 && medium.send(now, station, to, vec![0; FRAME]).is_ok() {}
    };
    for station in 0..stations {
        fill(&mut medium, Duration::ZERO, station);
    }
    while let Some(now) = medium.poll_timeout().filter(|now| *now < time) {
        while let Some(arrival) = medium.poll(now) {
            frames += u64::from(!arrival.overheard);
        }
        for station in 0..stations {
            fill(&mut medium, now, station);
        }
    }
    frames as f64 / time.as_secs_f64()
}

fn compare(phy: Phy, seconds: u64) {
    for stations in [5, 10, 20, 50] {
        let (model, measured) =
            (bianchi(&phy, stations), simulate(phy, stations as usize, Duration::from_secs(seconds)));
        println!(
            "{stations:2} stations: {model:.1} {measured:.1} frames/s, {:+.2} %",
            (measured / model - 1.0) * 100.0
        );
        assert!((measured / model - 1.0).abs() < 0.03, "{stations} stations: {measured} instead of {model}");
    }
}

#[test]
fn saturation_throughput_is_bianchis_at_54_mbit() {
    compare(Phy::g54(), 10);
}

#[test]
fn saturation_throughput_is_bianchis_at_11_mbit() {
    compare(Phy::b11(), 40);
}
