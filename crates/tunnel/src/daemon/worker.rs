//! A thread that can be asked for its state, told to change and stopped, and whose end somebody hears about.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use device::Waker;

/// A thread answers within a turn, which takes milliseconds; a machine that swaps may need longer.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// What a thread is asked: its state `S`, to take a change `C` up, or to stop. Answers go where the request says.
pub(crate) enum Request<S, C> {
    Status(SyncSender<S>),
    Change(C, SyncSender<Result<(), String>>),
    Stop,
}

/// Asks a thread for its state, `S`, or for a change, `C`, from any other, also when it has ended.
pub struct Watch<S, C = ()> {
    requests: Sender<Request<S, C>>,
    waker: Waker,
}

impl<S, C> Watch<S, C> {
    /// The state now; `None` if the thread has ended or does not answer within two seconds.
    pub fn status(&self) -> Option<S> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask(Request::Status(sender));
        answer.recv_timeout(STATUS_TIMEOUT).ok()
    }

    /// Asks for a change and waits for what came of it.
    ///
    /// # Errors
    /// One sentence: the thread refused, and is as it was, or it has ended.
    pub(crate) fn change(&self, change: C) -> Result<(), String> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask(Request::Change(change, sender));
        // Without a time-out: a change that is made later than it is refused is worse than one that is waited for.
        answer.recv().unwrap_or_else(|_| Err("it has ended; see the daemon's log".into()))
    }

    /// Asks for a change that cannot be refused, and does not wait.
    pub(crate) fn tell(&self, change: C) {
        self.ask(Request::Change(change, mpsc::sync_channel(1).0));
    }

    fn ask(&self, request: Request<S, C>) {
        // Refused only when the thread has ended: then there is nothing to stop, and the answer never comes.
        let _ = self.requests.send(request);
        self.waker.wake();
    }
}

impl<S, C> Clone for Watch<S, C> {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), waker: self.waker.clone() }
    }
}

impl<S, C> fmt::Debug for Watch<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// The thread's end of a [`Watch`].
pub(crate) struct Inbox<S, C = ()> {
    receiver: Receiver<Request<S, C>>,
    /// To be waited for.
    pub waker: Waker,
}

/// What can be asked of the thread that has an [`Inbox`].
pub(crate) trait Asked<S, C> {
    /// The state now.
    fn status(&self) -> S;
    /// Takes a change up; one sentence if it cannot, and then nothing has changed.
    fn change(&mut self, change: C) -> Result<(), String>;
}

/// A thread that has nothing to show or to change.
pub(crate) struct NoState;

impl Asked<(), ()> for NoState {
    fn status(&self) {}

    fn change(&mut self, (): ()) -> Result<(), String> {
        Ok(())
    }
}

impl<S, C> Inbox<S, C> {
    /// Lets `asked` answer what was asked since the last time; true if that was to stop.
    pub fn answer(&self, asked: &mut impl Asked<S, C>) -> bool {
        self.waker.reset();
        for request in self.receiver.try_iter() {
            match request {
                // Who asked may have lost patience.
                Request::Status(sender) => drop(sender.try_send(asked.status())),
                Request::Change(change, sender) => drop(sender.try_send(asked.change(change))),
                Request::Stop => return true,
            }
        }
        false
    }
}

/// Both ends.
pub(crate) fn watch<S, C>() -> io::Result<(Watch<S, C>, Inbox<S, C>)> {
    let (requests, receiver) = mpsc::channel();
    let waker = Waker::new()?;
    Ok((Watch { requests, waker: waker.clone() }, Inbox { receiver, waker }))
}

/// The thread; dropping this stops it and waits for its end.
#[derive(Debug)]
pub(crate) struct Worker<S, C = ()> {
    watch: Watch<S, C>,
    thread: Option<JoinHandle<()>>,
}

impl<S, C> Worker<S, C> {
    /// Starts `work`, which looks into the inbox that belongs to `watch`. `on_end` is told if it fails or panics, not if
    /// it returns `Ok`.
    pub fn start(
        name: &'static str,
        watch: Watch<S, C>,
        on_end: impl FnOnce(String) + Send + 'static,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let thread = Builder::new().name(name.into()).spawn(move || supervise(name, on_end, work))?;
        Ok(Self { watch, thread: Some(thread) })
    }

    /// What asks for the state.
    pub fn watch(&self) -> &Watch<S, C> {
        &self.watch
    }
}

impl<S, C> Drop for Worker<S, C> {
    fn drop(&mut self) {
        self.watch.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic has been told to `on_end`.
            let _ = thread.join();
        }
    }
}

fn supervise(name: &str, on_end: impl FnOnce(String), work: impl FnOnce() -> io::Result<()>) {
    if let Err(why) = device::process::outcome(work) {
        on_end(format!("the {name} has ended: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::poller::{Interest, Poller};

    /// What `on_end` is told of a thread that does `work`.
    fn told(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Option<String> {
        let (sender, receiver) = mpsc::channel();
        let on_end = move |reason| sender.send(reason).unwrap();
        drop(Worker::<(), ()>::start("worker", watch().unwrap().0, on_end, work).unwrap());
        receiver.recv().ok()
    }

    #[test]
    fn only_an_unexpected_end_is_told() {
        assert_eq!(told(|| Ok(())), None);
        let failed = told(|| Err(io::Error::other("no more")));
        assert_eq!(failed.as_deref(), Some("the worker has ended: no more"));
        let bug = told(|| panic!("at {}", 7));
        assert_eq!(bug.as_deref(), Some("the worker has ended: a bug, please report it: at 7"));
    }

    /// Takes up any number but zero.
    impl Asked<u32, u32> for u32 {
        fn status(&self) -> u32 {
            *self
        }

        fn change(&mut self, change: u32) -> Result<(), String> {
            if change == 0 {
                return Err("zero is refused".into());
            }
            *self = change;
            Ok(())
        }
    }

    #[test]
    fn it_answers_until_it_is_stopped() {
        let (watch, inbox) = watch::<u32, u32>().unwrap();
        let work = move || {
            let (mut poller, mut number) = (Poller::new()?, 7);
            poller.add(&inbox.waker, 0, Interest::Read)?;
            while !inbox.answer(&mut number) {
                poller.wait(None)?.for_each(drop);
            }
            Ok(())
        };
        let worker = Worker::start("worker", watch, |reason| panic!("{reason}"), work).unwrap();
        let watch = worker.watch().clone();
        assert_eq!((watch.status(), worker.watch().status()), (Some(7), Some(7)));
        assert_eq!((watch.change(0), watch.status()), (Err("zero is refused".into()), Some(7)));
        assert_eq!((watch.change(8), watch.status()), (Ok(()), Some(8)));
        drop(worker);
        assert_eq!(watch.status(), None);
        assert_eq!(watch.change(9), Err("it has ended; see the daemon's log".into()));
    }
}
