//! A strand that is kept running: what is wanted of it, and what runs unless it waits to be started again.

use std::sync::mpsc::Sender;

use crate::event::Event;
use crate::restarts::{Strand, Unable};

/// What is told why by what ends by itself.
pub type Ended = Box<dyn FnOnce(String) + Send>;

/// Dropping it stops what runs.
pub struct Kept<W, R> {
    strand: Strand,
    wanted: W,
    /// `None` while it waits.
    running: Option<R>,
}

impl<W, R> Kept<W, R> {
    /// One that waits.
    pub fn new(strand: Strand, wanted: W) -> Self {
        Kept { strand, wanted, running: None }
    }

    /// What it is to do.
    pub fn wanted(&self) -> &W {
        &self.wanted
    }

    /// What runs.
    pub fn running(&self) -> Option<&R> {
        self.running.as_ref()
    }

    /// The same, started; where it is to wait if that fails, the failure is told as its end.
    ///
    /// # Errors
    /// One sentence, if that refuses all.
    pub fn start(
        mut self,
        unable: Unable,
        events: &Sender<Event>,
        start: impl FnOnce(&W, Ended) -> Result<R, String>,
    ) -> Result<Self, String> {
        match (self.restart(events, start), unable) {
            (Err(why), Unable::Waits) => self.ended(events)(why),
            (started, _) => started?,
        }
        Ok(self)
    }

    /// Starts it, if it waits.
    ///
    /// # Errors
    /// One sentence; then it waits.
    pub fn restart(
        &mut self,
        events: &Sender<Event>,
        start: impl FnOnce(&W, Ended) -> Result<R, String>,
    ) -> Result<(), String> {
        if self.running.is_none() {
            let ended = self.ended(events);
            self.running = Some(start(&self.wanted, ended)?);
        }
        Ok(())
    }

    /// Has it do what is wanted from now on, by `change` if it runs.
    ///
    /// # Errors
    /// One sentence, if that refuses all; then it goes on as it was.
    pub fn change(
        &mut self,
        wanted: W,
        unable: Unable,
        change: impl FnOnce(&R, &W) -> Result<(), String>,
    ) -> Result<(), String> {
        unable.judge(self.running.as_ref().map_or(Ok(()), |running| change(running, &wanted)))?;
        self.wanted = wanted;
        Ok(())
    }

    /// Lets it wait.
    pub fn stop(&mut self) {
        self.running = None;
    }

    fn ended(&self, events: &Sender<Event>) -> Ended {
        let (strand, events) = (self.strand.clone(), events.clone());
        Box::new(move |why| {
            // Once nobody listens the process is ending.
            let _ = events.send(Event::Failed(strand, why));
        })
    }
}

impl Unable {
    /// Passes an error on that refuses all; where one has to wait, the others are put back all the same.
    pub fn judge(self, result: Result<(), String>) -> Result<(), String> {
        match (result, self) {
            (Err(why), Unable::Waits) => {
                tracing::error!("what ran before the reload cannot be put back: {why}");
                Ok(())
            }
            (result, _) => result,
        }
    }
}
