//! What a run may be asked for.

use std::path::PathBuf;

/// What a run may be asked for.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How much is measured.
    pub size: Size,
    /// What all chances are drawn from.
    pub seed: u64,
    /// A folder of recorded traces to use instead of generated ones.
    pub traces: Option<PathBuf>,
    /// Sets of links, as [`link::notation::links`] reads them, to measure over instead of the experiment's own.
    pub links: Vec<String>,
    /// Where to write the results as JSON.
    pub json: Option<PathBuf>,
    /// Where to write the results as a page.
    pub html: Option<PathBuf>,
    /// A folder for what happens in the course of each run over emulated links.
    pub series: Option<PathBuf>,
    /// The `nawa` that is started as a system under test.
    pub nawa: PathBuf,
    /// Which cases are measured, as [`Experiment::keep`] takes it; all without a word.
    pub only: Vec<String>,
    /// How often each case is measured, if not as often as the experiment says.
    pub repeats: Option<usize>,
    /// How many cases are measured at the same time, if not as many as the experiment says.
    pub side_by_side: Option<usize>,
    /// A rival: a program that the lab starts at both ends beside `nawa` (docs/lab.md).
    pub rival: Option<PathBuf>,
    /// What tells this run of an experiment from others, as its result names it; [`run`](crate::run) sets it.
    pub run: String,
    /// The commit of which the program was built, with `+` behind it where files had changed.
    pub commit: String,
}

impl RunOptions {
    /// The seed where none is asked for.
    pub const SEED: u64 = 1;
}

impl Default for RunOptions {
    fn default() -> Self {
        // Not `/proc/self/exe` itself: another program starts it, for which that is its own.
        let nawa = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| "nawa".into());
        Self {
            size: Size::Normal,
            seed: Self::SEED,
            traces: None,
            links: Vec::new(),
            json: None,
            html: None,
            series: None,
            nawa,
            only: Vec::new(),
            repeats: None,
            side_by_side: None,
            rival: None,
            run: String::new(),
            commit: "unknown".into(),
        }
    }
}

/// How much an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// `--quick`: every system, the cases whose figures are quoted, within about two minutes.
    Quick,
    /// As much as the experiment needs by itself.
    Normal,
    /// `--paper`: the paper's sizes and repetitions.
    Paper,
}

impl Size {
    /// The one of three values that belongs to the size.
    pub fn of<T>(self, quick: T, normal: T, paper: T) -> T {
        match self {
            Size::Quick => quick,
            Size::Normal => normal,
            Size::Paper => paper,
        }
    }

    /// As in the JSON.
    pub fn name(self) -> &'static str {
        self.of("quick", "normal", "paper")
    }
}
