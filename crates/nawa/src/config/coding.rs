//! `[[coding]]`.

use std::time::Duration;

use coding::Mode;
use coding::daemon::{Change, Settings};

use super::source::{Source, unique};
use super::{document, value};

/// How long a packet waits for a partner at most, if that is not written: the paper's best.
const WAIT: Duration = Duration::from_millis(10);
/// The monitor that the daemon makes, as if none were written.
const AUTO: &str = "auto";

/// Checks every section by itself, then that no two share an interface.
pub fn all(source: &mut Source, written: Vec<document::Coding>) -> Vec<Settings> {
    let names = written.iter().flat_map(|coding| [&coding.interface, &coding.master]);
    let names = names.map(|name| (name.span(), name.get_ref().clone()));
    unique(source, names, "this interface is named twice; every slave has a master of its own");
    written.into_iter().filter_map(|written| one(source, written)).collect()
}

fn one(source: &mut Source, written: document::Coding) -> Option<Settings> {
    let interface = source.expect(written.interface.span(), value::interface(written.interface.get_ref()));
    let master = source.expect(written.master.span(), value::interface(written.master.get_ref()));
    let addresses = written.addresses.into_inner();
    let addresses = addresses
        .iter()
        .filter_map(|text| source.expect(text.span(), value::address(text.get_ref())))
        .collect();
    let mode = match &written.mode {
        Some(text) => source.expect(text.span(), mode(text.get_ref())),
        None => Some(Mode::default()),
    };
    let wait = match &written.wait {
        Some(text) => source.expect(text.span(), value::wait(text.get_ref())),
        None => Some(WAIT),
    };
    let monitor = match written.monitor.as_ref().filter(|text| *text.get_ref() != AUTO) {
        Some(text) => Some(source.expect(text.span(), value::interface(text.get_ref()))?),
        None => None,
    };
    let change = Change { addresses, mode: mode?, wait: wait?, thin_acks: written.thin_acks };
    Some(Settings { interface: interface?, master: master?, monitor, change })
}

fn mode(text: &str) -> Result<Mode, String> {
    let names = Mode::ALL.map(|mode| format!("\"{}\"", mode.name())).join(", ");
    let wrong = || format!("there is no mode \"{text}\"; write one of {names}");
    Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(wrong)
}
