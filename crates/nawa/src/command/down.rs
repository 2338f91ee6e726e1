//! `nawa down`

use std::io::{self, Write};
use std::time::Duration;

use crate::control::Request;
use crate::control::client::{Daemon, PATIENCE};
use crate::doctor::gather::left;
use crate::failure::{Failure, Status};
use crate::strands::remove_left;

/// A process that was killed is gone after that.
const MOMENT: Duration = Duration::from_millis(200);

/// Stops the daemon and returns when it is gone. What it made belongs to its process (the interface, with addresses
/// and routes, XDP programs and the control socket), so a crash leaves nothing that would have to be removed here, but for
/// the rules of a default route and its reverse-path filter, the nftables of a flood in mode `kernel`, the namespace's default congestion control, and the filters of
/// bicast and coding on kernels before 6.6.
pub fn run() -> Result<(), Failure> {
    let Some(mut daemon) = Daemon::find()? else {
        let before = left();
        remove_left();
        return Err(cleared(&before, &left()));
    };
    let asked = daemon.ask(Request::Stop);
    // One that refuses stays; one that was killed meanwhile goes at once.
    let longest = if asked.is_err() { MOMENT } else { PATIENCE };
    if !daemon.wait_until_gone(Some(longest)) {
        asked?;
        let (who, pid) = (daemon.who(), daemon.pid());
        // Where nobody listens, it is waited for all the same.
        let _ = writeln!(
            io::stderr(),
            "nawa: the daemon ({who}) has not ended yet; `kill -KILL {pid}` ends it, and `nawa down` then removes what it leaves"
        );
        daemon.wait_until_gone(None);
    }
    // Not of one that has been started since.
    if Daemon::find()?.is_none() {
        remove_left();
    }
    Ok(())
}

/// What to say where no daemon runs, by what one that was killed had left, and what of that is there still.
fn cleared(before: &[String], after: &[String]) -> Failure {
    if !after.is_empty() {
        let after = after.join(", ");
        return Failure::failed(format!(
            "a daemon that was killed has left {after}, which only root may remove"
        ));
    }
    let what = match before {
        [] => "there is nothing to stop".to_owned(),
        _ => format!("removed what one that was killed had left: {}", before.join(", ")),
    };
    Failure::new(Status::NoDaemon, format!("no nawa daemon is running in this network namespace: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_said() {
        let rule = [String::from("a rule")];
        let said = |before: &[String], after: &[String]| {
            let failure = cleared(before, after);
            (failure.status, failure.why())
        };
        assert!(said(&[], &[]).1.ends_with("namespace: there is nothing to stop"));
        let (status, why) = said(&rule, &[]);
        assert!(status == 3 && why.ends_with("had left: a rule"), "{why}");
        let (status, why) = said(&rule, &rule);
        assert!(status == 1 && why.ends_with("has left a rule, which only root may remove"), "{why}");
    }
}
