//! The copies of SCTP's packets: what the daemon runs, and its state as JSON.

use std::sync::mpsc::Sender;

use bicast::daemon::{self, Config, Interface, Part, Running, Status};
use bicast::kernel::Known;
use serde_json::{Value, json};

use crate::config::mode_name;
use crate::event::Event;
use crate::restarts::Strand;
use crate::strands::kept::{Ended, Kept, Unable};

/// The copies that a file asks for.
pub type Copies = Kept<Config, Running>;

/// Makes `now` what `config` asks for. What is known of associations stays.
///
/// # Errors
/// One sentence, if that refuses all.
pub fn reconfigure(
    now: &mut Option<Copies>,
    config: Option<Config>,
    unable: Unable,
    events: &Sender<Event>,
) -> Result<(), String> {
    match (config, &mut *now) {
        (None, _) => *now = None,
        (Some(config), Some(copies)) => copies.change(config, unable, change)?,
        (Some(config), None) => {
            *now = Some(Kept::new(Strand::Bicast, config).start(unable, events, start)?);
        }
    }
    Ok(())
}

fn change(running: &Running, config: &Config) -> Result<(), String> {
    running.watch().change(config.clone()).map_err(|error| format!("[bicast]: {error}"))
}

/// Starts what `config` asks for.
///
/// # Errors
/// One sentence.
pub fn start(config: &Config, ended: Ended) -> Result<Running, String> {
    let mode = mode_name(config.settings.mode);
    let running = daemon::start(config.clone(), ended).map_err(|error| format!("[bicast]: {error}"))?;
    tracing::info!(mode, "bicast runs");
    Ok(running)
}

/// What `nawa status --json` shows as `bicast`. Bytes, µs, seconds, as the keys say.
pub fn state((config, interfaces, watch): &Status) -> Value {
    let (counters, now) = (watch.counters(), device::monotonic());
    json!({
        "mode": mode_name(config.settings.mode),
        "budget_percent": config.settings.budget_percent,
        "udp_port": config.settings.udp_port,
        "forwarding": config.settings.forwarding,
        "idle_because": idle_because(config, interfaces),
        "interfaces": interfaces.iter().map(|one| interface(one, config)).collect::<Vec<_>>(),
        "malformed_packets": counters.malformed_packets,
        "fragments": counters.fragments,
        "sent_packets": counters.sent_packets,
        "sent_bytes": counters.sent_bytes,
        "duplicated_packets": counters.copies,
        "extra_bytes": counters.extra_bytes,
        "associations": watch.associations().iter().map(|known| association(known, now)).collect::<Vec<_>>(),
    })
}

/// Why nothing is copied at all.
fn idle_because(config: &Config, interfaces: &[Interface]) -> Option<&'static str> {
    if config.settings.mode == bicast::Mode::Off {
        Some("the mode is off")
    } else if daemon::usable(interfaces) < 2 {
        Some("there are no two interfaces with addresses")
    } else {
        None
    }
}

fn interface(interface: &Interface, config: &Config) -> Value {
    let part = match interface.part {
        Part::Absent => "absent",
        Part::NotEthernet => "not-ethernet",
        Part::NoAddress => "no-address",
        Part::Used => "used",
    };
    let metered = config.metered.contains(&interface.name);
    json!({"name": interface.name, "state": part, "addresses": interface.addresses, "metered": metered})
}

fn association(known: &Known, now: std::time::Duration) -> Value {
    let remote = |remote: &bicast::kernel::Remote| {
        json!({
            "address": remote.address, "usable": remote.usable, "rtt_us": remote.rtt.as_micros() as u64,
            "late": remote.late, "mtu": remote.mtu,
        })
    };
    json!({
        "local_port": known.local_port,
        "remote_port": known.remote_port,
        "tag": known.tag,
        "local_addresses": known.locals,
        "remote_addresses": known.remotes.iter().map(remote).collect::<Vec<_>>(),
        "sent_packets": known.sent_packets,
        "sent_bytes": known.sent_bytes,
        "extra_bytes": known.extra_bytes,
        "duplicated_packets": known.copies,
        "not_duplicated_packets": known.skipped,
        "duplicate_tsns": known.duplicate_tsns,
        "first_percent": known.first_percent,
        "handshake": known.handshake,
        "idle_s": now.saturating_sub(known.seen).as_secs_f64(),
    })
}
