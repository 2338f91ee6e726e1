//! How often something may be done for each host: a rate and a burst per address, as WireGuard's ratelimiter.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::handshake::cookie::LoadGauge;

/// A bucket of tokens for each host, an IPv4 address or an IPv6 network of 64 bits. Bounded: a host whose bucket is
/// full again is forgotten, and while there is no room, further hosts get nothing.
#[derive(Debug)]
pub struct RateLimit {
    /// A token comes so often.
    interval: Duration,
    /// What a full bucket holds, as the time that it takes to fill it.
    burst: Duration,
    capacity: usize,
    /// When each host's bucket will be full again.
    full_at: BTreeMap<u64, Duration>,
    /// What all hosts together take from as well.
    all: Option<LoadGauge>,
}

impl RateLimit {
    /// `burst` (at least 1) at once, then one every `interval`, for each of at most `capacity` hosts at a time.
    pub fn new(interval: Duration, burst: u32, capacity: usize) -> Self {
        Self { interval, burst: interval * burst, capacity, full_at: BTreeMap::new(), all: None }
    }

    /// Cookies for hosts where somebody is known to be, one each 2 ms after a burst of 100, also when no others are to be had: who
    /// asks in such a host's name leaves it some.
    pub fn cookies_at_home(capacity: usize) -> Self {
        Self::new(Duration::from_millis(2), 100, capacity)
    }

    /// The same, with so much for all hosts together.
    pub fn in_all(self, all: LoadGauge) -> Self {
        Self { all: Some(all), ..self }
    }

    /// Takes a token of `host`; false if it has none, or all hosts together have had too many.
    pub fn take(&mut self, now: Duration, host: IpAddr) -> bool {
        let host = name(host);
        if !self.full_at.contains_key(&host) && !self.make_room(now) {
            return false;
        }
        let full_at = self.full_at.entry(host).or_insert(now);
        let after = now.max(*full_at) + self.interval;
        if after > now + self.burst {
            return false;
        }
        *full_at = after;
        !self.all.as_mut().is_some_and(|all| all.under_load(now))
    }

    /// Fills the bucket of `host`.
    pub fn forgive(&mut self, host: IpAddr) {
        self.full_at.remove(&name(host));
    }

    fn make_room(&mut self, now: Duration) -> bool {
        if self.full_at.len() >= self.capacity {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        self.full_at.len() < self.capacity
    }
}

/// A number for each host: its IPv4 address or IPv6 network of 64 bits. IPv4 addresses are below 2^32, which as the upper half of
/// an IPv6 address is reserved (::/32).
pub fn name(host: IpAddr) -> u64 {
    match host.to_canonical() {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const T: Duration = Duration::from_secs(10);

    fn host(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn each_host_has_its_own_burst_and_rate() {
        let mut sources = RateLimit::new(50 * MS, 5, 8);
        let mut count = |now, n| (0..100).take_while(|_| sources.take(now, host(n))).count();
        assert_eq!((count(T, 1), count(T, 1), count(T, 2)), (5, 0, 5));
        assert_eq!((count(T + 100 * MS, 1), count(T + 60 * T, 1)), (2, 5));
    }

    #[test]
    fn hosts_are_bounded_and_forgotten_when_their_buckets_are_full() {
        let mut sources = RateLimit::new(50 * MS, 5, 8);
        let taken = (0..=255).filter(|n| sources.take(T, host(*n))).count();
        assert_eq!((taken, sources.full_at.len()), (8, 8));
        assert!(sources.take(T + 50 * MS, host(200)));
        assert_eq!(sources.full_at.len(), 1);
        sources.forgive(host(200));
        assert!(sources.full_at.is_empty());
    }

    #[test]
    fn all_hosts_together_take_no_more_than_is_for_all() {
        let mut sources = RateLimit::new(50 * MS, 5, 64).in_all(LoadGauge::new(10, 12));
        let mut count = |now, n| (0..100).filter(|_| sources.take(now, host(n))).count();
        assert_eq!([1, 2, 3, 4].map(|n| count(T, n)), [5, 5, 2, 0]);
        assert_eq!(count(T + 100 * MS, 1), 1);
    }

    #[test]
    fn a_host_of_ipv6_is_a_network_of_64_bits() {
        let mut sources = RateLimit::new(50 * MS, 1, 8);
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(sources.take(T, v6("2001:db8::1")));
        assert!(!sources.take(T, v6("2001:db8::2")));
        assert!(sources.take(T, v6("2001:db8:0:1::1")));
        assert!(sources.take(T, host(1)));
        assert!(!sources.take(T, v6("::ffff:192.0.2.1")), "the same host through a socket of IPv6");
    }
}
