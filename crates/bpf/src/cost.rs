//! What BPF programs cost: their runs and their time, as the kernel counts them.

use std::os::fd::OwnedFd;

use libbpf_rs::query::ProgInfoIter;

use crate::{Error, ffi};

/// All BPF programs are timed while it lives; that itself costs some tens of nanoseconds a run.
#[derive(Debug)]
pub struct Timing {
    _counting: OwnedFd,
}

/// What programs took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Runs.
    pub runs: u64,
    /// In ns.
    pub time_ns: u64,
}

impl Timing {
    /// Begins.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start() -> Result<Timing, Error> {
        let counting = ffi::enable_run_time().map_err(Error::system("time BPF programs"))?;
        Ok(Timing { _counting: counting })
    }

    /// What each loaded program whose name starts with `prefix` has taken since it was loaded, while timed.
    pub fn of(&self, prefix: &str) -> Vec<(String, Cost)> {
        ProgInfoIter::default()
            .map(|program| (program.name.to_string_lossy().into_owned(), program))
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(name, program)| (name, Cost { runs: program.run_cnt, time_ns: program.run_time_ns }))
            .collect()
    }
}
