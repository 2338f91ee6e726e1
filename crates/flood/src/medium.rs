//! What lies below a node: how frames come and go, and who relays them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bpf::xdp::{self, Attached};
use device::{BroadcastSocket, Net, PacketSocket};

use crate::bell::Bell;
use crate::board::Writer;
use crate::driver::{Driver, Handing, Listening};
use crate::frame::{DATA_MAX, ETHERTYPE, Frame, Padding, Verdict, Wire};
use crate::nft::Table;
use crate::settings::{Mode, Settings};
use crate::window::Window;

/// Destination, source and type.
const ETHERNET: usize = 14;
/// The destination of every frame.
const EVERYBODY: [u8; 6] = [0xff; 6];
/// Headers of IPv4 and UDP.
const UDP_IP: usize = 28;
/// Longer than any frame with its Ethernet header.
const LONGEST: usize = 4096;
/// Frames taken from a socket at once.
const BATCH: usize = 64;

/// How an interface floods.
pub(crate) enum Medium {
    /// XDP relays; what is sent goes through a packet socket.
    Driver { driver: Driver, attached: Attached, socket: PacketSocket, index: u32, waits: bool },
    /// This program relays Ethernet frames: the fallback of `driver`.
    Packet { socket: PacketSocket, window: Window },
    /// nftables relay datagrams.
    Kernel { table: Table, socket: BroadcastSocket, window: Window },
    /// This program relays datagrams.
    Application { socket: BroadcastSocket, window: Window },
}

/// A frame that was heard.
pub(crate) struct Heard {
    pub(crate) verdict: Verdict,
    /// From its header on; of what is not new, only the header may be there.
    pub(crate) bytes: Vec<u8>,
}

impl Medium {
    /// What `settings` ask for; where the driver cannot, why not is told and a packet socket does it.
    pub(crate) fn open(settings: &Settings) -> io::Result<(Medium, Option<String>)> {
        let link = Net::open()?.link(&settings.interface)?;
        let window = Window::new(settings.rules);
        let (interface, port) = (settings.interface.as_str(), settings.port);
        // What it is a port of takes frames after XDP, and before any socket or nftables' rule of the interface has them.
        let heard =
            |driver: String| link.taken().map_or(Ok(()), |taken| Err(io::Error::other(driver + &taken)));
        Ok(match settings.mode {
            Mode::Driver => match Medium::driver(settings, link.index) {
                Ok(medium) => {
                    let refused = match &medium {
                        Medium::Driver { attached, .. } => attached.refused.clone(),
                        _ => None,
                    };
                    (medium, refused)
                }
                Err(why) => {
                    heard(format!("{why}; "))?;
                    let socket = PacketSocket::open(link.index, Some(ETHERTYPE))?;
                    (Medium::Packet { socket, window }, Some(why))
                }
            },
            Mode::Kernel => {
                heard(String::new())?;
                // nftables change TTL within a datagram, and mend no checksum.
                let socket = BroadcastSocket::bind(interface, port, false)?;
                let table = Table::install(interface, port, &settings.rules)?;
                (Medium::Kernel { table, socket, window }, None)
            }
            Mode::Application => {
                heard(String::new())?;
                let socket = BroadcastSocket::bind(interface, port, true)?;
                (Medium::Application { socket, window }, None)
            }
        })
    }

    fn driver(settings: &Settings, index: u32) -> Result<Medium, String> {
        let socket = PacketSocket::open(index, None).map_err(|error| error.to_string())?;
        let handing = Handing { all: settings.waits(), quiet: settings.busy_poll };
        let driver = Driver::load(&settings.rules, socket.mac(), handing);
        let driver = driver.map_err(|error| error.to_string())?;
        let attached = driver.attach(index).map_err(|error| error.to_string())?;
        Ok(Medium::Driver { driver, attached, socket, index, waits: settings.waits() })
    }

    /// Who relays, as state shows it.
    pub(crate) fn relay(&self) -> &'static str {
        match self {
            Medium::Driver { attached, .. } => match attached.mode {
                xdp::Mode::Native => "xdp-native",
                xdp::Mode::Generic => "xdp-generic",
            },
            Medium::Packet { .. } => "packet-socket",
            Medium::Kernel { .. } => "nftables",
            Medium::Application { .. } => "udp-socket",
        }
    }

    /// Bytes of data that fit into a frame on an interface of this MTU.
    pub(crate) fn data_max(&self, mtu: u32, wire: Wire) -> usize {
        let headers = match self {
            Medium::Driver { .. } | Medium::Packet { .. } => 0,
            Medium::Kernel { .. } | Medium::Application { .. } => UDP_IP,
        };
        (mtu as usize).saturating_sub(headers + wire.header_bytes()).min(DATA_MAX)
    }

    /// Whether this program relays, and not the kernel.
    pub(crate) fn relays_here(&self) -> bool {
        matches!(self, Medium::Packet { .. } | Medium::Application { .. })
    }

    /// Has messages delivered from now on.
    pub(crate) fn listen(&self, how: Listening) -> io::Result<()> {
        match self {
            Medium::Driver { driver, .. } => driver.listen(how).map_err(io::Error::other),
            _ => Ok(()),
        }
    }

    /// How applications get messages here.
    pub(crate) fn delivery(&mut self) -> io::Result<Delivery> {
        if let Medium::Driver { driver, attached, index, waits: false, .. } = self {
            match Bell::of_driver(driver, *index, attached.mode) {
                Ok(bell) => {
                    return Ok(Delivery {
                        board: driver.board().map_err(io::Error::other)?,
                        bell,
                        writer: None,
                    });
                }
                Err(why) => tracing::info!("messages are delivered by the node, not by the driver: {why}"),
            }
        }
        let (writer, board) = Writer::create()?;
        Ok(Delivery { board, bell: Bell::of_node()?, writer: Some(writer) })
    }

    /// For one application, by which it sends without the node; `None` where it cannot.
    pub(crate) fn outlet(&self) -> Option<PacketSocket> {
        match self {
            Medium::Driver { index, waits: false, .. } => PacketSocket::open(*index, None).ok(),
            _ => None,
        }
    }

    /// Sends a frame, from its header on.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        match self {
            Medium::Driver { socket, .. } | Medium::Packet { socket, .. } => {
                socket.send(&ethernet(socket.mac(), frame))
            }
            Medium::Kernel { socket, .. } | Medium::Application { socket, .. } => socket.send(frame),
        }
    }

    /// Whether all that was sent has left the interface, as far as its driver tells.
    pub(crate) fn has_sent(&self) -> bool {
        let socket = match self {
            Medium::Driver { socket, .. } | Medium::Packet { socket, .. } => socket.as_fd(),
            Medium::Kernel { socket, .. } | Medium::Application { socket, .. } => socket.as_fd(),
        };
        device::packet_socket::unsent(socket).unwrap_or(0) == 0
    }

    /// Some of what was heard; perhaps nothing, where there is more.
    pub(crate) fn take(&mut self, now: Duration) -> Vec<Heard> {
        let mut buffer = [0; LONGEST];
        match self {
            Medium::Driver { driver, .. } => {
                driver.take().into_iter().map(|bytes| Heard { verdict: Verdict::New, bytes }).collect()
            }
            Medium::Packet { socket, window } => batch(|| {
                // What is for one node alone is no flood, as in UDP: it may come from beyond the network.
                let frame = socket.recv_broadcast(&mut buffer)?.map(|frame| frame.get(ETHERNET..));
                Some(frame.map(|bytes| judge(window, now, bytes.unwrap_or_default(), Padding::Ethernet)))
            }),
            Medium::Kernel { socket, window, .. } | Medium::Application { socket, window } => {
                batch(|| Some(Some(judge(window, now, socket.recv(&mut buffer)?, Padding::None))))
            }
        }
    }
}

/// A frame to everybody, from its Ethernet header on.
pub(crate) fn ethernet(mac: [u8; 6], frame: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ETHERNET + frame.len());
    bytes.extend(EVERYBODY);
    bytes.extend(mac);
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(frame);
    bytes
}

/// How applications get messages: a board, who writes it, and what wakes them.
pub(crate) struct Delivery {
    pub(crate) board: OwnedFd,
    pub(crate) bell: Bell,
    /// The XDP program if it is not this one.
    writer: Option<Writer>,
}

impl Delivery {
    /// Whether the XDP program does it all.
    pub(crate) fn is_by_driver(&self) -> bool {
        self.writer.is_none()
    }

    /// Puts a frame onto the board, where that is not done yet; whether it was not.
    pub(crate) fn post(&mut self, frame: &[u8]) -> bool {
        if let Some(writer) = &mut self.writer {
            writer.post(frame);
            self.bell.ring();
        }
        self.writer.is_some()
    }
}

/// Of so many frames that come, those that are wanted: strangers who send others starve nobody either.
fn batch(next: impl FnMut() -> Option<Option<Heard>>) -> Vec<Heard> {
    std::iter::from_fn(next).take(BATCH).flatten().collect()
}

fn judge(window: &mut Window, now: Duration, bytes: &[u8], padding: Padding) -> Heard {
    let header = window.rules().format.wire().header_bytes();
    match window.handle_frame(now, bytes, padding) {
        Ok(Frame { data, .. }) => {
            Heard { verdict: Verdict::New, bytes: bytes[..header + data.len()].to_vec() }
        }
        Err(verdict) => Heard { verdict, bytes: bytes[..header.min(bytes.len())].to_vec() },
    }
}

impl AsFd for Medium {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Medium::Driver { driver, .. } => driver.records().as_fd(),
            Medium::Packet { socket, .. } => socket.as_fd(),
            Medium::Kernel { socket, .. } | Medium::Application { socket, .. } => socket.as_fd(),
        }
    }
}
