//! The nodes that code: those that the daemon runs.

use std::sync::mpsc::Sender;

use coding::daemon::{self, Running, Settings, Watch};

use crate::event::Event;
use crate::restarts::Strand;
use crate::strands::kept::{Ended, Kept, Unable};

/// A node for each `[[coding]]`. Dropping it stops them.
#[derive(Default)]
pub struct Codings(Vec<Kept<Settings, Running>>);

impl Codings {
    /// Runs what `wanted` says from now on. A node whose interfaces are the same goes on and loses nothing.
    ///
    /// # Errors
    /// One sentence, if that refuses all; what came before it in `wanted` is in force: whoever asks goes back.
    pub fn reconfigure(
        &mut self,
        wanted: Vec<Settings>,
        unable: Unable,
        events: &Sender<Event>,
    ) -> Result<(), String> {
        self.0.retain(|node| wanted.iter().any(|settings| is_same(node.wanted(), settings)));
        for settings in wanted {
            match self.0.iter_mut().find(|node| is_same(node.wanted(), &settings)) {
                Some(node) if node.wanted().change == settings.change => {}
                Some(node) => node.change(settings, unable, change)?,
                None => {
                    let strand = Strand::Coding(settings.interface.clone());
                    self.0.push(Kept::new(strand, settings).start(unable, events, start)?);
                }
            }
        }
        Ok(())
    }

    /// What they are to do.
    pub fn wanted(&self) -> Vec<Settings> {
        self.0.iter().map(|node| node.wanted().clone()).collect()
    }

    /// What asks them for their state.
    pub fn watches(&self) -> Vec<Watch> {
        self.0.iter().filter_map(|node| Some(node.running()?.watch())).collect()
    }

    /// The node on `interface` has ended.
    pub fn stop(&mut self, interface: &str) {
        self.on(interface).for_each(Kept::stop);
    }

    /// Starts the node on `interface`, if it waits.
    ///
    /// # Errors
    /// One sentence; then it waits.
    pub fn restart(&mut self, interface: &str, events: &Sender<Event>) -> Result<(), String> {
        self.on(interface).try_for_each(|node| node.restart(events, start))
    }

    fn on(&mut self, interface: &str) -> impl Iterator<Item = &mut Kept<Settings, Running>> {
        self.0.iter_mut().filter(move |node| node.wanted().interface == interface)
    }
}

fn is_same(one: &Settings, other: &Settings) -> bool {
    (&one.interface, &one.master, &one.monitor) == (&other.interface, &other.master, &other.monitor)
}

fn change(running: &Running, wanted: &Settings) -> Result<(), String> {
    let changed = running.reconfigure(wanted.change.clone());
    changed.map_err(|why| format!("coding on `{}` goes on as it was: {why}", wanted.interface))
}

fn start(settings: &Settings, ended: Ended) -> Result<Running, String> {
    let running = daemon::start(settings.clone(), ended).map_err(|error| error.to_string())?;
    let (interface, master, mode) = (&settings.interface, &settings.master, settings.change.mode.name());
    tracing::info!(interface, master, mode, "the node codes");
    Ok(running)
}
