//! Links as people write them, `20@15±3 1% q50, 5@40 b0.25`, and the sets of links that bonds are compared on.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::{Capacity, Jitter, LinkConfig, PolicerConfig, Queue};
use crate::loss::Loss;
use crate::trace::{CellularConfig, Outages, Trace};
use crate::units::{Bitrate, ByteCount, Probability};

/// A link's ways there and back.
pub type Ways = (LinkConfig, LinkConfig);

/// Sets of links by name: sixteen of a public report (mqvpn's), then others. In `thin-up` there is downwards.
pub const BONDS: [(&str, &str); 24] = [
    ("baseline", "50@20 q100ms, 50@20 q100ms"),
    ("rtt_40", "50@20 q100ms, 50@40 q100ms"),
    ("rtt_70", "50@20 q100ms, 50@70 q100ms"),
    ("rtt_120", "50@20 q100ms, 50@120 q100ms"),
    ("rtt_320", "50@20 q100ms, 50@320 q100ms"),
    ("jit_5", "50@20±5 q100ms, 50@20±5 q100ms"),
    ("jit_20", "50@20±20 q100ms, 50@20±20 q100ms"),
    ("loss_05", "50@20 0.5% q100ms, 50@20 0.5% q100ms"),
    ("loss_2", "50@20 2% q100ms, 50@20 2% q100ms"),
    ("bw_4to1", "50@20 q100ms, 12@20 q100ms"),
    ("bw_10to1", "100@20 q100ms, 10@20 q100ms"),
    ("dual_lte", "40@30±5 0.5% q100ms, 25@45±8 0.5% q100ms"),
    ("fiber_lte", "300@8 q100ms, 30@40±8 0.5% q100ms"),
    ("lte_starlink", "40@35±8 q100ms, 100@50±25 1% q100ms"),
    ("lte_geo", "40@35 q100ms, 20@320±20 0.5% q100ms"),
    ("congested", "20@50±20 2% q100ms, 15@60±25 2% q100ms"),
    ("three", "10@40, 14@10 2%, 5@140"),
    ("50+10", "50@2, 10@9"),
    ("lossy30", "10@20, 10@25, 10@20 30%"),
    ("sat+dsl", "2@15 q40, 20@300 q600"),
    ("shallow", "20@20 q10, 10@30 q10"),
    ("tiny", "0.5@60 q30, 0.3@90 q30, 0.7@120 q30"),
    ("bloat", "5@20 q800, 8@30 q800"),
    ("thin-up", "12@20 b0.256"),
];

/// The largest number that a link may be written with.
const MOST: f64 = 10_000.0;

/// A text that is no link.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no link: write MBPS@MS, or MBPS@MS±JITTER, and behind it what it has of LOSS%, qPACKETS or qMSms, bMBPS (the way back), \
     pMBPS/KB (a policer), rMBPS/S and sMS/S (steps of rate and of delay), oMS/S (it stops now and then) and cellSEED, with numbers up to {MOST}"
)]
pub struct NotationError(String);

/// The links of `text`, which commas separate. Each is its rate in Mbit/s, `@` and its delay one way in ms, and then, in any order, what
/// it has of these:
///
/// | written | meaning |
/// |---|---|
/// | `±3`, right behind the delay | jitter that keeps order, half-normal with this σ in ms |
/// | `1%` | share of frames lost before the queue, independently of each other |
/// | `q50`, `q100ms` | what the drop-tail queue holds: so many packets, or what the link carries in so long; 100 packets without it |
/// | `b0.25` | Mbit/s of the way back, which otherwise is as the way there |
/// | `p4/30` | a policer: Mbit/s, and its burst in kB |
/// | `r1/8` | the rate, both ways, in Mbit/s of every second stretch of so many seconds |
/// | `s90/2` | the delay in ms of every second stretch of so many seconds |
/// | `o100/0.7` | it stops for 100 ms after each .7 s, both in the mean, as Wi-Fi does that others use; MBPS is the mean over all; not with `r` |
/// | `cell1` | a rate that swings around the one given as LTE's does, drawn from this seed; not with `r` |
///
/// Numbers are 0 to 10,000.
pub fn links(text: &str) -> Result<Vec<Ways>, NotationError> {
    let link = |(place, text): (u64, &str)| one(text, place).ok_or_else(|| NotationError(text.trim().into()));
    (1..).zip(text.split(',')).map(link).collect()
}

/// `place`: the link's place among the others, which draws its stops unless it has a seed.
fn one(text: &str, place: u64) -> Option<Ways> {
    let mut words = text.split_whitespace();
    let (mbps, delay) = words.next()?.split_once('@')?;
    let (delay, jitter) = delay.split_once('±').unwrap_or((delay, "0"));
    let (there, delay, jitter) = (number(mbps)?, ms(delay)?, ms(jitter)?);
    let jitter = if jitter.is_zero() { Jitter::None } else { Jitter::HalfNormal(jitter) };
    let mut link = LinkConfig { delay, jitter, ..LinkConfig::default() };
    let (mut back, mut room, mut cell, mut stops, mut falls) = (there, "100", None, None, None);
    for word in words {
        if let Some(percent) = word.strip_suffix('%') {
            link.loss = Loss::Bernoulli(Probability::new(number(percent)? / 100.0).ok()?);
        } else if let Some(seed) = word.strip_prefix("cell") {
            cell = Some(seed.parse().ok()?);
        } else if let Some(outages) = word.strip_prefix('o') {
            let (length, every) = outages.split_once('/')?;
            stops = Some(Outages { length: ms(length)?, every: seconds(every)? });
        } else if let Some(rates) = word.strip_prefix('r') {
            let (mbps, every) = rates.split_once('/')?;
            falls = Some((seconds(every)?, Bitrate::from_mbps(number(mbps)?)));
        } else if let Some(queue) = word.strip_prefix('q') {
            room = queue;
        } else if let Some(mbps) = word.strip_prefix('b') {
            back = number(mbps)?;
        } else if let Some(policer) = word.strip_prefix('p') {
            let (mbps, kilobytes) = policer.split_once('/')?;
            let burst = ByteCount((number(kilobytes)? * 1e3) as u64);
            link.policer = Some(PolicerConfig { rate: Bitrate::from_mbps(number(mbps)?), burst });
        } else {
            let (other, every) = word.strip_prefix('s')?.split_once('/')?;
            let every = seconds(every)?;
            link.delay_steps = vec![(every, delay), (every, ms(other)?)];
        }
    }
    let way = |mbps: f64| {
        let mean = Bitrate::from_mbps(mbps);
        let cellular = CellularConfig::default();
        let config = CellularConfig {
            mean,
            variation: if cell.is_some() { cellular.variation } else { 0.0 },
            outages: stops.or(cellular.outages),
            ..cellular
        };
        let trace = match (falls, cell.is_some() || stops.is_some()) {
            (None, false) => None,
            (None, true) => Some(Trace::cellular(cell.unwrap_or(place), &config)),
            (Some((every, other)), false) => Some(Trace::steps(&[(every, mean), (every, other)]).ok()?),
            (Some(_), true) => return None,
        };
        let capacity = trace.map_or(Capacity::Fixed(mean), |trace| Capacity::Trace(Arc::new(trace)));
        let queue = match room.strip_suffix("ms") {
            Some(ms) => Queue::Bytes((mbps * 1e3 / 8.0 * number(ms)?) as usize),
            None => Queue::Packets(room.parse().ok().filter(|packets| *packets <= MOST as usize)?),
        };
        Some(LinkConfig { capacity, queue, ..link.clone() })
    };
    Some((way(there)?, way(back)?))
}

fn seconds(text: &str) -> Option<Duration> {
    number(text).filter(|seconds| *seconds >= 1e-3).map(Duration::from_secs_f64)
}

fn ms(text: &str) -> Option<Duration> {
    number(text).map(|ms| Duration::from_secs_f64(ms / 1e3))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number| (0.0..=MOST).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_what_is_written() {
        let (there, back) = links("50@1, 20@15.5±3 1% q100ms b0.25 p4/30 s90/2").unwrap().swap_remove(1);
        let rates = [&there, &back].map(|way| match way.capacity {
            Capacity::Fixed(rate) => rate.as_bps(),
            _ => 0,
        });
        assert_eq!(rates, [20_000_000, 250_000]);
        assert_eq!([there.queue, back.queue], [Queue::Bytes(250_000), Queue::Bytes(3125)]);
        assert_eq!(there.delay, Duration::from_micros(15_500));
        assert_eq!(back.jitter, Jitter::HalfNormal(Duration::from_millis(3)));
        assert!((back.loss.mean() - 0.01).abs() < 1e-9);
        assert_eq!(there.policer.unwrap().burst, ByteCount(30_000));
        let every = Duration::from_secs(2);
        assert_eq!(there.delay_steps, [(every, there.delay), (every, Duration::from_millis(90))]);
        let [cell, falls, one, other] = [0, 1, 2, 3].map(|at| {
            let varying = links("9@50 cell1, 9@50 r1/4, 9@50 o100/0.7, 9@50 o100/0.7").unwrap();
            match &varying[at].1.capacity {
                Capacity::Trace(trace) => Arc::clone(trace),
                _ => panic!("it does not vary"),
            }
        });
        assert_ne!(cell, one);
        assert_eq!((falls.mean().as_mbps(), falls.period()), (5.0, Duration::from_secs(8)));
        assert!((8.9..9.1).contains(&one.mean().as_mbps()), "{one:?}");
        assert_ne!(one, other, "each stops when it likes");
    }

    #[test]
    fn every_bond_reads() {
        assert!(BONDS.iter().all(|(_, text)| links(text).is_ok()));
    }

    #[test]
    fn what_is_no_link_is_named() {
        for wrong in [
            "",
            "20",
            "20@",
            "@5",
            "x@5",
            "-1@5",
            "NaN@5",
            "inf@5",
            "1e9@5",
            "20@5±",
            "20@5 q",
            "20@5 q-1",
            "20@5 q10001",
            "20@5 qxms",
            "20@5 101%",
            "20@5 p5",
            "20@5 s5/0",
            "20@5 r5/0",
            "20@5 r5",
            "20@5 r5/1 cell1",
            "0@5 r0/1",
            "20@5 o5/0",
            "20@5 o5",
            "20@5 b",
            "20@5 cellx",
            "20@5 y",
            "20@5 ±3",
        ] {
            let error = links(&format!("1@1, {wrong}")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is no link: write")), "{error}");
        }
    }
}
