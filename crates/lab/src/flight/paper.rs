//! What paper 001 published, as far as it gives numbers: table 1, the greatest queue in packets.

use crate::experiment::Published;

const RATES_KBPS: [u64; 5] = [64, 384, 1000, 2000, 4000];

const QUEUE_MAX: [(&str, [f64; 5]); 4] = [
    ("reno", [65.0, 61.0, 51.0, 36.0, 28.0]),
    ("drs", [21.0, 17.0, 27.0, 37.0, 23.0]),
    ("vegas", [15.0, 27.0, 49.0, 36.0, 28.0]),
    ("fsat_paper", [6.0, 13.0, 37.0, 36.0, 28.0]),
];

pub(super) fn wired() -> Vec<Published> {
    let row = |(name, packets): (&'static str, [f64; 5])| {
        RATES_KBPS.into_iter().zip(packets).map(move |(rate, packets)| Published {
            key: vec![("cc", name.into()), ("rate_kbps", rate.into()), ("loss_percent", 0.0.into())],
            metrics: vec![("queue_max_packets", packets)],
        })
    };
    QUEUE_MAX.into_iter().flat_map(row).collect()
}
