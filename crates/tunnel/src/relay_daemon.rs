//! The relay running: two threads, one for each direction, on sockets that share a port. The kernel gives datagrams
//! that go down to the second, all others, with the handshakes, to the first. Begin with [`start`]; the threads' loop is in
//! `forward.rs`.

mod forward;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use device::udp::Options;
use device::worker::{Watch, Worker, once, watch};
use rand_core::{OsRng, TryRngCore};

use crate::daemon::{Listen, Sockets, listen_advice, listen_tcp};
use crate::keys::{PrivateKey, PublicKey};
use crate::relay::{Limits, RelayControl, RelayStatus};
use crate::wire::Kind;

use forward::{Core, Forwarder};
use tls::{Clients, Server};

/// What [`start`] runs.
#[derive(Debug)]
pub struct Settings {
    /// Where clients and destinations reach it.
    pub listen: Listen,
    /// Where clients reach it by TLS, if they do.
    pub tls: Option<Listen>,
    /// Who may relay.
    pub allow: Vec<PublicKey>,
    /// Who the relay is.
    pub key: PrivateKey,
}

/// Why the relay does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or the address is not local.
    #[error("{0}; {advice}", advice = listen_advice(.0))]
    Listen(io::Error),
    /// Descriptors, memory or randomness have run out.
    #[error("cannot start the relay's threads: {0}; see the limits on open files and memory")]
    Resources(#[from] io::Error),
}

/// A running relay; dropping it stops it, and waits until its threads have ended.
#[derive(Debug)]
pub struct RelayRunning {
    up: Worker<RelayStatus, Vec<PublicKey>>,
    /// Only held, so that it stops with the other.
    _down: Worker<RelayStatus, Vec<PublicKey>>,
    _tls: Option<Worker<()>>,
    address: SocketAddr,
}

/// Binds in the calling thread's network namespace and starts the threads. `on_end` is called, with the reason, only if
/// a thread ends without being told to, and once at most.
///
/// # Errors
/// [`StartError`]; then nothing is left behind.
pub fn start(
    settings: Settings,
    on_end: impl FnOnce(String) + Send + 'static,
) -> Result<RelayRunning, StartError> {
    let (up, down, address) = bind(settings.listen).map_err(StartError::Listen)?;
    let mut rng = OsRng.unwrap_err();
    let control = RelayControl::new(settings.key, settings.allow, Limits::default(), &mut rng);
    let clients = Clients::default();
    let core = Arc::new(Core::new(control, clients.clone()));
    let (up_watch, up_inbox) = watch()?;
    let (down_watch, down_inbox) = watch()?;
    let tls = settings.tls.map(|listen| {
        let (watch, inbox) = watch()?;
        let listener = listen_tcp(listen).map_err(StartError::Listen)?;
        let server = Server::new(listener, address, clients, inbox)?;
        tracing::info!(listen = %server.local_address()?, "the relay is reached by TLS as well");
        Ok::<_, StartError>((watch, server))
    });
    let tls = tls.transpose()?;
    let up = Forwarder::new(up, core.clone(), up_inbox)?;
    let down = Forwarder::new(down, core, down_inbox)?;
    let on_end = Arc::new(Mutex::new(Some(on_end)));
    let tls =
        tls.map(|(watch, server)| Worker::start("relay-tls", watch, once(&on_end), move || server.run()));
    let tls = tls.transpose()?;
    let down = Worker::start("relay-down", down_watch, once(&on_end), move || down.run())?;
    let up = Worker::start("relay", up_watch, once(&on_end), move || up.run())?;
    Ok(RelayRunning { up, _down: down, _tls: tls, address })
}

/// The sockets for what goes up and down, and where they are.
fn bind(listen: Listen) -> io::Result<(Sockets, Sockets, SocketAddr)> {
    // Without sharing first: a port that another program shares would be shared with it.
    let probe = Sockets::bind(listen, Options::default())?;
    let address = probe.local_address()?;
    drop(probe);
    let listen = match listen {
        Listen::Port(_) => Listen::Port(address.port()),
        Listen::Address(_) => Listen::Address(address),
    };
    let options = Options { reuse_port: true, ..Options::default() };
    let (up, down) = (Sockets::bind(listen, options)?, Sockets::bind(listen, options)?);
    for socket in up.iter() {
        socket.steer(Kind::RelayDown.first_byte())?;
    }
    Ok((up, down, address))
}

impl RelayRunning {
    /// What asks for the state.
    pub fn watch(&self) -> Watch<RelayStatus, Vec<PublicKey>> {
        self.up.watch().clone()
    }

    /// Changes who may relay. The sessions of those who no longer may end.
    ///
    /// # Errors
    /// One sentence if the threads have ended.
    pub fn set_allow(&self, allow: Vec<PublicKey>) -> Result<(), String> {
        self.up.watch().change(allow).map_err(|why| format!("the relay cannot be changed: {why}"))
    }

    /// The state now; `None` if the thread has ended or does not answer.
    pub fn status(&self) -> Option<RelayStatus> {
        self.up.watch().status()
    }

    /// Where it listens; the IP address is unspecified if everywhere.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}
