//! Clocks that disagree: what precedes a program's command so that its CLOCK_BOOTTIME is not the other end's.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::{Doing, Result};

/// `clock_shim.c` as a shared object (`build.rs`).
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock_shim.so"));

/// How far apart the clocks are with [`Clocks::Offset`].
const OFFSET: Duration = Duration::from_secs(3600);

/// How far the server's clock is behind with [`Clocks::Behind`].
const BEHIND: Duration = Duration::from_millis(20);

/// How much too fast, in millionths, the server's clock runs with [`Clocks::Drift`], and too slowly the client's.
const DRIFT_PPM: i64 = 200;

/// How far, and how often, the server's clock jumps forward with [`Clocks::Step`].
const STEP: Duration = Duration::from_millis(50);
const STEP_EVERY: Duration = Duration::from_secs(2);

/// The clocks of a tunnel's two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clocks {
    /// Both see the machine's.
    #[default]
    Same,
    /// The server runs in a time namespace whose clocks are an hour ahead.
    Offset,
    /// The server's clock is behind by as much as packets take: what is seen of delays has either sign.
    Behind,
    /// The server's clock runs 200 ppm too fast, the client's 200 ppm too slowly.
    Drift,
    /// The server's clock jumps forward by 50 ms every 2 s.
    Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl Clocks {
    /// All of them, by their names in the JSON.
    pub const ALL: [(&str, Clocks); 5] = [
        ("same", Clocks::Same),
        ("offset", Clocks::Offset),
        ("behind", Clocks::Behind),
        ("drift", Clocks::Drift),
        ("step", Clocks::Step),
    ];

    /// The words that precede a command at `end`. Files that it needs are written to `folder`.
    pub(super) fn launcher(self, end: End, folder: &Path) -> Result<Vec<OsString>> {
        let wrong = match (self, end) {
            (Clocks::Offset, End::Server) => return Ok(time_namespace(OFFSET)),
            (Clocks::Behind, End::Server) => Wrong { behind: BEHIND, ..Wrong::default() },
            (Clocks::Drift, End::Server) => Wrong { ppm: DRIFT_PPM, ..Wrong::default() },
            (Clocks::Drift, End::Client) => Wrong { ppm: -DRIFT_PPM, ..Wrong::default() },
            (Clocks::Step, End::Server) => Wrong { step: STEP, every: STEP_EVERY, ..Wrong::default() },
            _ => return Ok(Vec::new()),
        };
        wrong.launcher(folder)
    }
}

/// A namespace's offsets hold for the processes that are forked after they were written: unshare(1) forks.
fn time_namespace(offset: Duration) -> Vec<OsString> {
    let seconds = offset.as_secs().to_string();
    let words =
        ["unshare", "--time", "--monotonic", &seconds, "--boottime", &seconds, "--fork", "--kill-child"];
    words.map(OsString::from).into()
}

/// What the shim is to do to a clock.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    behind: Duration,
    ppm: i64,
    step: Duration,
    /// Zero: no steps.
    every: Duration,
}

impl Wrong {
    fn launcher(self, folder: &Path) -> Result<Vec<OsString>> {
        let path = folder.join("clock_shim.so");
        // The other end may have mapped it already: written again, its code would vanish.
        if !path.exists() {
            fs::write(&path, SHIM).doing(|| format!("write {}", path.display()))?;
        }
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(&path);
        let Self { behind, ppm, step, every } = self;
        let [behind, step, every] = [behind, step, every].map(|time| time.as_nanos());
        Ok(vec!["env".into(), preload, format!("NAWALAB_CLOCK=-{behind} {ppm} {step} {every}").into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Not a test by itself: prints the monotonic clock that this program sees.
    #[test]
    #[ignore = "started by other tests"]
    fn prints_its_clock() {
        println!("clock {} ns", device::monotonic().as_nanos());
    }

    /// The monotonic clock that a program sees that is started with `launcher`.
    fn seen(launcher: &[OsString]) -> Duration {
        let mut words = launcher.to_vec();
        words.push(std::env::current_exe().unwrap().into());
        let own = ["--ignored", "--nocapture", "--exact", "system::clocks::tests::prints_its_clock"];
        words.extend(own.map(Into::into));
        let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let number = text.split_once("clock ").and_then(|(_, rest)| rest.split_once(" ns"));
        Duration::from_nanos(number.unwrap_or_else(|| panic!("{text}")).0.parse().unwrap())
    }

    /// What the clock shows, for the shortest and for the longest true time at which it may have been read.
    fn shown(launcher: &[OsString], clock: impl Fn(f64) -> f64) {
        let before = device::monotonic().as_secs_f64();
        let seen = seen(launcher).as_secs_f64();
        let after = device::monotonic().as_secs_f64();
        assert!(clock(before) <= seen + 1e-5 && seen <= clock(after) + 1e-5, "{before} {seen} {after}");
    }

    #[test]
    fn a_program_sees_the_drift_and_the_steps() {
        let folder = tempfile::tempdir().unwrap();
        let shown =
            |wrong: Wrong, clock: fn(f64) -> f64| shown(&wrong.launcher(folder.path()).unwrap(), clock);
        shown(Wrong::default(), |t| t);
        shown(Wrong { behind: Duration::from_secs(10), ..Wrong::default() }, |t| t - 10.0);
        shown(Wrong { ppm: 100_000, ..Wrong::default() }, |t| t * 1.1);
        shown(Wrong { ppm: -100_000, ..Wrong::default() }, |t| t * 0.9);
        let (step, every) = (Duration::from_secs(7), Duration::from_secs(1));
        shown(Wrong { step, every, ..Wrong::default() }, |t| t + t.floor() * 7.0);
    }

    #[test]
    fn a_time_namespace_is_an_hour_ahead() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: a_time_namespace_is_an_hour_ahead: needs root");
            return;
        }
        shown(&time_namespace(OFFSET), |t| t + 3600.0);
    }
}
