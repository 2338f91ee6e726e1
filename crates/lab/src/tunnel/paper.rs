//! What paper 003 published: goodput in Mbit/s over 1 to 10 paths, a single path back.

use crate::experiment::Published;
use crate::system::{Back, Clocks};

use super::variant::{Links, Transport};

/// Both hosts' clocks synchronised by NTP.
const TCP: [f64; 10] = [9.33, 18.1, 26.3, 34.9, 43.1, 50.2, 57.6, 65.0, 72.9, 77.8];
const UDP: [f64; 10] = [9.50, 18.9, 27.7, 34.2, 46.3, 56.4, 65.8, 75.4, 81.0, 84.9];

/// Clocks not synchronised.
const TCP_APART: [f64; 10] = [9.33, 18.1, 26.3, 22.5, 22.3, 22.9, 25.3, 23.5, 23.4, 23.1];
const UDP_APART: [f64; 10] = [9.50, 18.9, 27.7, 28.2, 26.5, 27.4, 24.7, 27.8, 26.3, 28.7];

pub(super) fn published() -> Vec<Published> {
    let rows = [
        ("nawa-paper", Transport::Tcp, Clocks::Same, TCP),
        ("nawa-paper", Transport::Udp, Clocks::Same, UDP),
        ("nawa-paper-absolute", Transport::Tcp, Clocks::Offset, TCP_APART),
        ("nawa-paper-absolute", Transport::Udp, Clocks::Offset, UDP_APART),
    ];
    let row = |(system, transport, clocks, figures): (&'static str, Transport, Clocks, [f64; 10])| {
        let entry = move |(paths, mbps)| Published {
            key: vec![
                ("system", system.into()),
                ("links", Links::Equal(paths).name().into()),
                ("paths", paths.into()),
                ("transport", transport.name().into()),
                ("clocks", clocks.name().into()),
                ("back", Back::One.name().into()),
            ],
            metrics: vec![("goodput_mbps", mbps)],
        };
        (1..).zip(figures).map(entry)
    };
    rows.into_iter().flat_map(row).collect()
}
