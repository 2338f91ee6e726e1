//! What is on the air, and who can read it.

use std::time::Duration;

use super::config::{Strengths, ratio};

/// What a signal carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carries {
    /// The first of the sender's queue: one frame, or several for one station.
    Frame,
    /// A link ACK for this station, and for how many frames of its transmission.
    Ack { to: usize, frames: usize },
}

/// A transmission under way.
#[derive(Debug)]
pub(super) struct Signal {
    pub(super) from: usize,
    pub(super) carries: Carries,
    pub(super) end: Duration,
    /// The least SINR at which it can be read.
    min_sinr: f64,
    /// The most interference that it met so far, by receiver; infinite at one that transmitted meanwhile.
    interference: Vec<f64>,
}

impl Signal {
    /// Whether `station` can read it, now that it is over.
    pub(super) fn read_by(&self, station: usize, strengths: &Strengths) -> bool {
        let noise = 1.0 + self.interference[station];
        station != self.from && strengths.between(self.from, station) >= self.min_sinr * noise
    }
}

/// All transmissions under way.
#[derive(Debug, Default)]
pub(super) struct Air {
    signals: Vec<Signal>,
}

impl Air {
    pub(super) fn next_end(&self) -> Option<Duration> {
        self.signals.iter().map(|signal| signal.end).min()
    }

    /// A signal begins, and interferes with those under way, and they with it.
    pub(super) fn begin(
        &mut self,
        from: usize,
        carries: Carries,
        end: Duration,
        min_sinr_db: f64,
        strengths: &Strengths,
        stations: usize,
    ) {
        let interference = vec![0.0; stations];
        self.signals.push(Signal { from, carries, end, min_sinr: ratio(min_sinr_db), interference });
        for station in 0..stations {
            self.interfere(station, strengths);
        }
    }

    /// Notes at `station` what each signal meets now.
    fn interfere(&mut self, station: usize, strengths: &Strengths) {
        let deaf = self.signals.iter().any(|signal| signal.from == station);
        for index in 0..self.signals.len() {
            let others = self.signals.iter().enumerate().filter(|(other, _)| *other != index);
            let sum = others.map(|(_, signal)| strengths.between(signal.from, station)).sum();
            let met = if deaf { f64::INFINITY } else { sum };
            let worst = &mut self.signals[index].interference[station];
            *worst = worst.max(met);
        }
    }

    /// Takes a signal that ends at `time` off the air.
    pub(super) fn end(&mut self, time: Duration) -> Option<Signal> {
        let index = self.signals.iter().position(|signal| signal.end == time)?;
        Some(self.signals.remove(index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{DcfConfig, Position, Reach};
    use super::super::phy::Phy;
    use super::*;

    const END: Duration = Duration::from_micros(100);

    /// Stations at 0, 50, 100, 150 m that reach 100 m; a ratio of 2 in distance is 9 dB.
    fn strengths() -> Strengths {
        let config = DcfConfig::new(Phy::g54(), Position::chain(4, 50.0));
        Strengths::new(&DcfConfig { reach: Reach::default(), ..config })
    }

    fn readers(air: &mut Air, strengths: &Strengths) -> Vec<Vec<usize>> {
        let signals = std::iter::from_fn(|| air.end(END));
        signals.map(|s| (0..4).filter(|to| s.read_by(*to, strengths)).collect()).collect()
    }

    #[test]
    fn alone_it_is_read_as_far_as_it_reaches() {
        let (mut air, strengths) = (Air::default(), strengths());
        air.begin(0, Carries::Frame, END, 21.0, &strengths, 4);
        assert_eq!(readers(&mut air, &strengths), [[1, 2]]);
    }

    #[test]
    fn the_stronger_is_captured_if_its_rate_allows() {
        let (mut air, strengths) = (Air::default(), strengths());
        for from in [0, 3] {
            air.begin(from, Carries::Frame, END, 8.0, &strengths, 4);
        }
        assert_eq!(readers(&mut air, &strengths), [[1], [2]]);
        for from in [0, 3] {
            air.begin(from, Carries::Frame, END, 10.0, &strengths, 4);
        }
        assert_eq!(readers(&mut air, &strengths), [[0; 0], [0; 0]]);
    }

    #[test]
    fn one_that_transmits_hears_nothing_even_if_it_stops_earlier() {
        let (mut air, strengths) = (Air::default(), strengths());
        air.begin(1, Carries::Frame, END / 2, 0.0, &strengths, 4);
        air.begin(0, Carries::Frame, END, -20.0, &strengths, 4);
        air.end(END / 2);
        assert_eq!(readers(&mut air, &strengths), [[2, 3]]);
    }
}
