//! What a medium counts.

use std::time::Duration;

use link::dcf::StationStats;

/// What a medium did.
#[derive(Clone, Debug, Default)]
pub struct MediumStats {
    /// Of each station.
    pub stations: Vec<StationStats>,
    /// By how much frames came later to their node than the model says.
    pub lateness: Lateness,
}

/// How much later than the model says something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How often it happened.
    pub count: u32,
    /// Of all together.
    pub sum: Duration,
    /// The worst.
    pub max: Duration,
}

impl Lateness {
    pub(crate) fn note(&mut self, late: Duration) {
        self.count += 1;
        self.sum += late;
        self.max = self.max.max(late);
    }

    /// In the mean.
    pub fn mean(&self) -> Duration {
        self.sum / self.count.max(1)
    }
}
