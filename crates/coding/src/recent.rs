//! What is known of the latest packets, by digest.

use std::collections::{HashMap, VecDeque};

/// A value for each of the latest `MAX` packets; a packet that comes again takes the later value and stays for longer.
#[derive(Debug)]
pub(crate) struct Recent<T, const MAX: usize> {
    /// By digest: the value, and how often the digest is in `order`.
    values: HashMap<u32, (T, usize)>,
    order: VecDeque<u32>,
}

impl<T, const MAX: usize> Default for Recent<T, MAX> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T, const MAX: usize> Recent<T, MAX> {
    /// Keeps `value`, in place of the oldest.
    pub(crate) fn insert(&mut self, digest: u32, value: T) {
        if self.order.len() == MAX {
            self.remove_oldest();
        }
        let times = self.values.get(&digest).map_or(0, |(_, times)| *times);
        self.values.insert(digest, (value, times + 1));
        self.order.push_back(digest);
    }

    pub(crate) fn find(&self, digest: u32) -> Option<&T> {
        self.values.get(&digest).map(|(value, _)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    fn remove_oldest(&mut self) {
        let Some(digest) = self.order.pop_front() else { return };
        if let Some((_, times)) = self.values.get_mut(&digest) {
            *times -= 1;
            if *times == 0 {
                self.values.remove(&digest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let mut recent = Recent::<u32, 3>::default();
        (0..4).for_each(|n| recent.insert(n, n * 10));
        assert_eq!(
            (recent.len(), recent.find(0), recent.find(1), recent.find(3)),
            (3, None, Some(&10), Some(&30))
        );
    }

    #[test]
    fn what_comes_twice_stays_as_long_as_the_second() {
        let mut recent = Recent::<u32, 3>::default();
        [7, 7, 8, 9].into_iter().zip(0..).for_each(|(digest, value)| recent.insert(digest, value));
        assert_eq!(recent.find(7), Some(&1));
        recent.insert(10, 0);
        assert_eq!((recent.find(7), recent.values.len()), (None, 3));
    }
}
