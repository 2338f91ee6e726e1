//! A system on emulated links, and a task that it does there.

use std::fmt::Debug;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use link::Bitrate;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use crate::counters;
use crate::disturbance::{Change, Disturbance, Event};
use crate::error::{Doing, Error, Result};
use crate::fetch::{self, Request, Transfer, race};
use crate::http::HttpServer;
use crate::iperf::{Iperf, Protocol};
use crate::network::{Network, Topology};
use crate::ping::Ping;
use crate::series;
use crate::statistics::{mbps, percentile_ms};
use crate::system::{NawaSetup, Ready, System};
use crate::workload::{Need, Prepared, Sample, Site, Workload};

/// A task with its system and its links.
#[derive(Clone, Debug)]
pub(crate) struct OnLinks<T> {
    pub(crate) setup: Setup,
    pub(crate) task: T,
}

/// A system and its links.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The network, built anew for each run.
    pub(crate) topology: Topology,
    /// What is under test.
    pub(crate) system: System,
    /// The congestion control of both ends' TCP.
    pub(crate) congestion_control: &'static str,
}

/// What is done with a system that carries traffic.
pub(crate) trait Task: Clone + Debug + Send + Sync + 'static {
    /// What it runs, beside the system.
    fn programs(&self) -> &'static [&'static str] {
        &["iperf3", "ping"]
    }

    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample>;
}

pub(crate) struct Bench<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) network: &'a Network,
    pub(crate) site: &'a Site<'a>,
}

/// A system that carries traffic, and its network.
struct Standing<'a, T> {
    // Dropped in this order.
    ready: Ready,
    network: Network,
    site: Site<'a>,
    workload: &'a OnLinks<T>,
}

impl<T: Task> Workload for OnLinks<T> {
    fn needs(&self) -> Vec<Need> {
        Need::programs(&[self.setup.system.programs(), self.task.programs()].concat())
    }

    fn rate(&self) -> Bitrate {
        self.setup.topology.rate()
    }

    fn by_rival(&self, program: &Path) -> Option<Arc<dyn Workload>> {
        let is_usual = matches!(self.setup.system, System::Nawa(setup) if setup == NawaSetup { relayed: setup.relayed, ..NawaSetup::AUTO });
        let setup = Setup { system: System::Rival(program.into()), ..self.setup.clone() };
        is_usual.then(|| Arc::new(Self { setup, task: self.task.clone() }) as Arc<dyn Workload>)
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>> {
        let network = Network::build(site.emulator, &self.setup.topology, site.seed)?;
        let cc = self.setup.congestion_control;
        let ready = self.setup.system.start(&network, &site.means(), site.best_paths.of(cc))?;
        network.set_congestion_control(cc)?;
        Ok(Box::new(Standing { ready, network, site, workload: self }))
    }
}

impl<T: Task> Prepared for Standing<'_, T> {
    fn measure(mut self: Box<Self>) -> Result<Sample> {
        let bench = Bench { setup: &self.workload.setup, network: &self.network, site: &self.site };
        let (names, wires) = (self.network.path_names(), self.network.wires());
        let (task, ready) = (&self.workload.task, &mut self.ready);
        let sample = series::beside(&self.site, names, wires, || task.measure(&bench, ready))?;
        self.ready.check()?;
        Ok(sample)
    }
}

/// What every system fetches before it is measured.
const WARM_UP_BYTES: u64 = 64 << 10;

/// From one ping beside a file to the next.
const PING_EVERY: Duration = Duration::from_millis(100);

/// A file is fetched by curl, on each of the system's connections at once, `ping` beside it.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) bytes: u64,
    pub(crate) event: Option<Event>,
    /// Whether what TCP's loss recovery and Nawa's copies cost is counted as well.
    pub(crate) recovery: bool,
}

/// One flow of iperf3 from client to server.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) protocol: Protocol,
    /// How long it is measured, whole seconds.
    pub(crate) time: Duration,
}

impl Task for Stream {
    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample> {
        self.run(bench, ready)
    }
}

impl Stream {
    pub(crate) fn run(&self, bench: &Bench, ready: &Ready) -> Result<Sample> {
        let network = bench.network;
        let _server = Iperf::serve(&network.server, ready.launcher, ready.server)?;
        network.restart_links();
        let tcp = Iperf::tcp(ready.server, ready.sources[0], bench.setup.congestion_control);
        let iperf = Iperf { protocol: self.protocol, time: self.time, ..tcp };
        let throughput = Iperf::finish(iperf.start(&network.client, ready.launcher)?)?;
        Ok(Sample::from([
            ("goodput_mbps", Some(throughput.goodput_mbps)),
            ("loss_ratio", throughput.loss_ratio),
            ("offered_mbps", throughput.offered_mbps),
        ]))
    }
}

impl Task for Fetch {
    fn programs(&self) -> &'static [&'static str] {
        match self.event {
            Some(Event { change: Change::Rebind, .. }) => &["curl", "busybox", "ping", "nft"],
            _ => &["curl", "busybox", "ping"],
        }
    }

    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample> {
        let &Self { bytes, event, recovery } = self;
        let (setup, network, site) = (bench.setup, bench.network, bench.site);
        let (file, hash) = random_file(site.files, bytes, site.options.seed)?;
        let (warm_up, _) = random_file(site.files, WARM_UP_BYTES, site.options.seed)?;
        let (address, cc) = ((ready.server, 80).into(), setup.congestion_control);
        let _server = HttpServer::start(&network.server, ready.multipath, cc, address, site.files)?;
        for request in requests(ready, &warm_up) {
            fetch::fetch(&network.client, ready.launcher, &request)?;
        }
        network.restart_links();
        let before = recovery.then(|| counters::of_recovery(network, &site.options.nawa)).transpose()?;
        let mut pings = start_pings(network, ready)?;
        let (launcher, requests) = (ready.launcher, requests(ready, &file));
        let received = AtomicU64::new(0);
        let (outcome, used_again) = std::thread::scope(|scope| {
            let fetching = scope.spawn(|| race(&network.client, launcher, &requests, &received));
            let mut disturbance = Disturbance {
                network,
                topology: &setup.topology,
                ready,
                system: &setup.system,
                nawa: &site.options.nawa,
                bytes,
                received: &received,
                is_over: &|| fetching.is_finished(),
            };
            let used_again = event.map_or(Ok(None), |event| disturbance.run(event));
            (fetching.join().unwrap_or_else(|panic| resume_unwind(panic)), used_again)
        });
        let (winner, transfer) = outcome?;
        if (transfer.bytes, transfer.sha256) != (bytes, hash) {
            return Err(Error::Corrupted { system: site.title.clone() });
        }
        let mut sample = fetch_sample(&transfer, pings.swap_remove(winner))?;
        if let Some(before) = before {
            let counted = counters::of_recovery(network, &site.options.nawa)?.since(&before);
            sample.add(counters::recovery_metrics(&counted, bytes));
        }
        let used_again = used_again?;
        sample.add(used_again.map(|used| ("used_again_s", used.after.as_secs_f64())));
        let raced = setup.system == System::BestTcp;
        let best = raced.then(|| format!("the best single link was {}", network.path_names()[winner]));
        let idle = used_again.filter(|used| !used.in_time).map(|used| {
            let seconds = used.after.as_secs_f64();
            format!("in a run a path was not used again before the file's end, {seconds:.1} s: counted as that, a lower bound")
        });
        sample.remark = best.or(idle);
        sample.best_path = raced.then(|| (cc.into(), winner));
        Ok(sample)
    }
}

fn start_pings(network: &Network, ready: &Ready) -> Result<Vec<Ping>> {
    let start = |&source: &Option<_>| Ping::start(&network.client, source, ready.server, PING_EVERY);
    ready.sources.iter().map(start).collect()
}

fn requests(ready: &Ready, file: &str) -> Vec<Request> {
    let request = |&source: &Option<_>| Request { server: ready.server, file: file.into(), source };
    ready.sources.iter().map(request).collect()
}

fn fetch_sample(transfer: &Transfer, ping: Ping) -> Result<Sample> {
    Ok(Sample::from([
        ("time_s", Some(transfer.time.as_secs_f64())),
        ("goodput_mbps", Some(mbps(transfer.bytes, transfer.time))),
        ("rtt_loaded_p95_ms", percentile_ms(&ping.stop()?, 95)),
        ("longest_stall_ms", Some(transfer.longest_stall.as_secs_f64() * 1e3)),
    ]))
}

/// A file of `bytes` random bytes in `folder`, made once per size: its name and SHA-256.
fn random_file(folder: &Path, bytes: u64, seed: u64) -> Result<(String, [u8; 32])> {
    let name = format!("{bytes}.bin");
    let path: PathBuf = folder.join(&name);
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut content);
    if !path.exists() {
        std::fs::write(&path, &content).doing(|| format!("write {}", path.display()))?;
    }
    Ok((name, Sha256::digest(&content).into()))
}
