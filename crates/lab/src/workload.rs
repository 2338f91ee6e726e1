//! What is done with a system that is ready, and what is measured of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use crate::disturbance::{Disturbance, Phase, rates};
use crate::error::{Doing, Error};
use crate::experiment::{Case, Event, Experiment};
use crate::fetch::{self, Request, Transfer, race};
use crate::http::HttpServer;
use crate::iperf::{Iperf, Protocol};
use crate::network::Network;
use crate::ping::{Ping, percentile};
use crate::recovery::Recovery;
use crate::runner::Sample;
use crate::system::{Ready, System};

/// What every system fetches before it is measured.
const WARM_UP_BYTES: u64 = 64 << 10;

/// From one ping beside a file to the next.
const PING_EVERY: Duration = Duration::from_millis(100);

/// Where and how a case is measured.
pub(crate) struct Bench<'a> {
    pub(crate) case: &'a Case,
    pub(crate) network: &'a Network,
    /// The `nawa` under test.
    pub(crate) nawa: &'a Path,
    /// A folder for the files that are transferred.
    pub(crate) files: &'a Path,
    /// What the files' content is drawn from.
    pub(crate) seed: u64,
}

/// One flow of iperf3.
pub(crate) fn stream(
    bench: &Bench,
    ready: &Ready,
    protocol: Protocol,
    time: Duration,
) -> Result<Sample, Error> {
    let network = bench.network;
    let _server = Iperf::serve(&network.server, ready.launcher, ready.server)?;
    network.restart_links();
    let congestion_control = bench.case.congestion_control;
    let (server, source) = (ready.server, ready.sources[0]);
    let iperf = Iperf { server, source, congestion_control, protocol, flows: 1, reverse: false, time };
    let throughput = iperf.run(&network.client, ready.launcher)?;
    let mut metrics = vec![("goodput_mbps".to_owned(), throughput.goodput_mbps)];
    metrics.extend(throughput.loss_ratio.map(|ratio| ("loss_ratio".to_owned(), ratio)));
    metrics.extend(throughput.offered_mbps.map(|rate| ("offered_mbps".to_owned(), rate)));
    Ok(Sample { metrics, ..Sample::default() })
}

/// One file by curl, on each of the system's connections at once; `event` happens on the way. With `recovery`, what that
/// cost is counted.
pub(crate) fn fetch(
    bench: &Bench,
    ready: &mut Ready,
    bytes: u64,
    event: Option<Event>,
    recovery: bool,
) -> Result<Sample, Error> {
    let (case, network) = (bench.case, bench.network);
    let (file, hash) = random_file(bench.files, bytes, bench.seed)?;
    let (warm_up, _) = random_file(bench.files, WARM_UP_BYTES, bench.seed)?;
    let (address, cc) = ((ready.server, 80).into(), case.congestion_control);
    let _server = HttpServer::start(&network.server, ready.transport, cc, address, bench.files)?;
    for request in requests(ready, &warm_up) {
        fetch::fetch(&network.client, ready.launcher, &request)?;
    }
    network.restart_links();
    let before = recovery.then(|| Recovery::read(network, bench.nawa)).transpose()?;
    let mut pings = start_pings(network, ready)?;
    let (launcher, requests) = (ready.launcher, requests(ready, &file));
    let mut disturbance = bench.disturbance(ready, bytes, event);
    let mut watch = |count, now| disturbance.watch(count, now);
    let (winner, transfer) = race(&network.client, launcher, &requests, &mut watch)?;
    if (transfer.bytes, transfer.sha256) != (bytes, hash) {
        return Err(Error::Corrupted { system: Experiment::title(case) });
    }
    let mut metrics = fetch_metrics(&transfer, pings.swap_remove(winner))?;
    if let Some(before) = before {
        metrics.extend(Recovery::read(network, bench.nawa)?.since(&before, bytes));
    }
    let used_again = disturbance.used_again()?;
    metrics.extend(used_again.map(|used| ("used_again_s".to_owned(), used.after.as_secs_f64())));
    let best = (case.system == System::BestTcp)
        .then(|| format!("the best single link was {}", network.path_names()[winner]));
    let idle = used_again.filter(|used| !used.in_time).map(|used| {
        let seconds = used.after.as_secs_f64();
        format!("in a run a path was not used again before the file's end, {seconds:.1} s: counted as that, a lower bound")
    });
    Ok(Sample { metrics, remark: best.or(idle), winner: Some(winner) })
}

fn start_pings(network: &Network, ready: &Ready) -> Result<Vec<Ping>, Error> {
    let start = |&source: &Option<_>| Ping::start(&network.client, source, ready.server, PING_EVERY);
    ready.ping_sources.iter().map(start).collect()
}

impl Bench<'_> {
    fn disturbance<'b>(&'b self, ready: &'b mut Ready, bytes: u64, event: Option<Event>) -> Disturbance<'b> {
        Disturbance {
            network: self.network,
            ready,
            system: self.case.system.clone(),
            nawa: self.nawa,
            rates: rates(&self.case.topology),
            bytes,
            phase: event.map_or(Phase::Over(Ok(None)), Phase::Before),
        }
    }
}

fn requests(ready: &Ready, file: &str) -> Vec<Request> {
    let request = |&source: &Option<_>| Request { server: ready.server, file: file.into(), source };
    ready.sources.iter().map(request).collect()
}

fn fetch_metrics(transfer: &Transfer, ping: Ping) -> Result<Vec<(String, f64)>, Error> {
    let mut metrics = vec![
        ("time_s", transfer.time.as_secs_f64()),
        ("goodput_mbps", transfer.goodput_mbps()),
        ("longest_stall_ms", transfer.longest_stall.as_secs_f64() * 1e3),
    ];
    if let Some(time) = percentile(&ping.stop()?, 95) {
        metrics.insert(2, ("rtt_loaded_p95_ms", time.as_secs_f64() * 1e3));
    }
    Ok(metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A file of `bytes` random bytes in `folder`, made once per size: its name and SHA-256.
fn random_file(folder: &Path, bytes: u64, seed: u64) -> Result<(String, [u8; 32]), Error> {
    let name = format!("{bytes}.bin");
    let path: PathBuf = folder.join(&name);
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut content);
    if !path.exists() {
        std::fs::write(&path, &content).doing(|| format!("write {}", path.display()))?;
    }
    Ok((name, Sha256::digest(&content).into()))
}
