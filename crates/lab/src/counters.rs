//! What was counted, by `nawa status --json` or whatever else counts, summed over hosts; and what the recovery from losses cost during a
//! transfer, by the kernel's counters of the sender and by Nawa's of both ends.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::experiment::Fields;
use crate::network::Network;
use crate::program;

/// Sums by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters(BTreeMap<&'static str, f64>);

impl Counters {
    /// 0 for what is not counted.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    pub(crate) fn add(&mut self, name: &'static str, count: f64) {
        *self.0.entry(name).or_default() += count;
    }

    /// Adds the numbers that `part` of a status has by these names, separated by blanks. Fails where one is missing.
    pub(crate) fn add_all(&mut self, part: &Value, names: &'static str) -> Result<()> {
        for name in names.split(' ') {
            let missing = || Error::program("nawa status --json", format!("it has no {name}: {part}"));
            self.add(name, part[name].as_f64().ok_or_else(missing)?);
        }
        Ok(())
    }

    fn add_peer(&mut self, peer: &Value) -> Result<()> {
        self.add_all(peer, "resent_packets")?;
        if !peer["bicast"].is_null() {
            self.add_all(&peer["bicast"], "sent_bytes extra_bytes")?;
        }
        let missing = || Error::program("nawa status --json", format!("it has no paths: {peer}"));
        let mut outer = Self::default();
        for path in peer["paths"].as_array().ok_or_else(missing)? {
            outer.add_all(path, "sent_bytes")?;
        }
        self.add("outer_bytes", outer.get("sent_bytes"));
        Ok(())
    }

    /// What was counted after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().map(|(&name, count)| (name, count - before.get(name))).collect())
    }
}

/// By the server's TCP: timers that expired (RTO), segments sent again. By the tunnel, both ends: inner packets sent again, bytes of
/// inner packets, of their copies and of datagrams.
pub(crate) fn of_recovery(network: &Network, nawa: &Path) -> Result<Counters> {
    let mut counters = Counters::default();
    let said = program::output(&network.server, "nstat", &["-aszj", "TcpExtTCPTimeouts", "TcpRetransSegs"])?;
    let tcp = program::read_json("nstat", &said)?;
    for (own, name) in [("rto_expiries", "TcpExtTCPTimeouts"), ("retransmitted_segments", "TcpRetransSegs")] {
        let missing = || Error::program("nstat", format!("it does not count {name}"));
        counters.add(own, tcp["kernel"][name].as_f64().ok_or_else(missing)?);
    }
    for host in [&network.client, &network.server] {
        counters.add_peer(&program::status(host, nawa)?["tunnel"]["peers"][0])?;
    }
    Ok(counters)
}

/// The metrics of what was counted while a file of so many bytes was fetched.
pub(crate) fn recovery_metrics(counted: &Counters, bytes: u64) -> Fields<f64> {
    let whole = ["rto_expiries", "retransmitted_segments", "resent_packets"];
    let mut metrics = whole.map(|name| (name, counted.get(name))).to_vec();
    metrics.push(("extra_bytes_ratio", counted.get("extra_bytes") / counted.get("sent_bytes").max(1.0)));
    metrics.push(("sent_bytes_ratio", counted.get("outer_bytes") / (bytes as f64).max(1.0)));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_lacks_is_an_error() {
        let read = |paths: &str| {
            let peer = format!(r#"{{"resent_packets": 1, "paths": {paths}}}"#);
            let mut counters = Counters::default();
            counters.add_peer(&serde_json::from_str(&peer).unwrap()).map(|()| counters.get("outer_bytes"))
        };
        assert_eq!(read(r#"[{"sent_bytes": 3}, {"sent_bytes": 4}]"#).unwrap(), 7.0);
        assert!(read("null").is_err() && read(r#"[{"sent_bytes": 3}, {}]"#).is_err());
    }

    #[test]
    fn costs_are_those_of_the_transfer() {
        let counted = |counts: [f64; 4]| {
            let names = ["rto_expiries", "sent_bytes", "extra_bytes", "outer_bytes"];
            Counters(names.into_iter().zip(counts).collect())
        };
        let after = counted([5.0, 300.0, 60.0, 44.0]);
        let costs = recovery_metrics(&after.since(&counted([3.0, 100.0, 50.0, 0.0])), 40);
        let value = |name: &str| costs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!((value("rto_expiries"), value("extra_bytes_ratio")), (Some(2.0), Some(0.05)));
        assert_eq!(value("sent_bytes_ratio"), Some(1.1));
    }
}
