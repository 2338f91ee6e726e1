//! `nawa run`

use std::path::Path;

use crate::failure::Failure;
use crate::{config, daemon, logging};

/// Runs what `file` asks for until a signal or `nawa down`. `background`: started by `nawa up`.
pub fn run(file: &Path, background: bool) -> Result<(), Failure> {
    if background {
        // Fails only for a process group's leader, which a child of `nawa up` is not.
        let _ = rustix::process::setsid();
    }
    let settings = config::load(file)?;
    daemon::run(file, settings, || {
        eprintln!("{}", super::READY);
        if background {
            logging::leave_terminal();
        }
    })
}
