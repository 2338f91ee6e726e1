//! `nawa down`

use crate::control::{Request, client::Daemon};
use crate::failure::{Failure, Status};
use crate::flood;

/// Stops the daemon and returns when it is gone. What it made belongs to its process (the interface, with addresses
/// and routes, XDP programs and the control socket), so a crash leaves nothing that would have to be removed here, but for
/// the rules of a default route, the nftables of a flood in mode `kernel`, and the filters of bicast and coding on kernels before 6.6.
pub fn run() -> Result<(), Failure> {
    let Some(mut daemon) = Daemon::find()? else {
        remove_left();
        return Err(Failure::new(
            Status::NoDaemon,
            "no nawa daemon is running in this network namespace: there is nothing to stop",
        ));
    };
    let asked = daemon.ask(Request::Stop);
    daemon.wait_until_gone();
    if Daemon::find()?.is_some() {
        return asked.map(drop);
    }
    // It may have been killed meanwhile.
    remove_left();
    Ok(())
}

fn remove_left() {
    tunnel::daemon::remove_left();
    flood::remove_leftovers();
    crate::bicast::remove_left();
    crate::coding::remove_left();
}
