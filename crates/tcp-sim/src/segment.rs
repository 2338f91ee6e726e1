//! TCP segments as IPv4 packets (RFC 791, RFC 9293), with the options that Linux uses.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use packet::checksum::{Sum, verify};
use packet::{Ip, Tcp, ip};

pub use packet::tcp::{ACK, FIN, PSH, RST, SYN};

/// Bytes of an IPv4 and a TCP header without options.
pub const HEADERS: usize = 40;
/// Bytes of the timestamp option, padded.
pub const TIMESTAMPS: usize = 12;

/// An address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// IPv4 only: the tunnel treats both alike.
    pub ip: Ipv4Addr,
    /// TCP port.
    pub port: u16,
}

/// What is in a segment. Its data are zeros, of which only the length is kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segment {
    /// As [`SYN`], [`ACK`].
    pub flags: u8,
    /// Of the first byte of data.
    pub seq: u32,
    /// The next byte expected.
    pub ack: u32,
    /// As it stands in the header, unscaled.
    pub window: u16,
    /// Of a SYN: the greatest segment its sender takes, bytes.
    pub mss: Option<u16>,
    /// Of a SYN: the shift of its sender's windows.
    pub scale: Option<u8>,
    /// Timestamp and echo, ms (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// First and one past the last byte of what arrived out of order, the newest first.
    pub sacks: Vec<(u32, u32)>,
    /// Bytes of data.
    pub len: usize,
}

impl Segment {
    /// The IPv4 packet.
    pub fn encode(&self, id: u16, from: Socket, to: Socket) -> Vec<u8> {
        let mut options = Vec::with_capacity(40);
        if let Some(mss) = self.mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
            // SACK permitted (RFC 2018).
            options.extend([1, 1, 4, 2]);
        }
        if let Some(scale) = self.scale {
            options.extend([1, 3, 3, scale]);
        }
        if let Some((value, echo)) = self.timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        if !self.sacks.is_empty() {
            options.extend([1, 1, 5, 2 + 8 * self.sacks.len() as u8]);
            for (start, end) in &self.sacks {
                options.extend(start.to_be_bytes());
                options.extend(end.to_be_bytes());
            }
        }
        let header = 20 + options.len();
        let mut bytes = vec![0; 20 + header + self.len];
        ipv4_header(&mut bytes, id, ip::TCP, from.ip, to.ip);
        let tcp = &mut bytes[20..];
        tcp[0..2].copy_from_slice(&from.port.to_be_bytes());
        tcp[2..4].copy_from_slice(&to.port.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        (tcp[12], tcp[13]) = ((header as u8 / 4) << 4, self.flags);
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        tcp[20..header].copy_from_slice(&options);
        let pseudo = Sum::pseudo_header(IpAddr::V4(from.ip), IpAddr::V4(to.ip), ip::TCP, header + self.len);
        // The data are zeros and add nothing.
        let sum = pseudo.bytes(&tcp[..header]).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The ports and the segment in an IPv4 packet; `None` if it has none, or a link has damaged it.
    pub fn decode(packet: &[u8]) -> Option<(Socket, Socket, Segment)> {
        let ip = Ip::parse(packet).ok()?;
        let tcp = Tcp::parse(&ip)?;
        let bytes = ip.payload();
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (ip.source(), ip.destination()) else {
            return None;
        };
        let pseudo = Sum::pseudo_header(ip.source(), ip.destination(), ip::TCP, bytes.len());
        if !verify(Sum::default(), packet.get(..20)?) || !verify(pseudo, bytes) {
            return None;
        }
        let mut segment = Segment {
            flags: tcp.flags(),
            seq: tcp.sequence(),
            ack: tcp.acknowledgment(),
            window: tcp.window(),
            scale: tcp.window_scale(),
            len: tcp.payload().len(),
            ..Segment::default()
        };
        segment.read_options(&bytes[20..tcp.header_len()]);
        let from = Socket { ip: source, port: u16::from_be_bytes([bytes[0], bytes[1]]) };
        let to = Socket { ip: destination, port: u16::from_be_bytes([bytes[2], bytes[3]]) };
        Some((from, to, segment))
    }

    fn read_options(&mut self, mut options: &[u8]) {
        let word = |at: &[u8]| u32::from_be_bytes([at[0], at[1], at[2], at[3]]);
        while let [kind, rest @ ..] = options {
            let length = match (kind, rest.first()) {
                (0, _) => return,
                (1, _) => 1,
                (_, Some(length)) => usize::from(*length),
                _ => return,
            };
            let Some(option) = options.get(..length).filter(|option| !option.is_empty()) else { return };
            match (kind, length) {
                (2, 4) => self.mss = Some(u16::from_be_bytes([option[2], option[3]])),
                (8, 10) => self.timestamps = Some((word(&option[2..]), word(&option[6..]))),
                (5, 10..) => {
                    self.sacks = option[2..].chunks_exact(8).map(|b| (word(b), word(&b[4..]))).collect();
                }
                _ => {}
            }
            options = &options[length..];
        }
    }
}

/// Writes the header of an IPv4 packet that must not be fragmented.
pub fn ipv4_header(packet: &mut [u8], id: u16, protocol: u8, from: Ipv4Addr, to: Ipv4Addr) {
    let length = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6] = 0x40;
    (packet[8], packet[9]) = (64, protocol);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let sum = Sum::default().bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A timestamp of RFC 7323.
pub fn timestamp(now: Duration) -> u32 {
    now.as_millis() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_right_and_decoded() {
        let socket = |last, port| Socket { ip: Ipv4Addr::new(10, 0, 0, last), port };
        let (from, to) = (socket(1, 5000), socket(2, 5201));
        let syn = Segment {
            flags: SYN,
            seq: u32::MAX,
            mss: Some(1460),
            scale: Some(7),
            timestamps: Some((1, 2)),
            ..Segment::default()
        };
        let sacks = vec![(5, 9), (u32::MAX, 3), (20, 30)];
        let data = Segment {
            flags: ACK | PSH,
            ack: 7,
            window: 99,
            sacks,
            len: 1448,
            scale: None,
            mss: None,
            ..syn.clone()
        };
        for segment in [syn, data] {
            let packet = segment.encode(3, from, to);
            assert_eq!(Segment::decode(&packet), Some((from, to, segment)));
            assert!(verify(Sum::default(), &packet[..20]));
            let (source, destination) = (IpAddr::V4(from.ip), IpAddr::V4(to.ip));
            assert!(verify(
                Sum::pseudo_header(source, destination, ip::TCP, packet.len() - 20),
                &packet[20..]
            ));
        }
        assert_eq!(Segment::decode(&[0x45; 30]), None);
    }

    #[test]
    fn what_a_link_has_damaged_is_no_segment() {
        let socket = |last, port| Socket { ip: Ipv4Addr::new(10, 0, 0, last), port };
        let packet = Segment { len: 20, ..Segment::default() }.encode(3, socket(1, 5000), socket(2, 5201));
        for bit in 0..8 * packet.len() {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Segment::decode(&damaged), None, "bit {bit}");
        }
    }
}
