//! Flows of iperf3, a ping and a call beside them.

use std::time::Duration;

use super::{Direction, Test};
use crate::call::{self, Call};
use crate::error::Error;
use crate::iperf::{Iperf, Protocol};
use crate::ping::{self, Ping, percentile};
use crate::runner::Sample;
use crate::system::Ready;
use crate::workload::Bench;

/// From one ping to the next.
pub(super) const PING_EVERY: Duration = Duration::from_millis(50);

/// So often are flows begun anew that do not come about: of iperf3's first messages over a link that loses many one may come too
/// late for it, and then it waits for ever.
const ATTEMPTS: usize = 3;

/// What was measured beside the flows, and theirs.
struct Loaded {
    goodput_mbps: f64,
    round_trips: Vec<Duration>,
    call: call::Outcome,
}

/// Pings, then flows with pings and a call beside them.
pub(crate) fn measure(bench: &Bench, ready: &Ready, test: &Test) -> Result<Sample, Error> {
    let network = bench.network;
    network.restart_links();
    let source = ready.ping_sources[0];
    let idle = ping::round_trips(&network.client, source, ready.server, PING_EVERY, test.idle_pings)?;
    let mut outcome = loaded(bench, ready, test);
    let mut attempts = 1;
    while outcome.is_err() && attempts < ATTEMPTS {
        outcome = loaded(bench, ready, test);
        attempts += 1;
    }
    let loaded = outcome?;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let of = |times: &[Duration], percent| percentile(times, percent).map(milliseconds);
    let metrics = [
        ("goodput_mbps", Some(loaded.goodput_mbps)),
        ("rtt_idle_p50_ms", of(&idle, 50)),
        ("rtt_idle_p95_ms", of(&idle, 95)),
        ("rtt_loaded_p50_ms", of(&loaded.round_trips, 50)),
        ("rtt_loaded_p95_ms", of(&loaded.round_trips, 95)),
        ("rtt_loaded_p99_ms", of(&loaded.round_trips, 99)),
        ("call_loss_ratio", Some(loaded.call.loss_ratio())),
        ("call_longest_gap_ms", Some(milliseconds(loaded.call.longest_gap))),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let remark =
        (attempts > 1).then(|| "in a run iperf3 did not come about at once and was started anew".into());
    Ok(Sample { metrics, remark, ..Sample::default() })
}

fn loaded(bench: &Bench, ready: &Ready, test: &Test) -> Result<Loaded, Error> {
    let network = bench.network;
    let (source, ping_source) = (ready.sources[0], ready.ping_sources[0]);
    let iperf = Iperf {
        server: ready.server,
        source,
        congestion_control: bench.case.congestion_control,
        protocol: Protocol::Tcp,
        flows: test.flows,
        reverse: test.direction == Direction::Down,
        time: test.time,
    };
    let _server = Iperf::serve(&network.server, ready.launcher, ready.server)?;
    let ping = Ping::start(&network.client, ping_source, ready.server, PING_EVERY)?;
    let call = Call::start(network, ping_source, ready.server)?;
    let goodput_mbps = iperf.run_whole(&network.client, ready.launcher)?;
    Ok(Loaded { goodput_mbps, round_trips: ping.stop()?, call: call.stop()? })
}
