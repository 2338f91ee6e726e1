//! What may happen to the convoy, and what does in a sample.

use std::ops::Range;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::convoy::{LAST, LTE, RELAY};
use super::running::{Field, pids, wait_until};
use crate::clock;
use crate::dcf::INTERFACE;
use crate::error::{Doing, Result};

/// How long a sample takes.
pub(super) const LENGTH: Duration = Duration::from_secs(36);

/// What happens in a sample, in order: from when until when, in seconds, and in few letters.
pub(super) const TIMELINE: [(Range<u64>, Fault, &str); 4] = [
    (5..5, Fault::NewAddress, "nat moves"),
    (9..13, Fault::Lost(LTE), "lte lost"),
    (18..21, Fault::Off(RELAY), "v2 off"),
    (27..31, Fault::OutOfRange(LAST), "v4 away"),
];

/// What may be done to the convoy, most of it to one vehicle. Each ends after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The address behind which an uplink appears becomes another.
    NewAddress,
    /// An uplink, `lte` (0), `sat`, `policed` or `nat` (3), carries nothing.
    Lost(usize),
    /// It is switched off: its programs get no notice.
    Off(usize),
    /// No other vehicle hears it.
    OutOfRange(usize),
    /// The daemon alone is killed, and started again at once.
    Killed(usize),
    /// The radio is down.
    Down(usize),
    /// The radio is unplugged: it leaves the vehicle's namespace and comes again, with another index.
    Unplugged(usize),
    /// Somebody deletes an interface that is the daemon's.
    Deleted(usize, &'static str),
    /// The file lacks a section, and has it again.
    Without(usize, &'static str),
    /// The file is wrong there.
    Broken(usize, &'static str),
}

impl Field {
    /// Lets a fault begin, or ends it.
    pub(super) fn set(&self, fault: Fault, on: bool) -> Result<()> {
        let (convoy, radio) = (&self.convoy, if on { "down" } else { "up" });
        match fault {
            Fault::NewAddress if on => {
                self.addresses.set(self.addresses.get() % 200 + 1);
                convoy.set_nat(self.addresses.get())
            }
            Fault::Lost(uplink) => {
                convoy.wires[uplink].set_up(!on);
                Ok(())
            }
            Fault::OutOfRange(vehicle) => {
                convoy.set_in_range(vehicle, !on);
                Ok(())
            }
            Fault::Off(vehicle) => {
                if on {
                    self.signal(vehicle, Signal::KILL);
                }
                self.radio(vehicle, radio)?;
                if on { Ok(()) } else { self.start_vehicle(vehicle) }
            }
            Fault::Killed(vehicle) if on => {
                self.signal(vehicle, Signal::KILL);
                Ok(())
            }
            Fault::Killed(vehicle) => self.start_vehicle(vehicle),
            Fault::Down(vehicle) => self.radio(vehicle, radio),
            Fault::Unplugged(vehicle) if on => self.radio(vehicle, &format!("netns {}", convoy.net.name())),
            Fault::Unplugged(vehicle) => {
                let name = convoy.vehicle(vehicle).name();
                convoy.net.ip(&[format!("link set {INTERFACE} netns {name}")])?;
                self.radio(vehicle, radio)
            }
            Fault::Deleted(vehicle, interface) if on => {
                convoy.vehicle(vehicle).ip(&[format!("link del {interface}")])
            }
            Fault::NewAddress | Fault::Deleted(..) => Ok(()),
            Fault::Without(vehicle, section) if on => self.reload(vehicle, |text| without(text, section)),
            Fault::Broken(vehicle, section) if on => {
                self.reload(vehicle, |text| text.replacen(section, &format!("{section}\nnonsense = 1"), 1))
            }
            Fault::Without(vehicle, _) | Fault::Broken(vehicle, _) => self.reload(vehicle, str::to_owned),
        }
    }

    fn radio(&self, vehicle: usize, words: &str) -> Result<()> {
        self.convoy.vehicle(vehicle).ip(&[format!("link set {INTERFACE} {words}")])
    }

    /// Sends the daemon of `vehicle` a signal.
    fn signal(&self, vehicle: usize, signal: Signal) {
        for pid in pids(self.convoy.vehicle(vehicle), &self.nawa) {
            // One that has ended meanwhile needs none.
            let _ = kill_process(pid, signal);
        }
    }

    /// Has the daemon of `vehicle` read its file changed by `change`.
    fn reload(&self, vehicle: usize, change: impl Fn(&str) -> String) -> Result<()> {
        let path = self.vehicle_path(vehicle);
        let doing = || format!("change {}", path.display());
        let text = std::fs::read_to_string(&path).doing(doing)?;
        std::fs::write(&path, change(&text)).doing(doing)?;
        self.signal(vehicle, Signal::HUP);
        // Until it is read, the old text may not come back.
        wait_until(clock::now() + Duration::from_millis(300));
        std::fs::write(&path, text).doing(doing)
    }
}

/// The file without a section and what belongs to it.
fn without(text: &str, section: &str) -> String {
    let belongs = |head: &str| head == section || (section == "[tunnel]" && head.starts_with("[[peer"));
    let mut out = false;
    let kept = text.lines().filter(|line| {
        if line.starts_with('[') {
            out = belongs(line);
        }
        !out
    });
    kept.fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_goes_with_what_belongs_to_it() {
        let text = "[node]\na = 1\n[tunnel]\nb = 1\n[[peer]]\nc = 1\n[[peer.path]]\nd = 1\n[flight]\ne = 1\n";
        assert_eq!(without(text, "[tunnel]"), "[node]\na = 1\n[flight]\ne = 1\n");
        assert_eq!(without(text, "[flight]").lines().count(), 8);
    }

    #[test]
    fn faults_come_one_after_the_other_and_leave_time_to_recover() {
        assert!(TIMELINE.windows(2).all(|pair| pair[0].0.end < pair[1].0.start));
        assert!(TIMELINE.iter().all(|(time, ..)| Duration::from_secs(time.end + 5) <= LENGTH));
    }
}
