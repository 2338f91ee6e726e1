//! Waiting: for descriptors, for a moment, for another thread, for signals.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// Events returned by one wait at most; the rest come with the next.
const EVENTS: usize = 32;

/// Time since the machine started, without sleep (CLOCK_MONOTONIC): what most cores get as `now`.
///
/// By libc, which reads it without a system call, and not from the vDSO directly: whoever preloads another
/// `clock_gettime`, as faketime(1) does, sets this clock too.
pub fn monotonic() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// The same with sleep (CLOCK_BOOTTIME): for whatever grows old while the machine is suspended, as keys do; what the tunnel's core
/// gets as `now`.
pub fn boottime() -> Duration {
    read(libc::CLOCK_BOOTTIME)
}

/// Time since 1970, as far as somebody has set the clock (CLOCK_REALTIME): for what lasts longer than a boot.
pub fn realtime() -> Duration {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec of ours to write to, and outlives the call. None of these clocks ever fails.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Read,
    /// Room to write.
    Write,
    /// Either.
    Both,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token it was added with.
    pub token: u64,
    /// There is something to read, or an error or end to find by reading.
    pub readable: bool,
}

/// Where a connection cannot be taken, for want of descriptors perhaps, asking again at once would only burn a processor.
pub const REST: Duration = Duration::from_millis(100);

/// An epoll instance, level-triggered.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    ready: Vec<Ready>,
}

impl Poller {
    /// Fails only where descriptors or memory have run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, ready: Vec::with_capacity(EVENTS) })
    }

    /// Waits for `source` from now on; `token` comes back when it is ready. Closing the descriptor ends it.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), flags(interest))?)
    }

    /// The same, but ready once for each time that `source` has become readable or was so anew (edge-triggered): nobody
    /// has to read from it.
    pub fn add_edge(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)?)
    }

    /// Waits for something else of a `source` added before.
    pub fn change(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), flags(interest))?)
    }

    /// Waits for `source` no longer.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Sleeps until something is ready or `timeout` (to the nanosecond; `None`: no limit) is over. Nothing is ready
    /// too when a signal came.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = Ready> + '_> {
        self.ready.clear();
        // What is too long to be told is for ever.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => self.ready.extend(events.iter().map(ready)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.ready.iter().copied())
    }
}

impl AsFd for Poller {
    /// Readable when something is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl From<OwnedFd> for Poller {
    /// `epoll` is an epoll instance, maybe another process's.
    fn from(epoll: OwnedFd) -> Self {
        Self { epoll, ready: Vec::with_capacity(EVENTS) }
    }
}

impl From<Poller> for OwnedFd {
    fn from(poller: Poller) -> Self {
        poller.epoll
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN,
        Interest::Write => EventFlags::OUT,
        Interest::Both => EventFlags::IN | EventFlags::OUT,
    }
}

fn ready(event: &epoll::Event) -> Ready {
    // Copied out first: epoll's event is packed.
    let (flags, data) = (event.flags, event.data);
    let readable = flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP);
    Ready { token: data.u64(), readable }
}

/// Wakes a thread that waits in [`Poller::wait`]. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Add it to the poller that is to be woken.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes it readable until [`Waker::reset`]. Waking twice is waking once.
    pub fn wake(&self) {
        // Refused only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; call it before looking for what the waker announces.
    pub fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What somebody asks a daemon by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT or SIGTERM: stop.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// SIGINT, SIGTERM and SIGHUP as something to read.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the three signals for the calling thread and those it starts afterwards, so that they are read here
    /// instead of ending the process. Call it before starting threads.
    pub fn new() -> io::Result<Self> {
        // SAFETY: all zero is a valid `sigset_t`, and sigemptyset initialises it anyway; sigaddset gets valid signal
        // numbers; pthread_sigmask and signalfd only read the set, which outlives them.
        let descriptor = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK),
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The next signal that came, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        let length = rustix::io::read(&self.0, &mut info).ok()?;
        let number =
            info.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).filter(|_| length == info.len())?;
        Some(if number == libc::SIGHUP as u32 { Signal::Reload } else { Signal::Stop })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(poller: &mut Poller, timeout: Duration) -> Vec<u64> {
        poller.wait(Some(timeout)).unwrap().map(|ready| ready.token).collect()
    }

    #[test]
    fn another_thread_wakes_it() {
        let (mut poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(&waker, 7, Interest::Read).unwrap();
        assert_eq!(tokens(&mut poller, Duration::ZERO), []);
        let other = waker.clone();
        std::thread::spawn(move || other.wake()).join().unwrap();
        assert_eq!(tokens(&mut poller, Duration::from_secs(60)), [7]);
        waker.reset();
        assert_eq!(tokens(&mut poller, Duration::ZERO), []);
    }

    #[test]
    fn sleep_counts_on_one_clock_only() {
        let (before, with, after) = (monotonic(), boottime(), monotonic());
        assert!(with >= before, "{with:?} with sleep, {before:?} without");
        assert!(boottime() - with < Duration::from_secs(60) + (monotonic() - after));
    }

    #[test]
    fn a_timeout_is_never_early() {
        let mut poller = Poller::new().unwrap();
        let (before, timeout) = (monotonic(), Duration::from_micros(300));
        assert_eq!(tokens(&mut poller, timeout), []);
        assert!(monotonic() - before >= timeout);
    }

    #[test]
    fn a_timeout_is_not_rounded_to_a_millisecond() {
        // A machine may be late every now and then, but not always.
        let mut poller = Poller::new().unwrap();
        let mut wait = || {
            let before = monotonic();
            assert_eq!(tokens(&mut poller, Duration::from_micros(50)), []);
            monotonic() - before
        };
        assert!((0..1000).any(|_| wait() < Duration::from_millis(1)));
    }

    #[test]
    fn a_signal_is_read() {
        // On a thread of its own, because the mask is the thread's and the signal is sent to it alone.
        let work = || {
            let (signals, mut poller) = (Signals::new().unwrap(), Poller::new().unwrap());
            poller.add(&signals, 1, Interest::Read).unwrap();
            assert_eq!(signals.next(), None);
            for (number, expected) in [(libc::SIGHUP, Signal::Reload), (libc::SIGTERM, Signal::Stop)] {
                // SAFETY: the calling thread lives, and the signal is blocked in it.
                assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), number) }, 0);
                assert_eq!(tokens(&mut poller, Duration::from_secs(60)), [1]);
                assert_eq!(signals.next(), Some(expected));
            }
        };
        std::thread::spawn(work).join().unwrap();
    }
}
