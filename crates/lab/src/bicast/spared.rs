//! Losses that spare what controls retransmission (paper 004): what copies of it could gain at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bicast::{Association, Reasons};
use packet::{Ip, Sctp, sctp};

use crate::emulator::Spares;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Spares all but DATA that is sent for the first time and SACKs without gap ack blocks. DATA that was seen
/// counts as sent, on whichever path, so copies of it are spared, too. All paths of a network share one.
#[derive(Debug, Default)]
pub(super) struct RetransmissionControl {
    associations: Mutex<BTreeMap<Key, Association>>,
}

/// Of one direction of an association: verification tag and ports.
type Key = (u32, u16, u16);

impl Spares for RetransmissionControl {
    fn spares(&self, frame: &[u8]) -> bool {
        let packet = frame.get(ETHERNET..).and_then(|packet| Ip::parse(packet).ok());
        let Some(sctp) = packet.and_then(|ip| Sctp::parse(&ip, sctp::UDP_PORT)) else { return true };
        let key = (sctp.verification_tag(), sctp.source_port(), sctp.destination_port());
        let mut associations = self.associations.lock().unwrap_or_else(PoisonError::into_inner);
        let reasons = associations.entry(key).or_default().classify(&sctp);
        // The I bit makes no difference here.
        ![Reasons::REST, Reasons::TAIL].contains(&reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::sctp::kind;

    /// An Ethernet frame with these chunks over IPv4, from port 1000 to 2000 with verification tag `tag`.
    fn frame(tag: u32, chunks: &[u8]) -> Vec<u8> {
        let length = (20 + 12 + chunks.len()) as u16;
        let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0], &length.to_be_bytes()].concat();
        frame.extend([0, 7, 0x40, 0, 64, packet::ip::SCTP, 0, 0, 10, 1, 10, 2, 10, 1, 2, 2]);
        frame.extend([1000u16, 2000].map(u16::to_be_bytes).concat());
        frame.extend(tag.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(chunks);
        frame
    }

    fn data(tsn: u32) -> Vec<u8> {
        let tsn = tsn.to_be_bytes();
        [&[kind::DATA, 3, 0, 17], &tsn[..], &[0; 8], &[b'x', 0, 0, 0]].concat()
    }

    const SACK: [u8; 16] = [kind::SACK, 0, 0, 16, 0, 0, 0, 9, 0, 0, 0x20, 0, 0, 0, 0, 0];
    const SACK_WITH_GAP: [u8; 20] = [kind::SACK, 0, 0, 20, 0, 0, 0, 9, 0, 0, 0x20, 0, 0, 1, 0, 0, 0, 2, 0, 3];

    /// Whether each of these DATA, one after the other, is spared.
    fn spared<const N: usize>(tsns: [u32; N]) -> [bool; N] {
        let control = RetransmissionControl::default();
        tsns.map(|tsn| control.spares(&frame(7, &data(tsn))))
    }

    #[test]
    fn data_is_lost_the_first_time_alone() {
        assert_eq!(spared([5, 5, 6, 7, 6, 5, 8]), [false, true, false, false, true, true, false]);
    }

    #[test]
    fn new_data_may_be_lost_with_its_i_bit_but_not_with_old() {
        let control = RetransmissionControl::default();
        let mut urgent = data(5);
        urgent[1] |= 8;
        assert!(!control.spares(&frame(7, &urgent)));
        assert!(control.spares(&frame(7, &[data(5), data(6)].concat())));
        assert!(control.spares(&frame(7, &data(6))));
    }

    #[test]
    fn associations_are_told_apart() {
        let control = RetransmissionControl::default();
        let spares = |tag| control.spares(&frame(tag, &data(5)));
        assert_eq!([7, 8, 7].map(spares), [false, false, true]);
    }

    #[test]
    fn a_sack_is_spared_for_its_gaps() {
        let control = RetransmissionControl::default();
        assert!(!control.spares(&frame(7, &SACK)));
        assert!(control.spares(&frame(7, &SACK_WITH_GAP)));
        assert!(!control.spares(&frame(7, &[&SACK[..], &data(5)].concat())));
        assert!(control.spares(&frame(7, &[&SACK[..], &data(5)].concat())));
    }

    #[test]
    fn nothing_else_is_lost() {
        let control = RetransmissionControl::default();
        for kind in [kind::INIT, kind::HEARTBEAT, kind::HEARTBEAT_ACK, kind::COOKIE_ECHO, kind::SHUTDOWN] {
            let chunk = [&[kind, 0, 0, 20][..], &[0; 16]].concat();
            assert!(control.spares(&frame(7, &chunk)), "{kind}");
        }
        let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
        assert!(control.spares(&arp));
    }

    #[test]
    fn what_is_cut_off_changes_nothing() {
        let control = RetransmissionControl::default();
        let whole = frame(7, &data(5));
        for length in 0..whole.len() {
            assert!(control.spares(&whole[..length]), "{length}");
        }
        // As if the packet ended there, up to where DATA lacks but its padding.
        for length in 34..whole.len() - 3 {
            let mut cut = whole[..length].to_vec();
            cut[17] = (length - ETHERNET) as u8;
            control.spares(&cut);
        }
        assert!(!control.spares(&whole));
    }
}
