//! Receiving trains of datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use super::UdpSocket;
use super::control::{Control, Name, array, read_packet_info};

/// Messages per system call; each may be a train of datagrams.
const MESSAGES: usize = 16;
/// The longest train that the kernel joins, in bytes.
const MESSAGE: usize = 65535;

/// What came with one datagram, or with a train of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Who sent it.
    pub remote: SocketAddr,
    /// The local address that it was sent to.
    pub local: Option<IpAddr>,
    /// Index of the interface it came in by; 0 if the kernel did not say.
    pub interface: u32,
    /// TOS or traffic class of the IP header: DSCP and ECN.
    pub tos: u8,
    /// Length of every datagram of the train but the last, in bytes; at least 1.
    pub segment_size: usize,
}

/// Memory for one `recvmmsg`; may serve several sockets in turn.
pub struct RecvBatch {
    buffers: Box<[u8]>,
    controls: [Control; MESSAGES],
    names: [Name; MESSAGES],
    /// Bytes of data and of control messages that each message of the last call has; `None`: cut off.
    lengths: [Option<(usize, usize)>; MESSAGES],
    /// Messages of the last call.
    filled: usize,
}

impl RecvBatch {
    /// The trains that the last receive brought: datagrams of [`Meta::segment_size`] bytes (the last may be shorter)
    /// of one sender, one after the other; never empty.
    pub fn trains(&self) -> impl Iterator<Item = (Meta, &[u8])> {
        let train = |index: usize| {
            self.meta(index).map(|(meta, length)| (meta, &self.buffers[index * MESSAGE..][..length]))
        };
        (0..self.filled).filter_map(train)
    }

    /// What came with a message of the last call, and its length, if it is whole and not empty.
    fn meta(&self, index: usize) -> Option<(Meta, usize)> {
        let (length, control) = self.lengths[index].filter(|(length, _)| *length > 0)?;
        let remote = self.names[index].address()?;
        Some((read_meta(remote, length, self.controls[index].messages(control)), length))
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self {
            buffers: vec![0; MESSAGES * MESSAGE].into(),
            controls: [Control::default(); MESSAGES],
            names: [Name::default(); MESSAGES],
            lengths: [None; MESSAGES],
            filled: 0,
        }
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// Receives once and calls `each` with every datagram; returns how many.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none. Empty datagrams are dropped.
    pub fn recv(&self, batch: &mut RecvBatch, mut each: impl FnMut(Meta, &mut [u8])) -> io::Result<usize> {
        self.fill(batch)?;
        let mut count = 0;
        for index in 0..batch.filled {
            let Some((meta, length)) = batch.meta(index) else { continue };
            let train = &mut batch.buffers[index * MESSAGE..][..length];
            for datagram in train.chunks_mut(meta.segment_size) {
                count += 1;
                each(meta, datagram);
            }
        }
        Ok(count)
    }

    /// Receives once into `batch`, for [`RecvBatch::trains`]; what was in it is gone.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is nothing.
    pub fn fill(&self, batch: &mut RecvBatch) -> io::Result<()> {
        batch.filled = 0;
        batch.filled = self.receive(batch)?;
        Ok(())
    }

    /// One `recvmmsg`; the number of messages.
    fn receive(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        // SAFETY: all zero is a valid `mmsghdr` and `iovec`: integers and nullable pointers.
        let (mut headers, mut parts): ([libc::mmsghdr; MESSAGES], [libc::iovec; MESSAGES]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let buffers = batch.buffers.chunks_exact_mut(MESSAGE);
        for (index, buffer) in buffers.enumerate() {
            parts[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = batch.names[index].as_mut_ptr();
            header.msg_namelen = Name::capacity();
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = batch.controls[index].as_mut_ptr();
            header.msg_controllen = Control::capacity() as _;
        }
        let socket = self.socket.as_raw_fd();
        // SAFETY: each header points to a name, one iovec, a buffer and a control buffer of the lengths it gives;
        // all are distinct and outlive the call.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                headers.as_mut_ptr(),
                MESSAGES as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for (length, header) in batch.lengths.iter_mut().zip(&headers[..received]) {
            let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            *length = (!cut).then_some((header.msg_len as usize, header.msg_hdr.msg_controllen as _));
        }
        Ok(received)
    }
}

/// What the control messages of a train of `length` bytes say.
fn read_meta<'a>(
    remote: SocketAddr,
    length: usize,
    messages: impl Iterator<Item = (i32, i32, &'a [u8])>,
) -> Meta {
    let mut meta = Meta { remote, local: None, interface: 0, tos: 0, segment_size: length.max(1) };
    for (level, kind, data) in messages {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) | (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some((interface, local)) = read_packet_info(level, data) {
                    (meta.interface, meta.local) = (interface, Some(local));
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => meta.tos = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => meta.tos = int(data).unwrap_or(0) as u8,
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = int(data).and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
                meta.segment_size = size.unwrap_or(meta.segment_size);
            }
            _ => {}
        }
    }
    meta
}

fn int(data: &[u8]) -> Option<i32> {
    array(data, 0).map(i32::from_ne_bytes)
}
