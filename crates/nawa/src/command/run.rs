//! `nawa run`

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use crate::failure::Failure;
use crate::{config, daemon, logging};

/// Runs what `file` asks for until a signal or `nawa down`. `background`: started by `nawa up`.
pub fn run(file: &Path, background: bool) -> Result<(), Failure> {
    if background {
        // Fails only for a process group's leader, which a child of `nawa up` is not.
        let _ = rustix::process::setsid();
        // `nawa up` starts it as /proc/self/exe, whose last part `ps` would show.
        let _ = std::fs::write("/proc/self/comm", "nawa");
    }
    let settings = config::load(file)?;
    let folder = background.then(|| settings.state_dir.clone());
    daemon::run(file, settings, || tell_ready(folder.as_deref()))
}

/// The line goes to the stderr that it was started with; whoever reads it may close that at once.
/// `folder`: in the background the log may go there.
fn tell_ready(folder: Option<&Path>) {
    let stderr = io::stderr().as_fd().try_clone_to_owned();
    if let Some(folder) = folder {
        logging::leave_terminal(folder);
    }
    // In one piece, or a line of the log could come between. A closed stderr is no reason to stop.
    let _ = stderr.and_then(|stderr| File::from(stderr).write_all(format!("{}\n", super::READY).as_bytes()));
}
