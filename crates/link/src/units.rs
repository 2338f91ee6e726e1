//! Units as types: what a number counts is part of its type.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number or a text that is no valid quantity of its unit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum UnitError {
    /// A rate that cannot be read.
    #[error("{0:?} is no rate: write a number and its unit, as 500kbit, 8mbit or 1.5gbit")]
    Bitrate(String),
    /// A probability outside 0 to 1.
    #[error("{0} is no probability: give a number from 0 to 1")]
    Probability(f64),
    /// A mean burst length that the mean loss does not allow.
    #[error(
        "losses of {mean_loss} in bursts of {mean_burst} packets cannot be: the mean loss must be below 1 \
         and the mean burst at least 1 packet and at least loss / (1 - loss)"
    )]
    Burst {
        /// Share of packets lost.
        mean_loss: f64,
        /// Mean length of a run of losses, in packets.
        mean_burst: f64,
    },
}

/// A rate in bit/s; parsed and printed with a decimal unit, as `10mbit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bitrate(u64);

/// Units of a rate, largest first, with their bit/s.
const BITRATE_UNITS: [(&str, u64); 4] =
    [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];

impl Bitrate {
    /// A rate of `bps` bit/s.
    pub const fn from_bps(bps: u64) -> Bitrate {
        Bitrate(bps)
    }

    /// A rate of `mbps` Mbit/s (10⁶ bit/s), to the nearest bit/s; negative numbers and NaN give 0.
    pub fn from_mbps(mbps: f64) -> Bitrate {
        Bitrate((mbps * 1e6).round() as u64)
    }

    /// The rate in bit/s.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// The rate in Mbit/s.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long `bytes` take at this rate, rounded up to the nanosecond; `Duration::MAX` at rate 0.
    pub fn transmit_time(self, bytes: usize) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        match (bytes as u64).checked_mul(8_000_000_000) {
            Some(nanobits) => Duration::from_nanos(nanobits.div_ceil(self.0)),
            None => nanoseconds((bytes as u128 * 8_000_000_000).div_ceil(self.0 as u128)),
        }
    }
}

/// `nanos` as a duration; what does not fit (584 years) is `Duration::MAX`.
pub(crate) fn nanoseconds(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

impl FromStr for Bitrate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Bitrate, UnitError> {
        let error = || UnitError::Bitrate(text.chars().take(40).collect());
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &lower[digits.len()..];
        let (_, factor) = BITRATE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        scale(digits.trim_end(), *factor).map(Bitrate).ok_or_else(error)
    }
}

/// The decimal number `digits` times `factor`, if it is a positive whole number below 2⁶⁴ or rounds to one.
fn scale(digits: &str, factor: u64) -> Option<u64> {
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let value = (digits.parse::<f64>().ok()? * factor as f64).round();
    (value < u64::MAX as f64).then_some(value as u64)
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(_, factor): &&(&str, u64)| self.0 >= *factor && self.0.is_multiple_of(*factor);
        let (unit, factor) = BITRATE_UNITS.iter().find(exact).unwrap_or(&BITRATE_UNITS[3]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl TryFrom<String> for Bitrate {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Bitrate, UnitError> {
        text.parse()
    }
}

impl From<Bitrate> for String {
    fn from(rate: Bitrate) -> String {
        rate.to_string()
    }
}

/// A probability, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Probability = Probability(0.0);
    /// Always.
    pub const ONE: Probability = Probability(1.0);

    /// The probability `value`, or an error if that is not within 0 to 1.
    pub fn new(value: f64) -> Result<Probability, UnitError> {
        if (0.0..=1.0).contains(&value) { Ok(Probability(value)) } else { Err(UnitError::Probability(value)) }
    }

    /// The number, from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Probability {
    type Error = UnitError;

    fn try_from(value: f64) -> Result<Probability, UnitError> {
        Probability::new(value)
    }
}

impl From<Probability> for f64 {
    fn from(p: Probability) -> f64 {
        p.0
    }
}

/// Defines a count: a `u64` that says what it counts.
macro_rules! count {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl Add for $name {
            type Output = $name;

            fn add(self, other: $name) -> $name {
                $name(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = $name;

            fn sub(self, other: $name) -> $name {
                $name(self.0 - other.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: $name) {
                self.0 -= other.0;
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.0, $unit)
            }
        }
    };
}

count!(
    /// A number of bytes.
    ByteCount,
    "B"
);
count!(
    /// A number of packets or frames.
    PacketCount,
    "packets"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_and_printed_with_its_unit() {
        for (text, bps, printed) in [
            ("10mbit", 10_000_000, "10mbit"),
            ("1.5 Mbit", 1_500_000, "1500kbit"),
            ("1gbit", 1_000_000_000, "1gbit"),
            ("0.25kbit", 250, "250bit"),
            ("0bit", 0, "0bit"),
        ] {
            let rate: Bitrate = text.parse().unwrap();
            assert_eq!((rate.as_bps(), rate.to_string().as_str()), (bps, printed), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in
            ["", "10", "mbit", "-1mbit", "1e3mbit", "10mbyte", "1.2.3mbit", "nanbit", "99999999999gbit"]
        {
            assert!(text.parse::<Bitrate>().is_err(), "{text}");
        }
    }

    #[test]
    fn transmit_time_rounds_up_and_survives_extremes() {
        assert_eq!(Bitrate::from_mbps(12.0).transmit_time(1500), Duration::from_millis(1));
        assert_eq!(Bitrate::from_bps(3).transmit_time(1), Duration::from_nanos(2_666_666_667));
        assert_eq!(Bitrate::from_bps(0).transmit_time(1), Duration::MAX);
        assert_eq!(Bitrate::from_bps(1).transmit_time(usize::MAX), Duration::MAX);
    }

    #[test]
    fn a_probability_lies_within_0_and_1() {
        assert!(Probability::new(0.0).is_ok() && Probability::new(1.0).is_ok());
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(Probability::new(value).is_err(), "{value}");
        }
    }
}
