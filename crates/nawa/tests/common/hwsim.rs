//! The air between the radios of mac80211_hwsim (drivers/net/wireless/virtual/mac80211_hwsim.h): a chain in which a radio
//! hears those beside it, with the contention of [`link::dcf`].
//!
//! hwsim hands every frame that a radio sends to whoever registered, takes frames for each radio that is to hear them, and the
//! news that one has been sent. Until that comes, a frame counts as queued, and mac80211 holds the next ones back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use device::genetlink::{GenericNetlink, attributes};
use device::poller::Interest;
use device::{Poller, Waker, monotonic};
use link::dcf::{DcfConfig, Destination, Medium, Phy, Position};
use link::{PacketCount, Probability};

const REGISTER: u8 = 1;
const FRAME: u8 = 2;
const TX_INFO_FRAME: u8 = 3;
const ATTR_RECEIVER: u16 = 1;
const ATTR_TRANSMITTER: u16 = 2;
const ATTR_FRAME: u16 = 3;
const ATTR_FLAGS: u16 = 4;
const ATTR_RX_RATE: u16 = 5;
const ATTR_SIGNAL: u16 = 6;
const ATTR_TX_INFO: u16 = 7;
const ATTR_COOKIE: u16 = 8;
const ATTR_FREQ: u16 = 19;
/// Of ATTR_FLAGS: a link ACK came.
const ACKNOWLEDGED: u32 = 4;
/// Of 2.4 GHz's rates the first, and a signal of -40 dBm: nobody asks.
const RATE: u32 = 0;
const SIGNAL: u32 = (-40i32).cast_unsigned();
/// Metres between two of the chain; what is beyond one step is sensed and not heard.
const STEP: f64 = 90.0;
/// Both ends of three: nobody is hidden from anybody.
const SENSED: f64 = 400.0;
/// More than hwsim lets a radio have on its way.
const QUEUE: u64 = 4096;
const WAKER: u64 = 0;
const RADIOS: u64 = 1;

/// The air; silent when dropped.
pub struct Air {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Whether radios keep to themselves what they hear of unicast frames for others.
    keeps: AtomicBool,
    /// Data frames that were sent, repetitions apart.
    data: AtomicU64,
}

/// What hwsim is to be told of a frame that has been sent.
struct Sent {
    flags: u32,
    unicast: bool,
    cookie: Vec<u8>,
    tx_info: Vec<u8>,
}

struct Worker {
    radios: GenericNetlink,
    medium: Medium,
    /// By radio, in the order of sending.
    waiting: Vec<VecDeque<Sent>>,
    given_up: Vec<u64>,
    frequency: Vec<u8>,
    shared: Arc<Shared>,
}

impl Air {
    /// Between the first `count` radios, each of which fails to hear a unicast frame for another with this probability.
    pub fn chain(count: usize, overhearing_loss: f64) -> Air {
        let mut config = DcfConfig::new(Phy::b1(), Position::chain(count, STEP));
        config.queue = PacketCount(QUEUE);
        config.reach.sense_m = Some(SENSED);
        config.overhearing_loss = Probability::new(overhearing_loss).expect("a probability");
        let mut radios = GenericNetlink::open("MAC80211_HWSIM").expect("the radios' module");
        radios.request(REGISTER, &[]).expect("nobody else emulates the air");
        let (shared, waker) = (Arc::new(Shared::default()), Waker::new().expect("a waker"));
        let mut worker = Worker {
            radios,
            medium: Medium::new(config, 1),
            waiting: (0..count).map(|_| VecDeque::new()).collect(),
            given_up: vec![0; count],
            frequency: Vec::new(),
            shared: shared.clone(),
        };
        let wakes = waker.clone();
        let thread = Some(std::thread::spawn(move || worker.run(&wakes)));
        Air { shared, waker, thread }
    }

    /// Whether radios hand up nothing of unicast frames for others, as is so of some firmware.
    pub fn keep_what_is_for_others(&self, keep: bool) {
        self.shared.keeps.store(keep, Relaxed);
    }

    /// Data frames sent since the beginning, repetitions apart.
    pub fn data_frames(&self) -> u64 {
        self.shared.data.load(Relaxed)
    }
}

impl Drop for Air {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn run(&mut self, waker: &Waker) {
        let mut poller = Poller::new().expect("a poller");
        poller.add(waker, WAKER, Interest::Read).expect("it is watched");
        poller.add(&self.radios, RADIOS, Interest::Read).expect("it is watched");
        while !self.shared.stop.load(Relaxed) {
            self.take();
            self.give();
            let timeout = self.medium.poll_timeout().map(|due| due.saturating_sub(monotonic()));
            poller
                .wait(timeout.map(|time| time.max(Duration::from_micros(1))))
                .expect("waiting")
                .for_each(drop);
        }
    }

    /// What the radios send.
    fn take(&mut self) {
        let mut frames = Vec::new();
        while self
            .radios
            .recv(|command, body| {
                if command == FRAME {
                    frames.push(body.to_vec());
                }
            })
            .is_ok()
        {}
        for body in frames {
            let find = |kind| attributes(&body).find(|(found, _)| *found == kind).map(|(_, data)| data);
            let (Some(from), Some(frame)) = (find(ATTR_TRANSMITTER), find(ATTR_FRAME)) else { continue };
            // 42:00:00:00:NN:00, and its interface 02:00:00:00:NN:00.
            let from = usize::from(from[4]);
            let to = match frame.get(4..10) {
                Some(&[2, 0, 0, 0, number, 0]) if usize::from(number) < self.waiting.len() => {
                    Destination::Station(number.into())
                }
                _ => Destination::Broadcast,
            };
            if frame[0] & 0x0c == 0x08 {
                self.shared.data.fetch_add(1, Relaxed);
            }
            let flags =
                find(ATTR_FLAGS).and_then(|flags| flags.first_chunk().copied()).map_or(0, u32::from_ne_bytes);
            let own = |kind| find(kind).unwrap_or_default().to_vec();
            let sent = Sent {
                flags,
                unicast: to != Destination::Broadcast,
                cookie: own(ATTR_COOKIE),
                tx_info: own(ATTR_TX_INFO),
            };
            self.frequency = own(ATTR_FREQ);
            if self.medium.send(monotonic(), from, to, frame.to_vec()).is_ok() {
                self.waiting[from].push_back(sent);
            }
        }
    }

    /// What they hear, and what became of what they sent.
    fn give(&mut self) {
        while let Some(arrival) = self.medium.poll(monotonic()) {
            let is_kept = arrival.overheard && self.shared.keeps.load(Relaxed);
            if arrival.from.abs_diff(arrival.station) == 1 && !is_kept {
                let (rate, signal) = (RATE.to_ne_bytes(), SIGNAL.to_ne_bytes());
                let receiver = address(arrival.station);
                let mut with = vec![
                    (ATTR_RECEIVER, &receiver[..]),
                    (ATTR_FRAME, &arrival.frame),
                    (ATTR_RX_RATE, &rate),
                    (ATTR_SIGNAL, &signal),
                ];
                if self.frequency.len() == 4 {
                    with.push((ATTR_FREQ, &self.frequency));
                }
                self.radios.tell(FRAME, &with).expect("the kernel takes it");
            }
        }
        for station in 0..self.waiting.len() {
            let queued = QUEUE - self.medium.room(station).0;
            while self.waiting[station].len() as u64 > queued {
                let given_up = self.medium.stats(station).given_up.0;
                let failed = std::mem::replace(&mut self.given_up[station], given_up) < given_up;
                let Some(sent) = self.waiting[station].pop_front() else { break };
                let ack = if sent.unicast && !failed { ACKNOWLEDGED } else { 0 };
                let (flags, signal) = ((sent.flags | ack).to_ne_bytes(), SIGNAL.to_ne_bytes());
                let transmitter = address(station);
                let with: [(u16, &[u8]); 5] = [
                    (ATTR_TRANSMITTER, &transmitter),
                    (ATTR_FLAGS, &flags),
                    (ATTR_SIGNAL, &signal),
                    (ATTR_TX_INFO, &sent.tx_info),
                    (ATTR_COOKIE, &sent.cookie),
                ];
                self.radios.tell(TX_INFO_FRAME, &with).expect("the kernel takes it");
            }
        }
    }
}

fn address(radio: usize) -> [u8; 6] {
    [0x42, 0, 0, 0, radio as u8, 0]
}
