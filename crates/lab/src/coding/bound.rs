//! What sums of two opposing packets can save at most.

use link::dcf::Phy;

/// Frames of a full segment and of an ACK, Ethernet header included.
const DATA: usize = 1514;
const ACK: usize = 66;

/// What a sum of two packets has more than the longer of them.
const HEADER: usize = 26;

/// Packets that one end sent, for each of which every relay sends one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) data: u64,
    /// Segments without.
    pub(super) acks: u64,
}

/// The best that a chain can do by coding against itself without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    /// Packets sent by all nodes, as a share of those without coding.
    pub(super) packets: f64,
    /// Goodput, as a multiple of that without coding, if the air is always busy and nobody collides.
    pub(super) goodput: f64,
}

impl Bound {
    /// Over so many hops, with what both ends sent. Every packet that a relay sends for one end finds one for the other,
    /// as long as there are any; data finds data first, whose airtime is worth the most.
    pub(super) fn of(hops: usize, there: Sent, back: Sent) -> Bound {
        let (hops, relays) = (hops as f64, hops.saturating_sub(1) as f64);
        let total = |sent: Sent| (sent.data + sent.acks) as f64;
        let sums = total(there).min(total(back));
        let data_sums = there.data.min(back.data) as f64;
        let all = hops * (total(there) + total(back));
        let airtime = hops
            * ((there.data + back.data) as f64 * airtime(DATA)
                + (there.acks + back.acks) as f64 * airtime(ACK));
        // Two frames by themselves, and their sum.
        let saved = |shorter| self::airtime(DATA) + self::airtime(shorter) - self::airtime(DATA + HEADER);
        let saved = relays * (data_sums * saved(DATA) + (sums - data_sums) * saved(ACK));
        if all == 0.0 {
            return Bound { packets: 1.0, goodput: 1.0 };
        }
        Bound { packets: 1.0 - relays * sums / all, goodput: airtime / (airtime - saved) }
    }
}

/// The least packets, as a share of those without coding, that the paper's rule sends: it holds one of two data packets, and
/// codes it with an ACK of its flow.
pub(super) fn papers_rule(hops: usize, there: Sent, back: Sent) -> f64 {
    let (hops, relays) = (hops as f64, hops.saturating_sub(1) as f64);
    let sums =
        (there.data as f64 / 2.0).min(back.acks as f64) + (back.data as f64 / 2.0).min(there.acks as f64);
    let all = hops * (there.data + there.acks + back.data + back.acks) as f64;
    if all == 0.0 { 1.0 } else { 1.0 - relays * sums / all }
}

/// How long one frame of 802.11g at 54 Mbit/s takes, link ACK and mean backoff included, in microseconds.
fn airtime(frame: usize) -> f64 {
    let phy = Phy::g54();
    let backoff = phy.slot() * phy.contention_window(0) / 2;
    let all = phy.difs() + backoff + phy.data_time(frame) + phy.sifs() + phy.ack_time();
    all.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_it_is_the_formula_of_the_paper() {
        let (there, back) = (Sent { data: 10_000, acks: 0 }, Sent { data: 0, acks: 5000 });
        for (hops, packets, goodput) in [(2, 1.0 / 6.0, 1.101), (3, 2.0 / 9.0, 1.139), (4, 0.25, 1.159)] {
            let bound = Bound::of(hops, there, back);
            assert!((1.0 - bound.packets - packets).abs() < 1e-9, "{bound:?}");
            assert!((bound.goodput - goodput).abs() < 0.002, "{bound:?}");
        }
        assert_eq!(Bound::of(1, there, back).packets, 1.0);
    }

    #[test]
    fn more_acks_than_one_for_two_only_add_to_what_the_papers_rule_sends() {
        let there = Sent { data: 10_000, acks: 0 };
        let saved = |acks| 1.0 - papers_rule(2, there, Sent { data: 0, acks });
        assert!((saved(5000) - 1.0 / 6.0).abs() < 1e-9);
        assert!((saved(6000) - 0.5 * 5000.0 / 16_000.0).abs() < 1e-9);
        assert!((saved(4000) - 0.5 * 4000.0 / 14_000.0).abs() < 1e-9);
        assert_eq!(papers_rule(2, Sent::default(), Sent::default()), 1.0);
    }

    #[test]
    fn data_of_both_ways_is_worth_more() {
        let both = Sent { data: 10_000, acks: 5000 };
        let bound = Bound::of(2, both, both);
        assert!((bound.packets - 0.75).abs() < 1e-9 && bound.goodput > 1.3, "{bound:?}");
        assert_eq!(Bound::of(2, Sent::default(), Sent::default()).goodput, 1.0);
    }
}
