//! Recorded traces of links.

use std::path::Path;

use link::Trace;

use crate::error::{Doing, Error};

/// Reads a mahimahi trace.
pub(crate) fn load(path: &Path) -> Result<Trace, Error> {
    let text = std::fs::read_to_string(path).doing(|| format!("read the trace {}", path.display()))?;
    Trace::from_mahimahi(&text)
        .map_err(|error| Error::BadTrace { path: path.into(), reason: error.to_string() })
}
