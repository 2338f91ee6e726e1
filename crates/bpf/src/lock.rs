//! Registering a congestion control is global to the kernel: whoever changes or relies on `fsat` in a test or an
//! experiment holds one lock.

use std::fs::File;
use std::io;

const PATH: &str = "/run/lock/nawa-fsat.lock";

/// Waits for the lock; held until dropped.
///
/// # Errors
/// If the file cannot be made or locked.
pub fn registration() -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(false).open(PATH)?;
    file.lock()?;
    Ok(file)
}
