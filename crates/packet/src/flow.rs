//! Which packets belong together.

use crate::ip::{self, Ip};
use std::net::{IpAddr, SocketAddr};

/// A number that all packets of one flow and direction share: addresses, protocol and, for unfragmented TCP, UDP
/// and SCTP, ports. Fragments of one packet share one too.
///
/// `seed` keeps two users of the hash from splitting flows alike. Not proof against someone who looks for collisions.
pub fn flow_hash(ip: &Ip<'_>, seed: u64) -> u64 {
    hash(ip.protocol(), ip.source(), ip.destination(), ports(ip), seed)
}

/// What [`flow_hash`] gives for the packets that answer `ip`.
pub fn reverse_flow_hash(ip: &Ip<'_>, seed: u64) -> u64 {
    let ports = ports(ip).map(|[a, b, c, d]| [c, d, a, b]);
    hash(ip.protocol(), ip.destination(), ip.source(), ports, seed)
}

/// What a flow's packets have in common, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// IP's number of the protocol.
    pub protocol: u8,
    /// Where its packets come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// The ports of source and destination, of unfragmented TCP, UDP and SCTP.
    pub ports: Option<[u16; 2]>,
}

impl FlowName {
    /// Of the flow that `ip` belongs to.
    pub fn of(ip: &Ip<'_>) -> FlowName {
        let ports = ports(ip).map(|[a, b, c, d]| [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
        FlowName { protocol: ip.protocol(), source: ip.source(), destination: ip.destination(), ports }
    }

    /// Of the answers to it.
    pub fn reverse(self) -> FlowName {
        let ports = self.ports.map(|[source, destination]| [destination, source]);
        FlowName { source: self.destination, destination: self.source, ports, ..self }
    }

    /// The two ends, each with its port where the protocol has ports.
    pub fn ends(&self) -> [String; 2] {
        let end = |ip: IpAddr, at: usize| match self.ports {
            Some(ports) => SocketAddr::new(ip, ports[at]).to_string(),
            None => ip.to_string(),
        };
        [end(self.source, 0), end(self.destination, 1)]
    }
}

fn hash(protocol: u8, source: IpAddr, destination: IpAddr, ports: Option<[u8; 4]>, seed: u64) -> u64 {
    let hash = address(address(mix(seed ^ u64::from(protocol)), source), destination);
    match ports {
        Some(ports) => mix(hash ^ u64::from(u32::from_be_bytes(ports))),
        None => hash,
    }
}

fn ports(ip: &Ip<'_>) -> Option<[u8; 4]> {
    let whole = matches!(ip.protocol(), ip::TCP | ip::UDP | ip::SCTP) && !ip.is_fragment();
    ip.payload().first_chunk().copied().filter(|_| whole)
}

fn address(hash: u64, address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(a) => mix(hash ^ u64::from(a.to_bits())),
        IpAddr::V6(a) => {
            let bits = a.to_bits();
            mix(mix(hash ^ (bits >> 64) as u64) ^ bits as u64)
        }
    }
}

/// MurmurHash3's 64-bit finaliser, after an odd constant so that 0 does not stay 0.
fn mix(value: u64) -> u64 {
    let mut x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, TcpFields, bytes};
    use proptest::prelude::*;

    fn hash(packet: &[u8]) -> u64 {
        super::flow_hash(&Ip::parse(packet).unwrap(), 1)
    }

    #[test]
    fn tells_flows_apart() {
        let tcp = Build::v4().tcp(TcpFields::default(), b"a");
        let mut port = tcp.clone();
        port[23] ^= 1;
        assert_eq!(hash(&tcp), hash(&Build::v4().tcp(TcpFields { seq: 9, ..Default::default() }, b"bc")));
        assert_ne!(hash(&tcp), hash(&port));
        assert_ne!(hash(&tcp), hash(&Build::v4().udp(b"a")));
        assert_ne!(hash(&tcp), hash(&Build::v6().tcp(TcpFields::default(), b"a")));
        let (there, back) = (("192.0.2.1", "192.0.2.2"), ("192.0.2.2", "192.0.2.1"));
        assert_ne!(
            hash(&Build::between(there.0, there.1).udp(b"")),
            hash(&Build::between(back.0, back.1).udp(b""))
        );
    }

    #[test]
    fn an_answer_is_of_the_reverse_flow() {
        let there = Build::between("192.0.2.1", "192.0.2.2").tcp(TcpFields::default(), b"a");
        let mut back = Build::between("192.0.2.2", "192.0.2.1").tcp(TcpFields::default(), b"");
        let ports = [back[22], back[23], back[20], back[21]];
        back[20..24].copy_from_slice(&ports);
        assert_eq!(reverse_flow_hash(&Ip::parse(&back).unwrap(), 1), hash(&there));
        assert_ne!(hash(&back), hash(&there));
    }

    #[test]
    fn a_name_has_ports_where_there_are_some() {
        let name = |packet: &[u8]| FlowName::of(&Ip::parse(packet).unwrap()).ends();
        let udp = Build::between("192.0.2.1", "192.0.2.2").udp(b"");
        let [source, destination] = name(&udp);
        assert!(
            source.starts_with("192.0.2.1:") && destination.starts_with("192.0.2.2:"),
            "{source} {destination}"
        );
        let of_protocol = |protocol: u8| name(&[&udp[..9], &[protocol], &udp[10..]].concat());
        assert_eq!(of_protocol(ip::SCTP), name(&udp));
        assert_eq!(of_protocol(1), ["192.0.2.1", "192.0.2.2"], "ICMP");
    }

    #[test]
    fn fragments_stay_together() {
        let (mut first, mut later) = (Build::v4().udp(b"12345678"), Build::v4().udp(b"abcdefgh"));
        first[6] = 0x20; // more fragments
        later[7] = 0x02; // offset 16 bytes
        later[20] ^= 0xff; // payload where ports would be
        assert_eq!(hash(&first), hash(&later));
    }

    proptest! {
        #[test]
        fn never_panics(packet in bytes(), seed: u64) {
            if let Ok(ip) = Ip::parse(&packet) {
                flow_hash(&ip, seed);
                reverse_flow_hash(&ip, seed);
            }
        }
    }
}
