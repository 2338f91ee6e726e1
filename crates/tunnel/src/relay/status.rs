//! What a relay shows of itself.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::Serialize;

use super::{DropReason, RelayControl, table::Entry};
use crate::keys::PublicKey;

/// A relay's state at one time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelayStatus {
    /// Sessions, by id.
    pub sessions: Vec<SessionStatus>,
    /// Handshakes that wait for their third message.
    pub pending_handshakes: usize,
    /// Datagrams forwarded since the start.
    pub forwarded_packets: u64,
    /// Bytes of them.
    pub forwarded_bytes: u64,
    /// Datagrams dropped since the start, for which reason; without those that are 0.
    pub dropped_packets: BTreeMap<DropReason, u64>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionStatus {
    /// Whose it is.
    pub client_key: PublicKey,
    /// The client's confirmed address.
    pub client: SocketAddr,
    /// It comes by TLS, from there.
    pub tls: bool,
    /// Where its datagrams go.
    pub destination: SocketAddr,
    /// The destination has consented.
    pub open: bool,
    /// Seconds since the client was heard.
    pub idle_s: f64,
}

impl RelayControl {
    /// All that decides, for `nawa status` and the metrics.
    pub fn status(&self, now: Duration) -> RelayStatus {
        let table = self.table();
        let counters = table.counters();
        let (forwarded_packets, forwarded_bytes) = counters.forwarded_total();
        let session = |(id, session): (u64, &super::control::Session)| SessionStatus {
            client_key: session.key,
            client: session.client,
            tls: false,
            destination: session.destination,
            open: session.open,
            idle_s: now.saturating_sub(table.with(id, Entry::heard).unwrap_or(now)).as_secs_f64(),
        };
        let dropped = DropReason::ALL.into_iter().map(|reason| (reason, counters.dropped(reason)));
        RelayStatus {
            sessions: self.sessions().map(session).collect(),
            pending_handshakes: self.pending_handshakes(),
            forwarded_packets,
            forwarded_bytes,
            dropped_packets: dropped.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
