//! The relay running: two threads, one for each direction, on sockets that share a port. The kernel gives datagrams
//! that go down to the second, all others, with the handshakes, to the first.

use std::io;
use std::net::SocketAddr;

use serde::Serialize;

use crate::daemon::Listen;
use crate::keys::{PrivateKey, PublicKey};

/// What [`start`] runs.
#[derive(Debug)]
pub struct Settings {
    /// Where clients and destinations reach it.
    pub listen: Listen,
    /// Who may relay.
    pub allow: Vec<PublicKey>,
    /// Who the relay is.
    pub key: PrivateKey,
}

/// Why the relay does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The UDP port is taken, or the address is not local.
    #[error("{0}; let the relay listen on another port, or stop the program that has this one")]
    Listen(io::Error),
    /// Descriptors, memory or randomness have run out.
    #[error("cannot start the relay's threads: {0}; see the limits on open files and memory")]
    Resources(#[from] io::Error),
}

/// A relay's state.
#[derive(Clone, Debug, Serialize)]
pub struct RelayStatus {
    /// The relay's public key.
    pub public_key: String,
    /// Sessions known now.
    pub sessions: usize,
}

/// A running relay; dropping it stops it.
#[derive(Debug)]
pub struct RelayRunning {}

/// Asks a relay for its state, from any thread.
#[derive(Clone, Debug)]
pub struct Watch {}

/// Binds in the calling thread's network namespace and starts the threads. `on_end` is called, with the reason, only if
/// a thread ends without being told to.
///
/// # Errors
/// [`StartError`]; then nothing is left behind.
pub fn start(
    settings: Settings,
    on_end: impl FnOnce(String) + Send + 'static,
) -> Result<RelayRunning, StartError> {
    let _ = (settings, on_end);
    Err(StartError::Listen(io::ErrorKind::Unsupported.into()))
}

impl RelayRunning {
    /// What asks for the state.
    pub fn watch(&self) -> Watch {
        Watch {}
    }

    /// The state now.
    pub fn status(&self) -> RelayStatus {
        RelayStatus { public_key: String::new(), sessions: 0 }
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }

    /// Stops it and waits until its threads have ended.
    pub fn stop(self) {}
}

impl Watch {
    /// The state now; of a relay that has ended, the last.
    pub fn status(&self) -> RelayStatus {
        RelayStatus { public_key: String::new(), sessions: 0 }
    }
}
