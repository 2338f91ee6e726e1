//! What a case makes ready and measures: the traits that each strand's experiments fill.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use link::Bitrate;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::emulator::Emulator;
use crate::error::Result;
use crate::options::RunOptions;
use crate::system::Means;

/// What is measured of a case, as data until it is prepared.
pub trait Workload: Any + Debug + Send + Sync {
    /// What the machine must have.
    fn needs(&self) -> Vec<Need>;

    /// The sum of the rates of its emulated links, which bounds how many cases run side by side. Without such links: 0.
    fn rate(&self) -> Bitrate {
        Bitrate::from_bps(0)
    }

    /// The same by the program of a rival, in place of `nawa`; `None` where there is nothing to compare.
    fn by_rival(&self, _program: &Path) -> Option<Arc<dyn Workload>> {
        None
    }

    /// Makes all of it ready; what takes a while to come up may do so until [`Prepared::finish`].
    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>>;
}

/// A workload that makes ready what it needs while it measures.
pub trait Measure: Any + Debug + Send + Sync {
    /// The programs that the machine must have.
    const PROGRAMS: &'static [&'static str];

    /// One sample.
    fn measure(&self, means: &Means, seed: u64) -> Result<Sample>;
}

impl<T: Measure> Workload for T {
    fn needs(&self) -> Vec<Need> {
        Need::programs(T::PROGRAMS)
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(move || self.measure(&site.means(), site.seed)))
    }
}

/// What is ready, or about to be. Dropping it removes it.
pub trait Prepared: Send {
    /// Waits until all is up.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// One sample.
    fn measure(self: Box<Self>) -> Result<Sample>;
}

/// A measurement that makes ready what it needs itself.
impl<F: FnOnce() -> Result<Sample> + Send> Prepared for F {
    fn measure(self: Box<Self>) -> Result<Sample> {
        self()
    }
}

/// Fails, in one sentence, where the machine does not have something.
type Check = Box<dyn Fn() -> Result<()>>;

/// What a machine may lack.
pub enum Need {
    /// A program. Without it nothing is measured.
    Program(&'static str),
    /// A congestion control of the running kernel. Without it, as without all below, the case is left out.
    CongestionControl(&'static str),
    /// Something else: its name in the notes, and what looks for it.
    Other(String, Check),
}

impl Need {
    pub(crate) fn programs(names: &[&'static str]) -> Vec<Self> {
        names.iter().copied().map(Self::Program).collect()
    }
}

/// Where one run of a case takes place.
pub struct Site<'a> {
    pub(crate) options: &'a RunOptions,
    pub(crate) emulator: &'a Emulator,
    /// A folder for files that all runs may use.
    pub(crate) files: &'a Path,
    /// A folder for what this run configures.
    pub(crate) folder: TempDir,
    /// What all chances of this repeat are drawn from.
    pub(crate) seed: u64,
    /// The case's key as one word.
    pub(crate) title: String,
    pub(crate) best_paths: &'a BestPaths,
}

impl Site<'_> {
    pub(crate) fn means(&self) -> Means<'_> {
        Means { nawa: &self.options.nawa, folder: self.folder.path() }
    }
}

/// What one run of a case measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Names and values, in order.
    pub(crate) metrics: Vec<(Cow<'static, str>, f64)>,
    /// Names, and a value for each second.
    #[serde(default)]
    pub(crate) course: Vec<(Cow<'static, str>, Vec<f64>)>,
    /// What else there is to say, such as which link was best.
    pub(crate) remark: Option<String>,
    /// The path (from 0) on which a single connection of this congestion control did best, where that was tried.
    pub(crate) best_path: Option<(Cow<'static, str>, usize)>,
}

/// By congestion control, the path on which a single connection did best so far.
#[derive(Debug, Default)]
pub(crate) struct BestPaths(Mutex<BTreeMap<Cow<'static, str>, usize>>);

impl BestPaths {
    /// The first where none was tried.
    pub(crate) fn of(&self, congestion_control: &str) -> usize {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paths.get(congestion_control).copied().unwrap_or(0)
    }

    pub(crate) fn learn(&self, sample: &Sample) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(sample.best_path.clone());
    }
}

impl Sample {
    /// Without what is no number, as a share of nothing: JSON has none for it, and what reads a file as numbers refuses all of it.
    pub(crate) fn add(&mut self, metrics: impl IntoIterator<Item = (&'static str, f64)>) {
        let numbers = metrics.into_iter().filter(|(_, value)| value.is_finite());
        self.metrics.extend(numbers.map(|(name, value)| (name.into(), value)));
    }
}

impl From<Vec<(&'static str, f64)>> for Sample {
    fn from(metrics: Vec<(&'static str, f64)>) -> Self {
        let mut sample = Self::default();
        sample.add(metrics);
        sample
    }
}

/// Of these what was measured.
impl<const N: usize> From<[(&'static str, Option<f64>); N]> for Sample {
    fn from(metrics: [(&'static str, Option<f64>); N]) -> Self {
        metrics.into_iter().filter_map(|(name, value)| Some((name, value?))).collect::<Vec<_>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_no_metric_and_a_sample_can_be_read_again() {
        let sample = Sample::from(vec![("goodput_mbps", 0.0), ("share", f64::NAN), ("jain", f64::INFINITY)]);
        assert_eq!(sample, Sample::from(vec![("goodput_mbps", 0.0)]));
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }
}
