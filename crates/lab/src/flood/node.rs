//! Nodes that relay, `nawa` as a user starts it and what it is compared with, by their modes; messages as the lab sends them, wire
//! version 1 behind Ethernet or in a broadcast datagram; and round trips by `nawa flood ping`.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bpf::xdp::Attached;
use device::packet_socket::PacketSocket;
use flood::frame::Kind;
use flood::{ETHERTYPE, Format, Header, Padding, Rules, Window, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;

use crate::background::Background;
use crate::clock;
use crate::datagram::{ETHERNET, packet};
use crate::error::{Doing, Error, Result};
use crate::medium::{INTERFACE, Medium, address};
use crate::namespace::{Namespace, interface_index};
use crate::program::{Process, json};
use crate::system::{Means, start_nawa};

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
    ) -> Result<Self> {
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
    pub(super) fn check(&mut self) -> Result<()> {
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
fn relay_by_packets(medium: &Medium, node: usize) -> Result<Background<()>> {
    let open = || {
        let socket = PacketSocket::open(interface_index(INTERFACE)?, Some(ETHERTYPE));
        socket.doing(|| "open a packet socket".into())
    };
    let socket = medium.node(node).run(open)??;
    let rules = Rules { format: format(), id: node as u32 + 1, rate_limit: None };
    Background::start("relay", move |over| relay(&socket, rules, over))
}

fn relay(socket: &PacketSocket, rules: Rules, over: &AtomicBool) {
    let (format, mut window, began) = (rules.format, Window::new(rules), clock::now());
    let mut buffer = [0; 2400];
    while !over.load(Ordering::Relaxed) {
        let mut wanted = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        let _ = poll(&mut wanted, Some(&LOOK));
        while let Some(frame) = socket.recv(&mut buffer) {
            let Some((ethernet, bytes)) = frame.split_at_checked(ETHERNET) else { continue };
            let Ok(new) = window.handle_frame(began.elapsed(), bytes, Padding::Ethernet) else { continue };
            if let Some(relayed) = format.relayed(&new, bytes) {
                let _ = socket.send(&[&ethernet[..6], &socket.mac(), &ethernet[12..], &relayed].concat());
            }
        }
    }
}

/// The UDP port of nodes that relay datagrams, if nothing else is configured.
pub(super) const PORT: u16 = 51_902;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `nawa`, inside the driver.
    Driver,
    /// The same above a driver that refuses it, as radios' drivers do.
    Generic,
    /// `nawa`, at the IP layer.
    Kernel,
    /// `nawa`, a program with a UDP socket.
    Application,
    /// An XDP program that sends every frame back and does nothing else.
    XdpTx,
    /// A program of the lab's with a packet socket and nothing else: the best that an application can do.
    Packet,
}

/// By their names in the JSON.
pub(super) const MODES: [(&str, Mode); 6] = [
    ("driver", Mode::Driver),
    ("driver-generic", Mode::Generic),
    ("kernel", Mode::Kernel),
    ("application", Mode::Application),
    ("xdp-tx", Mode::XdpTx),
    ("packet-application", Mode::Packet),
];

impl Mode {
    pub(super) fn name(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// Whether messages are in datagrams.
    pub(super) fn is_udp(self) -> bool {
        matches!(self, Mode::Kernel | Mode::Application)
    }
}

/// The ID that the lab's messages have; no node's own.
pub(super) const SOURCE: u32 = 1000;
/// At least any chain's length.
pub(super) const TTL: u8 = 16;
/// Without a key.
pub(super) fn format() -> Format {
    Format::new(Wire::One, None)
}

/// A message of `bytes` bytes as `mode` carries it.
pub(super) fn frame(mode: Mode, bytes: usize) -> Vec<u8> {
    let header = Header { id: SOURCE, epoch: 1, seq: 0, ttl: TTL, kind: Kind::Data };
    let message = format().write(&header, &vec![0; bytes]);
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 0]);
    if mode.is_udp() {
        frame.extend(0x0800u16.to_be_bytes());
        frame.extend(packet((address(0), PORT), (Ipv4Addr::BROADCAST, PORT), &message));
    } else {
        frame.extend(ETHERTYPE.to_be_bytes());
        frame.extend(message);
    }
    frame
}

/// What `nawa flood ping` says.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Pings {
    pub(super) rtt_mean_us: f64,
    pub(super) rtt_p99_us: f64,
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// `count` pings of 100 bytes, one after another, from a node over its `interface` to node `to`.
pub(super) fn ping(from: &Namespace, interface: &str, to: usize, count: u32, means: &Means) -> Result<Pings> {
    let (id, count) = ((to + 1).to_string(), count.to_string());
    let words =
        ["flood", "ping", interface, &id, "--count", &count, "--interval", "0ms", "--size", "100", "--json"];
    let said = json(from, means.nawa, &words)?;
    Pings::deserialize(&said).map_err(|_| Error::program("nawa flood ping", format!("it says {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_in_a_datagram() {
        let [bare, datagram] = [Mode::Driver, Mode::Application].map(|mode| frame(mode, 100));
        assert_eq!(bare[14..], datagram[42..]);
        let read = format().read(&bare[14..], Padding::Ethernet).unwrap();
        assert_eq!((read.header.id, read.data.len()), (SOURCE, 100));
    }
}
