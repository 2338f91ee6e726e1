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

/// Stops the daemon and returns when it is gone; without one, clears away what one that was killed has left. What a daemon makes
/// belongs to its process (the interface, with addresses and routes, XDP programs and the control socket), so a crash leaves nothing
/// but the rules of a default route and its reverse-path filter, the nftables of a flood in mode `kernel`, the namespace's default
/// congestion control, and the filters of bicast and coding on kernels before 6.6.
pub fn run() -> Result<(), Failure> {
    let Some(mut daemon) = Daemon::find()? else {
        let mut before = left();
        before.extend(remove_left());
        return Err(cleared(&before, &left(), rustix::process::geteuid().is_root()));
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
fn cleared(before: &[String], after: &[String], root: bool) -> Failure {
    if !after.is_empty() {
        let after = after.join(", ");
        return Failure::failed(format!(
            "a daemon that was killed has left {after}, which only root may clear away"
        ));
    }
    let what = match (before, root) {
        ([], true) => "there is nothing to stop".to_owned(),
        ([], false) => "there is nothing to stop that others than root can see".to_owned(),
        _ => format!("cleared away what one that was killed had left: {}", before.join(", ")),
    };
    Failure::new(Status::NoDaemon, format!("no nawa daemon is running in this network namespace: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_said() {
        let rule = [String::from("a rule")];
        let said = |before: &[String], after: &[String], root| {
            let failure = cleared(before, after, root);
            (failure.status, failure.why())
        };
        let (status, why) = said(&[], &[], true);
        assert!(status == 3 && why.ends_with("namespace: there is nothing to stop"), "{why}");
        assert!(said(&[], &[], false).1.ends_with("nothing to stop that others than root can see"));
        let (status, why) = said(&rule, &[], true);
        assert!(
            status == 3 && why.ends_with("cleared away what one that was killed had left: a rule"),
            "{why}"
        );
        let (status, why) = said(&rule, &rule, false);
        assert!(status == 1 && why.ends_with("has left a rule, which only root may clear away"), "{why}");
    }
}
