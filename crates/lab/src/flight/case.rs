//! TCP flows over one link, what is measured of them, and what happens in the course of a run.

use std::time::Duration;

use device::tcp::TcpInfo;
use link::{Bitrate, Capacity, LinkConfig, Loss, Queue};

use crate::axes::Cell;
use crate::error::Result;
use crate::experiment::{Case, Experiment, Fields, Ratio};
use crate::flows::{self, FlowSpec, FlowTest, Guests, Look, Origin, Outcome, Watch, check_origin};
use crate::network::{Network, Topology};
use crate::series::Series;
use crate::statistics::mbps;
use crate::workload::{Need, Prepared, Sample, Site, Workload};

/// The congestion controls that are compared, how many they are, and how many of these are a guest's ([`origin`]).
pub(super) const CC: &str = "cc=reno,cubic,bbr,fsat_paper,fsat,reno-guest,vegas,westwood";
pub(super) const CONTROLS: usize = 8;
pub(super) const GUESTS: usize = 3;

/// The congestion control of the row `name`, and whose it is. Vegas has the paper's α and β.
pub(super) fn origin(name: &'static str) -> (&'static str, Origin) {
    match name {
        "reno-guest" => ("reno", Origin::Guest { module: None }),
        "vegas" => (name, Origin::Guest { module: Some("tcp_vegas alpha=1 beta=3") }),
        "westwood" => (name, Origin::Guest { module: Some("tcp_westwood") }),
        _ => (name, Origin::Host),
    }
}

/// One way; the paper's RTT is 180 ms.
pub(super) const DELAY: Duration = Duration::from_millis(90);

/// Deeper than any window of [`RECEIVE_BUFFER`].
pub(super) const DEEP: Queue = Queue::Packets(1000);

/// The `SO_RCVBUF` with which the kernel advertises at most 96 KiB for frames of 1514 bytes over a TAP.
pub(super) const RECEIVE_BUFFER: u32 = 73_600;

/// Flows that share a link start within this time, as the paper's do.
pub(super) const STARTS: Duration = Duration::from_secs(5);

/// The paper's senders begin with three segments.
pub(super) const INITIAL_WINDOW: u32 = 3;

/// The longest frame: 1500 bytes of IP, and Ethernet's header.
pub(super) const FRAME: usize = 1514;

/// The receivers' congestion control: they send nothing but acknowledgements.
pub(super) const RECEIVERS: &str = "reno";

/// The payload that a full frame carries, with TCP's timestamps.
pub(super) const PAYLOAD: usize = 1448;

/// Links of constant rate are emulated at the same time up to this sum of their rates (docs/lab.md, "Calibration").
pub(super) const UP_TO: Bitrate = Bitrate::from_bps(60_000_000);

/// What making a network and taking it down takes beside the measurement, per case.
pub(super) const OVERHEAD: Duration = Duration::from_millis(150);

/// What booting a guest takes.
pub(super) const BOOT: Duration = Duration::from_millis(900);

pub(super) const AGAINST_RENO: [Ratio; 2] = [
    Ratio::new("goodput_of_reno", "goodput_mbps", &[("cc", "reno")]),
    Ratio::new("queue_of_reno", "queue_mean_packets", &[("cc", "reno")]),
];

/// What a reader of any of these figures has to know.
const NOTES: [&str; 5] = [
    "kernel TCP from client to server over one emulated link; rates count whole Ethernet frames, of which payload is \
     1448 of 1514 bytes",
    "queue_*: towards the server; mean weighted by time, every change counted; queue_p95_ms: how long frames waited \
     until their transmission began",
    "*_of_*: medians of the ratios within each repeat, whose cases see the same chances and, as far as they fit, run \
     at the same time",
    "reno-guest, vegas (alpha 1, beta 3), westwood: sent by a user-mode-linux guest (Linux 6.1) one hop before the client, \
     which only forwards; reno-guest beside reno is what a guest changes; retransmissions and window_bytes of guests are \
     not known",
    "window_bytes: what the receiver advertises at the end; CUBIC has HyStart, as the kernel has it",
];

/// An experiment of such flows, with more to know.
pub(super) fn experiment_of(cases: Vec<Case>, repeats: usize, ratios: &[Ratio], more: &[&str]) -> Experiment {
    Experiment::of(cases, repeats, ratios, &[more, &NOTES].concat())
}

/// A link of the cell's `rate_kbps` and the paper's delay whose data direction has `queue` and `loss`; acknowledgements come back
/// undisturbed.
pub(super) fn topology(cell: &Cell, queue: Queue, loss: Loss) -> Result<Topology> {
    let capacity = Capacity::Fixed(Bitrate::from_bps(cell.get::<u64>("rate_kbps")? * 1000));
    let down = LinkConfig { capacity, delay: DELAY, queue: DEEP, ..LinkConfig::default() };
    let up = LinkConfig { loss, queue, ..down.clone() };
    Ok(Topology::single(up, down))
}

/// A flow of the row `name` that starts at once and sends until the end, its window the kernel's.
pub(super) fn flow(name: &'static str) -> FlowSpec {
    let (congestion_control, origin) = origin(name);
    FlowSpec { congestion_control, origin, start: [Duration::ZERO; 2], bytes: None, receive_buffer: None }
}

/// One flow with the paper's advertised window.
pub(super) fn windowed(name: &'static str, bytes: Option<u64>) -> FlowSpec {
    FlowSpec { bytes, receive_buffer: Some(RECEIVE_BUFFER), ..flow(name) }
}

/// What `cases` cases side by side, with so many guests, take beside their measurement.
pub(super) fn overhead(cases: usize, guests: usize) -> Duration {
    let times = |count| u32::try_from(count).unwrap_or(u32::MAX);
    OVERHEAD * times(cases) + BOOT * times(guests)
}

/// TCP flows of the lab's own over one link.
#[derive(Clone, Debug)]
pub struct Flows {
    /// The link.
    pub topology: Topology,
    /// The flows.
    pub test: FlowTest,
}

impl Workload for Flows {
    fn needs(&self) -> Vec<Need> {
        self.test.flows.iter().map(need).collect()
    }

    fn rate(&self) -> Bitrate {
        self.topology.rate()
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>> {
        let network = Network::build(site.emulator, &self.topology, site.seed)?;
        network.set_congestion_control(RECEIVERS)?;
        let guests = Guests::boot(&network, &self.test)?;
        Ok(Box::new(Linked { guests, network, site, flows: self }))
    }
}

fn need(flow: &FlowSpec) -> Need {
    let (name, flow) = (flow.congestion_control, flow.clone());
    match flow.origin {
        Origin::Host => Need::CongestionControl(name),
        Origin::Guest { .. } => {
            Need::Other(format!("{name} in a guest"), Box::new(move || check_origin(&flow)))
        }
    }
}

/// A link, and guests on their way up.
struct Linked<'a> {
    // Dropped in this order.
    guests: Guests,
    network: Network,
    site: Site<'a>,
    flows: &'a Flows,
}

impl Prepared for Linked<'_> {
    fn finish(&mut self) -> Result<()> {
        self.guests.finish()
    }

    fn measure(mut self: Box<Self>) -> Result<Sample> {
        let mut series = Series::of(&self.site, COLUMNS)?;
        let Flows { test, topology, .. } = self.flows;
        let steps = matches!(topology, Topology::Single(path) if !path.down.delay_steps.is_empty());
        let looks = steps || series.is_some();
        let mut acked = Vec::new();
        let mut see = |look: Look| {
            acked.extend(look.infos[0].map(|info| (look.time, info.bytes_acked)));
            series.iter_mut().for_each(|series| write(series, &look));
        };
        let watch = looks.then_some(&mut see as Watch);
        let outcome = flows::run(&self.network, &mut self.guests, test, self.site.seed, watch)?;
        let mut metrics = metrics(topology, &outcome);
        if steps {
            metrics.extend(recovery(&acked, outcome.from).map(|time| ("recovery_s", time.as_secs_f64())));
        }
        Ok(metrics.into())
    }
}

/// Where there is more than one flow, the first half is that of the congestion control which the case is of, and the
/// second its rivals.
fn metrics(topology: &Topology, outcome: &Outcome) -> Fields<f64> {
    let rates: Vec<f64> = outcome.flows.iter().map(|flow| mbps(flow.bytes, flow.time)).collect();
    let mut metrics = match rates.len() {
        1 => vec![("goodput_mbps", rates[0])],
        _ => shares(&rates),
    };
    let p95 = outcome.queue.sojourn(95.0).unwrap_or_default();
    metrics.extend([
        ("queue_mean_packets", outcome.queue.mean_frames()),
        ("queue_max_packets", outcome.queue_max as f64),
        ("queue_p95_ms", p95.as_secs_f64() * 1e3),
    ]);
    metrics.push(("dropped_ratio", outcome.dropped as f64 / outcome.offered.max(1) as f64));
    metrics.extend(utilisation(topology, outcome).map(|share| ("utilisation", share)));
    metrics.extend(senders(outcome));
    metrics
}

/// The longest time from `from` on in which a flow had less acknowledged than nine tenths of its usual, each time in the second before.
fn recovery(acked: &[(Duration, u64)], from: Duration) -> Option<Duration> {
    const SECOND: Duration = Duration::from_secs(1);
    let after = acked.iter().filter(|(time, _)| *time >= from + SECOND);
    let in_second = after.map(|&(time, bytes)| {
        let before = acked.partition_point(|(other, _)| *other + SECOND <= time);
        (time, bytes - acked[before.saturating_sub(1)].1)
    });
    let rates: Vec<(Duration, u64)> = in_second.collect();
    let mut sorted: Vec<u64> = rates.iter().map(|(_, bytes)| *bytes).collect();
    sorted.sort_unstable();
    let usual = *sorted.get(sorted.len() / 2)?;
    let low = rates.chunk_by(|one, next| (one.1 * 10 < usual * 9) == (next.1 * 10 < usual * 9));
    let low = low.filter(|spell| spell[0].1 * 10 < usual * 9);
    Some(low.map(|spell| spell[spell.len() - 1].0 - spell[0].0).max().unwrap_or_default())
}

/// What only senders know; nothing where one of them is a guest.
fn senders(outcome: &Outcome) -> Fields<f64> {
    let infos: Option<Vec<_>> = outcome.flows.iter().map(|flow| flow.info).collect();
    let Some(infos) = infos else { return Vec::new() };
    let retransmitted: u32 = infos.iter().map(|info| info.retransmitted).sum();
    let sent: u32 = infos.iter().map(|info| info.segments_sent).sum();
    let window = infos.iter().map(|info| info.snd_wnd).max().unwrap_or(0);
    vec![
        ("retransmitted_packets", retransmitted.into()),
        ("retransmitted_ratio", f64::from(retransmitted) / f64::from(sent)),
        ("window_bytes", window.into()),
    ]
}

/// How flows share a link: the goodput of the first half, its share, and the fairness index of all (Jain, Chiu and
/// Hawe, 1984).
fn shares(rates: &[f64]) -> Fields<f64> {
    let total: f64 = rates.iter().sum();
    let own: f64 = rates[..rates.len() / 2].iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let jain = total * total / (rates.len() as f64 * squares);
    vec![("goodput_mbps", own), ("total_mbps", total), ("share", own / total), ("jain", jain)]
}

/// What the link delivered of what it could have carried; `None` if it could carry anything.
fn utilisation(topology: &Topology, outcome: &Outcome) -> Option<f64> {
    let Topology::Single(path) = topology else { return None };
    let offered = match &path.up.capacity {
        Capacity::Unlimited => return None,
        Capacity::Fixed(rate) => rate.as_bps() as f64 / 8.0 * (outcome.until - outcome.from).as_secs_f64(),
        Capacity::Trace(trace) => {
            (trace.offered(outcome.until).get() - trace.offered(outcome.from).get()) as f64
        }
    };
    (offered > 0.0).then(|| outcome.delivered as f64 / offered)
}

/// What a series has of each flow.
const COLUMNS: &str = "cwnd_packets,ssthresh_packets,unacked_packets,window_bytes,rtt_ms,min_rtt_ms,acked_bytes,\
                       retransmitted_packets,pacing_bytes_per_s";

/// Only a sender knows them: they are empty for one in a guest, and before a flow has begun.
const UNKNOWN: &str = ",,,,,,,,";

fn write(series: &mut Series, look: &Look) {
    for (flow, info) in look.infos.iter().enumerate() {
        let columns = info.as_ref().map_or_else(|| UNKNOWN.into(), columns);
        series.write(look.time, look.queued, flow, columns);
    }
}

fn columns(info: &TcpInfo) -> String {
    let TcpInfo { cwnd, ssthresh, unacked, snd_wnd, bytes_acked, retransmitted, pacing_rate, .. } = info;
    let [rtt, min_rtt] = [info.rtt, info.min_rtt].map(|time| time.as_secs_f64() * 1e3);
    format!(
        "{cwnd},{ssthresh},{unacked},{snd_wnd},{rtt:.3},{min_rtt:.3},{bytes_acked},{retransmitted},{pacing_rate}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rates_are_fair() {
        assert_eq!(shares(&[0.5, 0.5])[2..], [("share", 0.5), ("jain", 1.0)]);
        assert_eq!(shares(&[1.0, 0.0])[2..], [("share", 1.0), ("jain", 0.5)]);
    }

    #[test]
    fn a_flow_has_recovered_when_it_has_its_usual_rate() {
        // A megabyte a second, but none from 5 to 7 s.
        let at = |ms: u64| (Duration::from_millis(ms), ms.min(5000) * 1000 + ms.saturating_sub(7000) * 1000);
        let acked: Vec<_> = (0..20_000).step_by(20).map(at).collect();
        let time = recovery(&acked, Duration::from_secs(2)).unwrap();
        assert!((2.7..2.9).contains(&time.as_secs_f64()), "{time:?}");
        assert_eq!(recovery(&acked[..250], Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(recovery(&[], Duration::ZERO), None);
    }

    #[test]
    fn every_line_has_the_columns_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::create(folder.path(), "x", 1, COLUMNS).unwrap();
        let infos = vec![None, Some(TcpInfo::default())];
        write(&mut series, &Look { time: Duration::from_millis(250), queued: 7, infos });
        drop(series);
        let text = std::fs::read_to_string(folder.path().join("x 1.csv")).unwrap();
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [12, 12, 12], "{text}");
        assert!(text.contains("0.250,7,0,,"), "{text}");
    }
}
