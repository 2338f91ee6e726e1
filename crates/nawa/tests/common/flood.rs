//! Nodes that flood, for tests: namespaces on a medium that is a bridge in a namespace of its own, with a port for each
//! node. Whatever one sends, all others hear.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bpf::xdp::Attached;
use device::{BroadcastSocket, PacketSocket};
use flood::{Client, ETHERTYPE, Message, Padding};
use serde_json::Value;

use super::{Daemon, Namespace, eventually, succeed};

/// What no frame should take longer than, on however busy a machine.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
/// UDP port of the modes `kernel` and `application`.
pub const PORT: u16 = 51902;
/// RFC 7748 §6.1: Alice's private key, here the network's.
const KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
/// Where a veth takes native XDP.
const NATIVE_MTU: u32 = 3498;
/// The number of who is no node.
const OUTSIDER: usize = 100;
/// Destination, source and EtherType.
const ETHERNET: usize = 14;
/// Headers of IPv4 and UDP.
const UDP_IP: usize = 28;
/// Its EtherType.
const IPV4: u16 = 0x0800;

/// Nodes whose interface is `air0`, with the IDs 1, 2, …, all in reach of each other, and `outsider`, who has an interface
/// there too and no daemon.
pub struct Network {
    nodes: Vec<Namespace>,
    outsider: Namespace,
    folder: tempfile::TempDir,
    medium: Namespace,
    mtu: u32,
    passing: Vec<Attached>,
}

impl Network {
    pub fn new(count: usize) -> Network {
        Network::with_mtu(count, 1500)
    }

    /// With an MTU of more than 3498, the nodes' drivers refuse XDP programs, which then run above them.
    pub fn with_mtu(count: usize, mtu: u32) -> Network {
        let medium = Namespace::new();
        medium.ip("link add name medium type bridge mcast_snooping 0");
        medium.ip("link set medium up");
        let nodes = (0..count).map(|_| Namespace::new()).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let key = folder.path().join("flood.key");
        fs::write(&key, KEY).expect("the key file");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("its mode");
        let outsider = Namespace::new();
        let mut network = Network { nodes, outsider, folder, medium, mtu, passing: Vec::new() };
        (1..=count).chain([OUTSIDER]).for_each(|number| network.plug_in(number));
        network
    }

    /// Gives a node its interface on the medium.
    pub fn plug_in(&mut self, number: usize) {
        let node = if number == OUTSIDER { &self.outsider } else { self.node(number) };
        let (name, mtu, medium) = (node.name(), self.mtu, &self.medium);
        medium
            .ip(&format!("link add port{number} mtu {mtu} type veth peer name air0 mtu {mtu} netns {name}"));
        medium.ip(&format!("link set port{number} master medium up"));
        node.ip(&format!("address add 10.9.0.{number}/24 dev air0"));
        node.ip("link set air0 up");
        // Checksums that the kernel leaves to a card are never filled in on the way through a bridge to XDP.
        succeed(&mut node.command("ethtool", ["-K", "air0", "tx", "off"]));
        // A VLAN's tag stays in the frame, where XDP sees it.
        succeed(&mut medium.command("ethtool", ["-K", &format!("port{number}"), "txvlan", "off"]));
        // What XDP programs send back out of a veth arrives only where its other end has one.
        let pass = || {
            let port = device::Net::open().expect("netlink").link(&format!("port{number}")).expect("a port");
            bpf::xdp::pass(port.index).expect("the kernel takes it")
        };
        self.passing.extend((mtu <= NATIVE_MTU).then(|| medium.within(pass)));
    }

    /// Takes away what lets through what XDP programs send back.
    pub fn swallow_what_is_sent_back(&mut self) {
        self.passing.clear();
    }

    /// Takes a node's interface away.
    pub fn unplug(&self, number: usize) {
        self.medium.ip(&format!("link delete port{number}"));
    }

    /// Node `number`'s file; `flood.key` is beside it.
    pub fn file(&self, number: usize, more: &str) -> PathBuf {
        self.file_of(number, number, more)
    }

    pub fn file_of(&self, number: usize, id: usize, more: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{number}.toml"));
        let text = format!("[[flood]]\ninterface = 'air0'\nid = {id}\n{more}");
        fs::write(&path, text).expect("the configuration file");
        path
    }

    pub fn start(&self, number: usize, more: &str) -> Daemon {
        Daemon::start(self.node(number), &self.file(number, more))
    }

    /// `nawa run FILE` as root without CAP_BPF: the kernel lets nobody load BPF programs without it.
    pub fn without_bpf(&self, number: usize, file: &Path) -> Command {
        let few = ["--bounding-set", "-all,+net_admin,+net_raw", "--inh-caps", "-all"];
        let run = [env!("CARGO_BIN_EXE_nawa"), "run", file.to_str().expect("UTF-8")];
        self.node(number).command("setpriv", few.into_iter().chain(run))
    }

    pub fn node(&self, number: usize) -> &Namespace {
        &self.nodes[number - 1]
    }

    /// An application of node `number`.
    pub fn connect(&self, number: usize) -> Client {
        self.node(number).within(|| Client::connect("air0")).expect("the node runs")
    }

    /// An application of node `number` that listens.
    pub fn listen(&self, number: usize) -> Client {
        let client = self.connect(number);
        client.listen().expect("it is there");
        eventually("it listens", || (self.status(number)["receivers"].as_u64() > Some(0)).then_some(()));
        client
    }

    pub fn status(&self, number: usize) -> Value {
        self.node(number).status()["flood"][0].clone()
    }

    pub fn counted(&self, number: usize, pointer: &str) -> u64 {
        self.status(number).pointer(pointer).and_then(Value::as_u64).expect(pointer)
    }

    /// Waits until node `number` has counted so many, or more.
    pub fn wait_for(&self, number: usize, pointer: &str, least: u64) {
        eventually(&format!("{pointer} of {least}"), || {
            (self.counted(number, pointer) >= least).then_some(())
        });
    }

    /// The outsider's way onto the medium, in UDP or not.
    pub fn outsider(&self, udp: bool) -> Outsider {
        self.outsider.within(|| {
            let index = device::Net::open().expect("netlink").link("air0").expect("air0").index;
            let packets = |ethertype| PacketSocket::open(index, Some(ethertype)).expect("a packet socket");
            if !udp {
                return Outsider::Frames(packets(ETHERTYPE));
            }
            let datagrams = BroadcastSocket::bind("air0", PORT, false).expect("a UDP socket");
            Outsider::Datagrams { datagrams, packets: packets(IPV4) }
        })
    }

    /// Sends a frame by the outsider's socket to one node alone.
    pub fn send_frame_to_one(&self, socket: &PacketSocket, number: usize, frame: &[u8]) {
        let mac = || device::Net::open().expect("netlink").link("air0").expect("air0").mac.expect("a MAC");
        let mut bytes = ethernet(frame);
        bytes[..6].copy_from_slice(&self.node(number).within(mac));
        socket.send(&bytes).expect("it goes");
    }

    /// Sends a datagram from the outsider to one node alone.
    pub fn send_to_one(&self, number: u8, payload: &[u8]) {
        let send = || {
            let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a UDP socket");
            socket.send_to(payload, (Ipv4Addr::new(10, 9, 0, number), PORT)).expect("it goes");
        };
        self.outsider.within(send);
    }
}

/// Who hears and sends what nodes do, and is none.
pub enum Outsider {
    Frames(PacketSocket),
    Datagrams {
        datagrams: BroadcastSocket,
        /// What nftables relay has its source's address, as if it had been sent here.
        packets: PacketSocket,
    },
}

impl Outsider {
    /// Sends a frame, from its header on; false if there is no room for it.
    pub fn send(&self, frame: &[u8]) -> bool {
        let sent = match self {
            Outsider::Frames(socket) => socket.send(&ethernet(frame)),
            Outsider::Datagrams { datagrams, .. } => datagrams.send(frame),
        };
        sent.is_ok()
    }

    /// The next frame that it heard, from its header on; behind it there may be padding.
    pub fn hear(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        match self {
            Outsider::Frames(socket) => socket.recv(&mut buffer)?.get(ETHERNET..).map(<[u8]>::to_vec),
            Outsider::Datagrams { packets, .. } => {
                packets.recv(&mut buffer)?.get(ETHERNET + UDP_IP..).map(<[u8]>::to_vec)
            }
        }
    }

    /// Who sent the next frame that it heard; of frames alone.
    pub fn hear_from(&self) -> Option<[u8; 6]> {
        let mut buffer = [0; 4096];
        let Outsider::Frames(socket) = self else { return None };
        socket.recv(&mut buffer)?.get(6..12)?.try_into().ok()
    }

    /// What may stand behind a frame.
    pub fn padding(&self) -> Padding {
        match self {
            Outsider::Frames(_) => Padding::Ethernet,
            Outsider::Datagrams { .. } => Padding::None,
        }
    }
}

pub fn ethernet(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 0x64]);
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(frame);
    bytes
}

pub fn text(message: Option<Message>) -> String {
    String::from_utf8(message.expect("it comes").data).expect("a text")
}

/// SipHash's key in `flood.key`.
pub fn key() -> [u8; 16] {
    use base64::Engine;
    let whole = base64::engine::general_purpose::STANDARD.decode(KEY).expect("base64");
    whole[8..24].try_into().expect("16 bytes")
}
