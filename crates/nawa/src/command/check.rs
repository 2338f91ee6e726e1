//! `nawa check`

use std::path::Path;

use crate::config;
use crate::failure::Failure;

/// Says all that is wrong with `file`, and nothing if it is good.
pub fn run(file: &Path) -> Result<(), Failure> {
    config::load(file).map(drop)
}
