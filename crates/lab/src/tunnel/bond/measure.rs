//! Flows of iperf3, or of QUIC, and a ping and a call beside them.

use std::time::Duration;

use crate::call::{self, Call};
use crate::error::{Error, Result};
use crate::iperf::{Direction, Iperf};
use crate::links::{Bench, Task};
use crate::ping::{self, Ping};
use crate::statistics::percentile_ms as ms;
use crate::system::Ready;
use crate::workload::Sample;

/// What is done over the links.
#[derive(Clone, Debug)]
pub struct Test {
    /// quinn's QUIC, by the lab itself, from server to client; otherwise the kernel's TCP, by iperf3.
    pub quic: bool,
    /// Connections at the same time; of QUIC one.
    pub flows: usize,
    pub direction: Direction,
    /// How long, whole seconds, start included.
    pub time: Duration,
    pub idle_pings: u32,
}

/// From one ping to the next.
pub(super) const PING_EVERY: Duration = Duration::from_millis(50);

/// So often are flows begun that do not come about: of iperf3's first messages over a link that loses many one may come too
/// late for it, and then it waits for ever.
const ATTEMPTS: usize = 3;

impl Task for Test {
    /// Pings, then flows with pings and a call beside them.
    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample> {
        let network = bench.network;
        network.restart_links();
        let source = ready.sources[0];
        let idle = ping::round_trips(&network.client, source, ready.server, PING_EVERY, self.idle_pings)?;
        let mut failures = Vec::new();
        let (goodput_mbps, round_trips, call) = loop {
            match loaded(bench, ready, self) {
                Err(failure @ Error::NoFlow(_)) if failures.len() + 1 < ATTEMPTS => failures.push(failure),
                outcome => break outcome?,
            }
        };
        let mut sample = Sample::from([
            ("goodput_mbps", Some(goodput_mbps)),
            ("rtt_idle_p50_ms", ms(&idle, 50)),
            ("rtt_idle_p95_ms", ms(&idle, 95)),
            ("rtt_loaded_p50_ms", ms(&round_trips, 50)),
            ("rtt_loaded_p95_ms", ms(&round_trips, 95)),
            ("rtt_loaded_p99_ms", ms(&round_trips, 99)),
            ("rpm", rpm(&round_trips)),
            ("call_loss_ratio", Some(call.loss_ratio(Duration::MAX))),
            ("call_longest_gap_ms", Some(call.longest_gap.as_secs_f64() * 1e3)),
        ]);
        sample.remark = failures.first().map(|why| format!("in a run flows were begun anew: {why}"));
        Ok(sample)
    }
}

/// The flows' goodput, and the ping and the call beside them.
fn loaded(bench: &Bench, ready: &Ready, test: &Test) -> Result<(f64, Vec<Duration>, call::Outcome)> {
    let network = bench.network;
    let source = ready.sources[0];
    let ping = Ping::start(&network.client, source, ready.server, PING_EVERY)?;
    let call = Call::start(&network.client, &network.server, source, ready.server)?;
    let goodput_mbps = if test.quic { quic(bench, ready, test)? } else { tcp(bench, ready, test)? };
    Ok((goodput_mbps, ping.stop()?, call.stop()?))
}

fn tcp(bench: &Bench, ready: &Ready, test: &Test) -> Result<f64> {
    let iperf = Iperf {
        flows: test.flows,
        direction: test.direction,
        time: test.time,
        ..Iperf::tcp(ready.server, ready.sources[0], bench.setup.congestion_control)
    };
    let _server = Iperf::serve(&bench.network.server, ready.launcher, ready.server)?;
    iperf.run_whole(&bench.network.client, ready.launcher)
}

#[cfg(feature = "quic")]
fn quic(bench: &Bench, ready: &Ready, test: &Test) -> Result<f64> {
    let control = bench.setup.congestion_control;
    crate::tunnel::quic::download(bench.network, ready.sources[0], ready.server, control, test.time)
}

/// No case asks for it then.
#[cfg(not(feature = "quic"))]
fn quic(_: &Bench, _: &Ready, _: &Test) -> Result<f64> {
    Err(Error::program("QUIC", "this build has none"))
}

/// Round trips a minute, of the mean without the slowest twentieth.
fn rpm(round_trips: &[Duration]) -> Option<f64> {
    let mut sorted = round_trips.to_vec();
    sorted.sort_unstable();
    sorted.truncate((sorted.len() * 95).div_ceil(100));
    let mean = sorted.iter().sum::<Duration>().as_secs_f64() / sorted.len() as f64;
    (mean > 0.0).then_some(60.0 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_a_minute_leave_the_slowest_out() {
        let mut times = vec![Duration::from_millis(100); 19];
        times.push(Duration::from_secs(9));
        assert_eq!(rpm(&times).map(f64::round), Some(600.0));
        assert_eq!(rpm(&[]), None);
    }
}
