//! The nodes that code: those that the daemon runs.

use std::sync::mpsc::Sender;

use coding::daemon::{self, Change, Running, Settings, Watch};

use crate::event::{Event, ended};
use crate::restarts::{Strand, Unable};

/// A node for each `[[coding]]`; `None` while it waits to be started again. Dropping it stops them.
#[derive(Default)]
pub struct Codings(Vec<(Settings, Option<Running>)>);

impl Codings {
    /// Runs what `wanted` says from now on. A node whose interfaces are the same goes on and loses nothing.
    ///
    /// # Errors
    /// One sentence; what came before it in `wanted` is in force: whoever asks goes back.
    pub fn reconfigure(
        &mut self,
        wanted: Vec<Settings>,
        unable: Unable,
        events: &Sender<Event>,
    ) -> Result<(), String> {
        self.0.retain(|(running, _)| wanted.iter().any(|settings| is_same(running, settings)));
        for settings in wanted {
            match self.0.iter_mut().find(|(running, _)| is_same(running, &settings)) {
                Some((now, running)) => change(now, running.as_ref(), settings.change)?,
                None => {
                    let running = match (start(settings.clone(), events), unable) {
                        (Err(why), Unable::Waits) => {
                            ended(events, Strand::Coding(settings.interface.clone()))(why);
                            None
                        }
                        (started, _) => Some(started?),
                    };
                    self.0.push((settings, running));
                }
            }
        }
        Ok(())
    }

    /// What they are to do.
    pub fn wanted(&self) -> Vec<Settings> {
        self.0.iter().map(|(settings, _)| settings.clone()).collect()
    }

    /// What asks them for their state.
    pub fn watches(&self) -> Vec<Watch> {
        self.0.iter().filter_map(|(_, running)| Some(running.as_ref()?.watch())).collect()
    }

    /// The node on `interface` has ended.
    pub fn stop(&mut self, interface: &str) {
        let ended = self.0.iter_mut().filter(|(settings, _)| settings.interface == interface);
        ended.for_each(|(_, running)| *running = None);
    }

    /// Starts the node on `interface`, if it waits.
    ///
    /// # Errors
    /// One sentence; then it waits.
    pub fn restart(&mut self, interface: &str, events: &Sender<Event>) -> Result<(), String> {
        for (settings, running) in self.0.iter_mut().filter(|(settings, _)| settings.interface == interface) {
            if running.is_none() {
                *running = Some(start(settings.clone(), events)?);
            }
        }
        Ok(())
    }
}

fn is_same(one: &Settings, other: &Settings) -> bool {
    (&one.interface, &one.master, &one.monitor) == (&other.interface, &other.master, &other.monitor)
}

fn change(now: &mut Settings, running: Option<&Running>, wanted: Change) -> Result<(), String> {
    if now.change != wanted {
        let changed = running.map_or(Ok(()), |running| running.reconfigure(wanted.clone()));
        changed.map_err(|why| format!("coding on `{}` goes on as it was: {why}", now.interface))?;
        now.change = wanted;
    }
    Ok(())
}

fn start(settings: Settings, events: &Sender<Event>) -> Result<Running, String> {
    let (interface, master) = (settings.interface.clone(), settings.master.clone());
    let mode = settings.change.mode.name();
    let running = daemon::start(settings, ended(events, Strand::Coding(interface.clone())))
        .map_err(|error| error.to_string())?;
    tracing::info!(interface, master, mode, "the node codes");
    Ok(running)
}
