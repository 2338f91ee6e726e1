//! Flows over one emulated bottleneck in virtual time: senders as TCP's, receivers that delay ACKs.

#![allow(dead_code)]

pub mod base;
pub mod cases;
pub mod sender;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use link::{Link, LinkConfig};

pub use base::Kind;
pub use sender::{FRAME, Packet, Profile, Sender};

/// A flow: when it sends, and how long its packets take but for the link.
#[derive(Debug, Clone)]
pub struct Flow {
    pub profile: Profile,
    pub start: Duration,
    /// (from when, the delay of the way back), in order; the first counts from the begin.
    pub back: Vec<(Duration, Duration)>,
    /// ACKs are released together, at multiples of this.
    pub bunch: Duration,
}

/// What happens in a run.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub link: LinkConfig,
    pub flows: Vec<Flow>,
    /// Measured from here to the end.
    pub from: Duration,
    pub until: Duration,
    pub seed: u64,
}

/// What was measured of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowOutcome {
    /// Bytes per second at the link that arrived for the first time.
    pub goodput: f64,
    pub timeouts: u64,
    pub state: Option<flight::State>,
    pub cwnd: f64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub flows: Vec<FlowOutcome>,
    /// Packets that waited, over time.
    pub queue_mean: f64,
    pub queue_max: u64,
    /// 95 % of packets waited less, ms.
    pub queue_p95_ms: f64,
    pub dropped: u64,
    /// Packets handed to the link.
    pub offered: u64,
}

impl Outcome {
    /// Bytes per second, of all flows.
    pub fn goodput(&self) -> f64 {
        self.flows.iter().map(|flow| flow.goodput).sum()
    }

    /// Jain's index of the flows' goodputs.
    pub fn jain(&self) -> f64 {
        let squares: f64 = self.flows.iter().map(|flow| flow.goodput.powi(2)).sum();
        self.goodput().powi(2) / (self.flows.len() as f64 * squares)
    }
}

/// So many packets a receiver acknowledges one by one, at first, as Linux does.
const QUICK_ACKS: u64 = 16;

/// The least and the greatest time for which an ACK waits.
const ATO_MIN: Duration = Duration::from_millis(40);
const ATO_MAX: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Start,
    Ack(Vec<(u64, u64, Duration)>),
    DelayedAck,
    Timer,
}

/// An event: when, in which order, of which flow, what.
type Event = Reverse<(Duration, u64, usize, What)>;

#[derive(Debug)]
struct End {
    sender: Option<Sender>,
    /// Arrived and not yet told.
    untold: Vec<Packet>,
    next_expected: u64,
    flush_at: Option<Duration>,
    /// How long an ACK may wait, by the time between packets, and when the last came (Linux's `tcp_event_data_recv`).
    patience: Duration,
    last_arrival: Duration,
    /// The next timer in the heap.
    timer_at: Option<Duration>,
    delivered_before: u64,
}

impl End {
    fn note_arrival(&mut self, now: Duration) {
        let between = now - self.last_arrival;
        self.last_arrival = now;
        if between <= ATO_MIN / 2 {
            self.patience = self.patience / 2 + ATO_MIN / 2;
        } else if between < self.patience {
            self.patience = (self.patience / 2 + between).min(ATO_MAX);
        }
    }
}

/// Looks at a sender whenever it may have sent, with the packets that wait on the link.
pub type Look = Box<dyn FnMut(Duration, usize, &Sender, u64)>;

/// A run in progress.
pub struct World {
    scenario: Scenario,
    link: Link,
    now: Duration,
    events: BinaryHeap<Event>,
    count: u64,
    ends: Vec<End>,
    waits_ms: Vec<f64>,
    queue_time: f64,
    queue_max: u64,
    before: (u64, u64),
    pub look: Option<Look>,
}

impl World {
    pub fn new(scenario: Scenario) -> World {
        let link = Link::new(scenario.link.clone(), scenario.seed);
        let end = |_: &Flow| End {
            sender: None,
            untold: Vec::new(),
            next_expected: 0,
            flush_at: None,
            patience: ATO_MIN,
            last_arrival: Duration::ZERO,
            timer_at: None,
            delivered_before: 0,
        };
        let ends = scenario.flows.iter().map(end).collect();
        let mut world = World {
            link,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            count: 0,
            ends,
            waits_ms: Vec::new(),
            queue_time: 0.0,
            queue_max: 0,
            before: (0, 0),
            look: None,
            scenario,
        };
        for flow in 0..world.scenario.flows.len() {
            world.at(world.scenario.flows[flow].start, flow, What::Start);
        }
        world
    }

    fn at(&mut self, time: Duration, flow: usize, what: What) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, flow, what)));
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        while self.step() {}
        self.outcome()
    }

    fn step(&mut self) -> bool {
        let arrival = self.link.poll_timeout();
        let event = self.events.peek().map(|Reverse((time, ..))| *time);
        let Some(next) = arrival.into_iter().chain(event).min() else { return false };
        if next > self.scenario.until {
            self.pass(self.scenario.until);
            return false;
        }
        self.pass(next);
        if event == Some(next) {
            let Some(Reverse((_, _, flow, what))) = self.events.pop() else { return false };
            self.handle(flow, what);
        } else {
            while let Some((_, frame)) = self.link.poll(self.now) {
                self.arrive(&frame);
            }
        }
        true
    }

    /// Time goes on: what waited, waited as long.
    fn pass(&mut self, to: Duration) {
        let waiting = self.link.stats().queue.frames.0;
        let measured = to.saturating_sub(self.now.max(self.scenario.from));
        self.queue_time += waiting as f64 * measured.as_secs_f64();
        if self.now < self.scenario.from && to >= self.scenario.from {
            self.begin_measuring();
        }
        if to >= self.scenario.from {
            self.queue_max = self.queue_max.max(waiting);
        }
        self.now = to;
    }

    fn begin_measuring(&mut self) {
        self.before = (dropped(self.link.stats()), self.link.stats().offered.frames.0);
        for end in &mut self.ends {
            end.delivered_before = end.sender.as_ref().map_or(0, |sender| sender.delivered);
        }
    }

    fn handle(&mut self, flow: usize, what: What) {
        let now = self.now;
        match what {
            What::Start => {
                let sender = Sender::new(self.scenario.flows[flow].profile, now);
                self.ends[flow].sender = Some(sender);
                if let Some(every) = self.scenario.flows[flow].profile.report {
                    self.at(now + every, flow, What::DelayedAck);
                }
            }
            What::Ack(packets) => {
                let packets: Vec<_> = packets
                    .into_iter()
                    .map(|(seq, tx, sent)| Packet { seq, tx, sent, push: false })
                    .collect();
                if let Some(sender) = &mut self.ends[flow].sender {
                    sender.handle_ack(now, &packets);
                }
            }
            What::DelayedAck => self.flush_due(flow),
            What::Timer if self.ends[flow].timer_at != Some(now) => return,
            What::Timer => {
                self.ends[flow].timer_at = None;
                if let Some(sender) = &mut self.ends[flow].sender
                    && sender.timer_at().is_some_and(|at| at <= now)
                {
                    sender.handle_timeout(now);
                }
            }
        }
        self.transmit(flow);
    }

    fn transmit(&mut self, flow: usize) {
        let now = self.now;
        let Some(sender) = &mut self.ends[flow].sender else { return };
        let mut burst: Vec<Packet> = std::iter::from_fn(|| sender.poll(now)).collect();
        // Linux sets PSH on the last of what it hands over as one, and its receiver answers that without delay.
        if let [_, .., last] = &mut burst[..] {
            last.push = true;
        }
        burst.iter().for_each(|packet| self.link.send(now, encode(flow, packet)));
        let waiting = self.link.stats().queue.frames.0;
        if let Some(look) = &mut self.look {
            look(now, flow, sender, waiting);
        }
        let app = sender_app_tick(&self.scenario.flows[flow].profile, now);
        let pace = (sender.next_send > now).then_some(sender.next_send);
        let next = sender.timer_at().into_iter().chain(pace).chain(app).min().map(|time| time.max(now));
        if let Some(time) = next
            && self.ends[flow].timer_at.is_none_or(|at| time < at)
        {
            self.ends[flow].timer_at = Some(time);
            self.at(time, flow, What::Timer);
        }
    }

    fn arrive(&mut self, frame: &[u8]) {
        let (flow, packet) = decode(frame);
        let ideal = self.scenario.link.delay;
        if self.now >= self.scenario.from {
            self.waits_ms.push((self.now - packet.sent).saturating_sub(ideal).as_secs_f64() * 1e3);
        }
        let reports = self.scenario.flows[flow].profile.report.is_some();
        let end = &mut self.ends[flow];
        let in_order = packet.seq == end.next_expected;
        end.next_expected = end.next_expected.max(packet.seq + 1);
        end.untold.push(packet);
        end.note_arrival(self.now);
        if reports {
            return;
        }
        if !in_order || packet.push || end.untold.len() >= 2 || packet.seq < QUICK_ACKS {
            self.flush(flow);
        } else {
            let time = self.now + end.patience;
            end.flush_at = Some(time);
            self.at(time, flow, What::DelayedAck);
        }
    }

    fn flush_due(&mut self, flow: usize) {
        if let Some(every) = self.scenario.flows[flow].profile.report {
            self.flush(flow);
            self.at(self.now + every, flow, What::DelayedAck);
        } else if self.ends[flow].flush_at.is_some_and(|at| at <= self.now) {
            let end = &mut self.ends[flow];
            end.patience = (end.patience * 2).min(ATO_MAX); // as Linux's `tcp_delack_timer_handler`
            self.flush(flow);
        }
    }

    fn flush(&mut self, flow: usize) {
        let end = &mut self.ends[flow];
        end.flush_at = None;
        let packets: Vec<_> = end.untold.drain(..).map(|p| (p.seq, p.tx, p.sent)).collect();
        let back = &self.scenario.flows[flow].back;
        let delay = back.iter().rev().find(|(from, _)| *from <= self.now).or(back.first());
        let delay = delay.map_or(Duration::ZERO, |(_, delay)| *delay);
        let bunch = self.scenario.flows[flow].bunch.as_nanos().max(1);
        let arrival = (self.now + delay).as_nanos().next_multiple_of(bunch);
        if !packets.is_empty() {
            self.at(Duration::from_nanos(arrival as u64), flow, What::Ack(packets));
        }
    }

    fn outcome(mut self) -> Outcome {
        let seconds = (self.scenario.until - self.scenario.from).as_secs_f64();
        let of = |end: &End| {
            let delivered = end.sender.as_ref().map_or(0, |sender| sender.delivered) - end.delivered_before;
            FlowOutcome {
                goodput: delivered as f64 * FRAME as f64 / seconds,
                timeouts: end.sender.as_ref().map_or(0, |sender| sender.timeouts),
                state: end.sender.as_ref().and_then(|sender| sender.fsat.as_ref()).map(|fsat| fsat.state()),
                cwnd: end.sender.as_ref().map_or(0.0, Sender::cwnd),
            }
        };
        let flows = self.ends.iter().map(of).collect();
        self.waits_ms.sort_by(f64::total_cmp);
        let p95 = self.waits_ms.get(self.waits_ms.len() * 95 / 100).copied().unwrap_or(0.0);
        let stats = self.link.stats();
        Outcome {
            flows,
            queue_mean: self.queue_time / seconds,
            queue_max: self.queue_max,
            queue_p95_ms: p95,
            dropped: dropped(stats) - self.before.0,
            offered: stats.offered.frames.0 - self.before.1,
        }
    }
}

/// By the queue or the policer.
fn dropped(stats: &link::Stats) -> u64 {
    stats.queue_dropped.frames.0 + stats.policer_dropped.frames.0
}

/// An application that hands over bit by bit looks every 5 ms.
fn sender_app_tick(profile: &Profile, now: Duration) -> Option<Duration> {
    profile.app.map(|_| now + Duration::from_millis(5))
}

fn encode(flow: usize, packet: &Packet) -> Vec<u8> {
    let mut frame = vec![0; FRAME];
    frame[0] = flow as u8;
    frame[1] = u8::from(packet.push);
    frame[8..16].copy_from_slice(&packet.seq.to_be_bytes());
    frame[16..24].copy_from_slice(&packet.tx.to_be_bytes());
    frame[24..32].copy_from_slice(&(packet.sent.as_nanos() as u64).to_be_bytes());
    frame
}

fn decode(frame: &[u8]) -> (usize, Packet) {
    let word = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap_or_default());
    let packet =
        Packet { seq: word(8), tx: word(16), sent: Duration::from_nanos(word(24)), push: frame[1] != 0 };
    (usize::from(frame[0]), packet)
}
