//! What a medium is like: where its stations are and how far they reach.

use super::phy::Phy;
use crate::units::{PacketCount, Probability};

/// A place, in metres.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Position {
    /// East, in metres.
    pub x: f64,
    /// North, in metres.
    pub y: f64,
}

impl Position {
    /// `count` stations on a line, `spacing_m` metres apart.
    pub fn chain(count: usize, spacing_m: f64) -> Vec<Position> {
        (0..count).map(|n| Position { x: n as f64 * spacing_m, y: 0.0 }).collect()
    }

    /// Distance in metres; two at one place are one metre apart.
    fn distance(self, other: Position) -> f64 {
        (self.x - other.x).hypot(self.y - other.y).max(1.0)
    }
}

/// How signals fade with distance: by the power [`Reach::exponent`] of it.
///
/// From one noise level follows what each rate needs: at [`Reach::receive_m`] a frame at the data rate is just
/// decoded if nothing else is on the air; slower frames reach further. Interference adds to the noise, so that the
/// range of interference is that at which it spoils the frame in question, and the stronger of two frames is captured
/// if it is strong enough, whichever came first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// How far a frame at the data rate is decoded, in metres.
    pub receive_m: f64,
    /// How far the medium is sensed to be busy, in metres; `None`: as far as the basic rate is decoded.
    pub sense_m: Option<f64>,
    /// The exponent of path loss: 2 in free space, about 3 among buildings, 4 over ground.
    pub exponent: f64,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach { receive_m: 100.0, sense_m: None, exponent: 3.0 }
    }
}

/// A shared 802.11 medium.
#[derive(Debug, Clone, PartialEq)]
pub struct DcfConfig {
    /// Rates and timing, the same for all stations.
    pub phy: Phy,
    /// Where the stations are; they are numbered in this order, from 0.
    pub stations: Vec<Position>,
    /// How far they reach.
    pub reach: Reach,
    /// How many frames a station's interface queue holds, the one that contends included.
    pub queue: PacketCount,
    /// How many unicast frames for one station go as one transmission at most (A-MPDU), from 1.
    pub aggregate: usize,
    /// Frames wait in a queue for each flow with CoDel (RFC 8290), as mac80211 has them, and the hardware has [`Self::aggregate`] of
    /// them at most; else first in, first out.
    pub fq_codel: bool,
    /// How often a unicast frame is sent before it is given up (dot11ShortRetryLimit).
    pub attempts: u32,
    /// Probability that a frame which could be decoded is not, at each station it is meant for and each attempt.
    pub loss: Probability,
    /// Probability that a unicast frame which another station could overhear is not overheard there.
    pub overhearing_loss: Probability,
}

impl DcfConfig {
    /// `stations` on a perfect medium: a queue of 100 frames first in, first out, no aggregation, 7 attempts, no loss but by collision.
    pub fn new(phy: Phy, stations: Vec<Position>) -> DcfConfig {
        DcfConfig {
            phy,
            stations,
            reach: Reach::default(),
            queue: PacketCount(100),
            aggregate: 1,
            fq_codel: false,
            attempts: 7,
            loss: Probability::ZERO,
            overhearing_loss: Probability::ZERO,
        }
    }
}

/// Signal strengths between stations, as multiples of the noise.
#[derive(Debug)]
pub(super) struct Strengths {
    /// By sender, then receiver.
    strengths: Vec<Vec<f64>>,
    sensed: f64,
}

impl Strengths {
    pub(super) fn new(config: &DcfConfig) -> Strengths {
        let Reach { receive_m, sense_m, exponent } = config.reach;
        let at = |metres: f64| ratio(config.phy.data().min_sinr_db) * (receive_m / metres).powf(exponent);
        let row = |from: &Position| config.stations.iter().map(|to| at(from.distance(*to))).collect();
        let sensed = sense_m.map_or(ratio(config.phy.broadcast().min_sinr_db), at);
        Strengths { strengths: config.stations.iter().map(row).collect(), sensed }
    }

    /// Of a signal from one station at another.
    pub(super) fn between(&self, from: usize, to: usize) -> f64 {
        self.strengths[from][to]
    }

    /// Whether one station senses that the other transmits.
    pub(super) fn senses(&self, from: usize, to: usize) -> bool {
        from != to && self.between(from, to) >= self.sensed
    }
}

/// Decibels as a factor.
pub(super) fn ratio(decibels: f64) -> f64 {
    10f64.powf(decibels / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sensed_reaches_beyond_what_is_decoded() {
        let config = DcfConfig::new(Phy::g54(), Position::chain(5, 90.0));
        let strengths = Strengths::new(&config);
        assert!(strengths.between(0, 1) > ratio(21.0) && strengths.between(0, 2) < ratio(21.0));
        assert!(strengths.senses(0, 4), "17 dB at exponent 3 are a factor of 3.7 in distance");
        let config = DcfConfig { reach: Reach { sense_m: Some(200.0), ..Reach::default() }, ..config };
        let strengths = Strengths::new(&config);
        assert!(strengths.senses(0, 2) && !strengths.senses(0, 3) && !strengths.senses(1, 1));
    }
}
