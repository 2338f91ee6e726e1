//! `nawa down`

use crate::control::{Request, client::Daemon};
use crate::failure::Failure;

/// Stops the daemon and returns when it is gone. What it made belongs to its process (the interface, with addresses
/// and routes, and the control socket), so a crash leaves nothing that would have to be removed here.
pub fn run() -> Result<(), Failure> {
    let mut daemon = Daemon::connect()?;
    daemon.ask(Request::Stop)?;
    daemon.wait_until_gone();
    Ok(())
}
