//! When a strand that failed is started again: soon at first, and ever later while it fails. Time is an argument.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// The first wait; it doubles each time, up to the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// What has run for so long has not failed before: the waits begin anew, and status forgets.
const STEADY: Duration = Duration::from_secs(300);

/// What fails, and is started again, by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strand {
    /// `[tunnel]`
    Tunnel,
    /// `[relay]`
    Relay,
    /// `[flight]`
    Flight,
    /// `[bicast]`
    Bicast,
    /// The `[[flood]]` on this interface.
    Flood(String),
    /// The `[[coding]]` on this interface.
    Coding(String),
}

impl fmt::Display for Strand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strand::Tunnel => f.write_str("tunnel"),
            Strand::Relay => f.write_str("relay"),
            Strand::Flight => f.write_str("flight"),
            Strand::Bicast => f.write_str("bicast"),
            Strand::Flood(interface) => write!(f, "flood on {interface}"),
            Strand::Coding(interface) => write!(f, "coding on {interface}"),
        }
    }
}

/// Strands that failed of late.
#[derive(Clone, Debug, Default)]
pub struct Restarts(BTreeMap<Strand, Failed>);

#[derive(Clone, Debug)]
struct Failed {
    why: String,
    /// In a row.
    times: u32,
    /// When it is started again; `None`: it runs.
    due: Option<Duration>,
    /// When it was started again.
    since: Duration,
}

impl Restarts {
    /// It has failed, and waits.
    pub fn handle_failure(&mut self, now: Duration, strand: Strand, why: String) {
        let before = self.0.get(&strand).filter(|one| one.due.is_some() || now < one.since + STEADY);
        let times = before.map_or(0, |one| one.times);
        let wait = (FIRST * 2u32.saturating_pow(times)).min(LONGEST);
        self.0.insert(
            strand,
            Failed { why, times: times.saturating_add(1), due: Some(now + wait), since: now },
        );
    }

    /// It runs again.
    pub fn handle_start(&mut self, now: Duration, strand: &Strand) {
        if let Some(one) = self.0.get_mut(strand) {
            (one.due, one.since) = (None, now);
        }
    }

    /// Those that wait are due at once: what was wrong with them may be mended.
    pub fn hurry(&mut self) {
        self.0.values_mut().filter_map(|one| one.due.as_mut()).for_each(|due| *due = Duration::ZERO);
    }

    /// Forgets those that nobody wants any more.
    pub fn retain(&mut self, wanted: impl Fn(&Strand) -> bool) {
        self.0.retain(|strand, _| wanted(strand));
    }

    /// What is to be started again now.
    pub fn due(&self, now: Duration) -> Vec<Strand> {
        let due = self.0.iter().filter(|(_, one)| one.due.is_some_and(|due| due <= now));
        due.map(|(strand, _)| strand.clone()).collect()
    }

    /// When [`due`](Self::due) has something.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.0.values().filter_map(|one| one.due).min()
    }

    /// For status: those that wait, and those that run again and have not done so for long.
    pub fn status(&self, now: Duration) -> Vec<Value> {
        let recent = self.0.iter().filter(|(_, one)| one.due.is_some() || now < one.since + STEADY);
        let state = |(strand, one): (&Strand, &Failed)| {
            let next = one.due.map(|due| due.saturating_sub(now).as_secs_f64());
            let (strand, up) = (strand.to_string(), next.is_none());
            json!({"strand": strand, "up": up, "why": one.why, "failures": one.times, "starts_again_in_s": next})
        };
        recent.map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn who_fails_again_waits_longer_and_who_ran_for_long_does_not() {
        let (mut restarts, mut now, mut waits) = (Restarts::default(), 100 * S, Vec::new());
        for _ in 0..8 {
            restarts.handle_failure(now, Strand::Tunnel, "gone".into());
            let due = restarts.poll_timeout().expect("it waits");
            assert_eq!(restarts.due(due - S / 2), []);
            assert_eq!(restarts.due(due), [Strand::Tunnel]);
            waits.push((due - now).as_secs());
            now = due;
            restarts.handle_start(now, &Strand::Tunnel);
            assert_eq!(restarts.poll_timeout(), None);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(restarts.status(now)[0]["failures"], 8);
        now += STEADY;
        assert_eq!(restarts.status(now), Vec::<Value>::new());
        restarts.handle_failure(now, Strand::Tunnel, "gone".into());
        assert_eq!(restarts.poll_timeout(), Some(now + FIRST));
    }

    #[test]
    fn who_waits_is_hurried_and_has_failed_as_often_as_before() {
        let mut restarts = Restarts::default();
        for strand in [Strand::Tunnel, Strand::Relay, Strand::Bicast] {
            restarts.handle_failure(S, strand, "gone".into());
        }
        restarts.handle_start(2 * S, &Strand::Relay);
        restarts.handle_start(2 * S, &Strand::Bicast);
        restarts.handle_failure(2 * S, Strand::Bicast, "gone".into());
        assert_eq!(restarts.due(S), []);
        restarts.hurry();
        assert_eq!(restarts.due(S), [Strand::Tunnel, Strand::Bicast], "what runs is left alone");
        assert_eq!(restarts.status(S)[0]["starts_again_in_s"], 0.0);
        restarts.handle_failure(3 * S, Strand::Bicast, "gone".into());
        assert_eq!(restarts.poll_timeout(), Some(Duration::ZERO));
        restarts.handle_start(3 * S, &Strand::Tunnel);
        assert_eq!(restarts.poll_timeout(), Some(7 * S), "the third wait of one is the longer");
    }

    #[test]
    fn strands_fail_by_themselves() {
        let mut restarts = Restarts::default();
        restarts.handle_failure(S, Strand::Flood("wlan0".into()), "gone".into());
        restarts.handle_failure(S, Strand::Relay, "no".into());
        restarts.handle_start(2 * S, &Strand::Relay);
        assert_eq!(restarts.due(9 * S), [Strand::Flood("wlan0".into())]);
        let status = restarts.status(2 * S);
        let names: Vec<_> = status.iter().map(|one| one["strand"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["relay", "flood on wlan0"]);
    }
}
