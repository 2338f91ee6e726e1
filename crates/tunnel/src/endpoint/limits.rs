//! How often strangers get what costs something, and what is said of them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::handshake::cookie::LoadGauge;
use crate::handshake::rate_limit::RateLimit;

/// More handshakes than this per second ask for cookies; bursts of [`HANDSHAKE_BURST`] do not.
const HANDSHAKES_PER_SECOND: u32 = 50;
const HANDSHAKE_BURST: u32 = 100;
/// So many cookies in a second, after a burst, to addresses that no peer is known to be at: a flood is not worth more
/// work.
const COOKIES_PER_SECOND: u32 = 5000;
const COOKIE_BURST: u32 = 500;
/// With a cookie, each host may do so often a handshake, after a burst (WireGuard's ratelimiter).
const SOURCE_INTERVAL: Duration = Duration::from_millis(50);
const SOURCE_BURST: u32 = 5;
/// All of them together, but for those where a peer is known to be, so many handshakes in a second, after a burst: a
/// fortieth of a processor.
const PROVEN_PER_SECOND: u32 = 400;
const PROVEN_BURST: u32 = 100;
/// Each host gets a relay's echo so often, after a burst; all of them together as many as cookies.
const ECHO_INTERVAL: Duration = Duration::from_millis(20);
const ECHO_BURST: u32 = 100;
/// Hosts that this is remembered of.
const MAX_SOURCES: usize = 4096;
/// The same is logged again after this.
const SAME_WORD: Duration = Duration::from_secs(3600);
/// So many are remembered to have been logged.
const MAX_WORDS: usize = 16;

/// What was said of strangers.
#[derive(Debug, Default)]
pub struct Words {
    /// The last of it, and when; status shows it.
    pub last: Option<(Duration, String)>,
    /// What was logged, by what it is about, and when; the newest last.
    logged: VecDeque<(Duration, String)>,
}

impl Words {
    /// Whether one about `what` is worth a line of the log.
    pub(super) fn is_new(&mut self, now: Duration, what: String) -> bool {
        self.logged.retain(|(at, _)| now < *at + SAME_WORD);
        if self.logged.iter().any(|(_, logged)| *logged == what) {
            return false;
        }
        if self.logged.len() == MAX_WORDS {
            self.logged.pop_front();
        }
        self.logged.push_back((now, what));
        true
    }
}

/// How often strangers get what costs something.
pub struct Limits {
    /// Handshakes without a question.
    pub(super) gauge: LoadGauge,
    pub(super) cookies: LoadGauge,
    /// Handshakes of each host that has a cookie; bounded for all of them.
    pub(super) sources: RateLimit,
    /// The same of each host where a peer is known to be: strangers take its place from nobody.
    pub(super) known: RateLimit,
    /// Cookies for each such host: whoever takes its address takes some of these, but no handshake of its own.
    pub(super) known_cookies: RateLimit,
    /// Echoes to relays; bounded for all of them.
    pub echoes: RateLimit,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            gauge: LoadGauge::new(HANDSHAKES_PER_SECOND, HANDSHAKE_BURST),
            cookies: LoadGauge::new(COOKIES_PER_SECOND, COOKIE_BURST),
            sources: RateLimit::new(SOURCE_INTERVAL, SOURCE_BURST, MAX_SOURCES)
                .in_all(LoadGauge::new(PROVEN_PER_SECOND, PROVEN_BURST)),
            known: RateLimit::new(SOURCE_INTERVAL, SOURCE_BURST, MAX_SOURCES),
            known_cookies: RateLimit::cookies_at_home(MAX_SOURCES),
            echoes: RateLimit::new(ECHO_INTERVAL, ECHO_BURST, MAX_SOURCES)
                .in_all(LoadGauge::new(COOKIES_PER_SECOND, COOKIE_BURST)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_logged_once_an_hour() {
        let (mut words, hour) = (Words::default(), SAME_WORD);
        let mut new = |now: Duration, what: &str| words.is_new(now, what.to_owned());
        assert!(new(hour, "a") && new(hour, "b"));
        assert!(!new(hour * 2 - Duration::from_secs(1), "a"));
        assert!(new(hour * 2, "a"));
        // So many others are remembered, and no more.
        let others: Vec<_> = (0..MAX_WORDS).map(|number| number.to_string()).collect();
        assert!(others.iter().all(|other| new(hour * 2, other)));
        assert!(!new(hour * 2, &others[0]) && new(hour * 2, "a"));
    }
}
