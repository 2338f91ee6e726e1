//! A strand that is kept running: what is wanted of it, and what runs unless it waits to be started again.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::event::Event;
use crate::restarts::Strand;

/// Is called with the reason by a strand that ends by itself.
pub type Ended = Box<dyn FnOnce(String) + Send>;

/// What becomes of one that cannot start, or change.
#[derive(Clone, Copy, Debug)]
pub enum Unable<'a> {
    /// All that is asked for is refused with it.
    Refuses,
    /// It ran, or waited, before something else was refused: [`Event::Failed`] is sent as if it had ended.
    Waits(&'a Sender<Event>),
}

/// Dropping it stops what runs.
pub struct Kept<W, R> {
    strand: Strand,
    wanted: W,
    /// `None` while it waits.
    running: Option<R>,
    /// Lives as long as what was started last: an end with an older token is not believed.
    life: Arc<()>,
}

impl<W, R> Kept<W, R> {
    /// One that waits.
    pub fn new(strand: Strand, wanted: W) -> Self {
        Kept { strand, wanted, running: None, life: Arc::default() }
    }

    /// What it is to do.
    pub fn wanted(&self) -> &W {
        &self.wanted
    }

    /// What runs.
    pub fn running(&self) -> Option<&R> {
        self.running.as_ref()
    }

    /// What runs, for whoever takes its place.
    pub fn into_running(self) -> Option<R> {
        self.running
    }

    /// Starts it. If it cannot, `unable` says what becomes of it.
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
            (Err(why), Unable::Waits(_)) => self.ended(events)(why),
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

    /// Has it do what is wanted from now on, by `change` if it runs. If it cannot, `unable` says what becomes of it.
    ///
    /// # Errors
    /// One sentence, if that refuses all; then it goes on as it was.
    pub fn change(
        &mut self,
        wanted: W,
        unable: Unable,
        change: impl FnOnce(&R, &W) -> Result<(), String>,
    ) -> Result<(), String> {
        let changed = self.running.as_ref().map_or(Ok(()), |running| change(running, &wanted));
        match (changed, unable) {
            (Err(why), Unable::Waits(events)) => self.ended(events)(why),
            (changed, _) => changed?,
        }
        self.wanted = wanted;
        Ok(())
    }

    /// Lets it wait.
    pub fn stop(&mut self) {
        (self.running, self.life) = (None, Arc::default());
    }

    fn ended(&mut self, events: &Sender<Event>) -> Ended {
        self.life = Arc::default();
        let (strand, life, events) = (self.strand.clone(), Arc::downgrade(&self.life), events.clone());
        Box::new(move |why| {
            // Once nobody listens the process is ending.
            let _ = events.send(Event::Failed(strand, life, why));
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_cannot_change_back_is_told_of_and_begins_as_it_was() {
        let (events, told) = channel();
        let mut kept = Kept::new(Strand::Flight, 1);
        kept.restart(&events, |_, _| Ok(())).expect("it starts");
        let refuses = |(): &_, _: &_| Err("no".to_owned());
        kept.change(2, Unable::Refuses, refuses).expect_err("it is refused");
        assert_eq!((*kept.wanted(), told.try_iter().count()), (1, 0));
        kept.change(3, Unable::Waits(&events), refuses).expect("it waits");
        let Ok(Event::Failed(Strand::Flight, life, why)) = told.try_recv() else { panic!("it is told") };
        assert_eq!((*kept.wanted(), life.strong_count(), why.as_str()), (3, 1, "no"));
    }

    #[test]
    fn the_end_of_what_has_been_stopped_is_told_apart() {
        let (events, told) = channel();
        let (mut kept, mut ends) = (Kept::new(Strand::Relay, ()), Vec::new());
        for _ in 0..2 {
            kept.stop();
            let start = |(): &_, ended| {
                ends.push(ended);
                Ok(())
            };
            kept.restart(&events, start).expect("it starts");
        }
        ends.into_iter().for_each(|ended: Ended| ended("gone".into()));
        let lives = told.try_iter().map(|event| match event {
            Event::Failed(_, life, _) => life.strong_count(),
            _ => panic!("another event"),
        });
        assert_eq!(lives.collect::<Vec<_>>(), [0, 1]);
    }
}
