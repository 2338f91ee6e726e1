//! What was counted, by `nawa status --json` or whatever else counts, summed over hosts.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Error;

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

    /// Adds the numbers that `part` of a status has by these names. Fails where one is missing.
    pub(crate) fn add_all(&mut self, part: &Value, names: &[&'static str]) -> Result<(), Error> {
        for name in names {
            let missing = || Error::program("nawa status --json", format!("it has no {name}: {part}"));
            self.add(name, part[*name].as_f64().ok_or_else(missing)?);
        }
        Ok(())
    }

    /// What was counted after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().map(|(&name, count)| (name, count - before.get(name))).collect())
    }
}
