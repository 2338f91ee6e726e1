//! Which frames are new: a window of sequence numbers for each source, as `bpf/flood.h` computes it, and memory for
//! [`SOURCES`] of them. What a node without XDP does with every frame; the XDP program does the same with a map.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use crate::ffi::{RawConfig, RawHeader, RawSource};
use crate::frame::{Format, Frame, Padding, Verdict};

/// Sources that are remembered. Of more, those heard longest ago are forgotten; with a key, none is remembered but who
/// has it.
pub const SOURCES: usize = 4096;
/// `FLOOD_FRAME`.
const FRAME: u64 = 65536;
/// A tick, `FLOOD_TICK_SHIFT`, in ns.
const TICK_NS: u64 = 1 << 20;

/// What a source may send: so many frames per second in the long run, after a burst of a tenth of a second's worth or 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Frames per second, 1 to 100,000.
    pub frames_per_s: u32,
}

impl RateLimit {
    /// The highest that can be counted.
    pub const MAX: u32 = 100_000;

    /// Credit per tick and at most.
    fn credit(self) -> (u32, u32) {
        let rate = u64::from(self.frames_per_s.clamp(1, RateLimit::MAX));
        let tick = rate * FRAME * TICK_NS / 1_000_000_000;
        let most = (rate / 10).max(32) * FRAME;
        (tick.max(1) as u32, most as u32)
    }
}

/// What decides of a frame, apart from the window itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Of the network's frames.
    pub format: Format,
    /// This node's ID; frames of its own are dropped.
    pub id: u32,
    /// Of each source; `None`: none.
    pub rate_limit: Option<RateLimit>,
}

impl Rules {
    /// As C has them.
    pub(crate) fn raw(&self) -> RawConfig {
        let (credit_tick, credit_max) = self.rate_limit.map_or((0, 0), RateLimit::credit);
        RawConfig { id: self.id, credit_tick, credit_max, ..self.format.raw }
    }
}

/// The sources that a node has heard.
#[derive(Clone, Debug)]
pub struct Window {
    rules: Rules,
    raw: RawConfig,
    /// Two halves: what is heard goes into the young one, and when that is full the old one is forgotten. So neither a
    /// look-up nor forgetting takes longer with more sources.
    young: HashMap<u32, RawSource>,
    old: HashMap<u32, RawSource>,
}

impl Window {
    /// Nothing heard yet.
    pub fn new(rules: Rules) -> Window {
        let [young, old] = [(); 2].map(|()| HashMap::new());
        Window { rules, raw: rules.raw(), young, old }
    }

    /// By what it decides.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Takes a frame that is heard at `now` (since an epoch that stays the same). A frame that is returned is new: it is
    /// to be delivered, and relayed as [`Format::relayed`] says.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn handle_frame<'a>(
        &mut self,
        now: Duration,
        bytes: &'a [u8],
        padding: Padding,
    ) -> Result<Frame<'a>, Verdict> {
        let frame = self.rules.format.read(bytes, padding)?;
        if frame.header.id == self.rules.id {
            return Err(Verdict::Own);
        }
        let header = RawHeader::new(&frame.header, frame.data.len());
        let now = ticks(now);
        let known = self.find(header.id).map(|source| source.check(&self.raw, &header, now));
        if let Some(verdict @ 1..) = known {
            return Err(Verdict::from_number(verdict));
        }
        // What has a bad tag leaves no trace.
        if !self.rules.format.tag_is_good(&frame, bytes) {
            return Err(Verdict::BadTag);
        }
        let raw = self.raw;
        match Verdict::from_number(self.source(&header, now).take(&raw, &header, now)) {
            Verdict::New => Ok(frame),
            verdict => Err(verdict),
        }
    }

    fn find(&self, id: u32) -> Option<&RawSource> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }

    /// The state of a frame's source, among the young.
    fn source(&mut self, header: &RawHeader, now: u32) -> &mut RawSource {
        let before = self.old.remove(&header.id);
        if !self.young.contains_key(&header.id) && self.young.len() >= SOURCES / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        match self.young.entry(header.id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(before.unwrap_or_else(|| RawSource::new(&self.raw, header, now)))
            }
        }
    }
}

/// C's time: wraps.
pub(crate) fn ticks(now: Duration) -> u32 {
    (now.as_nanos() / u128::from(TICK_NS)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Header, Wire};

    const KEY: [u8; 16] = [9; 16];

    fn rules(wire: Wire) -> Rules {
        let key = Some(KEY).filter(|_| wire == Wire::One);
        Rules { format: Format::new(wire, key), id: 1, rate_limit: None }
    }

    fn frame(rules: &Rules, id: u32, epoch: u32, seq: u32) -> Vec<u8> {
        rules.format.write(&Header { id, epoch, seq, ttl: 3, ..Header::default() }, b"data")
    }

    /// What becomes of these frames of source 2, heard at these ms.
    fn verdicts(rules: Rules, frames: &[(u64, u32, u32)]) -> Vec<Verdict> {
        let mut window = Window::new(rules);
        let verdict = |&(at_ms, epoch, seq): &(u64, u32, u32)| {
            let bytes = frame(&rules, 2, epoch, seq);
            let heard = window.handle_frame(Duration::from_millis(at_ms), &bytes, Padding::None);
            heard.err().unwrap_or(Verdict::New)
        };
        frames.iter().map(verdict).collect()
    }

    #[test]
    fn a_frame_is_new_once() {
        use Verdict::{Duplicate, New, Old};
        let heard = verdicts(
            rules(Wire::One),
            &[(0, 1, 100), (0, 1, 100), (0, 1, 99), (0, 1, 352), (0, 1, 128), (0, 1, 127), (0, 1, 351)],
        );
        assert_eq!(heard, [New, Duplicate, New, New, New, Old, New]);
    }

    #[test]
    fn what_was_heard_before_the_wrap_is_known_behind_it() {
        use Verdict::{Duplicate, New};
        for wire in [Wire::Paper, Wire::One] {
            let most = wire.id_max();
            let seqs = [most - 70, most, 0, most, most - 70, 3, most, 0];
            let heard = verdicts(rules(wire), &seqs.map(|seq| (0, 1, seq)));
            let expected = [New, New, New, Duplicate, Duplicate, New, Duplicate, Duplicate];
            assert_eq!(heard, expected, "{wire:?}");
        }
    }

    #[test]
    fn a_restarted_node_is_heard_and_its_past_is_not() {
        use Verdict::{Duplicate, New, OldEpoch};
        let heard =
            verdicts(rules(Wire::One), &[(0, 5, 1000), (0, 6, 0), (0, 5, 1001), (0, 6, 0), (0, 6, 1)]);
        assert_eq!(heard, [New, New, OldEpoch, Duplicate, New]);
    }

    #[test]
    fn a_source_whose_epoch_went_back_is_heard_after_two_minutes_of_silence() {
        use Verdict::{New, OldEpoch};
        let heard = verdicts(
            rules(Wire::One),
            &[
                (0, 7, 1000),
                (100_000, 7, 1001),
                (200_000, 6, 0),
                (221_000, 6, 1),
                (221_000, 7, 1002),
                (221_001, 6, 2),
            ],
        );
        assert_eq!(heard, [New, New, OldEpoch, New, New, OldEpoch]);
    }

    #[test]
    fn what_earlier_lives_have_left_is_nothing_to_a_later_one() {
        // The first life uses the whole window, all others its beginning.
        let mut lives: Vec<_> = (0..256).map(|seq| (0, 1, seq)).collect();
        lives.extend((2..100).map(|epoch| (0, epoch, 0)));
        lives.extend((0..256).map(|seq| (0, 100, seq)));
        assert!(verdicts(rules(Wire::One), &lives).iter().all(|verdict| *verdict == Verdict::New));
    }

    #[test]
    fn without_an_epoch_silence_tells_a_restart() {
        use Verdict::{Duplicate, New};
        let heard = verdicts(
            rules(Wire::Paper),
            &[(0, 0, 200), (500, 0, 200), (900, 0, 201), (1_800, 0, 201), (2_000, 0, 201)],
        );
        assert_eq!(heard, [New, Duplicate, New, Duplicate, New]);
    }

    #[test]
    fn sequence_numbers_wrap() {
        for wire in [Wire::Paper, Wire::One] {
            let (rules, most) = (rules(wire), wire.id_max());
            let mut window = Window::new(rules);
            let mut seq = most - 300 % most;
            for _ in 0..2000 {
                let bytes = frame(&rules, 2, 1, seq);
                let mut hear = || window.handle_frame(Duration::ZERO, &bytes, Padding::None).map(drop);
                assert_eq!((hear(), hear()), (Ok(()), Err(Verdict::Duplicate)), "{wire:?} {seq}");
                seq = wire.next(seq);
            }
        }
    }

    #[test]
    fn its_own_frames_and_forged_ones_leave_no_trace() {
        let mut window = Window::new(rules(Wire::One));
        let hear = |window: &mut Window, bytes: &[u8]| {
            window.handle_frame(Duration::ZERO, bytes, Padding::None).map(drop)
        };
        let own = frame(window.rules(), 1, 1, 1);
        assert_eq!(hear(&mut window, &own), Err(Verdict::Own));
        let outsider = Rules { format: Format::new(Wire::One, Some([8; 16])), ..rules(Wire::One) };
        assert_eq!(hear(&mut window, &frame(&outsider, 2, 9, 900)), Err(Verdict::BadTag));
        assert_eq!(window.young.len() + window.old.len(), 0);
        let good = frame(window.rules(), 2, 1, 1);
        assert_eq!(hear(&mut window, &good), Ok(()));
    }

    #[test]
    fn memory_is_bounded_and_the_latest_stay() {
        let rules = Rules { format: Format::new(Wire::One, None), ..rules(Wire::One) };
        let mut window = Window::new(rules);
        let mut hear =
            |id| window.handle_frame(Duration::ZERO, &frame(&rules, id, 1, 1), Padding::None).is_ok();
        assert!((0..20_000).filter(|id| *id != 1).all(&mut hear));
        assert!((18_000..20_000).all(|id| !hear(id)), "heard lately, so remembered");
        assert!(window.young.len() + window.old.len() <= SOURCES);
    }

    #[test]
    fn a_known_source_keeps_its_window_when_the_old_are_forgotten() {
        let rules = Rules { format: Format::new(Wire::One, None), ..rules(Wire::One) };
        let mut window = Window::new(rules);
        let mut hear = |id, seq| {
            window.handle_frame(Duration::ZERO, &frame(&rules, id, 1, seq), Padding::None).map(drop)
        };
        let others = 3..3 + 2 * (SOURCES as u32 / 2) - 1;
        assert_eq!(hear(2, 1), Ok(()));
        assert!(others.into_iter().all(|id| hear(id, 1).is_ok()), "source 2 is old, and the young are full");
        assert_eq!((hear(2, 2), hear(2, 1)), (Ok(()), Err(Verdict::Duplicate)));
    }

    #[test]
    fn a_source_sends_no_more_than_it_may() {
        let rules = Rules { rate_limit: Some(RateLimit { frames_per_s: 1000 }), ..rules(Wire::One) };
        // 2000 frames a second, for ten seconds.
        let frames: Vec<_> = (0..20_000).map(|n| (u64::from(n) / 2, 1, n)).collect();
        let heard = verdicts(rules, &frames).iter().filter(|verdict| **verdict == Verdict::New).count();
        assert!((9_950..=10_150).contains(&heard), "{heard}");
    }

    proptest! {
        /// Whatever comes, in whatever order: no frame is new twice, in one life.
        #[test]
        fn nothing_is_new_twice(seqs in proptest::collection::vec(0u32..2000, 0..600), start: u32) {
            let rules = rules(Wire::One);
            let (mut window, mut seen) = (Window::new(rules), BTreeSet::new());
            for seq in seqs {
                let bytes = frame(&rules, 2, 1, start.wrapping_add(seq));
                let heard = window.handle_frame(Duration::ZERO, &bytes, Padding::None);
                if heard.is_ok() {
                    prop_assert!(seen.insert(seq), "{seq} twice");
                }
            }
        }

        /// What comes no more than 224 behind the newest is new, once.
        #[test]
        fn nothing_within_the_window_is_lost(start: u32, swaps in proptest::collection::vec(0usize..224, 448)) {
            let rules = rules(Wire::One);
            let mut order: Vec<u32> = (0..448).map(|n| start.wrapping_add(n)).collect();
            for (at, by) in swaps.into_iter().enumerate() {
                // Swapping inside blocks displaces nothing by more than a block.
                let block = at / 224 * 224;
                let other = (block + by).min(order.len() - 1);
                order.swap(at, other);
            }
            let mut window = Window::new(rules);
            for seq in order {
                let bytes = frame(&rules, 2, 1, seq);
                let heard = window.handle_frame(Duration::ZERO, &bytes, Padding::None);
                prop_assert!(heard.is_ok(), "{seq}: {:?}", heard.err());
            }
        }
    }
}
