//! Loss models.

use crate::dice::Dice;
use crate::units::{Probability, UnitError};

/// Which frames are lost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability, independently.
    Bernoulli(Probability),
    /// Bursts: a two-state Markov chain that takes one step per frame (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        /// Probability per frame to go from good to bad.
        good_to_bad: Probability,
        /// Probability per frame to go from bad to good.
        bad_to_good: Probability,
        /// Loss in the good state.
        loss_good: Probability,
        /// Loss in the bad state.
        loss_bad: Probability,
    },
}

impl Loss {
    /// Gilbert's model (no loss in the good state, nothing but loss in the bad one) with `mean_loss` as the
    /// share of lost frames and `mean_burst_packets` as the mean length of a run of losses.
    ///
    /// An error if `mean_loss` is 1, or if `mean_burst_packets` is below 1 or below what is needed for
    /// so much loss, `mean_loss / (1 - mean_loss)`.
    pub fn gilbert_elliott(mean_loss: Probability, mean_burst_packets: f64) -> Result<Loss, UnitError> {
        let loss = mean_loss.get();
        let bad_to_good = 1.0 / mean_burst_packets;
        let good_to_bad = bad_to_good * loss / (1.0 - loss);
        let error = |_| UnitError::Burst { mean_loss: loss, mean_burst: mean_burst_packets };
        Ok(Loss::GilbertElliott {
            good_to_bad: Probability::new(good_to_bad).map_err(error)?,
            bad_to_good: Probability::new(bad_to_good).map_err(error)?,
            loss_good: Probability::ZERO,
            loss_bad: Probability::ONE,
        })
    }

    /// The share of frames lost in the long run.
    pub fn mean(&self) -> f64 {
        match *self {
            Loss::None => 0.0,
            Loss::Bernoulli(p) => p.get(),
            Loss::GilbertElliott { loss_good, loss_bad, .. } => {
                let bad = self.share_bad();
                loss_bad.get() * bad + loss_good.get() * (1.0 - bad)
            }
        }
    }

    /// Whether each of successive frames is lost, drawn from `seed`, without end.
    pub fn draw(self, seed: u64) -> impl Iterator<Item = bool> {
        let mut process = LossProcess::new(self, Dice::new(seed, 0));
        std::iter::from_fn(move || Some(process.loses()))
    }

    /// Stationary probability of the bad state; 0 if the chain never leaves a state.
    fn share_bad(&self) -> f64 {
        match *self {
            Loss::GilbertElliott { good_to_bad, bad_to_good, .. } if good_to_bad.get() > 0.0 => {
                good_to_bad.get() / (good_to_bad.get() + bad_to_good.get())
            }
            _ => 0.0,
        }
    }
}

/// A loss model at work. It begins in a state drawn from the stationary distribution.
#[derive(Debug)]
pub(crate) struct LossProcess {
    model: Loss,
    bad: bool,
    dice: Dice,
}

impl LossProcess {
    pub(crate) fn new(model: Loss, mut dice: Dice) -> LossProcess {
        let bad = dice.unit() < model.share_bad();
        LossProcess { model, bad, dice }
    }

    /// Whether the next frame is lost.
    pub(crate) fn loses(&mut self) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Bernoulli(p) => self.dice.chance(p),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let lost = self.dice.chance(if self.bad { loss_bad } else { loss_good });
                self.bad ^= self.dice.chance(if self.bad { bad_to_good } else { good_to_bad });
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    #[test]
    fn a_burst_model_has_the_mean_it_was_asked_for() {
        let loss = Loss::gilbert_elliott(p(0.02), 4.0).unwrap();
        assert!((loss.mean() - 0.02).abs() < 1e-12);
        assert_eq!(Loss::gilbert_elliott(p(0.0), 1.0).unwrap().mean(), 0.0);
    }

    #[test]
    fn what_is_drawn_is_the_loss_that_was_asked_for() {
        let loss = Loss::Bernoulli(p(0.2));
        let lost = loss.draw(1).take(10_000).filter(|&lost| lost).count();
        assert!((1800..2200).contains(&lost), "{lost}");
        assert!(loss.draw(7).take(99).eq(loss.draw(7).take(99)));
        assert!(!Loss::None.draw(1).take(100).any(|lost| lost));
    }

    #[test]
    fn impossible_bursts_are_refused() {
        for (loss, burst) in [(0.1, 0.5), (1.0, 3.0), (0.9, 2.0), (0.1, f64::NAN), (0.1, -1.0), (0.1, 0.0)] {
            assert!(Loss::gilbert_elliott(p(loss), burst).is_err(), "{loss} {burst}");
        }
    }
}
