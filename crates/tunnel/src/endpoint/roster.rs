//! Which peers have something to do: with hundreds of quiet ones, an event costs what those cost that it concerns.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The peers, by their places. Everybody is awake, or asleep until something is due, if anything ever is.
#[derive(Debug)]
pub struct Roster {
    asleep: BTreeSet<(Duration, usize)>,
    /// When a peer is to wake up, if it is asleep.
    due: Vec<Option<Duration>>,
    awake: BTreeSet<usize>,
    /// Those who may have something to send, in turn.
    turns: VecDeque<usize>,
}

impl Roster {
    /// So many, all awake.
    pub fn new(peers: usize) -> Self {
        Self {
            asleep: BTreeSet::new(),
            due: vec![None; peers],
            awake: (0..peers).collect(),
            turns: (0..peers).collect(),
        }
    }

    /// Something happens to a peer, if there is one of this place.
    pub fn wake(&mut self, at: usize) {
        if at >= self.due.len() {
            return;
        }
        if let Some(due) = self.due[at].take() {
            self.asleep.remove(&(due, at));
        }
        self.awake.insert(at);
    }

    /// Who is awake now; they take turns in sending.
    pub fn begin(&mut self, now: Duration) -> Vec<usize> {
        while let Some(&(due, at)) = self.asleep.first().filter(|(due, _)| *due <= now) {
            debug_assert_eq!(self.due[at], Some(due));
            self.wake(at);
        }
        // Whoever was next is so still.
        let first = self.turns.front().copied().unwrap_or(0);
        let (behind, ahead): (Vec<_>, Vec<_>) = self.awake.iter().copied().partition(|at| *at < first);
        self.turns = ahead.into_iter().chain(behind).collect();
        self.awake.iter().copied().collect()
    }

    /// Whose turn it is.
    pub fn next(&mut self) -> Option<usize> {
        self.turns.pop_front()
    }

    /// It has sent something and may send more, when all others have had their turn.
    pub fn again(&mut self, at: usize) {
        self.turns.push_back(at);
    }

    /// It has nothing to do until `due`.
    pub fn sleep(&mut self, at: usize, due: Option<Duration>) {
        self.awake.remove(&at);
        let due = due.unwrap_or(Duration::MAX);
        self.due[at] = Some(due);
        self.asleep.insert((due, at));
    }

    /// When the first sleeper wakes.
    pub fn due(&self) -> Option<Duration> {
        self.asleep.first().map(|(due, _)| *due).filter(|due| *due < Duration::MAX)
    }

    /// Who is awake.
    pub fn awake(&self) -> impl Iterator<Item = usize> {
        self.awake.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn turns(roster: &mut Roster) -> Vec<usize> {
        std::iter::from_fn(|| roster.next()).collect()
    }

    #[test]
    fn who_sleeps_costs_nothing_until_it_is_woken_or_due() {
        let mut roster = Roster::new(4);
        assert_eq!((roster.begin(S), turns(&mut roster)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
        roster.sleep(0, Some(5 * S));
        roster.sleep(1, None);
        roster.sleep(2, Some(3 * S));
        assert_eq!((roster.begin(2 * S), roster.due()), (vec![3], Some(3 * S)));
        roster.sleep(3, None);
        roster.wake(0);
        roster.wake(7);
        assert_eq!((roster.begin(2 * S), roster.due()), (vec![0], Some(3 * S)));
        assert_eq!((roster.begin(9 * S), roster.due()), (vec![0, 2], None));
        assert_eq!(turns(&mut roster), [0, 2]);
    }

    #[test]
    fn who_sends_more_waits_for_the_others() {
        let mut roster = Roster::new(3);
        roster.begin(S);
        assert_eq!(roster.next(), Some(0));
        roster.again(0);
        assert_eq!(roster.begin(S), [0, 1, 2]);
        assert_eq!(turns(&mut roster), [1, 2, 0], "a new turn does not begin with the first again");
    }
}
