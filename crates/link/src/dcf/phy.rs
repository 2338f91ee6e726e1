//! How long frames take, and how clean they must arrive: the physical layers of 802.11g and 802.11b.

use std::time::Duration;

use crate::units::{Bitrate, nanoseconds};

/// MAC header of three addresses, LLC/SNAP header and frame check sequence in place of Ethernet's header, in bytes.
const DATA_OVERHEAD: usize = 24 + 8 + 4;
/// Ethernet's header, which does not go over the air, in bytes.
const ETHERNET_HEADER: usize = 14;
/// A link acknowledgement with its frame check sequence, in bytes (IEEE 802.11-2020 §9.3.1.4).
const ACK: usize = 14;
/// One of several frames at once: a BlockAck of 64 bits (§9.3.1.8).
const BLOCK_ACK: usize = 32;
/// What delimits a frame in an A-MPDU, and to what its length is rounded up, in bytes (§9.7).
const DELIMITER: usize = 4;

/// A rate and the ratio of signal to noise and interference that it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Bits on the air per second.
    pub bitrate: Bitrate,
    /// The least ratio of the signal to the sum of noise and interference, in dB.
    pub min_sinr_db: f64,
}

impl Rate {
    const fn new(bps: u64, min_sinr_db: f64) -> Rate {
        Rate { bitrate: Bitrate::from_bps(bps), min_sinr_db }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Modulation {
    /// Symbols of 4 µs, 22 bits of service and tail, 6 µs of silence behind each frame (§17.3.2, §18.3.2.4).
    ErpOfdm,
    /// Bits as they are (§16.2).
    Dsss,
}

/// A physical layer and the rates in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phy {
    modulation: Modulation,
    preamble: Duration,
    slot: Duration,
    sifs: Duration,
    cw_min: u32,
    cw_max: u32,
    data: Rate,
    broadcast: Rate,
    control: Rate,
}

impl Phy {
    /// 802.11g without protection for older stations: unicast at 54 Mbit/s, broadcast at 6, link ACKs at 24.
    ///
    /// The SINRs differ as the least sensitivities in IEEE 802.11-2020 table 17-18 do.
    pub const fn g54() -> Phy {
        Phy {
            modulation: Modulation::ErpOfdm,
            preamble: Duration::from_micros(20),
            slot: Duration::from_micros(9),
            sifs: Duration::from_micros(10),
            cw_min: 15,
            cw_max: 1023,
            data: Rate::new(54_000_000, 21.0),
            broadcast: Rate::new(6_000_000, 4.0),
            control: Rate::new(24_000_000, 12.0),
        }
    }

    /// 802.11b with the long preamble: unicast at 11 Mbit/s, broadcast and link ACKs at 1.
    pub const fn b11() -> Phy {
        let data = Rate::new(11_000_000, 10.0);
        Phy { data, ..Phy::b1() }
    }

    /// 802.11b with the long preamble, everything at 1 Mbit/s.
    pub const fn b1() -> Phy {
        let rate = Rate::new(1_000_000, 4.0);
        Phy {
            modulation: Modulation::Dsss,
            preamble: Duration::from_micros(192),
            slot: Duration::from_micros(20),
            sifs: Duration::from_micros(10),
            cw_min: 31,
            cw_max: 1023,
            data: rate,
            broadcast: rate,
            control: rate,
        }
    }

    /// The rate of unicast frames.
    pub fn data(&self) -> Rate {
        self.data
    }

    /// The rate of broadcast frames, the basic rate.
    pub fn broadcast(&self) -> Rate {
        self.broadcast
    }

    /// The rate of link ACKs.
    pub fn control(&self) -> Rate {
        self.control
    }

    /// aSlotTime.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// aSIFSTime.
    pub fn sifs(&self) -> Duration {
        self.sifs
    }

    /// SIFS and two slots (§10.3.7).
    pub fn difs(&self) -> Duration {
        self.sifs + 2 * self.slot
    }

    /// What waits after a frame that could not be read: SIFS, a link ACK at the basic rate, DIFS (§10.3.7).
    pub fn eifs(&self) -> Duration {
        self.sifs + self.on_air(ACK, self.broadcast) + self.difs()
    }

    /// How long a sender waits for the beginning of a link ACK: SIFS, a slot, a preamble (§10.3.2.11).
    pub fn ack_timeout(&self) -> Duration {
        self.sifs + self.slot + self.preamble
    }

    /// The contention window for attempt `attempt` (from 0): backoffs are 0 to this many slots (§10.3.3).
    pub fn contention_window(&self, attempt: u32) -> u32 {
        let doubled = (u64::from(self.cw_min) + 1) << attempt.min(32);
        (doubled - 1).min(self.cw_max.into()) as u32
    }

    /// A unicast frame of `ethernet` bytes, Ethernet header included, on the air.
    pub fn data_time(&self, ethernet: usize) -> Duration {
        self.on_air(over_the_air(ethernet), self.data)
    }

    /// Unicast frames of these lengths, as [`data_time`](Self::data_time) has them, as one transmission.
    pub fn aggregate_time(&self, ethernet: impl ExactSizeIterator<Item = usize>) -> Duration {
        let alone = ethernet.len() == 1;
        let delimited = |bytes: usize| DELIMITER + bytes.next_multiple_of(DELIMITER);
        let bytes =
            ethernet.map(over_the_air).map(|bytes| if alone { bytes } else { delimited(bytes) }).sum();
        self.on_air(bytes, self.data)
    }

    /// A broadcast frame of `ethernet` bytes, Ethernet header included, on the air.
    pub fn broadcast_time(&self, ethernet: usize) -> Duration {
        self.on_air(over_the_air(ethernet), self.broadcast)
    }

    /// A link ACK on the air.
    pub fn ack_time(&self) -> Duration {
        self.ack_time_of(1)
    }

    /// That of a transmission of `frames` frames.
    pub fn ack_time_of(&self, frames: usize) -> Duration {
        self.on_air(if frames > 1 { BLOCK_ACK } else { ACK }, self.control)
    }

    fn on_air(&self, bytes: usize, rate: Rate) -> Duration {
        let (bits, bps) = (bytes as u128 * 8, u128::from(rate.bitrate.as_bps()));
        match self.modulation {
            Modulation::ErpOfdm => {
                let bits_per_symbol = bps * 4 / 1_000_000;
                let symbols = (bits + 22).div_ceil(bits_per_symbol);
                self.preamble + nanoseconds(symbols * 4000) + Duration::from_micros(6)
            }
            Modulation::Dsss => self.preamble + nanoseconds((bits * 1_000_000_000).div_ceil(bps)),
        }
    }
}

fn over_the_air(ethernet: usize) -> usize {
    ethernet.saturating_sub(ETHERNET_HEADER) + DATA_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// By hand from §17.3 and §18.3: 57 symbols and 4 symbols at 216 bits, an ACK of 2 symbols at 96 bits.
    #[test]
    fn an_ofdm_frame_is_whole_symbols() {
        let phy = Phy::g54();
        assert_eq!(phy.data_time(1514), us(20 + 57 * 4 + 6));
        assert_eq!(phy.data_time(66), us(20 + 4 * 4 + 6));
        assert_eq!((phy.ack_time(), phy.difs(), phy.eifs()), (us(34), us(28), us(10 + 50 + 28)));
    }

    /// By hand: two frames of 1536 bytes, each behind a delimiter, are 114.2 symbols; a BlockAck of 32 bytes is 3 symbols.
    #[test]
    fn an_aggregate_has_one_preamble() {
        let phy = Phy::g54();
        assert_eq!(phy.aggregate_time([1514, 1514].into_iter()), us(20 + 115 * 4 + 6));
        assert_eq!(phy.aggregate_time([1514].into_iter()), phy.data_time(1514));
        assert_eq!((phy.ack_time_of(1), phy.ack_time_of(2)), (phy.ack_time(), us(20 + 3 * 4 + 6)));
    }

    /// By hand from §16.2 and §16.3: 192 µs of preamble and header, then bits.
    #[test]
    fn a_dsss_frame_is_its_bits() {
        let phy = Phy::b11();
        assert_eq!(phy.broadcast_time(14), us(192 + 36 * 8));
        assert_eq!(phy.data_time(1514).as_nanos(), 192_000 + (1536u128 * 8000).div_ceil(11));
        assert_eq!((phy.ack_time(), phy.difs()), (us(192 + 112), us(50)));
        assert_eq!(Phy::b1().data_time(14), phy.broadcast_time(14));
    }

    #[test]
    fn the_contention_window_doubles_up_to_its_end() {
        let windows: Vec<u32> = (0..9).map(|attempt| Phy::g54().contention_window(attempt)).collect();
        assert_eq!(windows, [15, 31, 63, 127, 255, 511, 1023, 1023, 1023]);
        assert_eq!(Phy::b1().contention_window(u32::MAX), 1023);
    }
}
