//! The receiving half, as Linux's `tcp_input.c`: reassembly, SACK with D-SACK, delayed and compressed ACKs, and a receive
//! window that follows what the application reads (which is at once).

use std::time::Duration;

/// The least and the greatest time for which an ACK waits (`TCP_ATO_MIN`, `TCP_DELACK_MAX`).
const ATO_MIN: Duration = Duration::from_millis(40);
const ATO_MAX: Duration = Duration::from_millis(200);
/// So many ACKs are sent at once at the beginning and after a pause (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u32 = 16;
/// SACKs are held for a twentieth of a round trip, at most so long and so many (`tcp_comp_sack_delay_ns`, `tcp_comp_sack_nr`).
const COMPRESS: Duration = Duration::from_millis(1);
const COMPRESS_COUNT: u32 = 44;
/// The first duplicates go at once, so that others' counting senders are told (`TCP_FASTRETRANS_THRESH`).
const DUPLICATES_AT_ONCE: u32 = 3;
/// Blocks that fit beside timestamps.
const BLOCKS: usize = 3;
/// The largest window: half of `tcp_rmem[2]`, for the other half is what buffers cost beside data.
const MAX_WINDOW: u64 = 6_291_456 / 2;
/// The first one, and half of `tcp_rmem[1]`.
const FIRST_WINDOW: u64 = 65_536;
/// The shift that makes a largest buffer fit 16 bits.
pub const SCALE: u8 = 7;

/// From byte, to byte.
type Range = (u64, u64);

/// The state of a receiver. Bytes are counted from the first of data, 0.
#[derive(Debug)]
pub struct Receiver {
    mss: u64,
    /// All before has arrived.
    next: u64,
    /// What arrived beyond, in order of place.
    ahead: Vec<Range>,
    /// The same, merged, in the order in which it changed, the newest first.
    recent: Vec<Range>,
    duplicate: Option<Range>,
    ack: AckState,
    window: WindowState,
    /// The timestamp to echo: of the segment that filled the place at which the last ACK stood.
    echo: u32,
}

#[derive(Debug)]
struct AckState {
    /// `next` when the last ACK left.
    told: u64,
    quick: u32,
    /// How long an ACK may wait, by the time between segments; zero: none came.
    patience: Duration,
    last_arrival: Duration,
    due: Option<Duration>,
    now: bool,
    compressed: u32,
    duplicates: u32,
    duplicates_at: u64,
}

#[derive(Debug)]
struct WindowState {
    /// The window may grow so far (`window_clamp`), and is let grow so far (`rcv_ssthresh`).
    clamp: u64,
    soft: u64,
    /// What was announced ends here.
    edge: u64,
    rtt: Duration,
    /// The echo by which a round trip was last measured.
    measured: u32,
    /// The last measurement of what is read in a round trip: since when, from which byte, how much the one before.
    since: Duration,
    from: u64,
    copied: u64,
}

impl Receiver {
    /// A connection begins whose segments have `mss` bytes.
    pub fn new(now: Duration, mss: u64) -> Receiver {
        let window = FIRST_WINDOW;
        Receiver {
            mss,
            next: 0,
            ahead: Vec::new(),
            recent: Vec::new(),
            duplicate: None,
            ack: AckState {
                told: 0,
                quick: 0,
                patience: Duration::ZERO,
                last_arrival: now,
                due: None,
                now: false,
                compressed: 0,
                duplicates: 0,
                duplicates_at: 0,
            },
            window: WindowState {
                clamp: window,
                soft: window,
                edge: window,
                rtt: Duration::ZERO,
                measured: 0,
                since: now,
                from: 0,
                copied: 10 * mss,
            },
            echo: 0,
        }
    }

    /// Bytes that arrived in order.
    pub fn received(&self) -> u64 {
        self.next
    }

    /// The timestamp that an ACK echoes.
    pub fn echo(&self) -> u32 {
        self.echo
    }

    /// A segment of data arrived: bytes `start` to `end`, with the timestamp `value` and the echo of one of ours, whose
    /// age is `age`.
    pub fn handle_data(&mut self, now: Duration, (start, end): Range, value: u32, echo: u32, age: Duration) {
        if start <= self.ack.told {
            self.echo = value;
        }
        self.note_arrival(now);
        self.measure_rtt(echo, age);
        if end <= self.next {
            self.duplicate = Some((start, end));
            self.ack.quick = QUICK_ACKS;
            self.ack.now = true;
            return;
        }
        // A sender that overruns the window is not heard.
        if end > self.window.edge.max(self.next + self.mss) {
            self.ack.now = true;
            return;
        }
        if start > self.next {
            self.keep(start, end);
            self.grow_soft(end - start);
            self.grow_clamp(self.window.copied);
            self.answer_disorder(now);
        } else {
            let gaps = !self.ahead.is_empty();
            self.take(end);
            let filled = gaps && self.ahead.is_empty();
            self.grow_soft(end - start);
            self.adjust_window(now);
            self.answer(now, filled);
        }
    }

    /// In order up to `end`, and with it what arrived before.
    fn take(&mut self, end: u64) {
        self.next = end;
        while let Some(&(start, end)) = self.ahead.first()
            && start <= self.next
        {
            self.next = self.next.max(end);
            self.ahead.remove(0);
        }
        self.recent.retain(|range| range.1 > self.next);
    }

    /// Out of order.
    fn keep(&mut self, start: u64, end: u64) {
        let at = self.ahead.partition_point(|range| range.1 < start);
        if let Some(&(from, to)) = self.ahead.get(at)
            && from <= start
            && end <= to
        {
            self.duplicate = Some((start, end));
            return;
        }
        let mut merged = (start, end);
        while let Some(&(from, to)) = self.ahead.get(at)
            && from <= merged.1
        {
            merged = (merged.0.min(from), merged.1.max(to));
            self.ahead.remove(at);
        }
        self.ahead.insert(at, merged);
        self.recent.retain(|range| range.1 < merged.0 || merged.1 < range.0);
        self.recent.insert(0, merged);
        self.recent.truncate(BLOCKS + 1);
    }

    /// `tcp_event_data_recv`.
    fn note_arrival(&mut self, now: Duration) {
        let between = now - std::mem::replace(&mut self.ack.last_arrival, now);
        let ack = &mut self.ack;
        if ack.patience.is_zero() {
            ack.quick = ((self.window.soft / (2 * self.mss)).max(2) as u32).min(QUICK_ACKS);
            ack.patience = ATO_MIN;
        } else if between <= ATO_MIN / 2 {
            ack.patience = ack.patience / 2 + ATO_MIN / 2;
        } else if between < ack.patience {
            ack.patience = (ack.patience / 2 + between).min(ATO_MAX);
        } else if between > Duration::from_millis(200) + self.window.rtt {
            ack.quick = QUICK_ACKS;
        }
    }

    /// `__tcp_ack_snd_check` for a segment in order.
    fn answer(&mut self, now: Duration, filled: bool) {
        let window_grew = self.window_to_tell() >= 2 * (self.window.edge.saturating_sub(self.next));
        if self.next - self.ack.told > self.mss || self.ack.quick > 0 || filled || window_grew {
            self.ack.now = true;
        } else if !self.ahead.is_empty() {
            self.answer_disorder(now);
        } else {
            let due = now + self.ack.patience.min(ATO_MIN.max(self.window.rtt)).min(ATO_MAX);
            self.ack.due = Some(self.ack.due.map_or(due, |before| before.min(due)));
        }
    }

    /// The same while something is missing: SACKs are compressed.
    fn answer_disorder(&mut self, now: Duration) {
        let ack = &mut self.ack;
        if ack.duplicates_at != self.next {
            (ack.duplicates_at, ack.duplicates) = (self.next, 0);
        }
        if ack.compressed >= COMPRESS_COUNT || ack.duplicates < DUPLICATES_AT_ONCE || self.duplicate.is_some()
        {
            ack.duplicates += 1;
            ack.now = true;
            return;
        }
        ack.compressed += 1;
        if ack.compressed == 1 {
            let due = now + (self.window.rtt / 20).min(COMPRESS);
            ack.due = Some(ack.due.map_or(due, |before| before.min(due)));
        }
    }

    /// `tcp_rcv_rtt_measure_ts`: once for each echo, smoothed, lowest first.
    fn measure_rtt(&mut self, echo: u32, age: Duration) {
        if echo == 0 || echo == self.window.measured {
            return;
        }
        self.window.measured = echo;
        let sample = age.max(Duration::from_millis(1));
        let rtt = &mut self.window.rtt;
        *rtt = if rtt.is_zero() || sample < *rtt { sample } else { (*rtt * 7 + sample) / 8 };
    }

    /// `tcp_grow_window`.
    fn grow_soft(&mut self, bytes: u64) {
        let most = self.window.clamp.min(self.free());
        if bytes >= 128 && self.window.soft < most {
            self.window.soft = (self.window.soft + 2 * self.mss).min(most);
        }
    }

    /// `tcp_rcv_space_adjust` (dynamic right-sizing): as much as is read in a round trip makes the window.
    fn adjust_window(&mut self, now: Duration) {
        let w = &self.window;
        if w.rtt.is_zero() || now - w.since < w.rtt {
            return;
        }
        let copied = self.next - w.from;
        if copied > w.copied {
            self.grow_clamp(copied);
        }
        (self.window.from, self.window.since) = (self.next, now);
    }

    /// `tcp_rcvbuf_grow`: twice what is read in a round trip, as much more as that grows, and what waits beyond a gap.
    fn grow_clamp(&mut self, copied: u64) {
        let w = &mut self.window;
        let before = std::mem::replace(&mut w.copied, copied);
        let beyond = self.ahead.last().map_or(0, |(_, end)| end - self.next);
        let wanted = 2 * copied + 4 * copied * (copied - before) / before.max(1) + beyond;
        w.clamp = w.clamp.max(wanted.min(MAX_WINDOW));
    }

    /// `__tcp_select_window`.
    fn window_to_tell(&self) -> u64 {
        self.free().min(self.window.soft) >> SCALE << SCALE
    }

    /// `tcp_space`.
    fn free(&self) -> u64 {
        let ahead: u64 = self.ahead.iter().map(|(start, end)| end - start).sum();
        self.window.clamp.saturating_sub(ahead)
    }

    /// When an ACK is due that waits.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.ack.due
    }

    /// Whether an ACK is to be sent.
    pub fn wants_ack(&self, now: Duration) -> bool {
        self.ack.now || self.ack.due.is_some_and(|due| due <= now)
    }

    /// An ACK is to be sent at once.
    pub fn ask_for_ack(&mut self) {
        self.ack.now = true;
    }

    /// An ACK, or a segment with one, leaves: the byte expected next, the window, the blocks.
    pub fn take_ack(&mut self, now: Duration) -> (u64, u64, Vec<Range>) {
        let late = self.ack.due.is_some_and(|due| due <= now) && !self.ack.now && self.ack.compressed == 0;
        if late {
            self.ack.patience = (self.ack.patience * 2).min(ATO_MAX);
        }
        self.ack.due = None;
        self.ack.now = false;
        self.ack.compressed = 0;
        self.ack.quick = self.ack.quick.saturating_sub(1);
        self.ack.told = self.next;
        self.window.edge = self.window.edge.max(self.next + self.window_to_tell());
        let mut blocks: Vec<Range> = self.duplicate.take().into_iter().collect();
        blocks.extend(&self.recent);
        blocks.truncate(BLOCKS);
        (self.next, self.window.edge - self.next, blocks)
    }
}
