//! Carries out an experiment: a new network per run, results as they come.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use crate::emulator::Emulator;
use crate::error::{Doing, Error};
use crate::experiment::{self, Case, Cut, Experiment, Fields, RunOptions, Workload};
use crate::fetch::{Request, Transfer, fetch, race};
use crate::http::HttpServer;
use crate::iperf::Iperf;
use crate::network::Network;
use crate::ping::{Ping, percentile};
use crate::report::{Progress, Report};
use crate::system::{Means, Ready, System};
use crate::{cleanup, namespace, program};

/// What every system fetches before it is measured.
const WARM_UP_BYTES: u64 = 64 << 10;

/// Runs the experiment `name`: says how long it takes, shows how far it is, prints the results and writes them where
/// `options` ask for it.
///
/// A case that cannot be measured gets a note and no number. Fails where nothing could be measured, or a file arrived
/// changed.
pub fn run(name: &str, options: &RunOptions) -> Result<(), Error> {
    run_experiment(&experiment::find(name, options)?, options)
}

/// Runs `experiment` as [`run`] does.
pub fn run_experiment(experiment: &Experiment, options: &RunOptions) -> Result<(), Error> {
    check_host()?;
    program::require(&programs(experiment))?;
    cleanup::start()?;
    let mut lab = Lab::new(options)?;
    let mut results = Results::new(experiment, options);
    for repeat in 0..experiment.repeats {
        for (index, case) in experiment.cases.iter().enumerate() {
            results.progress.begin(case);
            results.take(index, case, lab.measure(case, repeat as u64))?;
        }
    }
    results.finish(options)
}

/// What has been measured so far, and what has not.
struct Results<'a> {
    report: Report<'a>,
    progress: Progress,
    failure: Option<Error>,
}

impl<'a> Results<'a> {
    fn new(experiment: &'a Experiment, options: &RunOptions) -> Self {
        Self {
            report: Report::new(experiment, options),
            progress: Progress::start(experiment),
            failure: None,
        }
    }

    fn take(&mut self, index: usize, case: &Case, outcome: Result<Sample, Error>) -> Result<(), Error> {
        match outcome {
            Ok(sample) => {
                self.progress.end(case, &sample);
                self.report.add(index, sample);
            }
            Err(corrupted @ Error::Corrupted { .. }) => return Err(corrupted),
            Err(error) => {
                cleanup::await_end_if_interrupted();
                self.progress.fail(case, &error);
                self.report.fail(index, &error);
                self.failure = Some(error);
            }
        }
        Ok(())
    }

    /// Fails with the last failure if nothing was measured.
    fn finish(self, options: &RunOptions) -> Result<(), Error> {
        self.progress.finish();
        self.report.print();
        self.report.write(options)?;
        match self.failure {
            Some(failure) if self.report.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}

/// What one run of a case measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) metrics: Fields<f64>,
    /// What else there is to say, such as which link was best.
    pub(crate) remark: Option<String>,
}

/// Fails, in one sentence, where the lab cannot work at all.
fn check_host() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let tun = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    tun.map(drop).map_err(Error::NoTun)
}

fn programs(experiment: &Experiment) -> Vec<&'static str> {
    let mut programs = vec!["ip"];
    for case in &experiment.cases {
        programs.extend(case.system.programs());
        programs.extend(case.workload.programs());
    }
    programs
}

impl Workload {
    fn programs(&self) -> &'static [&'static str] {
        match self {
            Workload::Fetch { .. } => &["curl", "busybox", "ping"],
            Workload::Stream { .. } => &["iperf3", "ping"],
        }
    }
}

struct Lab<'a> {
    options: &'a RunOptions,
    emulator: Emulator,
    folder: tempfile::TempDir,
    /// The path on which a single CUBIC connection did best so far.
    best_path: usize,
}

impl<'a> Lab<'a> {
    fn new(options: &'a RunOptions) -> Result<Self, Error> {
        let _not_while_cleaning = cleanup::hold_off();
        let prefix = format!("{}{}-", namespace::PREFIX, std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
        let folder = folder.doing(|| "make a temporary folder".into())?;
        Ok(Self { options, emulator: Emulator::start()?, folder, best_path: 0 })
    }

    /// One run of one case, on a network of its own. All cases of a repeat see the same chances.
    fn measure(&mut self, case: &Case, repeat: u64) -> Result<Sample, Error> {
        let seed = self.options.seed.wrapping_add(repeat * 1000);
        let network = Network::build(&self.emulator, &case.topology, seed)?;
        let folder = tempfile::tempdir_in(&self.folder).doing(|| "make a temporary folder".into())?;
        let means = Means { nawa: &self.options.nawa, folder: folder.path(), best_path: self.best_path };
        let mut ready = case.system.start(&network, &means)?;
        network.set_congestion_control(case.congestion_control)?;
        let sample = match case.workload {
            Workload::Fetch { bytes, cut } => self.fetch(case, &network, &ready, bytes, cut)?,
            Workload::Stream { time } => stream(case, &network, &ready, time)?,
        };
        ready.check()?;
        drop(ready);
        cleanup::remove_own_sockets();
        Ok(sample)
    }

    fn fetch(
        &mut self,
        case: &Case,
        network: &Network,
        ready: &Ready,
        bytes: u64,
        cut: Option<Cut>,
    ) -> Result<Sample, Error> {
        let seed = self.options.seed;
        let (file, hash) = random_file(self.folder.path(), bytes, seed)?;
        let (warm_up, _) = random_file(self.folder.path(), WARM_UP_BYTES, seed)?;
        let address = (ready.server, 80).into();
        let cc = case.congestion_control;
        let _server = HttpServer::start(&network.server, ready.transport, cc, address, self.folder.path())?;
        for request in requests(ready, &warm_up) {
            fetch(&network.client, ready.launcher, &request)?;
        }
        network.restart_links();
        let pings =
            ready.ping_sources.iter().map(|&source| Ping::start(&network.client, source, ready.server));
        let mut pings = pings.collect::<Result<Vec<_>, _>>()?;
        let mut cutter = Cutter::new(network, cut, bytes);
        let mut watch = |count, now| cutter.watch(count, now);
        let (winner, transfer) = race(&network.client, ready.launcher, &requests(ready, &file), &mut watch)?;
        if (transfer.bytes, transfer.sha256) != (bytes, hash) {
            return Err(Error::Corrupted { system: Experiment::title(case) });
        }
        let metrics = fetch_metrics(&transfer, pings.swap_remove(winner))?;
        Ok(Sample { metrics, remark: self.remark(case, network, winner) })
    }

    fn remark(&mut self, case: &Case, network: &Network, winner: usize) -> Option<String> {
        if case.system != System::BestTcp {
            return None;
        }
        if case.congestion_control == "cubic" {
            self.best_path = winner;
        }
        Some(format!("the best single link was {}", network.path_names()[winner]))
    }
}

fn stream(case: &Case, network: &Network, ready: &Ready, time: Duration) -> Result<Sample, Error> {
    let _server = Iperf::serve(&network.server, ready.launcher, ready.server)?;
    network.restart_links();
    let congestion_control = case.congestion_control;
    let iperf = Iperf { server: ready.server, source: ready.sources[0], congestion_control, time };
    let goodput = iperf.run(&network.client, ready.launcher)?;
    Ok(Sample { metrics: vec![("goodput_mbps", goodput)], remark: None })
}

fn requests(ready: &Ready, file: &str) -> Vec<Request> {
    let request = |&source: &Option<_>| Request { server: ready.server, file: file.into(), source };
    ready.sources.iter().map(request).collect()
}

fn fetch_metrics(transfer: &Transfer, ping: Ping) -> Result<Fields<f64>, Error> {
    let mut metrics = vec![
        ("time_s", transfer.time.as_secs_f64()),
        ("goodput_mbps", transfer.goodput_mbps()),
        ("longest_stall_ms", transfer.longest_stall.as_secs_f64() * 1e3),
    ];
    if let Some(time) = percentile(&ping.stop()?, 95) {
        metrics.insert(2, ("rtt_loaded_p95_ms", time.as_secs_f64() * 1e3));
    }
    Ok(metrics)
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

/// Cuts a path in mid-transfer and restores it.
struct Cutter<'a> {
    network: &'a Network,
    cut: Option<Cut>,
    at_bytes: u64,
    restore_at: Option<Instant>,
}

impl<'a> Cutter<'a> {
    fn new(network: &'a Network, cut: Option<Cut>, bytes: u64) -> Self {
        let at_bytes = cut.map_or(0, |cut| (bytes as f64 * cut.at) as u64);
        Self { network, cut, at_bytes, restore_at: None }
    }

    /// Does what is due when `count` bytes have arrived; when to be asked again at the latest.
    fn watch(&mut self, count: u64, now: Instant) -> Option<Instant> {
        let cut = self.cut?;
        match self.restore_at {
            None if count >= self.at_bytes => {
                self.network.set_up(cut.path, false);
                self.restore_at = Some(now + cut.time);
            }
            Some(at) if now >= at => {
                self.network.set_up(cut.path, true);
                (self.cut, self.restore_at) = (None, None);
            }
            _ => {}
        }
        self.restore_at
    }
}
