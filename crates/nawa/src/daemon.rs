//! The running daemon.
use std::path::Path;

use crate::config::Settings;
use crate::failure::Failure;

/// Runs.
pub fn run(_file: &Path, _settings: Settings, _ready: impl FnOnce()) -> Result<(), Failure> {
    todo!()
}
