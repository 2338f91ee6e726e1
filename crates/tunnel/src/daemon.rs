//! The tunnel running: a thread that owns the TUN interface, the UDP sockets and the [`Endpoint`](crate::endpoint::Endpoint)
//! between them, one that asks the host, and one for handshakes. Begin with [`start`]; the threads' loops are in `event_loop.rs` and `host_watch.rs`.

mod captures;
pub mod dns;
mod event_loop;
mod handshake_thread;
mod host_watch;
mod interface;
mod names;
mod resolver;
mod return_routes;
mod reverse_path;
mod routing;
mod settings;
mod sockets;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use device::udp::Options;
use device::worker::{Watch, Worker, once, watch};
use ipnet::IpNet;

use crate::config::Config;
use crate::status::TunnelStatus;

pub use captures::{Batch, Capture, Taken, Wanted};
pub use event_loop::Change;
use event_loop::EventLoop;
use host_watch::{HostWatch, Order};
use interface::Interface;
pub use interface::{FIRST_PRIORITY, Hold, TABLE, mark, remove_left};
pub use settings::{Listen, Settings, StartError, listen_advice};
pub use sockets::listen_tcp;
pub(crate) use sockets::{Sockets, may_be_gone};

/// What asks a running tunnel for its state.
pub type TunnelWatch = Watch<TunnelStatus, Change>;

/// Whether a tunnel with a default route has made this namespace's reverse-path filter loose, and not put it back.
pub fn is_filter_loose() -> bool {
    reverse_path::ReversePath::is_loose()
}

/// Captures packets from now on, until what is returned is dropped.
///
/// # Errors
/// One sentence: the tunnel has ended, or enough captures run.
pub fn capture(tunnel: &TunnelWatch, wanted: Wanted) -> Result<Capture, String> {
    let (sender, capture) = captures::capture(wanted);
    tunnel.change(Change::Capture(sender)).map(|()| capture)
}

/// A running tunnel; dropping it stops it, and waits until its interface is gone.
#[derive(Debug)]
pub struct Running {
    worker: Worker<TunnelStatus, Change>,
    /// Ends after the other: what it has set up goes last.
    watcher: Worker<(), Order>,
    /// Counts what was taken up. Held while something is.
    generation: Mutex<u64>,
    address: SocketAddr,
    /// The interface's index.
    index: u32,
    /// It is told to stop: that its interface goes is no failure.
    stopped: Arc<AtomicBool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Makes the interface with its addresses and routes and the sockets, all in the calling thread's network namespace,
/// and starts the threads. `on_end` is called, with the reason, only if the tunnel ends without being told to.
///
/// # Errors
/// [`StartError`]; then nothing is left behind.
pub fn start(
    settings: Settings,
    on_end: impl FnOnce(String) + Send + 'static,
) -> Result<Running, StartError> {
    let mark = interface::mark(settings.fwmark, &settings.tunnel);
    let options = Options { fwmark: mark, ..Options::default() };
    let sockets = Sockets::bind(settings.listen, options).map_err(StartError::Listen)?;
    let address = sockets.local_address().map_err(StartError::Listen)?;
    let (tun, interface) = Interface::make(&settings)?;
    let index = interface.index();
    let (tunnel_watch, inbox) = watch()?;
    let (host_watch, host_inbox) = watch()?;
    let (told, news) = channel();
    let config = settings.tunnel;
    let watcher = HostWatch::new(
        interface,
        settings.fwmark,
        &config,
        address,
        host_inbox,
        (told, inbox.waker.clone()),
    )?;
    let host = event_loop::Host { watch: host_watch.clone(), news, fwmark: settings.fwmark };
    let event_loop = EventLoop::new(config, settings.key, tun, sockets, host, inbox)?;
    // Either is of no use without the other.
    let stopped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopped);
    let on_end = move |why| {
        if !told.load(Ordering::Relaxed) {
            on_end(why);
        }
    };
    let on_end = Arc::new(Mutex::new(Some(on_end)));
    let watcher = Worker::start("host", host_watch, once(&on_end), move || watcher.run())?;
    let worker = Worker::start("tunnel", tunnel_watch, once(&on_end), move || event_loop.run())?;
    Ok(Running { worker, watcher, generation: Mutex::new(0), address, index, stopped })
}

impl Running {
    /// What asks for the state.
    pub fn watch(&self) -> TunnelWatch {
        self.worker.watch().clone()
    }

    /// Has these addresses, and does what `config` says, when it returns. Sessions, and whatever is the same, go on.
    ///
    /// # Errors
    /// One sentence; then all is as before.
    pub fn reconfigure(&self, addresses: &[IpNet], config: &Config) -> Result<(), String> {
        let result = self.try_reconfigure(addresses, config);
        result.map_err(|why| format!("the tunnel goes on as it was: {why}"))
    }

    /// What may be refused comes first and is undone; what remains cannot fail.
    fn try_reconfigure(&self, addresses: &[IpNet], config: &Config) -> Result<(), String> {
        let mut generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        let (tunnel, host) = (self.worker.watch(), self.watcher.watch());
        tunnel.change(Change::Check(config.clone()))?;
        host.change(Order::Interface(addresses.to_vec(), config.clone()))?;
        *generation += 1;
        tunnel.change(Change::TakeUp(*generation, config.clone()))?;
        host.change(Order::Paths(*generation, config.clone()))
    }

    /// The state now; `None` if the thread has ended or does not answer.
    pub fn status(&self) -> Option<TunnelStatus> {
        self.worker.watch().status()
    }

    /// What its interface is called, also where somebody has given it another name; `None` if it is gone.
    pub fn interface(&self) -> Option<String> {
        device::Net::open().ok()?.link_at(self.index).ok().map(|link| link.name)
    }

    /// Where it listens; the IP address is unspecified if everywhere.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}
