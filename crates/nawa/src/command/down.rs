//! `nawa down`

use std::time::Duration;

use crate::control::{Request, client::Daemon};
use crate::failure::{Failure, Status};
use crate::strands::remove_left;

/// A process that was killed is gone after that.
const MOMENT: Duration = Duration::from_millis(200);

/// Stops the daemon and returns when it is gone. What it made belongs to its process (the interface, with addresses
/// and routes, XDP programs and the control socket), so a crash leaves nothing that would have to be removed here, but for
/// the rules of a default route, the nftables of a flood in mode `kernel`, the namespace's default congestion control, and the filters of
/// bicast and coding on kernels before 6.6. A reverse-path filter that was made loose stays so, for nobody knows what it was.
pub fn run() -> Result<(), Failure> {
    let Some(mut daemon) = Daemon::find()? else {
        remove_left();
        return Err(Failure::new(
            Status::NoDaemon,
            "no nawa daemon is running in this network namespace: there is nothing to stop",
        ));
    };
    let asked = daemon.ask(Request::Stop);
    // One that refuses stays; one that was killed meanwhile goes at once.
    let longest = asked.is_err().then_some(MOMENT);
    if !daemon.wait_until_gone(longest) {
        return asked.map(drop);
    }
    // Not of one that has been started since.
    if Daemon::find()?.is_none() {
        remove_left();
    }
    Ok(())
}
