//! A thread that can be asked for its state, told to change and stopped, and whose end somebody hears about.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::Waker;

/// A thread answers within a turn, which takes milliseconds; a machine that swaps may need longer.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// What a thread is asked: its state `S`, to take a change `C` up, or to stop. Answers go where the request says.
enum Request<S, C> {
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
    /// The state now; `None` if the thread has ended or does not answer within [`STATUS_TIMEOUT`].
    pub fn status(&self) -> Option<S> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask(Request::Status(sender));
        answer.recv_timeout(STATUS_TIMEOUT).ok()
    }

    /// Asks for a change and waits for what came of it.
    ///
    /// # Errors
    /// One sentence: the thread refused, and is as it was, or it has ended.
    pub fn change(&self, change: C) -> Result<(), String> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask(Request::Change(change, sender));
        // Without a time-out: a change that is made later than it is refused is worse than one that is waited for.
        answer.recv().unwrap_or_else(|_| Err("it has ended; see the daemon's log".into()))
    }

    /// Asks for a change that cannot be refused, and does not wait.
    pub fn tell(&self, change: C) {
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
pub struct Inbox<S, C = ()> {
    receiver: Receiver<Request<S, C>>,
    /// To be waited for.
    pub waker: Waker,
}

/// What can be asked of the thread that has an [`Inbox`].
pub trait Asked<S, C> {
    /// The state now.
    fn status(&self) -> S;
    /// Takes a change up; one sentence if it cannot, and then nothing has changed.
    fn change(&mut self, _: C) -> Result<(), String> {
        Err("nothing of it can change while it runs".into())
    }
}

/// A thread that has nothing to show or to change.
#[derive(Debug)]
pub struct NoState;

impl Asked<(), ()> for NoState {
    fn status(&self) {}
}

impl<S, C> Inbox<S, C> {
    /// Lets `asked` answer what was asked since the last time; true if that was to stop.
    pub fn answer(&self, asked: &mut impl Asked<S, C>) -> bool {
        self.waker.reset();
        while let Ok(request) = self.receiver.try_recv() {
            match request {
                Request::Status(sender) => {
                    // Who asked may have lost patience.
                    drop(sender.try_send(asked.status()));
                    // Whatever else the thread does waits for one state at most, however many ask.
                    self.waker.wake();
                    return false;
                }
                Request::Change(change, sender) => drop(sender.try_send(asked.change(change))),
                Request::Stop => return true,
            }
        }
        false
    }
}

/// Both ends.
///
/// # Errors
/// Descriptors have run out.
pub fn watch<S, C>() -> io::Result<(Watch<S, C>, Inbox<S, C>)> {
    let (requests, receiver) = mpsc::channel();
    let waker = Waker::new()?;
    Ok((Watch { requests, waker: waker.clone() }, Inbox { receiver, waker }))
}

/// The thread; dropping this stops it and waits for its end.
#[derive(Debug)]
pub struct Worker<S, C = ()> {
    watch: Watch<S, C>,
    thread: Option<JoinHandle<()>>,
}

impl<S, C> Worker<S, C> {
    /// Starts `work`, which looks into the inbox that belongs to `watch`. `on_end` is told why if it fails or panics, not if
    /// it returns `Ok`.
    ///
    /// # Errors
    /// Memory or processes have run out.
    pub fn start(
        name: &'static str,
        watch: Watch<S, C>,
        on_end: impl FnOnce(String) + Send + 'static,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let supervised = move || crate::process::outcome(work).err().map_or((), on_end);
        let thread = Builder::new().name(name.into()).spawn(supervised)?;
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

/// Calls `tell` the first time of all: of several threads that need each other, only the first that ends is to blame.
pub fn once<T>(
    tell: &Arc<Mutex<Option<impl FnOnce(T) + Send + 'static>>>,
) -> impl FnOnce(T) + Send + 'static {
    let tell = Arc::clone(tell);
    move |why| {
        let tell = tell.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tell) = tell {
            tell(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::{Interest, Poller};

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
        assert_eq!(failed.as_deref(), Some("no more"));
        let bug = told(|| panic!("at {}", 7));
        assert_eq!(bug.as_deref(), Some("a bug, please report it: at 7"));
    }

    impl Asked<u32, ()> for u32 {
        fn status(&self) -> u32 {
            *self
        }
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

    /// As many ask for the state at once as want to: between two answers the thread does what else it has to.
    #[test]
    fn it_says_its_state_once_a_turn() {
        let (watch, inbox) = watch::<u32, ()>().unwrap();
        let ask = || {
            let (sender, answer) = mpsc::sync_channel(1);
            watch.ask(Request::Status(sender));
            answer
        };
        let (mut poller, asked) = (Poller::new().unwrap(), [ask(), ask(), ask()]);
        poller.add(&inbox.waker, 0, Interest::Read).unwrap();
        for turn in 1..=3 {
            assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 1, "turn {turn}");
            assert!(!inbox.answer(&mut 7u32));
            assert_eq!(asked.iter().filter(|answer| answer.try_recv().is_ok()).count(), 1, "turn {turn}");
        }
    }
}
