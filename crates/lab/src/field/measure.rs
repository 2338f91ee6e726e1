//! One sample: everything at once, while things happen.

use std::time::Duration;

use super::convoy::{LTE, UPLINKS, USER};
use super::fault::{LENGTH, TIMELINE};
use super::hazards::Hazards;
use super::running::{Field, wait_until};
use super::system::{Strand, System};
use super::traffic::{Association, REQUESTS_A_SECOND, Traffic};
use crate::bicast::check_usrsctp;
use crate::clock;
use crate::emulator::Wire;
use crate::error::{Doing, Result};
use crate::program::on_cpu;
use crate::series;
use crate::statistics::{mbps, percentile_ms as ms};
use crate::workload::{Need, Prepared, Sample, Site, Workload};

/// A packet of the call that is answered later is lost.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// One system in the convoy.
impl Workload for System {
    fn needs(&self) -> Vec<Need> {
        let mut needs = Need::programs(&["ethtool", "nft", "ping"]);
        needs.push(Need::Other("usrsctp".into(), Box::new(check_usrsctp)));
        if self.has(Strand::Flight) {
            needs.push(Need::CongestionControl("fsat"));
        }
        needs.extend(self.congestion_control().map(Need::CongestionControl));
        needs
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(move || {
            let field = Field::build(*self, &site.means(), site.emulator, site.seed)?;
            field.start()?;
            let names = UPLINKS.map(|uplink| uplink.name);
            series::beside(&site, &names, &field.convoy.wires, || field.measure())
        }))
    }
}

impl Field {
    fn measure(&self) -> Result<Sample> {
        self.convoy.wires.iter().for_each(Wire::restart);
        let hazards = Hazards::start(&self.convoy, self.system.flood_interface())?;
        let traffic = Traffic::start(self.convoy.vehicle(USER), &self.convoy.hub, self.way())?;
        let association = Association::start(&self.convoy, &self.program)?;
        let (air, metered) = (self.convoy.air_bytes()?, self.convoy.bytes(LTE)?);
        let (began, busy) = (clock::now(), Busy::now()?);
        let mut arrived = vec![(Duration::ZERO, traffic.received())];
        for second in 0..LENGTH.as_secs() {
            for (time, fault, _) in TIMELINE {
                if time.start == second {
                    self.set(fault, true)?;
                }
                if time.end == second {
                    self.set(fault, false)?;
                }
            }
            wait_until(began + Duration::from_secs(second + 1));
            arrived.push((began.elapsed(), traffic.received()));
        }
        let cores = Busy::now()?.cores_since(&busy, began.elapsed());
        let (air, metered) = (self.convoy.air_bytes()? - air, self.convoy.bytes(LTE)? - metered);
        let time = began.elapsed();
        let traffic = traffic.stop()?;
        let hazards = hazards.stop();
        let association = association.outcome()?;
        let [down, up] = traffic.bytes;
        let waits = traffic.call.waits(CALL_LIMIT);
        let mut sample = Sample::from([
            ("goodput_mbps", Some(mbps(down + up, time))),
            ("download_mbps", Some(mbps(down, time))),
            ("upload_mbps", Some(mbps(up, time))),
            ("interactive_p50_ms", ms(&traffic.answers, 50)),
            ("interactive_p99_ms", ms(&traffic.answers, 99)),
            ("call_loss_ratio", Some(traffic.call.loss_ratio(CALL_LIMIT))),
            ("call_p50_ms", ms(&waits, 50)),
            ("call_p99_ms", ms(&waits, 99)),
            ("hazard_p50_ms", ms(&hazards.took, 50)),
            ("hazard_p99_ms", ms(&hazards.took, 99)),
            ("hazard_delivered_ratio", Some(hazards.took.len() as f64 / hazards.due.max(1) as f64)),
            ("sctp_transfer_s", Some(association.map_or(time.as_secs_f64(), |outcome| outcome.seconds))),
            ("sctp_longest_gap_ms", association.map(|outcome| outcome.longest_gap_ms)),
            ("air_bytes", Some(air as f64)),
            ("metered_bytes", Some(metered as f64)),
            ("cpu_cores", Some(cores)),
        ]);
        let bytes = |at: &(Duration, [u64; 2])| at.1.iter().sum::<u64>();
        let goodput = arrived.windows(2).map(|of| mbps(bytes(&of[1]) - bytes(&of[0]), of[1].0 - of[0].0));
        // Requests are due at a steady rate, and answered in their order.
        let seconds = traffic.answers.chunks(REQUESTS_A_SECOND).take(LENGTH.as_secs() as usize);
        let slowest = seconds.filter_map(|answers| ms(answers, 100));
        sample.course =
            vec![("goodput_mbps".into(), goodput.collect()), ("interactive_ms".into(), slowest.collect())];
        sample.remark = association
            .is_none()
            .then(|| "in a run SCTP's file had not arrived at the end, which counts as its time; its longest gap does not count".into());
        Ok(sample)
    }
}

/// Processor time until now. What is busy is what is not idle: the kernel measures idle time, and of the rest counts the ticks that it
/// meets, which short work escapes.
struct Busy {
    /// Of all processors: idle, waiting for a disk, or away with another guest.
    idle: Duration,
    processors: usize,
    /// Of the threads that are the network.
    emulation: Duration,
}

/// Those threads' names.
const EMULATION: [&str; 2] = ["links", "medium"];

impl Busy {
    fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").doing(|| "read /proc/stat".into())?;
        // User, nice and system time, idle, waiting, interrupts hard and soft, stolen (proc_stat(5)), in hundredths of a second.
        let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let idle: u64 = [3, 4, 7].iter().filter_map(|&field| ticks.get(field)).sum();
        let numbered = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let processors = text.lines().filter(numbered).count();
        let threads = std::fs::read_dir("/proc/self/task").doing(|| "read /proc/self/task".into())?;
        let emulation = threads.flatten().filter_map(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
            EMULATION.contains(&name.trim()).then(|| on_cpu(&thread.path()))?
        });
        Ok(Self { idle: Duration::from_millis(idle * 10), processors, emulation: emulation.sum() })
    }

    fn cores_since(&self, before: &Busy, time: Duration) -> f64 {
        let idle = self.idle.saturating_sub(before.idle);
        let emulation = self.emulation.saturating_sub(before.emulation);
        self.processors as f64 - (idle + emulation).as_secs_f64() / time.as_secs_f64()
    }
}
