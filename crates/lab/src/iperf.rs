//! Throughput by iperf3, TCP's or UDP's, for seconds rather than for a file.

use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use link::Bitrate;
use serde_json::Value;

use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;
use crate::program::{Process, await_port, read_json};

/// What iperf3 sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP, as fast as its congestion control lets it.
    Tcp,
    /// One UDP flow of [`Iperf::UDP_PAYLOAD`] bytes a packet at this rate of payload; `None` is as fast as iperf3 can.
    Udp(Option<Bitrate>),
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client.
    Up,
    /// The server.
    Down,
    /// Each as many flows.
    Both,
}

/// How one iperf3 test is made.
#[derive(Clone, Debug)]
pub struct Iperf {
    pub server: IpAddr,
    pub source: Option<IpAddr>,
    /// The congestion control that both ends ask for, as `cubic`.
    pub congestion_control: &'static str,
    pub protocol: Protocol,
    /// How many flows of it at the same time.
    pub flows: usize,
    pub direction: Direction,
    /// How long is measured, whole seconds.
    pub time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Payload, in Mbit/s.
    pub goodput_mbps: f64,
    /// The share of packets sent that did not arrive, 0 to 1; what still waits somewhere is not lost. UDP only.
    pub loss_ratio: Option<f64>,
    /// Payload that was sent, in Mbit/s, over the whole test: less than asked for where iperf3 did not get the CPU.
    /// UDP only.
    pub offered_mbps: Option<f64>,
}

impl Iperf {
    /// The start that [`Iperf::finish`] does not count: TCP, and a tunnel, are still finding their rate.
    pub const WARM_UP: Duration = Duration::from_secs(2);

    /// How much longer than its flows a test may take before it is given up: where packets are lost iperf3 may wait for ever.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Bytes of payload in each UDP packet: with what Nawa adds it fits into links of 1500 bytes.
    pub const UDP_PAYLOAD: usize = 1350;

    /// One TCP flow to `server` for no time.
    pub fn tcp(server: IpAddr, source: Option<IpAddr>, congestion_control: &'static str) -> Self {
        let (protocol, direction, time) = (Protocol::Tcp, Direction::Up, Duration::ZERO);
        Self { server, source, congestion_control, protocol, flows: 1, direction, time }
    }

    /// Starts the server, for one test. `launcher` precedes the command, as `mptcpize run`.
    pub fn serve(host: &Namespace, launcher: &[&str], address: IpAddr) -> Result<Process> {
        let address_text = address.to_string();
        let words = [launcher, &["iperf3", "-s", "-J", "-B", &address_text]].concat();
        let mut server = Process::start(host, words[0], &words[1..])?;
        await_port(host, &mut server, (address, 5201).into())?;
        Ok(server)
    }

    /// TCP flows between `host` and the server: the payload that arrived, of both ways together, the start included, in Mbit/s. [`Error::NoFlow`] where it
    /// failed before it moved anything.
    pub fn run_whole(&self, host: &Namespace, launcher: &[&str]) -> Result<f64> {
        let words = self.words(launcher, self.time);
        received(&report_of(Process::start(host, &words[0], &words[1..])?)?)
    }

    /// Starts the client on `host`: flows to the server, for [`Iperf::finish`].
    pub fn start(&self, host: &Namespace, launcher: &[&str]) -> Result<Process> {
        let mut words = self.words(launcher, Self::WARM_UP + self.time);
        words.push("--get-server-output".into());
        Process::start(host, &words[0], &words[1..])
    }

    /// Waits for a client's end: what arrived, once [`Iperf::WARM_UP`] is over.
    pub fn finish(client: Process) -> Result<Throughput> {
        throughput(&report_of(client)?)
    }

    fn words(&self, launcher: &[&str], time: Duration) -> Vec<String> {
        let limit = (time + Self::PATIENCE).as_secs().to_string();
        let words = [&["timeout", limit.as_str()][..], launcher, &["iperf3", "-J", "-c"]].concat();
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words.push(self.server.to_string());
        words.extend(["-t".into(), time.as_secs().to_string(), "-P".into(), self.flows.to_string()]);
        words.extend(match self.direction {
            Direction::Up => None,
            Direction::Down => Some("-R".into()),
            Direction::Both => Some("--bidir".into()),
        });
        words.extend(self.protocol_words());
        if let Some(source) = self.source {
            words.extend(["-B".into(), source.to_string()]);
        }
        words
    }

    fn protocol_words(&self) -> Vec<String> {
        match self.protocol {
            Protocol::Tcp => vec!["-C".into(), self.congestion_control.into()],
            Protocol::Udp(rate) => {
                let rate = rate.map_or(0, Bitrate::as_bps).to_string();
                let (payload, buffer) = (Self::UDP_PAYLOAD.to_string(), socket_buffer().to_string());
                ["-u", "-b", &rate, "-l", &payload, "-w", &buffer].map(str::to_owned).into()
            }
        }
    }
}

/// The largest socket buffer, in bytes, that the kernel grants both ways; at most 4 MiB.
fn socket_buffer() -> usize {
    let limit = |name| fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok();
    [limit("rmem_max"), limit("wmem_max")].into_iter().flatten().fold(4 << 20, usize::min)
}

fn report_of(mut client: Process) -> Result<String> {
    let mut report = String::new();
    client.stdout()?.read_to_string(&mut report).doing(|| "read what `iperf3` says".into())?;
    // It reports its failures as well.
    if report.is_empty() {
        client.finish()?
    }
    Ok(report)
}

/// Of the server's seconds after the warm-up. What ends the test, shorter than half a second, is not counted: the sender
/// has stopped. (iperf3's own `--omit` counts what it leaves out as lost.)
fn throughput(report: &str) -> Result<Throughput> {
    let report = parse(report)?;
    let mut seconds = 0.0;
    let [mut bytes, mut packets, mut lost] = [0.0; 3];
    for interval in report["server_output_json"]["intervals"].as_array().into_iter().flatten() {
        let sum = &interval["sum"];
        let time = number(sum, "seconds")?;
        if number(sum, "start")? >= Iperf::WARM_UP.as_secs_f64() - 0.5 && time > 0.5 {
            seconds += time;
            bytes += number(sum, "bytes")?;
            // UDP only.
            packets += sum["packets"].as_f64().unwrap_or(0.0);
            lost += sum["lost_packets"].as_f64().unwrap_or(0.0);
        }
    }
    if seconds == 0.0 {
        return Err(Error::program("iperf3", "its server reports no second"));
    }
    Ok(Throughput {
        goodput_mbps: bytes * 8e-6 / seconds,
        loss_ratio: (packets > 0.0).then(|| (lost / packets).max(0.0)),
        // Of what was sent; UDP only.
        offered_mbps: report["end"]["sum"]["bits_per_second"].as_f64().map(|rate| rate * 1e-6),
    })
}

fn received(report: &str) -> Result<f64> {
    let end = &parse(report)?["end"];
    let back = end["sum_received_bidir_reverse"]["bits_per_second"].as_f64().unwrap_or(0.0);
    Ok((number(&end["sum_received"], "bits_per_second")? + back) * 1e-6)
}

fn number(part: &Value, name: &str) -> Result<f64> {
    part[name].as_f64().ok_or_else(|| Error::program("iperf3", format!("it reports no {name}: {part}")))
}

fn parse(report: &str) -> Result<Value> {
    let report = read_json("iperf3", report)?;
    let mut intervals = report["intervals"].as_array().into_iter().flatten();
    match report["error"].as_str() {
        None => Ok(report),
        Some(error) if intervals.any(|interval| interval["sum"]["bytes"].as_f64() > Some(0.0)) => {
            Err(Error::program("iperf3", error))
        }
        Some(error) => Err(Error::NoFlow(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_end_is_given_up() {
        let iperf = Iperf::tcp([10, 0, 0, 2].into(), None, "cubic");
        let words = iperf.words(&["mptcpize", "run"], Iperf::WARM_UP);
        assert_eq!(words[..5], ["timeout", "22", "mptcpize", "run", "iperf3"]);
    }

    #[test]
    fn what_was_received_counts_from_the_start() {
        let report =
            r#"{"end": {"sum_sent": {"bits_per_second": 9e6}, "sum_received": {"bits_per_second": 8.5e6}}}"#;
        assert_eq!(received(report).unwrap(), 8.5);
        let both = report.replace("\"sum_sent", "\"sum_received_bidir_reverse");
        assert_eq!(received(&both).unwrap(), 17.5);
        assert!(received(r#"{"end": {}}"#).is_err());
    }

    #[test]
    fn what_failed_in_mid_flow_is_told_from_what_never_began() {
        let error = |bytes: u64| {
            let intervals = format!(r#"[{{"sum": {{"bytes": 0}}}}, {{"sum": {{"bytes": {bytes}}}}}]"#);
            received(&format!(r#"{{"intervals": {intervals}, "error": "terminated"}}"#)).unwrap_err()
        };
        assert!(matches!(error(0), Error::NoFlow(_)));
        assert!(matches!(received(r#"{"intervals": [], "error": "x"}"#), Err(Error::NoFlow(_))));
        assert_eq!(error(7).to_string(), "`iperf3` failed: terminated");
    }

    fn report(seconds: &[&str]) -> String {
        let intervals: Vec<String> =
            seconds.iter().map(|second| format!("{{\"sum\": {{{second}}}}}")).collect();
        let server = format!("{{\"intervals\": [{}]}}", intervals.join(","));
        format!(r#"{{"end": {{"sum": {{"bits_per_second": 5e6}}}}, "server_output_json": {server}}}"#)
    }

    #[test]
    fn the_receivers_seconds_after_the_warm_up_count() {
        let report = report(&[
            r#""start": 0, "seconds": 1, "bytes": 9000000, "packets": 100, "lost_packets": 90"#,
            r#""start": 1, "seconds": 1, "bytes": 9000000, "packets": 100, "lost_packets": 90"#,
            r#""start": 2.001, "seconds": 1, "bytes": 250000, "packets": 100, "lost_packets": 10"#,
            r#""start": 3, "seconds": 1, "bytes": 750000, "packets": 300, "lost_packets": 10"#,
            r#""start": 4, "seconds": 0.01, "bytes": 12150, "packets": 9, "lost_packets": 9"#,
        ]);
        let throughput = throughput(&report).unwrap();
        assert_eq!((throughput.goodput_mbps, throughput.loss_ratio), (4.0, Some(0.05)));
        assert_eq!(throughput.offered_mbps, Some(5.0));
    }

    #[test]
    fn tcp_loses_nothing_that_it_would_count_and_an_error_is_an_error() {
        let tcp = throughput(&report(&[r#""start": 2, "seconds": 1, "bytes": 125000"#])).unwrap();
        assert_eq!((tcp.goodput_mbps, tcp.loss_ratio), (1.0, None));
        let none = report(&[]);
        for bad in [r#"{"error": "unable to connect"}"#, "{}", &none, "iperf3: nonsense"] {
            assert!(throughput(bad).is_err(), "{bad}");
        }
        let without_bytes = throughput(&report(&[r#""start": 2, "seconds": 1"#])).unwrap_err().to_string();
        assert!(without_bytes.contains("no bytes"), "{without_bytes}");
    }
}
