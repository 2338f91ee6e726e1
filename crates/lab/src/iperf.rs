//! TCP throughput by iperf3, for seconds rather than for a file.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::program::{Process, await_port, output};

/// How one iperf3 test is made.
#[derive(Clone, Debug)]
pub struct Iperf {
    /// The server's address.
    pub server: IpAddr,
    /// The address that the client binds.
    pub source: Option<IpAddr>,
    /// The congestion control that both ends ask for, as `cubic`.
    pub congestion_control: &'static str,
    /// How long is measured; a further [`Iperf::WARM_UP`] before it is not.
    pub time: Duration,
}

impl Iperf {
    /// The start of each test that is not counted: TCP is still finding its rate.
    pub const WARM_UP: Duration = Duration::from_secs(2);

    /// Starts the server, which stays up for any number of tests. `launcher` precedes the command, as `mptcpize run`.
    pub fn serve(host: &Namespace, launcher: &[&str], address: IpAddr) -> Result<Process, Error> {
        let address_text = address.to_string();
        let words = [launcher, &["iperf3", "-s", "-B", &address_text]].concat();
        let mut server = Process::start(host, words[0], &words[1..])?;
        await_port(host, &mut server, (address, 5201).into())?;
        Ok(server)
    }

    /// One flow from `host` to the server: what arrived, in Mbit/s.
    pub fn run(&self, host: &Namespace, launcher: &[&str]) -> Result<f64, Error> {
        let words = self.words(launcher);
        let report = output(host, &words[0], &words[1..])?;
        goodput_mbps(&report)
    }

    fn words(&self, launcher: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = launcher.iter().map(|&word| word.into()).collect();
        words.extend(["iperf3".into(), "-J".into(), "-c".into(), self.server.to_string()]);
        words.extend(["-C".into(), self.congestion_control.into()]);
        words.extend(["-t".into(), self.time.as_secs().to_string()]);
        words.extend(["-O".into(), Self::WARM_UP.as_secs().to_string()]);
        if let Some(source) = self.source {
            words.extend(["-B".into(), source.to_string()]);
        }
        words
    }
}

#[derive(Deserialize)]
struct Report {
    end: Option<End>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bits_per_second: f64,
}

fn goodput_mbps(report: &str) -> Result<f64, Error> {
    let report: Report = serde_json::from_str(report)
        .map_err(|error| Error::program("iperf3", format!("bad JSON: {error}")))?;
    if let Some(error) = report.error {
        return Err(Error::program("iperf3", error));
    }
    let sum = report.end.and_then(|end| end.sum_received);
    sum.map(|sum| sum.bits_per_second / 1e6).ok_or_else(|| Error::program("iperf3", "its report has no sum"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_sum_counts() {
        let report =
            r#"{"end": {"sum_sent": {"bits_per_second": 3e6}, "sum_received": {"bits_per_second": 2e6}}}"#;
        assert_eq!(goodput_mbps(report).unwrap(), 2.0);
    }

    #[test]
    fn an_error_is_an_error() {
        let error = goodput_mbps(r#"{"error": "unable to connect"}"#).unwrap_err();
        assert_eq!(error.to_string(), "`iperf3` failed: unable to connect");
        assert!(goodput_mbps("{}").is_err());
        assert!(goodput_mbps("iperf3: nonsense").is_err());
    }
}
