//! What was counted of a chain: by its nodes' NC layers, or by their stations.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::program;
use crate::system::Means;

/// What an NC layer counts, by its name in `nawa status --json`.
const NAMES: [&str; 11] = [
    "sent_frames",
    "sent_coded_frames",
    "relayed_packets",
    "held_packets",
    "held_time_ms",
    "held_1ms_packets",
    "held_10ms_packets",
    "expired_packets",
    "missing_partner_frames",
    "wrong_partner_frames",
    "queue_dropped_frames",
];

/// The MAC's repetitions.
pub(super) const REPEATED: &str = "repeated";

/// Sums over nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters(BTreeMap<&'static str, f64>);

impl Counters {
    /// 0 for what is not counted.
    pub(super) fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    pub(super) fn add(&mut self, name: &'static str, count: f64) {
        *self.0.entry(name).or_default() += count;
    }

    /// As `nawa status --json` of `node` has it.
    pub(super) fn add_layer(&mut self, node: &Namespace, means: &Means) -> Result<(), Error> {
        let said = program::status(node, means.nawa)?;
        let layer: &Value = &said["coding"][0];
        for name in NAMES {
            let missing =
                || Error::program("nawa status --json", format!("it has no coding[0].{name}: {said}"));
            self.add(name, layer[name].as_f64().ok_or_else(missing)?);
        }
        Ok(())
    }

    /// What was counted after `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().map(|(&name, count)| (name, count - before.get(name))).collect())
    }
}
