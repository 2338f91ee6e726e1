//! A node running: the thread between IP on the master interface and the medium below the slave. Begin with [`start`].
//!
//! ```text
//!     IP ── master, a TAP (daemon/master.rs)
//!             │
//!           NcLayer                              daemon/node.rs
//!             │ only while the slave takes a frame
//!           slave, a packet socket (daemon/slave.rs) ── MAC
//! ```

mod master;
mod node;
mod slave;
mod state;

use device::Net;
use device::worker::{self, Worker, watch};
use master::Master;
use node::Node;

pub use slave::remove_left;
pub use state::{Change, Deaf, NeighbourStatus, Settings, StartError, Status, Unusable};

/// A running node. Dropping it stops it, and returns when the master is gone.
#[derive(Debug)]
pub struct Running(Worker<Status, Change>);

/// Asks a running node for its state.
pub type Watch = worker::Watch<Status, Change>;

impl Running {
    /// What asks for the state.
    pub fn watch(&self) -> Watch {
        self.0.watch().clone()
    }

    /// Works as `change` says from now on, and returns when it does. No packet is lost by it.
    ///
    /// # Errors
    /// One sentence; then all is as before.
    pub fn reconfigure(&self, change: Change) -> Result<(), String> {
        self.0.watch().change(change)
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
    match slave::look_first(&mut Net::open()?, &interface) {
        Ok(_) | Err(Unusable::Down(_)) => {}
        Err(unusable) => return Err(unusable.into()),
    }
    let master = Master::make(&settings.master, &settings.change.addresses)?;
    let (watch, inbox) = watch()?;
    let mut node = Node::new(settings, master, &inbox.waker)?;
    node.refresh().map_err(|error| StartError::Open(interface, error))?;
    Ok(Running(Worker::start("coding", watch, on_end, move || node.run(&inbox))?))
}
