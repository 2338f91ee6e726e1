//! Who hears whom on a shared medium: chains, grids, random geometric graphs, and nodes that move.

use std::collections::VecDeque;
use std::time::Duration;

use crate::dice::Dice;

const POSITION_STREAM: u64 = 0;

/// So often are positions drawn anew before a radius is taken to be too small to connect them.
const DRAWS: usize = 1000;

/// For each node, who hears it. No node hears itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjacency {
    /// In rising order.
    hearers: Vec<Vec<usize>>,
}

impl Adjacency {
    /// `nodes` in a row, each heard by those beside it.
    pub fn chain(nodes: usize) -> Adjacency {
        Adjacency::where_heard(nodes, |a, b| a.abs_diff(b) == 1)
    }

    /// `nodes` in a row, each heard by the next alone.
    pub fn one_way(nodes: usize) -> Adjacency {
        Adjacency::where_heard(nodes, |a, b| a + 1 == b)
    }

    /// `width` × `height` nodes, row by row, each heard by those left, right, above and below.
    pub fn grid(width: usize, height: usize) -> Adjacency {
        let place = |node: usize| (node % width.max(1), node / width.max(1));
        Adjacency::where_heard(width * height, |a, b| {
            let ((ax, ay), (bx, by)) = (place(a), place(b));
            ax.abs_diff(bx) + ay.abs_diff(by) == 1
        })
    }

    /// Everybody hears everybody else.
    pub fn complete(nodes: usize) -> Adjacency {
        Adjacency::where_heard(nodes, |_, _| true)
    }

    /// Nodes that hear each other within `radius`.
    pub fn within(positions: &[Position], radius: f64) -> Adjacency {
        Adjacency::where_heard(positions.len(), |a, b| positions[a].distance(positions[b]) <= radius)
    }

    /// `nodes` scattered over the unit square (uniform, independent), with the radius that gives them `mean_degree`
    /// neighbours in the mean, borders included; drawn anew from `seed` until all are connected. `None` if that
    /// does not come about: so few neighbours hardly ever connect so many nodes.
    pub fn geometric(nodes: usize, mean_degree: f64, seed: u64) -> Option<Adjacency> {
        let (positions, radius) = Position::scattered(nodes, mean_degree, seed)?;
        Some(Adjacency::within(&positions, radius))
    }

    fn where_heard(nodes: usize, heard: impl Fn(usize, usize) -> bool) -> Adjacency {
        let hearers = |from| (0..nodes).filter(|&to| to != from && heard(from, to)).collect();
        Adjacency { hearers: (0..nodes).map(hearers).collect() }
    }

    /// How many nodes there are, numbered from 0.
    pub fn nodes(&self) -> usize {
        self.hearers.len()
    }

    /// Who hears `node`, in rising order.
    pub fn hearers(&self, node: usize) -> &[usize] {
        &self.hearers[node]
    }

    /// How many hear a node, in the mean over all.
    pub fn mean_degree(&self) -> f64 {
        self.hearers.iter().map(Vec::len).sum::<usize>() as f64 / self.nodes().max(1) as f64
    }

    /// How many hops each node is from `source`; `None` of those that cannot be reached.
    pub fn hops(&self, source: usize) -> Vec<Option<usize>> {
        let mut hops = vec![None; self.nodes()];
        hops[source] = Some(0);
        let mut queue = VecDeque::from([(source, 0)]);
        while let Some((node, distance)) = queue.pop_front() {
            for &next in &self.hearers[node] {
                if hops[next].is_none() {
                    hops[next] = Some(distance + 1);
                    queue.push_back((next, distance + 1));
                }
            }
        }
        hops
    }

    /// Whether each node can reach each other one.
    pub fn is_connected(&self) -> bool {
        (0..self.nodes()).all(|node| self.hops(node).iter().all(Option::is_some))
    }

    /// The most hops between any two nodes; `None` if they are not connected, or none are there.
    pub fn diameter(&self) -> Option<usize> {
        let farthest = |node| self.hops(node).into_iter().collect::<Option<Vec<_>>>()?.into_iter().max();
        (0..self.nodes()).map(farthest).collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// The radius within which `positions` have `mean_degree` neighbours in the mean, as nearly as may be.
fn radius_of(positions: &[Position], mean_degree: f64) -> f64 {
    let pairs = (1..positions.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let mut distances: Vec<f64> = pairs.map(|(a, b)| positions[a].distance(positions[b])).collect();
    distances.sort_unstable_by(f64::total_cmp);
    let wanted = (mean_degree * positions.len() as f64 / 2.0).round() as usize;
    wanted
        .checked_sub(1)
        .and_then(|last| distances.get(last.min(distances.len().checked_sub(1)?)))
        .copied()
        .unwrap_or(0.0)
}

/// A place in the unit square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// From 0 to 1.
    pub x: f64,
    /// From 0 to 1.
    pub y: f64,
}

impl Position {
    /// The places of the nodes of [`Adjacency::geometric`], and the radius within which they hear each other.
    pub fn scattered(nodes: usize, mean_degree: f64, seed: u64) -> Option<(Vec<Position>, f64)> {
        let mut dice = Dice::new(seed, POSITION_STREAM);
        let draw = |_| {
            let positions: Vec<Position> = (0..nodes).map(|_| Position::random(&mut dice)).collect();
            let radius = radius_of(&positions, mean_degree);
            (positions, radius)
        };
        let connected =
            |(positions, radius): &(Vec<Position>, f64)| Adjacency::within(positions, *radius).is_connected();
        (0..DRAWS).map(draw).find(connected)
    }

    fn random(dice: &mut Dice) -> Position {
        Position { x: dice.unit(), y: dice.unit() }
    }

    fn distance(self, other: Position) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// Nodes that move over the unit square: each goes straight to a random place, and on to the next (the random
/// waypoint model, without pauses).
#[derive(Debug)]
pub struct Walk {
    dice: Dice,
    /// Sides of the square per second.
    speed: f64,
    now: Duration,
    /// Where each is, and where it goes.
    walkers: Vec<(Position, Position)>,
}

impl Walk {
    /// `nodes` at random places at time 0, with `speed` in sides of the square per second (finite, 0 or more).
    pub fn new(nodes: usize, speed: f64, seed: u64) -> Walk {
        let mut dice = Dice::new(seed, POSITION_STREAM);
        let walkers =
            (0..nodes).map(|_| (Position::random(&mut dice), Position::random(&mut dice))).collect();
        Walk { dice, speed, now: Duration::ZERO, walkers }
    }

    /// Where all are at `now`, which never goes back. How often this is asked changes nothing but rounding.
    pub fn positions(&mut self, now: Duration) -> Vec<Position> {
        let way = now.saturating_sub(self.now).as_secs_f64() * self.speed;
        self.now = self.now.max(now);
        for walker in &mut self.walkers {
            let mut left = way;
            while left > 0.0 {
                let (here, goal) = *walker;
                let distance = here.distance(goal);
                if distance > left {
                    let share = left / distance;
                    walker.0 = Position {
                        x: here.x + (goal.x - here.x) * share,
                        y: here.y + (goal.y - here.y) * share,
                    };
                    break;
                }
                left -= distance;
                *walker = (goal, Position::random(&mut self.dice));
            }
        }
        self.walkers.iter().map(|&(here, _)| here).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_as_long_as_it_has_links() {
        let chain = Adjacency::chain(5);
        assert_eq!(chain.hearers(0), [1]);
        assert_eq!(chain.hearers(2), [1, 3]);
        assert_eq!(chain.diameter(), Some(4));
        assert_eq!(chain.hops(4)[0], Some(4));
    }

    #[test]
    fn one_way_leads_nowhere_back() {
        let line = Adjacency::one_way(3);
        assert_eq!(line.hops(0), [Some(0), Some(1), Some(2)]);
        assert_eq!(line.hops(2), [None, None, Some(0)]);
        assert!(!line.is_connected());
    }

    #[test]
    fn a_grid_has_four_neighbours_inside() {
        let grid = Adjacency::grid(3, 3);
        assert_eq!(grid.hearers(4), [1, 3, 5, 7]);
        assert_eq!(grid.hearers(2), [1, 5], "no wrapping round at the edge");
        assert_eq!(grid.diameter(), Some(4));
    }

    #[test]
    fn everybody_hears_everybody_else() {
        let complete = Adjacency::complete(4);
        assert_eq!(complete.hearers(1), [0, 2, 3]);
        assert_eq!(complete.diameter(), Some(1));
    }

    #[test]
    fn scattered_nodes_are_connected_symmetric_and_as_dense_as_asked_for() {
        for seed in 0..20 {
            let net = Adjacency::geometric(100, 20.0, seed).unwrap();
            assert!(net.is_connected() && (net.mean_degree() - 20.0).abs() < 0.1);
            for a in 0..100 {
                assert!(net.hearers(a).iter().all(|&b| b != a && net.hearers(b).contains(&a)));
            }
        }
        assert_eq!(Adjacency::geometric(100, 20.0, 3), Adjacency::geometric(100, 20.0, 3));
        assert_ne!(Adjacency::geometric(100, 20.0, 3), Adjacency::geometric(100, 20.0, 4));
    }

    #[test]
    fn too_few_neighbours_connect_nobody() {
        assert_eq!(Adjacency::geometric(50, 0.5, 1), None);
        assert_eq!(Adjacency::chain(0).diameter(), None);
    }

    #[test]
    fn who_walks_stays_in_the_square_and_goes_no_faster_than_asked() {
        let mut walk = Walk::new(20, 0.1, 7);
        let mut before = walk.positions(Duration::ZERO);
        for second in 1..100 {
            let after = walk.positions(Duration::from_secs(second));
            for (a, b) in before.iter().zip(&after) {
                assert!(
                    a.distance(*b) <= 0.1 + 1e-9 && (0.0..=1.0).contains(&b.x) && (0.0..=1.0).contains(&b.y)
                );
            }
            assert_ne!(before, after);
            before = after;
        }
    }
}
