//! Sending trains of datagrams.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::control::{Control, Name, packet_info_v4, packet_info_v6};
use super::{Refused, UdpSocket};
use crate::monotonic;

/// Messages per system call.
const MESSAGES: usize = 32;
/// Datagrams that the kernel cuts one message into at most (UDP_MAX_SEGMENTS before Linux 6.9).
const MAX_SEGMENTS: usize = 64;
/// Trains are tried again so long after a way out was the first to refuse them: what refused may have passed.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest message, in bytes: 65535 less the headers of IPv4 and UDP.
const MAX_MESSAGE: usize = 65507;

/// A datagram to send, or a train of them.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// To whom.
    pub remote: SocketAddr,
    /// From which local address; `None`: the kernel's choice. Of the same family as `remote`.
    pub local: Option<IpAddr>,
    /// By which interface; `None`: the routing table's choice.
    pub interface: Option<u32>,
    /// TOS or traffic class of the IP header: DSCP and ECN.
    pub tos: u8,
    /// `contents` is a train of datagrams of this many bytes, the last may be shorter; `None`: one datagram.
    pub segment_size: Option<usize>,
    /// What is sent. Trains may be of any length.
    pub contents: &'a [u8],
}

/// A transmit that was not sent, or not all of it.
#[derive(Debug)]
pub struct SendFailure {
    /// Its place in what [`UdpSocket::send`] was given.
    pub index: usize,
    /// Why: [`io::ErrorKind::WouldBlock`] where the socket's buffer is full, EMSGSIZE where a datagram is longer
    /// than its interface takes, ENETUNREACH without a route, ….
    pub error: io::Error,
}

/// What one message carries: a transmit, or as much of it as fits.
#[derive(Clone, Copy)]
struct Piece<'a> {
    index: usize,
    transmit: &'a Transmit<'a>,
    bytes: &'a [u8],
    /// The kernel has to cut it into datagrams of this size.
    segment_size: Option<u16>,
}

impl UdpSocket {
    /// Sends all of `transmits`, in order, in as few system calls as possible. Returns an entry for each that failed, in
    /// order; what is not there was handed to the kernel.
    ///
    /// A train that its interface refuses as a train is sent datagram by datagram, from then on at once. When the
    /// buffer is full, nothing more is tried. A train that fails may have been sent in part.
    pub fn send(&self, transmits: &[Transmit<'_>]) -> Vec<SendFailure> {
        let mut failures = Vec::new();
        let mut pieces = Vec::with_capacity(MESSAGES);
        let whole = |(index, transmit)| self.cut(index, transmit);
        let mut all = transmits.iter().enumerate().flat_map(whole).peekable();
        while all.peek().is_some() {
            pieces.clear();
            pieces.extend(all.by_ref().take(MESSAGES));
            if let Err(blocked) = self.submit(&pieces, &mut failures) {
                (blocked..transmits.len())
                    .for_each(|index| fail(&mut failures, index, io::ErrorKind::WouldBlock.into()));
                return failures;
            }
        }
        failures
    }

    /// The messages that carry a transmit.
    fn cut<'a>(&self, index: usize, transmit: &'a Transmit<'a>) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let size = transmit.segment_size.unwrap_or(usize::MAX).max(1);
        let train = transmit.contents.len() > size && self.takes_trains(transmit);
        let segments = if train { (MAX_MESSAGE / size).clamp(1, MAX_SEGMENTS) } else { 1 };
        let piece = move |bytes: &'a [u8]| {
            let segment_size = u16::try_from(size).ok().filter(|_| bytes.len() > size);
            Piece { index, transmit, bytes, segment_size }
        };
        transmit.contents.chunks(size.saturating_mul(segments)).map(piece)
    }

    fn takes_trains(&self, transmit: &Transmit<'_>) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if refused.since.is_some_and(|since| monotonic() >= since + AGAIN) {
            *refused = Refused::default();
        }
        !refused.ways.contains(&(transmit.interface, transmit.remote.ip()))
    }

    fn refuse_trains(&self, transmit: &Transmit<'_>) {
        let mut refused = self.refused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        refused.since.get_or_insert_with(monotonic);
        refused.ways.insert((transmit.interface, transmit.remote.ip()));
    }

    /// Sends `pieces`; `Err` with a transmit's index where the buffer was full.
    fn submit(&self, mut pieces: &[Piece<'_>], failures: &mut Vec<SendFailure>) -> Result<(), usize> {
        while let Some(first) = pieces.first() {
            match self.send_messages(pieces) {
                Ok(sent) => {
                    pieces = &pieces[sent..];
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(first.index),
                Err(error) if first.segment_size.is_some() && refuses_trains(&error) => {
                    self.submit_singly(first, failures)?;
                }
                Err(error) => fail(failures, first.index, error),
            }
            pieces = &pieces[1..];
        }
        Ok(())
    }

    /// Sends a train that was refused datagram by datagram, and remembers the refusal if that helped.
    fn submit_singly(&self, train: &Piece<'_>, failures: &mut Vec<SendFailure>) -> Result<(), usize> {
        let size = train.segment_size.map_or(usize::MAX, usize::from);
        let single = |bytes| Piece { bytes, segment_size: None, ..*train };
        let before = failures.len();
        for group in train.bytes.chunks(size.saturating_mul(MESSAGES)) {
            let pieces: Vec<_> = group.chunks(size).map(single).collect();
            self.submit(&pieces, failures)?;
        }
        if failures.len() == before {
            self.refuse_trains(train.transmit);
        }
        Ok(())
    }

    /// One `sendmmsg`; the number of messages sent, at least one.
    fn send_messages(&self, pieces: &[Piece<'_>]) -> io::Result<usize> {
        let count = pieces.len().min(MESSAGES);
        // SAFETY: all zero is a valid `mmsghdr` and `iovec`: integers and nullable pointers.
        let (mut headers, mut parts): ([libc::mmsghdr; MESSAGES], [libc::iovec; MESSAGES]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut names = [Name::default(); MESSAGES];
        let mut controls = [Control::default(); MESSAGES];
        for (index, piece) in pieces[..count].iter().enumerate() {
            let header = &mut headers[index].msg_hdr;
            // sendmmsg only reads through the pointers, mutable as their types are.
            parts[index] =
                libc::iovec { iov_base: piece.bytes.as_ptr().cast_mut().cast(), iov_len: piece.bytes.len() };
            (names[index], header.msg_namelen) = Name::of(piece.transmit.remote);
            let length = write_control(piece, &mut controls[index]);
            header.msg_name = names[index].as_mut_ptr();
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            if length > 0 {
                header.msg_control = controls[index].as_mut_ptr();
                header.msg_controllen = length as _;
            }
        }
        let socket = self.socket.as_raw_fd();
        // SAFETY: each of the first `count` headers points to a name, one iovec, its bytes and a control buffer of
        // the lengths it gives; all outlive the call, which only reads them.
        let sent =
            unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count as _, libc::MSG_DONTWAIT as _) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// A transmit fails once.
fn fail(failures: &mut Vec<SendFailure>, index: usize, error: io::Error) {
    if failures.last().is_none_or(|last| last.index != index) {
        failures.push(SendFailure { index, error });
    }
}

/// Whether it is the train that the interface does not take: other errors are of the way, and pass.
fn refuses_trains(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

/// Local address, interface, TOS and segment size as control messages; their length in bytes.
fn write_control(piece: &Piece<'_>, control: &mut Control) -> usize {
    let transmit = piece.transmit;
    let (mut length, tos) = (0, i32::from(transmit.tos).to_ne_bytes());
    let interface = transmit.interface.unwrap_or(0);
    let asked = interface != 0 || transmit.local.is_some();
    if transmit.remote.is_ipv4() {
        if asked {
            let local =
                if let Some(IpAddr::V4(local)) = transmit.local { local } else { Ipv4Addr::UNSPECIFIED };
            control.push(&mut length, libc::IPPROTO_IP, libc::IP_PKTINFO, &packet_info_v4(interface, local));
        }
        if transmit.tos != 0 {
            control.push(&mut length, libc::IPPROTO_IP, libc::IP_TOS, &tos);
        }
    } else {
        if asked {
            let local =
                if let Some(IpAddr::V6(local)) = transmit.local { local } else { Ipv6Addr::UNSPECIFIED };
            control.push(
                &mut length,
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                &packet_info_v6(interface, local),
            );
        }
        if transmit.tos != 0 {
            control.push(&mut length, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
        }
    }
    if let Some(size) = piece.segment_size {
        control.push(&mut length, libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{Options, RecvBatch, set};

    #[test]
    fn an_error_that_passes_is_no_refusal() {
        let refuses = |number| refuses_trains(&io::Error::from_raw_os_error(number));
        assert!(refuses(libc::EIO) && refuses(libc::EINVAL));
        assert!(![libc::ENOBUFS, libc::EPERM, libc::ENETUNREACH, libc::EMSGSIZE].into_iter().any(refuses));
    }

    /// A socket that may not compute checksums cannot send trains: the kernel fails them with EINVAL, as it does
    /// for interfaces that cannot.
    #[test]
    fn a_refused_train_is_sent_singly_and_remembered_for_a_while() {
        let bind = || UdpSocket::bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
        let (sender, receiver) = (bind(), bind());
        set(&sender.socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let remote = receiver.local_address().unwrap();
        let contents = [1, 1, 1, 2, 2, 2, 3];
        let train = Transmit {
            remote,
            local: None,
            interface: None,
            tos: 0,
            segment_size: Some(3),
            contents: &contents,
        };
        assert!(sender.takes_trains(&train));
        for _ in 0..2 {
            let failures = sender.send(&[train]);
            assert!(failures.is_empty(), "{failures:?}");
            assert!(!sender.takes_trains(&train));
        }
        let (mut batch, mut all) = (RecvBatch::default(), Vec::new());
        while receiver.recv(&mut batch, |_, datagram| all.push(datagram.to_vec())).is_ok() {}
        let once = [vec![1; 3], vec![2; 3], vec![3]];
        assert_eq!(all, [&once[..], &once[..]].concat());
        let long_ago = monotonic().checked_sub(AGAIN);
        sender.refused.lock().unwrap().since = long_ago;
        assert!(sender.takes_trains(&train), "it is tried again");
    }
}
