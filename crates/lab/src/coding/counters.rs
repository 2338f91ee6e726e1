//! What was counted of a chain: by its nodes' NC layers, or by their stations.

use std::iter::Sum;
use std::time::Duration;

use link::dcf::StationStats;
use serde_json::Value;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::program::json;
use crate::system::Means;

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Frames handed to the interfaces, the MAC's repetitions apart.
    pub(super) sent: u64,
    /// Of these, sums of two.
    pub(super) coded: u64,
    /// Packets of other nodes that were relayed.
    pub(super) relayed: u64,
    /// Packets that waited for a partner, how long together, and those gone within 1 and 10 ms.
    pub(super) held: u64,
    pub(super) held_time: Duration,
    pub(super) held_1ms: u64,
    pub(super) held_10ms: u64,
    /// Of them, those that no partner came for in time.
    pub(super) expired: u64,
    /// Packets that were in sums and could not be decoded.
    pub(super) undecoded: u64,
    /// Dropped because an interface queue was full.
    pub(super) dropped: u64,
    /// The MAC's repetitions.
    pub(super) repeated: u64,
}

impl Counters {
    pub(super) fn of_stations(stations: &[StationStats]) -> Self {
        let of = |station: &StationStats| Self {
            sent: station.queued.frames.get(),
            dropped: station.dropped.get(),
            repeated: station.repeated.get(),
            ..Self::default()
        };
        stations.iter().map(of).sum()
    }

    /// As `nawa status --json` of `node` has it.
    pub(super) fn of_layer(node: &Namespace, means: &Means) -> Result<Self, Error> {
        let said = json(node, means.nawa, &["status", "--json"])?;
        let read = Self::read(&said["coding"][0]);
        read.ok_or_else(|| Error::program("nawa status --json", format!("it has no such coding[0]: {said}")))
    }

    fn read(status: &Value) -> Option<Self> {
        let count = |name: &str| status[name].as_u64();
        Some(Self {
            sent: count("sent_frames")?,
            coded: count("sent_coded_frames")?,
            relayed: count("relayed_packets")?,
            held: count("held_packets")?,
            held_time: Duration::try_from_secs_f64(status["held_time_ms"].as_f64()? / 1e3).ok()?,
            held_1ms: count("held_1ms_packets")?,
            held_10ms: count("held_10ms_packets")?,
            expired: count("expired_packets")?,
            undecoded: count("missing_partner_frames")? + count("wrong_partner_frames")?,
            dropped: count("queue_dropped_frames")?,
            repeated: 0,
        })
    }

    /// What was counted after `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub, Duration::saturating_sub)
    }

    fn with(
        &self,
        other: &Self,
        count: impl Fn(u64, u64) -> u64,
        time: impl Fn(Duration, Duration) -> Duration,
    ) -> Self {
        Self {
            sent: count(self.sent, other.sent),
            coded: count(self.coded, other.coded),
            relayed: count(self.relayed, other.relayed),
            held: count(self.held, other.held),
            held_time: time(self.held_time, other.held_time),
            held_1ms: count(self.held_1ms, other.held_1ms),
            held_10ms: count(self.held_10ms, other.held_10ms),
            expired: count(self.expired, other.expired),
            undecoded: count(self.undecoded, other.undecoded),
            dropped: count(self.dropped, other.dropped),
            repeated: count(self.repeated, other.repeated),
        }
    }
}

impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| sum.with(&one, u64::saturating_add, Duration::saturating_add))
    }
}
