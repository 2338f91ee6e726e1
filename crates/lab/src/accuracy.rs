//! `emulator`: what the emulated links themselves get wrong, before anything is measured over them.

use std::time::Duration;

use link::Bitrate;

use crate::axes::{ALL, Grid, cases};
use crate::error::Result;
use crate::experiment::{Case, Entry, Experiment, RunOptions};
use crate::iperf::{Iperf, Protocol};
use crate::links::{Bench, OnLinks, Setup, Stream, Task};
use crate::network::{PathSpec, Topology};
use crate::ping;
use crate::statistics::percentile;
use crate::system::{Ready, System};
use crate::workload::Sample;

/// What `nawa lab list` shows of it.
pub(crate) const EXPERIMENTS: [Entry; 1] = [(
    "emulator",
    "the emulated links' own errors: by how much frames are late, and what of its rate a link carries",
    experiment,
)];

/// One link; the fastest is as good as unlimited for pings.
const GRIDS: [Grid; 2] =
    [Grid(ALL, &["what=lateness rate_mbps=1000"]), Grid(ALL, &["what=rate rate_mbps=1,10,100"])];

/// Of the link, one way, in milliseconds: far above what the emulator is late by.
const DELAY_MS: u64 = 10;

/// Bytes of a datagram's payload, and of Ethernet's, IP's and UDP's headers before it.
const PAYLOAD: f64 = Iperf::UDP_PAYLOAD as f64;
const HEADERS: f64 = 42.0;

/// From one ping to the next.
const EVERY: Duration = Duration::from_millis(5);

const NOTES: [&str; 2] = [
    "late_…: how much longer than 20 ms `ping` takes over a link of 10 ms each way, 200 times a second: both directions, both hosts \
     and the relay's hop together",
    "of_ideal: what arrives of UDP by iperf3, offered at 110 % over a link of this rate and 10 ms, of the payload that its frames \
     could carry",
];

fn experiment(options: &RunOptions) -> Result<Experiment> {
    let seconds = options.size.of(3, 5, 10);
    let cases = cases(&GRIDS, options.size, |cell| {
        let mbps: f64 = cell.get("rate_mbps")?;
        let topology = Topology::Relayed(vec![PathSpec::plain("link", mbps, DELAY_MS)]);
        let setup = Setup { topology, system: System::Tcp, congestion_control: "cubic" };
        let time = Duration::from_secs(seconds);
        let task = Check { rate: (cell.text("what") == "rate").then(|| Bitrate::from_mbps(mbps)), time };
        let estimate = time + Iperf::WARM_UP + Duration::from_secs(1);
        Ok(Case::new(cell.key("what rate_mbps"), OnLinks { setup, task }, estimate))
    })?;
    Ok(Experiment::of(cases, options.size.of(1, 5, 9), &[], &NOTES))
}

/// Looks at the link's rate, or, without one, at how late it is.
#[derive(Clone, Debug)]
struct Check {
    rate: Option<Bitrate>,
    time: Duration,
}

impl Task for Check {
    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample> {
        let Some(rate) = self.rate else { return self.lateness(bench, ready) };
        let offered = Bitrate::from_bps(rate.as_bps() * 11 / 10);
        let stream = Stream { protocol: Protocol::Udp(Some(offered)), time: self.time };
        let mut sample = stream.run(bench, ready)?;
        let ideal = rate.as_bps() as f64 * 1e-6 * PAYLOAD / (PAYLOAD + HEADERS);
        let goodput = sample.metrics.first().map_or(0.0, |(_, goodput)| *goodput);
        sample.add([("of_ideal", goodput / ideal)]);
        Ok(sample)
    }
}

impl Check {
    fn lateness(&self, bench: &Bench, ready: &Ready) -> Result<Sample> {
        let count = u32::try_from(self.time.as_millis() / EVERY.as_millis()).unwrap_or(1);
        let client = &bench.network.client;
        let times = ping::round_trips(client, ready.sources[0], ready.server, EVERY, count)?;
        let ideal = Duration::from_millis(2 * DELAY_MS);
        let late =
            |percent| percentile(&times, percent).map(|time| time.saturating_sub(ideal).as_secs_f64() * 1e6);
        Ok(Sample::from([("late_p50_us", late(50)), ("late_p99_us", late(99))]))
    }
}
