//! `[bicast]`: what its keys mean.

use bicast::Mode;
use bicast::daemon::Config;
use bicast::kernel::Settings;

use super::document::Bicast;
use super::source::{Source, unique};
use super::value;

/// Of the bytes that an association sends, in percent.
const BUDGET: u32 = 15;

/// What is wrong is replaced by something harmless.
pub fn check(source: &mut Source, written: Bicast) -> Config {
    let span = written.interfaces.span();
    let names = written.interfaces.into_inner();
    let interfaces: Vec<_> = names
        .iter()
        .filter_map(|name| {
            source.expect(name.span(), value::interface(name.get_ref())).map(|i| (name.span(), i))
        })
        .collect();
    if names.len() < 2 {
        source.complain(span, "copies need a second path; name two interfaces or more");
    }
    unique(source, interfaces.iter().cloned(), "this interface is named twice; remove one");
    let metered = written.metered.unwrap_or_default();
    for name in metered.iter().filter(|name| !interfaces.iter().any(|(_, known)| known == name.get_ref())) {
        source.complain(
            name.span(),
            "this interface is not among `interfaces`; add it there, or take it out here",
        );
    }
    let mode = written.mode.and_then(|text| source.expect(text.span(), mode(text.get_ref())));
    let budget_percent =
        written.budget.and_then(|value| source.expect(value.span(), percent(value.get_ref())));
    let udp_port = written.udp_port.and_then(|value| source.expect(value.span(), port(value.get_ref())));
    let settings = Settings {
        mode: mode.unwrap_or_default(),
        budget_percent: budget_percent.unwrap_or(BUDGET),
        udp_port: udp_port.unwrap_or(packet::sctp::UDP_PORT),
        forwarding: written.forwarding.unwrap_or(false),
    };
    Config {
        interfaces: interfaces.into_iter().map(|(_, name)| name).collect(),
        metered: metered.into_iter().map(toml::Spanned::into_inner).collect(),
        settings,
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    let mut all = [Mode::Off, Mode::Selective, Mode::Full, Mode::Adaptive].into_iter();
    all.find(|mode| mode_name(*mode) == text).ok_or_else(|| {
        format!("there is no mode \"{text}\"; write \"off\", \"selective\", \"full\" or \"adaptive\"")
    })
}

/// What a file and status call it.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Selective => "selective",
        Mode::Full => "full",
        Mode::Adaptive => "adaptive",
    }
}

/// A whole number from 0 to 100 with its unit.
fn percent(value: &toml::Value) -> Result<u32, String> {
    let number = value.as_str().and_then(|text| text.strip_suffix('%')?.parse().ok());
    number
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| format!("{value} is not a share; write one from \"0%\" to \"100%\""))
}

fn port(value: &toml::Value) -> Result<u16, String> {
    let port = value.as_integer().and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
    port.ok_or_else(|| format!("{value} is not a port; write one from 1 to 65535"))
}
