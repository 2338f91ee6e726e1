//! The congestion controls `fsat` and `fsat_paper`: what may be chosen of them, what the daemon provides, and their
//! state as JSON.

use std::sync::mpsc::Sender;

use flight::Mode;
use flight::kernel::default::Holder;
use flight::kernel::{self, Connection, Error, FSAT, FSAT_PAPER, Registration, Scheme};
use serde::{Deserialize, Serialize};

use crate::config::{Base, Flight};
use crate::event::Event;
use crate::restarts::Strand;
use crate::strands::kept::{Ended, Kept, Unable};

impl From<Base> for kernel::Base {
    fn from(base: Base) -> Self {
        match base {
            Base::Reno => kernel::Base::Reno,
            Base::Cubic => kernel::Base::Cubic,
        }
    }
}

impl From<kernel::Base> for Base {
    fn from(base: kernel::Base) -> Self {
        match base {
            kernel::Base::Reno => Base::Reno,
            kernel::Base::Cubic => Base::Cubic,
        }
    }
}

/// What the daemon provides. Dropping it gives the namespace the default that it had, and lets the registrations go;
/// so does the process's end, but for the default, which [`remove_left`] gives back.
pub struct Provided {
    base: Base,
    /// As [`Scheme::published`] has them.
    registrations: Vec<Registration>,
}

/// Makes `now` what `settings` asks for. Connections that exist go on as they are.
///
/// # Errors
/// One sentence, if that refuses all; then `now` is as it was.
pub fn reconfigure(
    now: &mut Option<Kept<Flight, Provided>>,
    settings: Option<Flight>,
    unable: Unable,
    events: &Sender<Event>,
) -> Result<(), String> {
    match (settings, &mut *now) {
        (None, _) => *now = None,
        (Some(settings), Some(kept)) if kept.running().is_none_or(|running| running.is_of(settings.base)) => {
            kept.change(settings, unable, |_, settings| set_default(settings))?;
        }
        (Some(settings), _) => {
            let new = Kept::new(Strand::Flight, settings).start(unable, events, start)?;
            let started = new.running().is_some();
            // What they held is what the new one holds.
            if let Some(mut old) = now.replace(new).and_then(Kept::into_running)
                && started
            {
                old.registrations.clear();
            }
        }
    }
    Ok(())
}

/// Registers both, and makes `fsat` the default if it is to be.
///
/// # Errors
/// One sentence; then nothing is registered.
pub fn start(settings: &Flight, _: Ended) -> Result<Provided, String> {
    let mut provided = Provided { base: settings.base, registrations: Vec::new() };
    for scheme in Scheme::published(settings.base.into()) {
        provided.registrations.push(kernel::register(&scheme).map_err(sentence)?);
    }
    set_default(settings)?;
    // A namespace that keeps what was registered before runs on; that is no reason not to start.
    if let Err(error) = kernel::default::refresh_everywhere(FSAT) {
        tracing::warn!("{error}");
    }
    tracing::info!(default = settings.default, base = ?settings.base, "fsat and fsat_paper are registered");
    Ok(provided)
}

fn set_default(settings: &Flight) -> Result<(), String> {
    let set = if settings.default {
        kernel::default::take(FSAT, Holder::Daemon)
    } else {
        kernel::default::restore(FSAT)
    };
    set.map_err(sentence)
}

impl Provided {
    /// Whether both are registered, with this base.
    fn is_of(&self, base: Base) -> bool {
        base == self.base && State::lost().is_empty()
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        let default = if self.registrations.is_empty() { Ok(()) } else { kernel::default::restore(FSAT) };
        let registered = [FSAT, FSAT_PAPER].into_iter().zip(self.registrations.drain(..));
        let ended = registered.map(|(name, registration)| kernel::let_go(name, registration));
        for error in ended.chain([default]).filter_map(Result::err) {
            tracing::warn!("{error}");
        }
    }
}

/// Gives the namespace the default back that a daemon changed which was killed.
pub fn remove_left() {
    if let Err(error) = kernel::default::restore(FSAT) {
        tracing::warn!("{error}");
    }
}

/// What [`remove_left`] removes, if anything.
pub fn left() -> Option<String> {
    kernel::default::is_changed(Holder::Daemon)
        .then(|| format!("the default congestion control {FSAT} of this network namespace"))
}

fn sentence(error: Error) -> String {
    error.to_string()
}

/// What `nawa flight show --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Of this format.
    pub schema: u32,
    /// Those of ours that sockets can choose now.
    pub registered: Vec<String>,
    /// The namespace's default congestion control.
    pub default: String,
    /// Of this namespace, by addresses.
    pub connections: Vec<Line>,
}

/// A connection. Bytes and µs, as the keys say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Address and port of this end.
    pub local: String,
    /// Of the other end.
    pub remote: String,
    /// `fsat`, `fsat_paper`.
    pub congestion_control: String,
    /// What lies below.
    pub base: Base,
    /// `ask`, `own` or `others`; `paper` for the published algorithm, which has none.
    pub mode: String,
    /// `None` where nothing is limited.
    pub target_bytes: Option<u64>,
    /// What may be in flight by FS-AT.
    pub space_bytes: u64,
    /// What arrived within the last least RTT.
    pub rcv_bytes: u64,
    /// `None` before the first sample.
    pub rtt_min_us: Option<u64>,
    /// The base's.
    pub cwnd_bytes: u64,
    /// What TCP may have in flight, less in recovery. By `fsat` it is space, the greater of cwnd and space in `ask`, and cwnd in
    /// `others`; by `fsat_paper` the lesser of both.
    pub window_bytes: u64,
    /// Losses that were not answered.
    pub losses_radio: u32,
    /// Losses that were.
    pub losses_congestion: u32,
}

impl State {
    /// Those that a daemon has registered, and somebody has taken away since.
    pub fn lost() -> Vec<&'static str> {
        let available = kernel::default::available().unwrap_or_default();
        [FSAT, FSAT_PAPER].into_iter().filter(|name| !available.iter().any(|one| one == name)).collect()
    }

    /// Of this thread's network namespace, now.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn read() -> Result<State, Error> {
        kernel::probe()?;
        let mut connections = kernel::connections()?;
        connections.sort_by_key(|connection| (connection.local, connection.remote));
        let available = kernel::default::available()?;
        let ours = |name: &&str| available.iter().any(|one| one == name);
        Ok(State {
            schema: 1,
            registered: [FSAT, FSAT_PAPER]
                .iter()
                .filter(|name| ours(name))
                .map(ToString::to_string)
                .collect(),
            default: kernel::default::default()?,
            connections: connections.iter().map(Line::from).collect(),
        })
    }
}

impl From<&Connection> for Line {
    fn from(connection: &Connection) -> Line {
        let fsat = &connection.fsat;
        Line {
            local: connection.local.to_string(),
            remote: connection.remote.to_string(),
            congestion_control: connection.scheme.clone(),
            base: connection.base.into(),
            mode: mode(connection).to_owned(),
            target_bytes: fsat.target,
            space_bytes: fsat.space,
            rcv_bytes: fsat.rcv_bytes,
            rtt_min_us: fsat.rtt_min.map(|rtt| rtt.as_micros() as u64),
            cwnd_bytes: connection.cwnd,
            window_bytes: connection.window,
            losses_radio: fsat.losses_radio,
            losses_congestion: fsat.losses_congestion,
        }
    }
}

fn mode(connection: &Connection) -> &'static str {
    match connection.fsat.mode {
        _ if connection.paper => "paper",
        Mode::Ask => "ask",
        Mode::Own => "own",
        Mode::Others => "others",
    }
}
