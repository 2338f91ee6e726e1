//! Threads that go on until they are told to end.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::error::{Doing, Result};

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(work).doing(|| "start a thread".into())
}

/// What `work` makes of each of `items`, all at the same time.
pub(crate) fn at_once<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// A thread that is told, by what it is given, that it is over; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Background<T> {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Background<T> {
    pub(crate) fn start(name: &str, work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        Ok(Self { over, thread: Some(spawn(name, move || work(&seen))?) })
    }

    /// Ends it; what came of it, which a thread that has been started has.
    pub(crate) fn stop(mut self) -> Option<T> {
        self.over.store(true, Relaxed);
        self.thread.take().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
