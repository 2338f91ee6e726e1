//! All that an interface hears, and what is sent by it past the kernel's protocols: frames as they were on the medium.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use packet::checksum::Sum;
use packet::{gso, sctp};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::BUFFER;
use crate::packet_socket::{bind, unsent};
use crate::socket_option::set;
use crate::udp::control::{Control, array};
use crate::virtio::VirtioHeader;

/// The longest that one receive returns, in bytes: a train that the kernel joined, behind Ethernet's header.
const READ: usize = VirtioHeader::LENGTH + ETHERNET + 65535;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Where the tag of a VLAN stands in a frame.
const TAG: usize = 12;
/// How far behind its header's beginning SCTP's checksum stands; no other protocol's does.
const SCTP_CHECKSUM: usize = 8;
/// In `struct tpacket_auxdata`, at these bytes: there is a VLAN's tag, and it has an EtherType of its own.
const VLAN_VALID: u32 = 1 << 4;
const TPID_VALID: u32 = 1 << 6;
const TCI_AT: usize = 16;
const TPID_AT: usize = 18;

/// A non-blocking packet socket that hears every frame at one interface, also those for others (promiscuous mode), and
/// none that leaves this host. What the kernel did to frames is undone: it cuts what was joined (GRO), fills in checksums
/// that were left to a card, and puts VLAN tags back.
#[derive(Debug)]
pub struct PromiscuousSocket {
    socket: OwnedFd,
    /// Bytes of memory that frames below may take while there is [`room`](Self::has_room).
    below: u32,
    /// Whether frames are kept back from the queue below.
    short: bool,
    buffer: Box<[u8]>,
}

impl PromiscuousSocket {
    /// At the interface with this index and MTU, in the calling thread's network namespace. The mode ends with the socket.
    /// Fails without CAP_NET_RAW, and where there is no such interface.
    pub fn open(interface: u32, mtu: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        for option in [libc::PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, PACKET_AUXDATA] {
            set(&socket, libc::SOL_PACKET, option, 1)?;
        }
        // What the kernel's limit cuts off is no error.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER);
        bind(&socket, libc::ETH_P_ALL as u16, interface)?;
        let mode = libc::packet_mreq {
            mr_ifindex: interface.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, mode)?;
        let opened = Self { socket, below: memory_of(mtu), short: true, buffer: vec![0; READ].into() };
        opened.limit()?;
        Ok(opened)
    }

    /// Keeps the queue below as short as it begins, or leaves it to the interface, which may schedule it and send many of its frames
    /// as one.
    pub fn keep_short(&mut self, short: bool) -> io::Result<()> {
        if self.short == short {
            return Ok(());
        }
        self.short = short;
        self.limit()
    }

    fn limit(&self) -> io::Result<()> {
        // Two frames: one is being sent, one is ready. The kernel doubles the number, and calls half of it room.
        let short = i32::try_from(self.below).map_err(io::Error::other)?;
        let (option, bytes) =
            if self.short { (libc::SO_SNDBUF, short) } else { (libc::SO_SNDBUFFORCE, BUFFER) };
        set(&self.socket, libc::SOL_SOCKET, option, bytes)
    }

    /// Whether at most one frame is still below, in the interface's queue or its driver. If not, the socket becomes
    /// writable when that changes. Where the queue is left to the interface, [`send`](Self::send) says whether there is room.
    pub fn has_room(&self) -> bool {
        if !self.short {
            return true;
        }
        unsent(&self.socket).map_or(true, |queued| queued + 1 < self.below)
    }

    /// Sends one frame, checksums filled in, from its destination address on.
    ///
    /// [`io::ErrorKind::WouldBlock`] where there is no room, ENOBUFS where the interface's own queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(&[0; VirtioHeader::LENGTH]), IoSlice::new(frame)];
        Ok(rustix::io::writev(&self.socket, &parts).map(drop)?)
    }

    /// Receives once and calls `each` with every frame that came; returns how many.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none. 0 frames means that what came could not be cut. Fails once where the
    /// interface has gone down or away.
    pub fn recv(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut control = Control::default();
        let (length, told) = self.receive(&mut control)?;
        let tag = control.messages(told).find_map(vlan_tag);
        let Some((header, frame)) = VirtioHeader::parse(&mut self.buffer[..length]) else { return Ok(0) };
        let Some(tag) = tag else { return Ok(undo(&header, frame, each)) };
        let mut tagged = Vec::new();
        Ok(undo(&header, frame, |frame| {
            tagged.clear();
            tagged.extend_from_slice(&frame[..TAG]);
            tagged.extend_from_slice(&tag);
            tagged.extend_from_slice(&frame[TAG..]);
            each(&tagged);
        }))
    }

    /// One `recvmsg`; bytes of data and of control messages.
    fn receive(&mut self, control: &mut Control) -> io::Result<(usize, usize)> {
        let mut part = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: all zero is a valid `msghdr`: integers and nullable pointers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr();
        header.msg_controllen = Control::capacity() as _;
        // SAFETY: the header points to one iovec with the buffer and to a control buffer, of the lengths it gives; all
        // outlive the call.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        Ok((length, header.msg_controllen as usize))
    }
}

impl AsFd for PromiscuousSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const PACKET_AUXDATA: libc::c_int = 8;
const PACKET_VNET_HDR: libc::c_int = 15;
/// `struct sk_buff` with its alignment, what drivers reserve before a frame, and what stands behind it
/// (`struct skb_shared_info`), in bytes; about.
const SKB: u32 = 256;
const AROUND_DATA: u32 = 512;

/// What a frame of that many bytes of payload takes in the kernel, and one byte.
fn memory_of(mtu: u32) -> u32 {
    (mtu + AROUND_DATA).next_power_of_two() + SKB + 1
}

/// The four bytes of a VLAN's tag that the kernel has taken out of the frame.
fn vlan_tag((level, kind, data): (i32, i32, &[u8])) -> Option<[u8; 4]> {
    let status = u32::from_ne_bytes(array(data, 0)?);
    if (level, kind) != (libc::SOL_PACKET, PACKET_AUXDATA) || status & VLAN_VALID == 0 {
        return None;
    }
    let word = |at| array(data, at).map(u16::from_ne_bytes);
    let tpid = if status & TPID_VALID != 0 { word(TPID_AT)? } else { libc::ETH_P_8021Q as u16 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), word(TCI_AT)?.to_be_bytes());
    Some([a, b, c, d])
}

/// Calls `each` with the frames that one receive brought; how many.
fn undo(header: &VirtioHeader, frame: &mut [u8], mut each: impl FnMut(&[u8])) -> usize {
    if frame.len() < ETHERNET {
        return 0;
    }
    if let Some(kind) = header.segmentation() {
        let (link, packet) = frame.split_at_mut(ETHERNET);
        let mut one = Vec::new();
        let cut = gso::split(packet, kind, header.segment_size(), |segment| {
            one.clear();
            one.extend_from_slice(link);
            one.extend_from_slice(segment);
            each(&one);
        });
        return cut.unwrap_or(0);
    }
    if let Some((start, at)) = header.checksum(frame.len()) {
        // SCTP's is a CRC, which the header has no word for.
        if at - start == SCTP_CHECKSUM {
            sctp::fill_checksum(&mut frame[start..]);
        } else {
            let sum = Sum::default().bytes(&frame[start..]).finish_udp();
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    each(frame);
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_where_there_is_one() {
        let mut data = [0; 20];
        let read = |data: &[u8]| vlan_tag((libc::SOL_PACKET, PACKET_AUXDATA, data));
        data[TCI_AT..TPID_AT].copy_from_slice(&5u16.to_ne_bytes());
        assert_eq!(read(&data), None);
        data[..4].copy_from_slice(&VLAN_VALID.to_ne_bytes());
        assert_eq!(read(&data), Some([0x81, 0, 0, 5]));
        data[..4].copy_from_slice(&(VLAN_VALID | TPID_VALID).to_ne_bytes());
        data[TPID_AT..].copy_from_slice(&0x88a8u16.to_ne_bytes());
        assert_eq!(read(&data), Some([0x88, 0xa8, 0, 5]));
        assert_eq!(read(&data[..18]), None);
    }

    #[test]
    fn checksums_left_to_a_card_are_filled_in_sctp_with_its_crc() {
        // NEEDS_CSUM, no segmentation; the sum begins behind IP, and stands 8 (SCTP) or 16 (TCP) bytes further.
        let filled = |offset: u16| {
            let mut read = vec![1, 0, 0, 0, 0, 0];
            read.extend([34u16, offset].map(u16::to_ne_bytes).as_flattened());
            read.extend((0..34 + 40).map(|byte: u8| if (42..52).contains(&byte) { 0 } else { byte }));
            let (header, frame) = VirtioHeader::parse(&mut read).expect("it is long enough");
            let mut one = Vec::new();
            assert_eq!(undo(&header, frame, |frame| one = frame[34..].to_vec()), 1);
            one
        };
        assert!(sctp::Sctp::from_bytes(&filled(8)).expect("a header").checksum_right());
        assert!(packet::checksum::verify(Sum::default(), &filled(16)));
    }

    #[test]
    fn frames_too_short_are_none() {
        let header = VirtioHeader::default();
        assert_eq!(undo(&header, &mut [0; 13], |_| panic!("a frame")), 0);
        assert_eq!(undo(&header, &mut [0; 14], |frame| assert_eq!(frame.len(), 14)), 1);
    }
}
