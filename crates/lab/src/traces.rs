//! Recorded traces of links.

use std::path::Path;

use link::Trace;

use crate::error::{Doing, Error};

/// How the name of a file with lines of seconds and Mbit/s ends; any other is mahimahi's.
pub(crate) const RATES: &str = "txt";

/// Reads a trace, in the format that its name says.
pub(crate) fn load(path: &Path) -> Result<Trace, Error> {
    let text = std::fs::read_to_string(path).doing(|| format!("read the trace {}", path.display()))?;
    let trace = match path.extension().is_some_and(|extension| extension == RATES) {
        true => Trace::from_seconds_mbps(&text),
        false => Trace::from_mahimahi(&text),
    };
    trace.map_err(|error| Error::BadTrace { path: path.into(), reason: error.to_string() })
}
