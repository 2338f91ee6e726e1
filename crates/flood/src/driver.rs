//! The relay inside the driver: `bpf/flood.bpf.c`, loaded for one interface.

use std::io;
use std::os::fd::OwnedFd;

use bpf::Error;
use bpf::xdp::{self, Attached, Loaded, Mode, Ring, Run};
use rustix::time::{ClockId, clock_getres};

use crate::ffi::RawConfig;
use crate::frame::{Header, Verdict};
use crate::window::Rules;

const OBJECT: &[u8] = bpf::object!("flood.bpf.o");
const PROGRAM: &str = "flood_relay";
/// The same for who may not be trusted with long loops.
const WARY: &str = "flood_relay_wary";
const RING: &str = "flood_ring";
/// Records taken from the ring at once.
const BATCH: usize = 64;

/// What the program has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; Verdict::ALL.len()],
    /// Frames given to the driver to be sent again.
    pub relayed: u64,
    /// Frames that had no room in the ring, or on the board.
    pub lost: u64,
    /// Frames put onto the board.
    pub posted: u64,
}

/// How applications get what is heard: `enum flood_listening`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// Nobody listens.
    Nobody,
    /// By the board, without being woken.
    Board,
    /// By the board, and the bell rings.
    Bell,
    /// From the node, to which everything goes up.
    Node,
}

/// What goes up, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handing {
    /// The program relays nothing but hands all up, and counts copies.
    pub all: bool,
    /// Nobody is woken by what comes up: whoever wants it looks again and again.
    pub quiet: bool,
}

/// The program, accepted by the kernel.
pub struct Driver {
    loaded: Loaded,
    program: &'static str,
    ring: Ring,
}

impl Driver {
    /// Loads it. `mac`: the interface's address.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn load(rules: &Rules, mac: [u8; 6], handing: Handing) -> Result<Driver, Error> {
        let setup = setup(&rules.raw(), mac, handing);
        let load = |program| {
            let loaded = xdp::load_only(OBJECT, &[("setup", &setup)], &[program, RING])?;
            let ring = loaded.ring("frames")?;
            Ok(Driver { loaded, program, ring })
        };
        load(PROGRAM).or_else(|_: Error| load(WARY))
    }

    /// Begins to relay at the interface with this index, for as long as what is returned lives.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach(&self, interface: u32) -> Result<Attached, Error> {
        self.loaded.attach(self.program, interface)
    }

    /// How applications get what is heard from now on; pings for this node come up in any case.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn listen(&self, how: Listening) -> Result<(), Error> {
        self.loaded.set(".bss.control", &(how as u32).to_ne_bytes())
    }

    /// The board, for applications to map.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn board(&self) -> Result<OwnedFd, Error> {
        self.loaded.descriptor("board")
    }

    /// Has messages that are relayed at the interface with this index, by a program attached in `mode`, ring the bell.
    ///
    /// # Errors
    /// If the kernel cannot redirect frames to the interface.
    pub fn send_by(&self, interface: u32, mode: Mode) -> Result<(), Error> {
        if mode == Mode::Native && !xdp::takes_redirected(interface)? {
            let error = io::Error::other("the driver takes no frames that are redirected to it");
            return Err(Error::System { doing: "send and deliver a frame at once", error });
        }
        self.loaded.update("rope_and_out", 1 - rope_at(mode), &interface.to_ne_bytes())
    }

    /// Takes the device `bell` of the thread's network namespace for the bell, and `rope` for what a program attached in `mode`
    /// rings it by: one end of a veth whose other end is `end`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn hang_bell(&self, bell: u32, [rope, end]: [u32; 2], mode: Mode) -> Result<Attached, Error> {
        for (map, key, to) in [("bell", 0, bell), ("bell", 1, bell), ("rope_and_out", rope_at(mode), rope)] {
            self.loaded.update(map, key, &to.to_ne_bytes())?;
        }
        self.loaded.attach(RING, end)
    }

    /// What it has counted since it was loaded.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counts(&self) -> Result<Counts, Error> {
        let sums = self.loaded.sums("counts")?;
        let sum = |at: usize| sums.get(at).copied().unwrap_or_default();
        let [relayed, lost, posted] = [0, 1, 2].map(|counter| sum(Verdict::ALL.len() + counter));
        let mut verdicts = std::array::from_fn(sum);
        // The program counts what it relays apart.
        verdicts[Verdict::New as usize] += relayed;
        Ok(Counts { verdicts, relayed, lost, posted })
    }

    /// Counts copies of a message of this node's from now on; it has to hand all up.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn expect_copies(&self, message: &Header) -> Result<(), Error> {
        self.loaded.update_at("heard", &message_key(message), &0u32.to_ne_bytes())
    }

    /// How many copies of a message were heard, the first included; 0 of one that nobody expects.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn copies(&self, message: &Header) -> Result<u32, Error> {
        let copies = self.loaded.lookup_at("heard", &message_key(message))?;
        Ok(copies.and_then(|copies| copies.try_into().ok()).map_or(0, u32::from_ne_bytes))
    }

    /// Takes the new frames that came up, each from its header on; call it until there is nothing.
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.ring.take(BATCH).iter().filter_map(|bytes| record(bytes)).collect()
    }

    /// Runs the program by hand on an Ethernet frame, `repeat` times.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<Run, Error> {
        self.loaded.run(self.program, frame, repeat)
    }

    /// Readable when something came up.
    pub fn records(&self) -> &Ring {
        &self.ring
    }
}

/// Where the rope stands. What is redirected to several devices leaves a driver by the last of them first, and generic XDP by
/// the first.
fn rope_at(mode: Mode) -> u32 {
    match mode {
        Mode::Native => 0,
        Mode::Generic => 1,
    }
}

/// `struct flood_setup`.
fn setup(config: &RawConfig, mac: [u8; 6], handing: Handing) -> Vec<u8> {
    let RawConfig { key, id, wire, keyed, credit_tick, credit_max, reserved } = *config;
    let mut bytes: Vec<u8> = key.iter().flat_map(|half| half.to_ne_bytes()).collect();
    let words = [id, wire, keyed, credit_tick, credit_max, reserved];
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(mac.iter().chain(&[0; 2]));
    let jiffy_ns = clock_getres(ClockId::MonotonicCoarse).tv_nsec as u32;
    let words = [handing.all.into(), handing.quiet.into(), jiffy_ns, 0];
    bytes.extend(words.map(u32::to_ne_bytes).as_flattened());
    bytes
}

/// `struct flood_message`.
fn message_key(message: &Header) -> [u8; 12] {
    let words = [message.id, message.epoch, message.seq].map(u32::to_ne_bytes);
    *words.as_flattened().first_chunk().expect("three words")
}

/// `struct flood_record`, and behind it so many bytes of the frame as it says.
fn record(bytes: &[u8]) -> Option<Vec<u8>> {
    let (length, frame) = bytes.split_first_chunk::<4>()?;
    Some(frame.get(..u32::from_ne_bytes(*length) as usize)?.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::board::{Reader, SLOTS};
    use crate::frame::{Format, Kind, Padding, Wire};
    use crate::window::{RateLimit, Window};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const XDP_DROP: u32 = 1;
    const XDP_PASS: u32 = 2;
    const XDP_TX: u32 = 3;

    fn driver_or_skip(name: &str, rules: &Rules, all: bool) -> Option<Driver> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: {name}: needs root to load BPF programs");
            return None;
        }
        let handing = Handing { all, quiet: all };
        Some(Driver::load(rules, MAC, handing).expect("the kernel takes it"))
    }

    fn rules(wire: Wire, key: Option<[u8; 16]>) -> Rules {
        Rules { format: Format::new(wire, key), id: 1, rate_limit: None }
    }

    fn ethernet(frame: &[u8]) -> Vec<u8> {
        crate::medium::ethernet([2, 0, 0, 0, 0, 9], frame)
    }

    /// Numbers that look random and are the same for the same seed (xorshift).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 16) % limit
        }
    }

    /// A frame of a plausible flood, sometimes spoilt.
    fn arrival(numbers: &mut Numbers, rules: &Rules) -> Vec<u8> {
        let header = Header {
            id: numbers.below(4) as u32,
            epoch: 100 + numbers.below(3) as u32 * numbers.below(2) as u32,
            seq: (numbers.below(600) as u32).wrapping_sub(300) & rules.format.wire().id_max(),
            ttl: numbers.below(4) as u8,
            kind: Kind::Data,
        };
        let data: Vec<u8> = (0..numbers.below(120)).map(|_| numbers.below(256) as u8).collect();
        let mut bytes = rules.format.write(&header, &data);
        match numbers.below(8) {
            0 => bytes.truncate(numbers.below(bytes.len() as u64 + 1) as usize),
            1 => {
                let at = numbers.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << numbers.below(8);
            }
            2 => bytes.resize(bytes.len().max(46), 0),
            _ => {}
        }
        bytes
    }

    #[test]
    fn the_driver_decides_what_rust_decides() {
        for (wire, key) in [(Wire::Paper, None), (Wire::One, None), (Wire::One, Some([7; 16]))] {
            let rules = rules(wire, key);
            let name = "the_driver_decides_what_rust_decides";
            let Some(driver) = driver_or_skip(name, &rules, false) else { return };
            driver.listen(Listening::Node).expect("it can be told");
            let (mut window, mut numbers) = (Window::new(rules), Numbers(0x9e37_79b9_7f4a_7c15));
            let mut verdicts = [0; Verdict::ALL.len()];
            for n in 0..3000 {
                let bytes = arrival(&mut numbers, &rules);
                // Time stands still here and as good as that there: what time does is another test's.
                let heard = window.handle_frame(std::time::Duration::ZERO, &bytes, Padding::Ethernet);
                verdicts[heard.as_ref().err().map_or(0, |verdict| *verdict as usize)] += 1;
                let run = driver.run(&ethernet(&bytes), 1).expect("it runs");
                let relayed = heard.as_ref().ok().and_then(|frame| rules.format.relayed(frame, &bytes));
                assert_eq!(run.verdict, if relayed.is_some() { XDP_TX } else { XDP_DROP }, "{n}: {heard:?}");
                if let Some(relayed) = relayed {
                    assert_eq!(&run.frame[14..14 + relayed.len()], relayed, "{n}");
                    assert_eq!(run.frame[6..12], MAC);
                }
                let records = driver.take();
                let up = records.first().map(Vec::as_slice);
                let whole = heard.map(|frame| &bytes[..wire.header_bytes() + frame.data.len()]);
                assert_eq!((records.len() <= 1, up), (true, whole.ok()), "{n}");
            }
            assert_eq!(driver.counts().expect("counts").verdicts, verdicts);
            let seen = |verdict: Verdict| verdicts[verdict as usize] > 0;
            assert!([Verdict::New, Verdict::Duplicate, Verdict::Own, Verdict::Length].into_iter().all(seen));
            assert_eq!(seen(Verdict::BadTag), key.is_some());
        }
    }

    /// Where the kernel takes the program that relays from such a process (not on 6.1 and 6.12), it takes the one that hands up.
    #[test]
    fn what_waits_needs_no_more_capabilities_than_what_relays() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let rules = rules(Wire::One, Some([7; 16]));
        let name = "what_waits_needs_no_more_capabilities_than_what_relays";
        let Some(_) = driver_or_skip(name, &rules, true) else { return };
        let load = move |all| {
            let mut sets = capabilities(None).expect("this thread's");
            sets.effective -= CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
            set_capabilities(None, sets).expect("fewer");
            Driver::load(&rules, MAC, Handing { all, quiet: false }).is_ok()
        };
        let loaded =
            |all| std::thread::scope(|scope| scope.spawn(move || load(all)).join().expect("no panic"));
        assert_eq!(loaded(true), loaded(false));
    }

    #[test]
    fn the_longest_message_passes_the_verifier_and_comes_up() {
        let rules = rules(Wire::One, Some([7; 16]));
        let name = "the_longest_message_passes_the_verifier_and_comes_up";
        let Some(driver) = driver_or_skip(name, &rules, false) else { return };
        driver.listen(Listening::Node).expect("it can be told");
        let header = Header { id: 2, ttl: 255, ..Header::default() };
        let frame = rules.format.write(&header, &[0x5a; crate::DATA_MAX]);
        let run = driver.run(&ethernet(&frame), 1).expect("it runs");
        assert_eq!(run.verdict, XDP_TX);
        assert_eq!(driver.take(), [frame]);
    }

    #[test]
    fn what_is_not_wanted_does_not_come_up() {
        let rules = rules(Wire::One, None);
        let Some(driver) = driver_or_skip("what_is_not_wanted_does_not_come_up", &rules, false) else {
            return;
        };
        let run = |seq: u32, kind: Kind, target: u32| {
            let header = Header { id: 2, epoch: 1, seq, ttl: 3, kind };
            let frame = rules.format.write(&header, &target.to_be_bytes());
            assert_eq!(driver.run(&ethernet(&frame), 1).expect("it runs").verdict, XDP_TX);
            driver.take().len()
        };
        assert_eq!(run(1, Kind::Data, 1), 0);
        assert_eq!(run(2, Kind::EchoRequest, 9), 0);
        assert_eq!(run(3, Kind::EchoRequest, 1), 1, "a ping for this node");
        assert_eq!(run(4, Kind::EchoReply, 1), 0);
        let other = driver.run(&[0; 60], 1).expect("it runs");
        assert_eq!(other.verdict, XDP_PASS, "what is no flood passes");
    }

    #[test]
    fn what_is_for_one_node_alone_is_not_relayed() {
        let rules = rules(Wire::One, None);
        let Some(driver) = driver_or_skip("what_is_for_one_node_alone_is_not_relayed", &rules, false) else {
            return;
        };
        let frame = rules.format.write(&Header { id: 2, epoch: 1, ttl: 3, ..Header::default() }, b"hello");
        for at in 0..6 {
            let mut bytes = ethernet(&frame);
            bytes[at] = 0xfe;
            assert_eq!(driver.run(&bytes, 1).expect("it runs").verdict, XDP_PASS);
        }
        assert_eq!(driver.run(&ethernet(&frame), 1).expect("it runs").verdict, XDP_TX);
    }

    #[test]
    fn the_board_has_what_was_heard() {
        for (wire, key) in [(Wire::Paper, None), (Wire::One, Some([7; 16]))] {
            let rules = rules(wire, key);
            let Some(driver) = driver_or_skip("the_board_has_what_was_heard", &rules, false) else { return };
            let hear = |seq: u32, ttl: u8, kind: Kind, length: usize| {
                let header = Header { id: 2, epoch: 1, seq: seq & wire.id_max(), ttl, kind };
                let frame = rules.format.write(&header, &vec![seq as u8; length]);
                let run = driver.run(&ethernet(&frame), 1).expect("it runs");
                assert_eq!(run.verdict, if ttl > 1 { XDP_TX } else { XDP_DROP });
                frame
            };
            let mut reader = Reader::open(driver.board().expect("a board")).expect("it can be mapped");
            let mut take = || {
                let mut frame = Vec::new();
                reader.take(&mut frame).then_some(frame)
            };
            hear(1, 9, Kind::Data, 10);
            assert_eq!(take(), None, "nobody listens");
            driver.listen(Listening::Board).expect("it can be told");
            for (seq, ttl, length) in [(2, 9, 0), (3, 1, 1), (4, 2, 76), (5, 255, crate::DATA_MAX)] {
                let frame = hear(seq, ttl, Kind::Data, length);
                assert_eq!(take(), Some(frame), "as it was heard");
            }
            if wire == Wire::One {
                hear(6, 9, Kind::EchoRequest, 8);
                assert_eq!(take(), None, "pings are for nodes");
            }
            assert_eq!((driver.take(), driver.counts().expect("counts").posted), (vec![], 4));
            // Who does not look keeps the last of them.
            let last = 6 + SLOTS as u32 + 5;
            let heard: Vec<_> = (7..=last).map(|seq| hear(seq, 9, Kind::Data, 50)).collect();
            let taken: Vec<_> = std::iter::from_fn(take).collect();
            assert_eq!((taken.len(), reader.dropped()), (SLOTS as usize, 5));
            assert_eq!(taken, heard[5..]);
        }
    }

    #[test]
    fn what_waits_is_decided_above_and_copies_are_counted_here() {
        let rules = rules(Wire::One, Some([7; 16]));
        let name = "what_waits_is_decided_above_and_copies_are_counted_here";
        let Some(driver) = driver_or_skip(name, &rules, true) else { return };
        let first = Header { id: 2, epoch: 1, seq: 3, ttl: 9, ..Header::default() };
        let own = Header { id: 1, ..first };
        let mut forged = rules.format.write(&Header { seq: 4, ..first }, b"forged");
        forged[29] ^= 1;
        driver.expect_copies(&own).expect("it is taken");
        let [frame, sent] = [&first, &own].map(|header| rules.format.write(header, b"hello"));
        for bytes in [&frame, &frame, &frame, &sent, &forged, &forged] {
            let run = driver.run(&ethernet(bytes), 1).expect("it runs");
            assert_eq!(run.verdict, XDP_DROP);
        }
        assert_eq!(driver.take(), [frame], "nothing unchecked comes up");
        let copies = [&first, &own, &Header { seq: 4, ..first }].map(|header| driver.copies(header).ok());
        assert_eq!(copies, [3, 1, 0].map(Some));
    }

    /// As strangers without number flood, a neighbour that goes on is known all the time, and who was silent meanwhile is forgotten.
    #[test]
    fn many_sources_crowd_out_those_heard_longest_ago() {
        let rules = rules(Wire::One, None);
        let name = "many_sources_crowd_out_those_heard_longest_ago";
        let Some(driver) = driver_or_skip(name, &rules, false) else { return };
        let hear = |id: u32, seq: u32| {
            let header = Header { id, epoch: 1, seq, ttl: 3, kind: Kind::Data };
            driver.run(&ethernet(&rules.format.write(&header, b"data")), 1).expect("it runs").verdict
        };
        let (neighbour, silent) = (2, 3);
        assert_eq!(hear(silent, 1), XDP_TX);
        for number in 0..5 * SOURCES {
            assert_eq!(hear(1000 + number, 1), XDP_TX, "there is room for each");
            if number.is_multiple_of(100) {
                let first = hear(neighbour, number / 100);
                assert_eq!((first, hear(neighbour, number / 100)), (XDP_TX, XDP_DROP), "{number}");
            }
        }
        assert_eq!(hear(neighbour, 0), XDP_DROP, "what is long known of it is known yet");
        assert_eq!((hear(silent, 1), hear(silent, 1)), (XDP_TX, XDP_DROP), "it begins anew");
    }

    /// Of the map `sources`.
    const SOURCES: u32 = 4096;

    /// Frames that two processors hear at once, by the kernel's test run; `NAWA_RACES` has another number of them (`docs/flood.md`).
    const RACES: u32 = 20_000;

    /// Each frame is the first of its block, so that both have to make the block's word.
    #[test]
    fn two_processors_that_hear_a_frame_at_once_relay_it_once() {
        let name = "two_processors_that_hear_a_frame_at_once_relay_it_once";
        let races = std::env::var("NAWA_RACES").ok().and_then(|races| races.parse().ok()).unwrap_or(RACES);
        for (what, header) in RACING {
            let rules = rules(Wire::One, None);
            let Some(driver) = driver_or_skip(name, &rules, false) else { return };
            let program = driver.loaded.program(driver.program).expect("it is loaded");
            let (one, other) = (AtomicU32::new(0), AtomicU32::new(0));
            let hear = |mine: &AtomicU32, its: &AtomicU32| {
                for number in 1..=races {
                    let frame = ethernet(&rules.format.write(&header(number), b"data"));
                    mine.store(number, Ordering::Release);
                    // The kernel runs a thread that waits so long elsewhere if it has to.
                    let mut looks = 0u32;
                    while its.load(Ordering::Acquire) < number {
                        looks += 1;
                        if looks.is_multiple_of(1 << 12) {
                            std::thread::yield_now();
                        }
                    }
                    let mut context = [0; 24];
                    context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
                    bpf::run::repeat(program.as_fd(), &context, &frame, 1).expect("it runs");
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| hear(&one, &other));
                hear(&other, &one);
            });
            let counts = driver.counts().expect("counts");
            assert_eq!(counts.relayed, u64::from(races), "{what}: {counts:?}");
            assert_eq!(counts.verdicts[Verdict::Duplicate as usize], u64::from(races), "{what}: {counts:?}");
        }
    }

    type Racing = (&'static str, fn(u32) -> Header);

    const RACING: [Racing; 4] = [
        ("the next message", |number| Header { seq: number, ..FROM_TWO }),
        ("the first of 64", |number| Header { seq: number * 64, ..FROM_TWO }),
        ("a new life", |number| Header { epoch: number, seq: 0, ..FROM_TWO }),
        ("a new source", |number| Header { id: 2 + number % 1000, epoch: number / 1000, ..FROM_TWO }),
    ];
    const FROM_TWO: Header = Header { id: 2, epoch: 1, seq: 0, ttl: 3, kind: Kind::Data };

    /// A source without epochs that has begun anew is known by its silence, whoever repeats what it said before.
    #[test]
    fn copies_do_not_keep_a_source_from_being_silent() {
        let rules = rules(Wire::Paper, None);
        let name = "copies_do_not_keep_a_source_from_being_silent";
        let Some(driver) = driver_or_skip(name, &rules, false) else { return };
        let frame =
            ethernet(&rules.format.write(&Header { id: 2, seq: 9, ttl: 3, ..Header::default() }, b""));
        let (least, limit) = (Duration::from_millis(500), Duration::from_secs(60));
        let hear = || driver.run(&frame, 1).expect("it runs").verdict == XDP_TX;
        // From one time that it is new to the next.
        let until_new = |_| {
            let began = device::monotonic();
            (0..).find(|_: &u32| hear() || device::monotonic() - began > limit);
            device::monotonic() - began
        };
        assert!(hear(), "it is new");
        // Where the machine is busy with other things, this thread may wait for as long by itself, but not each time.
        let passed = (0..3).map(until_new).find(|passed| *passed > least);
        assert!(passed.is_some_and(|passed| passed < limit), "{passed:?}");
    }

    #[test]
    fn the_driver_limits_rates() {
        let limit = Some(RateLimit { frames_per_s: 1 });
        let rules = Rules { rate_limit: limit, ..rules(Wire::One, None) };
        let Some(driver) = driver_or_skip("the_driver_limits_rates", &rules, false) else { return };
        let passes = |seq: &u32| {
            let header = Header { id: 2, epoch: 1, seq: *seq, ttl: 3, ..Header::default() };
            driver.run(&ethernet(&rules.format.write(&header, b"")), 1).expect("it runs").verdict == XDP_TX
        };
        let began = device::monotonic();
        (0..).filter(passes).nth(32 + 1).expect("time brings it credit");
        assert!(
            device::monotonic() - began > Duration::from_secs(1),
            "two more than at once take two seconds"
        );
        let counts = driver.counts().expect("counts");
        assert_eq!(counts.relayed, 32 + 2, "{counts:?}");
        assert!(counts.verdicts[Verdict::Limited as usize] > 0, "{counts:?}");
    }
}
