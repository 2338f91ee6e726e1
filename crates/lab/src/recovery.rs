//! What the recovery from losses cost during a transfer: by the kernel's counters of the sender, and by Nawa's of both ends.

use std::path::Path;

use serde_json::Value;

use crate::error::{Doing, Error};
use crate::experiment::Fields;
use crate::namespace::Namespace;
use crate::network::Network;
use crate::program;

/// Counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recovery {
    /// Of the server's TCP: timers that expired (RTO), segments sent again.
    timeouts: f64,
    retransmitted: f64,
    /// Inner packets that the tunnel sent again.
    resent: f64,
    /// Bytes of inner packets and of their copies, and of datagrams.
    inner: f64,
    copies: f64,
    outer: f64,
}

impl Recovery {
    pub(crate) fn read(network: &Network, nawa: &Path) -> Result<Self, Error> {
        let mut read = Self::default();
        let tcp = network.server.run(|| {
            let file = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            Ok::<_, std::io::Error>(file("netstat")? + &file("snmp")?)
        })?;
        let tcp = tcp.doing(|| "read TCP's counters".into())?;
        let counter = |group, name| {
            counter(&tcp, group, name)
                .ok_or_else(|| Error::program("the kernel", format!("it does not count {group}{name}")))
        };
        (read.timeouts, read.retransmitted) =
            (counter("TcpExt", "TCPTimeouts")?, counter("Tcp", "RetransSegs")?);
        for host in [&network.client, &network.server] {
            read.add_tunnel(host, nawa)?;
        }
        Ok(read)
    }

    /// What `nawa status --json` at `host` counted.
    fn add_tunnel(&mut self, host: &Namespace, nawa: &Path) -> Result<(), Error> {
        let status = program::status(host, nawa)?;
        let peer = &status["tunnel"]["peers"][0];
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        self.resent += number(&peer["resent_packets"]);
        self.inner += number(&peer["bicast"]["sent_bytes"]);
        self.copies += number(&peer["bicast"]["extra_bytes"]);
        let paths = peer["paths"].as_array().into_iter().flatten();
        self.outer += paths.map(|path| number(&path["sent_bytes"])).sum::<f64>();
        Ok(())
    }

    /// What was counted after `before`, while a file of so many bytes was fetched.
    pub(crate) fn since(&self, before: &Self, bytes: u64) -> Fields<f64> {
        let inner = (self.inner - before.inner).max(1.0);
        vec![
            ("rto_expiries", self.timeouts - before.timeouts),
            ("retransmitted_segments", self.retransmitted - before.retransmitted),
            ("resent_packets", self.resent - before.resent),
            ("extra_bytes_ratio", (self.copies - before.copies) / inner),
            ("sent_bytes_ratio", (self.outer - before.outer) / (bytes as f64).max(1.0)),
        ]
    }
}

/// A counter of a file whose lines come in pairs, names and values, each behind the group's name and a colon.
fn counter(text: &str, group: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(": ")).filter(|(of, _)| *of == group);
    let at = lines.next()?.1.split(' ').position(|known| known == name)?;
    lines.next()?.1.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nTcp: A RetransSegs\nTcp: -1 4\n";
        assert_eq!(counter(text, "Tcp", "RetransSegs"), Some(4.0));
        assert_eq!(counter(text, "TcpExt", "B"), Some(2.0));
        assert_eq!(counter(text, "TcpExt", "C"), None);
        assert_eq!(counter("Tcp: A\n", "Tcp", "A"), None);
    }

    #[test]
    fn costs_are_those_of_the_transfer() {
        let before = Recovery { timeouts: 3.0, inner: 100.0, copies: 50.0, ..Recovery::default() };
        let after = Recovery { timeouts: 5.0, inner: 300.0, copies: 60.0, outer: 44.0, ..before };
        let costs = after.since(&before, 40);
        let value = |name: &str| costs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!((value("rto_expiries"), value("extra_bytes_ratio")), (Some(2.0), Some(0.05)));
        assert_eq!(value("sent_bytes_ratio"), Some(1.1));
    }
}
