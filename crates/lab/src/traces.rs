//! Recordings of links: `NAME.down` and, where the way back was recorded too, `NAME.up` in mahimahi's format, or `NAME.txt`, lines
//! of seconds and Mbit/s.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use link::{Capacity, Trace};

use crate::error::{Doing, Error, Result};

/// How the name of a file with lines of seconds and Mbit/s ends.
const RATES: &str = "txt";

pub(crate) struct Recording {
    /// Its file without the ending.
    pub(crate) name: String,
    file: PathBuf,
    /// That of the way back, if it was recorded too.
    pub(crate) back: Option<PathBuf>,
}

/// Those of `folder`, by name.
pub(crate) fn recordings(folder: &Path) -> Result<Vec<Recording>> {
    let entries = std::fs::read_dir(folder).doing(|| format!("read the folder {}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "down" || end == RATES)).collect();
    files.sort();
    let recording = |file: PathBuf| Recording {
        name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        back: Some(file.with_extension("up")).filter(|back| back.exists()),
        file,
    };
    let all: Vec<_> = files.into_iter().map(recording).collect();
    if all.is_empty() { Err(Error::NoTrace(folder.into())) } else { Ok(all) }
}

impl Recording {
    /// Whether it is lines of seconds and Mbit/s.
    pub(crate) fn has_rates(&self) -> bool {
        self.file.extension().is_some_and(|end| end == RATES)
    }

    pub(crate) fn file_name(&self) -> String {
        self.file.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The ways up and down; one that was not recorded limits nothing.
    pub(crate) fn load(&self) -> Result<[Capacity; 2]> {
        let back = self.back.as_deref().map_or(Ok(Capacity::Unlimited), load)?;
        Ok([back, load(&self.file)?])
    }
}

fn load(path: &Path) -> Result<Capacity> {
    let text = std::fs::read_to_string(path).doing(|| format!("read the trace {}", path.display()))?;
    let trace = match path.extension().is_some_and(|end| end == RATES) {
        true => Trace::from_seconds_mbps(&text),
        false => Trace::from_mahimahi(&text),
    };
    let trace = trace.map_err(|error| Error::BadInput(format!("{}: {error}", path.display())))?;
    Ok(Capacity::Trace(Arc::new(trace)))
}
