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

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use device::Waker;
use ipnet::IpNet;
use serde::Serialize;

use crate::config::Mode;
use master::Master;
use node::Node;

pub use slave::{Unusable, remove_left};

/// How long whoever asks for something waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The slave: the real interface, which somebody else makes.
    pub interface: String,
    /// The master: the one that is made, and carries IP.
    pub master: String,
    /// A monitor interface of the slave's radio that somebody else makes; `None`: one is made where the slave is a radio's.
    pub monitor: Option<String>,
    /// What may change while it runs.
    pub change: Change,
}

/// What may change while a node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The master's addresses, each with its prefix.
    pub addresses: Vec<IpNet>,
    /// What is coded.
    pub mode: Mode,
    /// How long a packet waits for a partner at most.
    pub wait: Duration,
    /// Whether a pure ACK takes the place of an earlier one of its connection that waits still.
    pub thin_acks: bool,
}

/// Why nothing is coded on a radio: sums would be lost to whoever should overhear them, or cost more than they gain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Deaf {
    /// The named one is not there.
    #[error("there is no interface `{0}`; make it a monitor of the slave's radio, or leave `monitor` out")]
    Absent(String),
    /// The driver, or a name that is taken.
    #[error("what neighbours send each other is not heard: the monitor interface `{0}` cannot be used ({1})")]
    Refused(String, String),
    /// It went away.
    #[error(
        "what neighbours send each other is not heard: the monitor interface is gone; reload the configuration or restart"
    )]
    Gone,
    /// 802.11n or later.
    #[error(
        "the network is one of 802.11n or later, where sending many frames as one gains more than coding; join it without HT for coding \
         (`iw dev … ibss join NAME FREQUENCY NOHT`)"
    )]
    Aggregating,
    /// Pairwise keys, or one of WEP.
    #[error(
        "the network is encrypted, so that nobody can read what neighbours send each other; encrypt above it, as a tunnel does"
    )]
    Encrypted,
}

/// A neighbour as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeighbourStatus {
    /// Its MAC address.
    pub address: String,
    /// Its frames for others that this node has heard: while there are none, no sum that it sends past this node can be decoded.
    pub overheard_frames: u64,
    /// It decodes sums, as it said lately (mode `any`).
    pub decodes: bool,
    /// It is not coded for at present, because it misses too much, or reports nothing.
    pub left_out: bool,
}

/// What a node knows of itself. Frames are counted where they leave, packets where they are relayed; repetitions by the MAC
/// are in none of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The slave.
    pub interface: String,
    /// The master.
    pub master: String,
    /// What is coded: `off` as well while there is a reason not to.
    pub mode: &'static str,
    /// Why nothing is coded though the file says so; null if there is no such reason.
    pub off_because: Option<String>,
    /// What is wrong and does not stop it; null if nothing is.
    pub warning: Option<String>,
    /// Those that sent something lately.
    pub neighbours: Vec<NeighbourStatus>,
    /// How long a packet waits for a partner at most.
    pub wait_ms: f64,
    /// Whether a pure ACK takes the place of an earlier one of its connection that waits still.
    pub thin_acks: bool,
    /// Of the master.
    pub mtu_bytes: u32,
    /// Why the slave is not used at present; null if it is.
    pub waits_because: Option<String>,
    /// Frames handed to the slave.
    pub sent_frames: u64,
    /// Of these, sums of two packets.
    pub sent_coded_frames: u64,
    /// Sums for each frame sent; null before the first.
    pub coding_ratio: Option<f64>,
    /// Frames that the slave did not take, or that waited when it went down.
    pub unsent_frames: u64,
    /// Frames dropped because the interface queue was full.
    pub queue_dropped_frames: u64,
    /// Packets of other nodes that were relayed, in sums or not.
    pub relayed_packets: u64,
    /// Packets that waited for a partner.
    pub held_packets: u64,
    /// Of these, gone within a millisecond.
    pub held_1ms_packets: u64,
    /// Of these, gone within ten.
    pub held_10ms_packets: u64,
    /// How long all of them waited together.
    pub held_time_ms: f64,
    /// Of those held, sent by themselves because their time was over.
    pub expired_packets: u64,
    /// Of those held, sent by themselves because there were too many.
    pub pushed_out_packets: u64,
    /// Packets decoded.
    pub decoded_packets: u64,
    /// Sums whose other packet this node does not have.
    pub missing_partner_frames: u64,
    /// Sums that came out wrong.
    pub wrong_partner_frames: u64,
    /// Frames with the NC EtherType that are none.
    pub malformed_frames: u64,
    /// Packets sent again because the neighbour did not overhear them.
    pub sent_again_packets: u64,
    /// Reports and greetings.
    pub report_frames: u64,
    /// Pure ACKs that a later one took the place of.
    pub thinned_packets: u64,
    /// Frames that the master did not take, because it is down.
    pub undelivered_frames: u64,
    /// Frames in the interface queue.
    pub queued_frames: usize,
    /// Packets that wait for a partner.
    pub waiting_packets: usize,
    /// TCP connections known.
    pub flows: usize,
    /// Neighbours that are not coded for at present, because they miss too much of it.
    pub left_out_neighbours: usize,
    /// Copies of sent packets, to decode with.
    pub copies: usize,
    /// Packets handed to IP whose senders are remembered.
    pub arrivals: usize,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The slave cannot be used, and that will not change by itself.
    #[error("cannot code on the slave: {0}")]
    Slave(#[from] Unusable),
    /// Packet sockets, or the program at the slave.
    #[error("cannot code on `{0}`: {1}; this needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF")]
    Open(String, io::Error),
    /// The master's name is taken.
    #[error("interface `{0}` exists already; remove it with `ip link delete {0}` or choose another master")]
    MasterExists(String),
    /// The master cannot be made, or not be given its addresses.
    #[error("cannot make the master interface `{0}`: {1}; this needs CAP_NET_ADMIN and /dev/net/tun")]
    Master(String, io::Error),
    /// Descriptors or memory.
    #[error("cannot start the thread that codes: {0}; see the limits on open files and memory")]
    Resources(#[from] io::Error),
}

enum Question {
    Status(Sender<Status>),
    Change(Change, Sender<Result<(), String>>),
    Stop,
}

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

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Question")
    }
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
