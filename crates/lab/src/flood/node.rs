//! Nodes that relay: `nawa` as a user starts it, and what it is compared with.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bpf::xdp::Attached;
use device::packet_socket::PacketSocket;
use flood::{ETHERTYPE, Padding, Rules, Window};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::background::Background;
use crate::clock;
use crate::datagram::ETHERNET;
use crate::error::{Doing, Error};
use crate::medium::{INTERFACE, Medium, interface_index};
use crate::program::Process;
use crate::system::{Means, start_nawa};

use super::frames::format;
use super::mode::Mode;

/// How long the packet relay waits for a frame before it looks whether it is to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A node that relays; dropping it ends that.
pub(super) enum Node {
    Nawa(Process),
    Bare(#[expect(dead_code, reason = "it relays as long as it lives")] Attached),
    Packet(#[expect(dead_code, reason = "it relays as long as it lives")] Background<()>),
}

impl Node {
    /// `node` begins to relay.
    pub(super) fn start(
        medium: &Medium,
        node: usize,
        mode: Mode,
        key: Option<&Path>,
        means: &Means,
    ) -> Result<Self, Error> {
        match mode {
            Mode::Generic => {
                medium.refuse_native(node)?;
                Self::start(medium, node, Mode::Driver, key, means)
            }
            Mode::Driver | Mode::Kernel | Mode::Application => {
                let text = configuration(INTERFACE, node, mode, key, "");
                start_nawa(means, medium.node(node), &[], &format!("n{node}"), &text).map(Node::Nawa)
            }
            Mode::XdpTx => medium.attach(node, "echo").map(Node::Bare),
            Mode::Packet => relay_by_packets(medium, node).map(Node::Packet),
        }
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        match self {
            Node::Nawa(process) => process.check(),
            Node::Bare(_) | Node::Packet(_) => Ok(()),
        }
    }
}

/// A node's file, with the network's key if there is one; `more` are lines of its section.
pub(super) fn configuration(
    interface: &str,
    node: usize,
    mode: Mode,
    key: Option<&Path>,
    more: &str,
) -> String {
    let (id, mode) = (node + 1, mode.name());
    let key = key.map(|path| format!("key-file = {path:?}\n")).unwrap_or_default();
    format!("[[flood]]\ninterface = \"{interface}\"\nid = {id}\nwire = 1\nmode = \"{mode}\"\n{key}{more}")
}

/// A thread with a packet socket: it drops what it has heard, as `nawa` does, and sends on what is new.
fn relay_by_packets(medium: &Medium, node: usize) -> Result<Background<()>, Error> {
    let open = || {
        let socket = PacketSocket::open(interface_index()?, Some(ETHERTYPE));
        socket.doing(|| "open a packet socket".into())
    };
    let socket = medium.node(node).run(open)??;
    let rules = Rules { format: format(), id: node as u32 + 1, rate_limit: None };
    Background::start("relay", move |over| relay(&socket, rules, over))
}

fn relay(socket: &PacketSocket, rules: Rules, stopped: &AtomicBool) {
    let mut window = Window::new(rules);
    let began = clock::now();
    let mut buffer = [0; 2400];
    while !stopped.load(Ordering::Relaxed) {
        let mut wanted = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        let _ = poll(&mut wanted, Some(&LOOK));
        while let Some(frame) = socket.recv(&mut buffer) {
            relay_one(socket, &mut window, began.elapsed(), frame);
        }
    }
}

fn relay_one(socket: &PacketSocket, window: &mut Window, now: Duration, frame: &[u8]) {
    let Some((ethernet, bytes)) = frame.split_at_checked(ETHERNET) else { return };
    let format = window.rules().format;
    let Ok(new) = window.handle_frame(now, bytes, Padding::Ethernet) else { return };
    if let Some(relayed) = format.relayed(&new, bytes) {
        let mut frame = ethernet.to_vec();
        frame[6..12].copy_from_slice(&socket.mac());
        frame.extend(relayed);
        let _ = socket.send(&frame);
    }
}
