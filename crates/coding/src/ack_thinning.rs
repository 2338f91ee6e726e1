//! ACK thinning: of the pure ACKs of a connection that wait here, only the latest is worth sending (RFC 3449 §5.2.2).
//!
//! Only what tells of progress takes another's place: never a duplicate or an ACK with SACK blocks, by which a sender finds
//! losses, nor one of other flags (ECN). The sender sees fewer ACKs, each for more data, as from a receiver that delays them
//! longer.

use packet::{Ip, Tcp, tcp};

use crate::ethernet::{self, Frame};

/// Longer packets are no pure ACKs: 60 bytes of TCP behind an IPv6 header or IPv4's longest.
const LONGEST: usize = 120;

/// The IP packet in a frame of IP.
pub fn packet_in(frame: &[u8]) -> Option<&[u8]> {
    let frame = Frame::parse(frame)?;
    matches!(frame.ethertype, ethernet::IPV4 | ethernet::IPV6).then_some(frame.payload)
}

/// Whether `older`, an IP packet that waits, need not be sent before `newer`.
pub fn is_superseded(older: &[u8], newer: &[u8]) -> bool {
    if older.len().max(newer.len()) > LONGEST || !tcp::is_pure_ack(older) || !tcp::is_pure_ack(newer) {
        return false;
    }
    let (Ok(old_ip), Ok(new_ip)) = (Ip::parse(older), Ip::parse(newer)) else { return false };
    let (Some(old), Some(new)) = (Tcp::parse(&old_ip), Tcp::parse(&new_ip)) else { return false };
    let ports = |ip: &Ip<'_>| ip.payload().first_chunk::<4>().copied();
    let same_flow = (old_ip.source(), old_ip.destination()) == (new_ip.source(), new_ip.destination())
        && ports(&old_ip) == ports(&new_ip);
    let same_kind = (old.flags(), old_ip.tos()) == (new.flags(), new_ip.tos())
        && old.sack_blocks() + new.sack_blocks() == 0;
    let ahead = new.acknowledgment().wrapping_sub(old.acknowledgment());
    same_flow && same_kind && (1..1 << 31).contains(&ahead)
}
