//! Netlink messages as bytes (RFC 3549 §2.3): lengths and types in the machine's byte order, all aligned to four.

use std::net::IpAddr;

/// `struct nlmsghdr`: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// `struct nlattr`: length, type.
const ATTRIBUTE: usize = 4;

/// A request that is being written.
#[derive(Debug)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn new(kind: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        Self(bytes)
    }

    /// Appends a fixed header, or a part of it that is a multiple of four bytes.
    pub(crate) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub(crate) fn text(self, kind: u16, text: &str) -> Self {
        self.attribute(kind, &[text.as_bytes(), &[0]].concat())
    }

    pub(crate) fn address(self, kind: u16, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    pub(crate) fn attribute(mut self, kind: u16, data: &[u8]) -> Self {
        self.0.extend(attribute(kind, data));
        self
    }

    /// The message, complete with its length, `sequence` and `flags`.
    pub(crate) fn finish(mut self, sequence: u32, flags: libc::c_int) -> Vec<u8> {
        let length = self.0.len() as u32;
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

/// An attribute by itself, to stand in another.
pub(crate) fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = ((ATTRIBUTE + data.len()) as u16).to_ne_bytes();
    let mut bytes = [&length, &kind.to_ne_bytes(), data].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// What it is about, as `RTM_NEWLINK`.
    pub(crate) kind: u16,
    /// That of the request.
    pub(crate) sequence: u32,
    /// What follows the header.
    pub(crate) body: &'a [u8],
}

impl Reply<'_> {
    /// The `errno` of an error message; 0 is an acknowledgement.
    pub(crate) fn error(&self) -> Option<i32> {
        let code = self.body.first_chunk().filter(|_| i32::from(self.kind) == libc::NLMSG_ERROR)?;
        Some(i32::from_ne_bytes(*code).saturating_neg())
    }
}

/// The messages in what one receive returned.
pub(crate) fn replies(bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = rest.first_chunk()?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = usize::try_from(word(0)).ok()?;
        let body = rest.get(HEADER..length)?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let reply = Reply { kind: half(4), sequence: word(8), body };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(reply)
    })
}

/// Type and data of the attributes in `bytes`.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header: &[u8; ATTRIBUTE] = rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let data = rest.get(ATTRIBUTE..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// The address that an attribute holds.
pub(crate) fn address(data: &[u8]) -> Option<IpAddr> {
    match data.len() {
        4 => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_read_as_it_was_written() {
        let message = Message::new(16).fixed(&[1, 2, 3, 4]).text(3, "eth0").number(4, 1500).finish(9, 0);
        let read: Vec<_> = replies(&message).collect();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].kind, read[0].sequence, read[0].error()), (16, 9, None));
        let attributes: Vec<_> = attributes(&read[0].body[4..]).collect();
        assert_eq!(attributes, [(3, &b"eth0\0"[..]), (4, &1500u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn an_error_is_told_from_an_acknowledgement() {
        let error =
            |code: i32| Message::new(libc::NLMSG_ERROR as u16).fixed(&code.to_ne_bytes()).finish(1, 0);
        assert_eq!(replies(&error(-13)).next().unwrap().error(), Some(13));
        assert_eq!(replies(&error(0)).next().unwrap().error(), Some(0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            for reply in replies(&bytes) {
                let _ = (reply.error(), attributes(reply.body).count());
            }
        }
    }
}
