//! A capture as pcapng: an interface for the inner packets and one for each path, all of raw IP. An outer packet gets the IP and UDP
//! headers that it has on the wire, as far as this host knows them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packet::checksum::Sum;
use packet::ip::UDP;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::{DataLink, Endianness, PcapError};
use tunnel::capture::{Direction, Layer};

use crate::control::capture::Packet;

/// Timestamps count 10⁻⁹ s.
const NANOSECONDS: u8 = 9;
/// `epb_flags`, the two lowest bits.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Hosts whose address at this end is remembered.
const KNOWN: usize = 256;
const HOPS: u8 = 64;

/// What has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Packets.
    pub packets: u64,
    /// Packets that are lost to it.
    pub missed: u64,
}

/// A file that is valid at the end of each [`File::flush`].
pub struct File {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    inner: String,
    /// The interfaces, by name.
    interfaces: BTreeMap<String, u32>,
    total: Total,
    /// Missed since the last packet.
    missed: u64,
    last: u64,
    /// From where this host is heard by others: what it sends to them leaves from there, when the kernel chooses.
    known: BTreeMap<SocketAddr, IpAddr>,
}

impl File {
    /// Begins a file; inner packets are of `interface`.
    pub fn new(out: Box<dyn Write>, interface: &str) -> io::Result<File> {
        // Big-endian, because pcap-file writes the halves of a statistics block's time in the file's order, and high first is right.
        let writer = PcapNgWriter::with_endianness(BufWriter::new(out), Endianness::Big).map_err(of_pcap)?;
        Ok(File {
            writer,
            inner: interface.to_owned(),
            interfaces: BTreeMap::new(),
            total: Total::default(),
            missed: 0,
            last: 0,
            known: BTreeMap::new(),
        })
    }

    /// Packets written.
    pub fn packets(&self) -> u64 {
        self.total.packets
    }

    /// So many packets are lost.
    pub fn miss(&mut self, missed: u64) {
        self.missed += missed;
        self.total.missed += missed;
    }

    /// Writes a packet.
    pub fn put(&mut self, packet: &Packet) -> io::Result<()> {
        let Some(bytes) = packet.bytes() else { return Err(io::Error::other("a packet is not base64")) };
        let data = match (packet.local, packet.remote) {
            (Some(local), Some(remote)) => self.outer(packet, local, remote, &bytes),
            _ => bytes,
        };
        let interface_id = self.interface(packet)?;
        let way = if packet.direction == Direction::In { INBOUND } else { OUTBOUND };
        let mut options = vec![EnhancedPacketOption::Flags(way)];
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            options.push(EnhancedPacketOption::DropCount(missed));
            let comment = format!("{missed} packets before this one came too fast to be written");
            options.push(EnhancedPacketOption::Comment(Cow::Owned(comment)));
        }
        options.push(EnhancedPacketOption::Comment(Cow::Owned(comment(packet))));
        let original_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let timestamp = Duration::from_nanos(packet.time_ns);
        let data = Cow::Owned(data);
        let block = EnhancedPacketBlock { interface_id, timestamp, original_len, data, options };
        self.writer.write_pcapng_block(block).map_err(of_pcap)?;
        self.last = packet.time_ns;
        self.total.packets += 1;
        Ok(())
    }

    /// Hands on what was put.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }

    /// Ends it: says what is missing.
    pub fn end(mut self) -> io::Result<Total> {
        for interface_id in self.interfaces.values().copied() {
            let missed = InterfaceStatisticsOption::IsbIfDrop(self.total.missed);
            let options = vec![missed];
            let block = InterfaceStatisticsBlock { interface_id, timestamp: self.last, options };
            self.writer.write_pcapng_block(block).map_err(of_pcap)?;
        }
        self.flush()?;
        Ok(self.total)
    }

    /// The interface of a packet, which is described when it comes first.
    fn interface(&mut self, packet: &Packet) -> io::Result<u32> {
        let name = match (&packet.peer, &packet.path) {
            _ if packet.layer == Layer::Inner => self.inner.clone(),
            (Some(peer), Some(path)) => format!("{peer}/{path}"),
            _ => "outer".to_owned(),
        };
        if let Some(known) = self.interfaces.get(&name) {
            return Ok(*known);
        }
        let id = u32::try_from(self.interfaces.len()).map_err(io::Error::other)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(&name)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
        self.writer.write_pcapng_block(block).map_err(of_pcap)?;
        self.interfaces.insert(name, id);
        Ok(id)
    }

    fn outer(
        &mut self,
        packet: &Packet,
        mut local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) -> Vec<u8> {
        if local.ip().is_unspecified() {
            if let Some(ip) = self.known.get(&remote) {
                local.set_ip(*ip);
            }
        } else if self.known.len() < KNOWN {
            self.known.insert(remote, local.ip());
        }
        let (from, to) = if packet.direction == Direction::In { (remote, local) } else { (local, remote) };
        with_headers(from, to, packet.tos.unwrap_or(0), payload)
    }
}

fn comment(packet: &Packet) -> String {
    let peer = packet.peer.as_deref().unwrap_or("nobody known");
    let way = if packet.direction == Direction::In { "from" } else { "to" };
    let path = packet.path.as_ref().map_or(String::new(), |path| format!(" by {path}"));
    format!("{way} {peer}{path}: {}", packet.comment)
}

/// The IP packet with UDP in it; an IPv4 one may be fragmented on its way.
fn with_headers(from: SocketAddr, to: SocketAddr, tos: u8, payload: &[u8]) -> Vec<u8> {
    let udp = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(48 + payload.len());
    let at = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend([0x45, tos]);
            out.extend(udp.saturating_add(20).to_be_bytes());
            out.extend([0, 0, 0, 0, HOPS, UDP, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let checksum = Sum::default().bytes(&out).finish();
            out[10..12].copy_from_slice(&checksum.to_be_bytes());
            20
        }
        (source, destination) => {
            out.extend((6 << 28 | u32::from(tos) << 20).to_be_bytes());
            out.extend(udp.to_be_bytes());
            out.extend([UDP, HOPS]);
            for ip in [source, destination] {
                out.extend(match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                });
            }
            40
        }
    };
    for number in [from.port(), to.port(), udp, 0] {
        out.extend(number.to_be_bytes());
    }
    out.extend(payload);
    let start = Sum::pseudo_header(from.ip(), to.ip(), UDP, out.len() - at);
    let checksum = start.bytes(&out[at..]).finish_udp();
    out[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
    out
}

fn of_pcap(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use packet::Ip;
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn packet(layer: Layer, direction: Direction, local: &str) -> Packet {
        let outer = layer == Layer::Outer;
        Packet {
            time_ns: 1_700_000_000_123_456_789,
            layer,
            direction,
            peer: Some("office".into()),
            path: Some("lte".into()),
            local: outer.then(|| local.parse().expect("an address")),
            remote: outer.then(|| "203.0.113.7:51900".parse().expect("an address")),
            tos: outer.then_some(2),
            comment: "order 7".into(),
            packet: "EAAA".into(),
        }
    }

    #[test]
    fn packets_are_read_back_with_path_decision_and_loss() {
        let out = Shared::default();
        let mut file = File::new(Box::new(out.clone()), "nawa0").expect("it begins");
        file.put(&packet(Layer::Outer, Direction::In, "192.0.2.1:7")).expect("it is written");
        file.miss(37);
        file.put(&packet(Layer::Outer, Direction::Out, "0.0.0.0:7")).expect("it is written");
        file.put(&packet(Layer::Inner, Direction::Out, "")).expect("it is written");
        assert_eq!(file.end().expect("it ends"), Total { packets: 3, missed: 37 });
        let bytes = out.0.borrow().clone();
        let mut reader = PcapNgReader::new(&bytes[..]).expect("it is pcapng");
        let (mut names, mut packets, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.expect("a block") {
                Block::InterfaceDescription(one) => {
                    names.extend(one.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    }))
                }
                Block::EnhancedPacket(one) => packets.push(one.into_owned()),
                Block::InterfaceStatistics(one) => {
                    assert_eq!(one.timestamp, 1_700_000_000_123_456_789);
                    dropped.extend(one.options.iter().filter_map(|option| match option {
                        InterfaceStatisticsOption::IsbIfDrop(count) => Some(*count),
                        _ => None,
                    }));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(names, ["office/lte", "nawa0"]);
        assert_eq!(dropped, [37, 37]);
        assert_eq!(packets[0].timestamp, Duration::from_nanos(1_700_000_000_123_456_789));
        let has = |at: usize, option: EnhancedPacketOption<'static>| {
            assert!(packets[at].options.contains(&option), "{option:?}")
        };
        has(0, EnhancedPacketOption::Flags(INBOUND));
        has(0, EnhancedPacketOption::Comment("from office by lte: order 7".into()));
        has(1, EnhancedPacketOption::DropCount(37));
        has(2, EnhancedPacketOption::Flags(OUTBOUND));
        assert_eq!(&packets[2].data[..], [0x10, 0, 0], "an inner packet as it is");
        let ip = |at: usize| Ip::parse(&packets[at].data).expect("an IP packet");
        assert_eq!(ip(0).source(), ip(1).destination());
        assert_eq!(ip(1).source().to_string(), "192.0.2.1", "from where the other end is heard");
        assert_eq!((ip(1).tos(), ip(1).payload().len()), (2, 8 + 3));
    }

    #[test]
    fn headers_have_right_checksums() {
        for (from, to) in [("192.0.2.1:7", "203.0.113.7:9"), ("[2001:db8::1]:7", "[2001:db8::2]:9")] {
            let made = with_headers(from.parse().unwrap(), to.parse().unwrap(), 1, b"abc");
            let ip = Ip::parse(&made).expect("an IP packet");
            let start = Sum::pseudo_header(ip.source(), ip.destination(), UDP, ip.payload().len());
            assert!(packet::checksum::verify(start, ip.payload()), "{from}");
            assert!(ip.version() == 6 || packet::checksum::verify(Sum::default(), &made[..20]));
        }
    }
}
