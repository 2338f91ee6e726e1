//! Clocks that disagree: what precedes a program's command so that its CLOCK_BOOTTIME is not the other end's.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::{Doing, Result};

/// `clock_shim.c` as a shared object (`build.rs`).
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock_shim.so"));

/// The clocks of a tunnel's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    pub(super) client: Clock,
    pub(super) server: Clock,
}

/// What a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The machine's clock.
    True,
    /// That of a time namespace, so many seconds ahead.
    Ahead(&'static str),
    /// What `clock_shim.c` makes of the machine's by this setting: nanoseconds ahead, millionths too fast, and jumps of so many
    /// nanoseconds every so many.
    Wrong(&'static str),
}

impl Clocks {
    /// Both see the machine's.
    pub(super) const SAME: Clocks = Clocks { client: Clock::True, server: Clock::True };

    /// All of them, by their names in the JSON.
    pub const ALL: [(&str, Clocks); 5] = [
        ("same", Self::SAME),
        ("offset", Clocks { server: Clock::Ahead("3600"), ..Self::SAME }),
        // By as much as packets take: what is seen of delays has either sign.
        ("behind", Clocks { server: Clock::Wrong("-20000000 0 0 0"), ..Self::SAME }),
        ("drift", Clocks { client: Clock::Wrong("0 -200 0 0"), server: Clock::Wrong("0 200 0 0") }),
        ("step", Clocks { server: Clock::Wrong("0 0 50000000 2000000000"), ..Self::SAME }),
    ];
}

impl Clock {
    /// The words that precede a command. Files that it needs are written to `folder`.
    pub(super) fn launcher(self, folder: &Path) -> Result<Vec<OsString>> {
        match self {
            Clock::True => Ok(Vec::new()),
            // A namespace's offsets hold for the processes that are forked after they were written: unshare(1) forks.
            Clock::Ahead(seconds) => {
                let words = ["unshare", "--time", "--monotonic", seconds, "--boottime", seconds];
                Ok(words.into_iter().chain(["--fork", "--kill-child"]).map(OsString::from).collect())
            }
            Clock::Wrong(setting) => {
                let path = folder.join("clock_shim.so");
                // The other end may have mapped it already: written again, its code would vanish.
                if !path.exists() {
                    fs::write(&path, SHIM).doing(|| format!("write {}", path.display()))?;
                }
                let mut preload = OsString::from("LD_PRELOAD=");
                preload.push(&path);
                Ok(vec!["env".into(), preload, format!("NAWALAB_CLOCK={setting}").into()])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

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
        let shown = |setting, clock: fn(f64) -> f64| {
            shown(&Clock::Wrong(setting).launcher(folder.path()).unwrap(), clock);
        };
        shown("0 0 0 0", |t| t);
        shown("-10000000000 0 0 0", |t| t - 10.0);
        shown("0 100000 0 0", |t| t * 1.1);
        shown("0 -100000 0 0", |t| t * 0.9);
        shown("0 0 7000000000 1000000000", |t| t + t.floor() * 7.0);
    }

    #[test]
    fn a_time_namespace_is_an_hour_ahead() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: a_time_namespace_is_an_hour_ahead: needs root");
            return;
        }
        shown(&Clock::Ahead("3600").launcher(Path::new("")).unwrap(), |t| t + 3600.0);
    }
}
