//! A node running: the thread between IP on the master interface and the medium below the slave. Begin with [`start`].
//!
//! ```text
//!     IP ── master, a TAP (daemon/master.rs)
//!             │ only while the layer has room
//!           NcLayer                              daemon/node.rs
//!             │ only while the slave takes a frame
//!           slave, a packet socket (daemon/slave.rs) ── MAC
//! ```

mod master;
mod node;
mod slave;
mod state;

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use device::Waker;
use master::Master;
use node::Node;
use state::Question;

pub use slave::remove_left;
pub use state::{Change, Deaf, NeighbourStatus, Settings, StartError, Status, Unusable};

/// How long whoever asks for something waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running node. Dropping it stops it, and returns when the master is gone.
#[derive(Debug)]
pub struct Running {
    watch: Watch,
    thread: Option<JoinHandle<()>>,
}

/// Asks a running node for its state.
#[derive(Clone, Debug)]
pub struct Watch {
    questions: Sender<Question>,
    waker: Waker,
}

impl Watch {
    /// The state now; `None` if the node has ended or does not answer.
    pub fn status(&self) -> Option<Status> {
        self.ask(Question::Status)
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Question) -> Option<T> {
        let (sender, answer) = channel();
        self.questions.send(question(sender)).ok()?;
        self.waker.wake();
        answer.recv_timeout(PATIENCE).ok()
    }
}

impl Running {
    /// What asks for the state.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Works as `change` says from now on, and returns when it does. No packet is lost by it.
    ///
    /// # Errors
    /// One sentence; then all is as before.
    pub fn reconfigure(&self, change: Change) -> Result<(), String> {
        let silent = || Err("it does not answer; see the daemon's log, or restart it".into());
        self.watch.ask(|sender| Question::Change(change, sender)).unwrap_or_else(silent)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended listens no more.
        let _ = self.watch.questions.send(Question::Stop);
        self.watch.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the master, and starts a node in the calling thread's network namespace. `on_end` is called, with the reason, only
/// if the node ends without being told to.
///
/// A slave that is down is waited for, here and whenever it goes down or away.
///
/// # Errors
/// [`StartError`]; then nothing is left behind.
pub fn start(
    settings: Settings,
    on_end: impl FnOnce(String) + Send + 'static,
) -> Result<Running, StartError> {
    let interface = settings.interface.clone();
    match slave::look_first(&interface) {
        Ok(_) | Err(Unusable::Down(_)) => {}
        Err(unusable) => return Err(unusable.into()),
    }
    let master = Master::make(&settings.master, &settings.change.addresses)?;
    let (questions, inbox) = channel();
    let watch = Watch { questions, waker: Waker::new()? };
    let mut node = Node::new(settings, master, watch.waker.clone(), inbox)?;
    node.refresh().map_err(|error| StartError::Open(interface.clone(), error))?;
    let run = move || {
        if let Err(error) = device::process::outcome(|| node.run()) {
            on_end(format!("coding on `{interface}` has ended: {error}"));
        }
    };
    let thread = std::thread::Builder::new().name("coding".into()).spawn(run)?;
    Ok(Running { watch, thread: Some(thread) })
}
