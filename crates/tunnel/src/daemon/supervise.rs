//! Threads whose end somebody hears about.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

/// Runs `work` on a thread `name`. `on_end` is told if it fails or panics, not if it returns `Ok`.
pub fn supervise(
    name: &'static str,
    on_end: impl FnOnce(String) + Send + 'static,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let run = move || {
        // Nothing that `work` owns is looked at after a panic.
        let result = catch_unwind(AssertUnwindSafe(work));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => on_end(format!("the {name} has ended: {error}; start it again")),
            Err(panic) => {
                on_end(format!("the {name} has ended by a bug, please report it: {}", message(&*panic)))
            }
        }
    };
    Builder::new().name(name.into()).spawn(run)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// What `on_end` is told of a thread that does `work`.
    fn told(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Option<String> {
        let (sender, receiver) = mpsc::channel();
        let on_end = move |reason| sender.send(reason).unwrap();
        supervise("worker", on_end, work).unwrap().join().unwrap();
        receiver.recv().ok()
    }

    #[test]
    fn only_an_unexpected_end_is_told() {
        assert_eq!(told(|| Ok(())), None);
        let failed = told(|| Err(io::Error::other("no more")));
        assert_eq!(failed.as_deref(), Some("the worker has ended: no more; start it again"));
        let bug = told(|| panic!("at {}", 7));
        assert_eq!(bug.as_deref(), Some("the worker has ended by a bug, please report it: at 7"));
    }
}
