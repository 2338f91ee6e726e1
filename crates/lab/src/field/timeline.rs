//! What happens to the convoy meanwhile.

use std::time::Duration;

/// How long a sample takes.
pub(super) const LENGTH: Duration = Duration::from_secs(36);

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The address behind which the uplink `nat` appears becomes another.
    NewAddress,
    /// An uplink carries nothing, and carries again.
    Lost(usize),
    Back(usize),
    /// A vehicle is switched off, and starts.
    Off(usize),
    On(usize),
    /// A vehicle is out of everybody's range, and back.
    OutOfRange(usize),
    InRange(usize),
}

/// When, in order.
pub(super) const EVENTS: [(Duration, Event); 7] = {
    use super::convoy::{LAST, LTE, RELAY};
    [
        (Duration::from_secs(5), Event::NewAddress),
        (Duration::from_secs(9), Event::Lost(LTE)),
        (Duration::from_secs(13), Event::Back(LTE)),
        (Duration::from_secs(18), Event::Off(RELAY)),
        (Duration::from_secs(21), Event::On(RELAY)),
        (Duration::from_secs(27), Event::OutOfRange(LAST)),
        (Duration::from_secs(31), Event::InRange(LAST)),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_in_order_and_leave_time_to_recover() {
        assert!(EVENTS.is_sorted_by_key(|(at, _)| *at));
        assert!(EVENTS.iter().all(|(at, _)| *at + Duration::from_secs(5) <= LENGTH));
    }
}
