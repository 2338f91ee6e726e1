//! Ethernet frames as the master and the slave interface carry them.

use std::fmt;

/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of network coding (ETH_P_NC): the second of IEEE's two for local experiments.
pub const NC: u16 = 0x88b6;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether it names a group of stations, the broadcast address included.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An Ethernet header and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Whom it is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
    /// EtherType, as it stands: a VLAN tag is 0x8100, not looked behind.
    pub ethertype: u16,
    /// All behind the header.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the header; `None` if the frame is shorter.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (header, payload) = frame.split_first_chunk::<HEADER>()?;
        let [d @ .., _, _, _, _, _, _, _, _] = *header;
        let [_, _, _, _, _, _, s @ .., high, low] = *header;
        Some(Self {
            destination: Mac(d),
            source: Mac(s),
            ethertype: u16::from_be_bytes([high, low]),
            payload,
        })
    }
}

/// The header of a frame, with room for `payload` bytes behind it.
pub(crate) fn begin(destination: Mac, source: Mac, ethertype: u16, payload: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + payload);
    frame.extend(destination.0);
    frame.extend(source.0);
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// An IP packet in a frame of its own.
pub(crate) fn ip_frame(destination: Mac, source: Mac, packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet.first().is_some_and(|byte| byte >> 4 == 6) { IPV6 } else { IPV4 };
    let mut frame = begin(destination, source, ethertype, packet.len());
    frame.extend(packet);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let (to, from) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let frame = ip_frame(to, from, &[0x60, 1]);
        let read = Frame::parse(&frame).unwrap();
        assert_eq!(
            (read.destination, read.source, read.ethertype, read.payload),
            (to, from, IPV6, &[0x60, 1][..])
        );
        assert_eq!(Frame::parse(&frame[..13]), None);
        assert_eq!(from.to_string(), "02:00:00:00:00:02");
        assert!(Mac::BROADCAST.is_group() && !to.is_group());
    }
}
