//! TUN: a network interface whose IP packets a program reads and writes, many at a time.
//!
//! With offload the kernel hands over TCP and UDP super-packets of up to 64 KiB, which are cut here, and takes such
//! super-packets, which are joined here: one system call then moves dozens of packets. What the kernel does not
//! support is left out by itself.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use packet::checksum::Sum;
use packet::gro::{Accepts, Header, Train, Trains};
use packet::gso::{self, Segmentation};

use crate::explained;
use crate::interface_request;
use crate::steering;
use crate::virtio::VirtioHeader;

/// The longest that one read returns, in bytes.
const READ: usize = VirtioHeader::LENGTH + 65535;
/// What a TUN can be asked to take over from the kernel, the most first: checksums and TCP with or without UDP.
const OFFLOADS: [(libc::c_uint, Accepts); 2] = [
    (
        libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_USO4 | libc::TUN_F_USO6,
        Accepts { tcp: true, udp: true },
    ),
    (libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6, Accepts { tcp: true, udp: false }),
];

/// A TUN interface; it exists as long as this value does. Only one thread should read: two would reorder.
#[derive(Debug)]
pub struct Tun {
    /// A descriptor for each queue, at least one.
    queues: Vec<File>,
    name: String,
    accepts: Accepts,
    buffer: Box<[u8]>,
    trains: Trains,
}

impl Tun {
    /// Makes the interface `name` (at most 15 bytes; a `%d` in it becomes a number) in the calling thread's network
    /// namespace, non-blocking, with as much offload as the kernel has. It is down and has no address yet.
    ///
    /// Fails without CAP_NET_ADMIN or `/dev/net/tun`, where `name` is taken or too long, and with `QuotaExceeded` where too many files
    /// are open.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::with_queues(name, 1)
    }

    /// The same with so many queues, each as long as the interface's: packets to one destination wait in one queue, so that others
    /// are not dropped for them.
    pub fn with_queues(name: &str, queues: usize) -> io::Result<Self> {
        let explain = |error| explained(error, format_args!("cannot make the TUN interface `{name}`"));
        let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let first = open()?;
        let given = attach(&first, name, several).map_err(explain)?;
        let accepts = offload(&first);
        let mut all = vec![first];
        while all.len() < queues {
            let file = open()?;
            attach(&file, &given, several).map_err(explain)?;
            all.push(file);
        }
        // Where that is not to be had, the kernel spreads them by flow.
        let _ = queues > 1 && steering::by_destination(&all[0]).is_ok();
        let buffer = vec![0; READ].into();
        Ok(Self { queues: all, name: given, accepts, buffer, trains: Trains::default() })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which super-packets are exchanged with the kernel.
    pub fn accepts(&self) -> Accepts {
        self.accepts
    }

    /// What to wait for, for each queue.
    pub fn queues(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd)
    }

    /// Reads once from a queue and calls `each` with every IP packet that came, checksums filled in; returns how many.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none, as in a queue that does not exist. 0 packets means that what came could not
    /// be cut.
    pub fn recv_from(&mut self, queue: usize, each: impl FnMut(&mut [u8])) -> io::Result<usize> {
        let mut file = self.queues.get(queue).ok_or(io::ErrorKind::WouldBlock)?;
        let length = file.read(&mut self.buffer)?;
        let Some((header, packet)) = VirtioHeader::parse(&mut self.buffer[..length]) else { return Ok(0) };
        Ok(deliver(&header, packet, each))
    }

    /// Hands whole IP packets to the kernel as if they had arrived at the interface, joining those of one flow;
    /// returns how many it took.
    ///
    /// A packet that the kernel refuses (it is none, the interface is down, memory is short) is dropped. Fails only
    /// where the TUN itself is gone.
    pub fn send<P: AsRef<[u8]>>(&mut self, packets: &[P]) -> io::Result<usize> {
        let mut trains = std::mem::take(&mut self.trains);
        trains.group(packets, self.accepts);
        let taken = trains.iter().map(|train| self.send_train(&train, &trains, packets)).sum();
        self.trains = trains;
        taken
    }

    fn send_train<P: AsRef<[u8]>>(
        &mut self,
        train: &Train,
        trains: &Trains,
        packets: &[P],
    ) -> io::Result<usize> {
        let mut members = trains.members(train).map(|index| packets[index].as_ref());
        let Some(header) = members.next().and_then(|first| train.header(first)) else {
            return self.send_singly(trains.members(train).map(|index| packets[index].as_ref()));
        };
        let members = || trains.members(train).map(|index| packets[index].as_ref());
        match self.send_joined(&header, members().filter_map(|packet| packet.get(train.headers()..))) {
            Ok(()) => Ok(train.count()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.give_up(header.kind);
                self.send_singly(members())
            }
            Err(error) => refusal(error).map(|()| 0),
        }
    }

    fn send_joined<'a>(&self, header: &Header, payloads: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let virtio = VirtioHeader::of(header).to_bytes();
        let mut parts = vec![IoSlice::new(&virtio), IoSlice::new(header.bytes())];
        for payload in payloads {
            parts.push(IoSlice::new(payload));
        }
        self.write(&parts)
    }

    /// One write is one packet: a TUN takes it whole or not at all.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.queues[0]).write_vectored(parts).map(|_whole| ())
    }

    fn send_singly<'a>(&self, packets: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut taken = 0;
        for packet in packets {
            let parts = [IoSlice::new(&[0; VirtioHeader::LENGTH]), IoSlice::new(packet)];
            match self.write(&parts) {
                Ok(()) => taken += 1,
                Err(error) => refusal(error)?,
            }
        }
        Ok(taken)
    }

    /// The kernel does not take this kind of super-packet.
    fn give_up(&mut self, kind: Segmentation) {
        match kind {
            Segmentation::Tcp => self.accepts.tcp = false,
            Segmentation::Udp => self.accepts.udp = false,
        }
    }
}

/// Calls `each` with what one read brought.
fn deliver(header: &VirtioHeader, packet: &mut [u8], mut each: impl FnMut(&mut [u8])) -> usize {
    if let Some(kind) = header.segmentation() {
        return gso::split(packet, kind, header.segment_size(), each).unwrap_or(0);
    }
    if let Some((start, at)) = header.checksum(packet.len()) {
        let sum = Sum::default().bytes(&packet[start..]).finish_udp();
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    each(packet);
    1
}

/// `Ok` where only the packet was refused, the error where the TUN is gone.
fn refusal(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EIO | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

fn open() -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun");
    file.map_err(|error| explained(error, "cannot open /dev/net/tun"))
}

/// Turns an open `/dev/net/tun` into the TUN `name`; the name it got.
fn attach(file: &File, name: &str, several: libc::c_int) -> io::Result<String> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    let mut request = interface_request::with_flags(name, flags)?;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(interface_request::name(&request)) }
}

/// Switches on the most offload that the kernel takes.
fn offload(file: &File) -> Accepts {
    let accepted = |flags: libc::c_uint| {
        let flags = libc::c_ulong::from(flags);
        // SAFETY: TUNSETOFFLOAD takes its argument by value; the descriptor is open.
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, flags) == 0 }
    };
    let best = OFFLOADS.iter().find(|(flags, _)| accepted(*flags));
    best.map_or(Accepts::default(), |(_, accepts)| *accepts)
}
