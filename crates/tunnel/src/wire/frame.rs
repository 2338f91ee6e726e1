//! Frames: the plaintext of a transport packet. One packet carries one frame.
//!
//! Integers are big-endian. Byte 0 is the kind, byte 1 flags. Times are a sender's clock in µs, 32 bits, wrapping.
//!
//! | kind | layout after kind and flags |
//! |---|---|
//! | 1 data | behind 2, order sequence 4, time 4, inner IP packet or a [`Piece`] of it |
//! | 2 feedback | count 1, reserved 1, [`Order`] 8, time 4, then `count` path reports |
//! | 3 announce | count 1, generation 1, then per path: id 2, flags 1 (bit 0: backup, 1: metered, 2 to 5: prefer), name length 1, name |
//! | 4 probe | reserved 2, [`Order`] 8, time 4, zeros (padding: its size is what it probes) |
//! | 5 challenge, 6 response | reserved 2, token 8 |
//!
//! A path report is: path id 2, range count 1, reserved 1, largest sequence 8, its arrival 4 (receiver's clock),
//! delay of this report 4 (µs since that arrival), bytes received 8, delay samples 4, least one-way delay 4
//! (receiver's clock minus sender's, wrapping), mean minus least 4, greatest minus least 4, then the ranges: the
//! first's length 4, then (gap 4, length 4) downwards.

use std::ops::RangeInclusive;

use crate::config::{Cost, MAX_PREFER};
use crate::path::mtu_search::MIN_CARRIED;
use crate::schedule::weights::Delay;

/// Bytes of a data frame before the inner packet.
pub const DATA_HEADER: usize = 12;
/// At most so many pieces of one inner packet.
pub const MAX_PIECES: usize = 8;
/// Bytes of a probe without padding.
pub const PROBE_HEADER: usize = 16;
/// At most this many paths' reports in one feedback: each of them walks what is in flight.
pub const MAX_REPORTS: usize = 4;
/// At most this many ranges in one path's report.
pub const MAX_RANGES: usize = 32;
/// Longest path name in bytes.
pub const MAX_NAME: usize = 32;

/// Bytes of a feedback before its reports, of a report without ranges, and of the longest one.
const FEEDBACK: usize = 16;
const REPORT: usize = 44;
const FULL_REPORT: usize = REPORT + 8 * MAX_RANGES;
/// Bytes of a feedback with one path's report: every path carries them.
pub const ONE_REPORT: usize = FEEDBACK + FULL_REPORT;

/// Why a plaintext is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It ends before what it announces.
    #[error("truncated frame")]
    Truncated,
    /// Not one of the kinds above.
    #[error("unknown frame kind")]
    Kind,
    /// A range of path sequences is empty or reaches below zero.
    #[error("impossible range of path sequences")]
    Range,
    /// A piece beyond the last one of its packet.
    #[error("a piece beyond the last")]
    Piece,
    /// A path name is too long, or has more than letters, digits, `-`, `_` and `.`.
    #[error("bad path name")]
    Name,
}

/// Where a sender's order sequence stands (low 32 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The lowest order sequence that may still be sent; everything below was confirmed or given up.
    pub floor: u32,
    /// The next fresh order sequence; everything below was sent.
    pub next: u32,
}

/// Which piece of an inner packet a data frame has. The pieces of a packet take sequences of one path that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// How many come before it.
    pub index: u8,
    /// How many there are, at most [`MAX_PIECES`].
    pub of: u8,
}

impl Piece {
    /// The whole packet.
    pub const WHOLE: Piece = Piece { index: 0, of: 1 };

    /// As bits 2 to 7 of a data frame's flags: its place, then how many come beside the first.
    fn bits(self) -> u8 {
        self.index << 2 | (self.of - 1) << 5
    }

    fn of_bits(flags: u8) -> Result<Self, FrameError> {
        let piece = Piece { index: flags >> 2 & 7, of: (flags >> 5) + 1 };
        if piece.index < piece.of { Ok(piece) } else { Err(FrameError::Piece) }
    }
}

/// A data frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Sent again: its order sequence is older than others sent on this path before.
    pub resend: bool,
    /// The sender repeats what paths lose, so a gap may yet be filled.
    pub resends: bool,
    /// What of the inner packet follows.
    pub piece: Piece,
    /// So many order sequences before it is the packet that it must not overtake; 0: there is none.
    pub behind: u16,
    /// The order sequence, low 32 bits.
    pub order: u32,
    /// When it was sent, the sender's clock.
    pub time: u32,
}

/// What one path of the reporter received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The path.
    pub path: u16,
    /// Arrival of the largest sequence, the reporter's clock.
    pub arrival: u32,
    /// How long ago that was when the report was made, µs.
    pub report_delay: u32,
    /// Bytes of UDP payload received on this path so far.
    pub bytes: u64,
    /// One-way delays since the last report.
    pub delay: Delay,
    /// Path sequences received of late, the largest first, at most [`MAX_RANGES`].
    pub ranges: Vec<RangeInclusive<u64>>,
}

impl Report {
    /// The largest sequence received.
    pub fn largest(&self) -> Option<u64> {
        self.ranges.first().map(|r| *r.end())
    }
}

/// A path as its lister announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its id.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Whether to use it only while no other path works.
    pub backup: bool,
    /// What using it costs its lister.
    pub cost: Cost,
}

/// A parsed frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An inner packet, or a piece of one.
    Data(Data, &'a mut [u8]),
    /// What was received.
    Feedback(Order, Vec<Report>),
    /// The paths of the end that lists them, and which edition of the list it is (wrapping).
    Announce(u8, Vec<Announced>),
    /// A marker: says how far the order sequence went, and how large a packet this path carries.
    Probe(Order, u32),
    /// Prove that you receive at this address.
    Challenge(u64),
    /// The proof.
    Response(u64),
}

impl<'a> Frame<'a> {
    /// Parses a plaintext.
    pub fn parse(plain: &'a mut [u8]) -> Result<Frame<'a>, FrameError> {
        let kind = *plain.first().ok_or(FrameError::Truncated)?;
        if kind == 1 {
            return parse_data(plain);
        }
        let mut r = Reader(plain);
        r.skip(2)?;
        match kind {
            2 => parse_feedback(&mut r),
            3 => parse_announce(&mut r),
            4 => {
                r.skip(2)?;
                Ok(Frame::Probe(r.order()?, r.u32()?))
            }
            5 | 6 => {
                r.skip(2)?;
                let token = r.u64()?;
                Ok(if kind == 5 { Frame::Challenge(token) } else { Frame::Response(token) })
            }
            _ => Err(FrameError::Kind),
        }
    }
}

fn parse_data(plain: &mut [u8]) -> Result<Frame<'_>, FrameError> {
    let mut r = Reader(plain);
    r.skip(1)?;
    let flags = r.u8()?;
    let header = Data {
        resend: flags & 1 != 0,
        resends: flags & 2 != 0,
        piece: Piece::of_bits(flags)?,
        behind: r.u16()?,
        order: r.u32()?,
        time: r.u32()?,
    };
    Ok(Frame::Data(header, &mut plain[DATA_HEADER..]))
}

fn parse_feedback<'a>(r: &mut Reader<'_>) -> Result<Frame<'a>, FrameError> {
    let count = r.u8()?;
    r.skip(1)?;
    let order = r.order()?;
    r.skip(4)?;
    if usize::from(count) > MAX_REPORTS {
        return Err(FrameError::Range);
    }
    let reports = (0..count).map(|_| parse_report(r)).collect::<Result<_, _>>()?;
    Ok(Frame::Feedback(order, reports))
}

fn parse_report(r: &mut Reader<'_>) -> Result<Report, FrameError> {
    let path = r.u16()?;
    let count = r.u8()?;
    r.skip(1)?;
    let mut end = r.u64()?;
    let (arrival, report_delay, bytes) = (r.u32()?, r.u32()?, r.u64()?);
    let delay = Delay { samples: r.u32()?, min: r.u32()?, mean_over_min: r.u32()?, max_over_min: r.u32()? };
    let mut ranges = Vec::with_capacity(usize::from(count).min(MAX_RANGES));
    for i in 0..count {
        if i > 0 {
            // The gap's length counts the sequences missing between two ranges.
            let gap = u64::from(r.u32()?);
            let low: u64 = ranges.last().map_or(0, |l: &RangeInclusive<u64>| *l.start());
            end = low.checked_sub(gap + 1).filter(|_| gap > 0).ok_or(FrameError::Range)?;
        }
        let length = u64::from(r.u32()?);
        let start = end.checked_add(1).and_then(|e| e.checked_sub(length)).filter(|_| length > 0);
        let start = start.ok_or(FrameError::Range)?;
        ranges.push(start..=end);
    }
    if ranges.len() > MAX_RANGES {
        return Err(FrameError::Range);
    }
    Ok(Report { path, arrival, report_delay, bytes, delay, ranges })
}

fn parse_announce<'a>(r: &mut Reader<'_>) -> Result<Frame<'a>, FrameError> {
    let (count, generation) = (r.u8()?, r.u8()?);
    let paths = (0..count).map(|_| parse_announced(r)).collect::<Result<_, _>>()?;
    Ok(Frame::Announce(generation, paths))
}

fn parse_announced(r: &mut Reader<'_>) -> Result<Announced, FrameError> {
    let id = r.u16()?;
    let flags = r.u8()?;
    let cost = Cost { metered: flags & 2 != 0, prefer: flags >> 2 & MAX_PREFER, ..Cost::default() };
    let length = usize::from(r.u8()?);
    let name = std::str::from_utf8(r.take(length)?).map_err(|_| FrameError::Name)?;
    // It is shown and logged: what no file may say, no peer may.
    if length > MAX_NAME || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Err(FrameError::Name);
    }
    Ok(Announced { id, name: name.to_owned(), backup: flags & 1 != 0, cost })
}

/// Appends a data frame's header; the inner packet follows.
pub fn put_data(out: &mut Vec<u8>, d: &Data) {
    out.extend([1, u8::from(d.resend) | u8::from(d.resends) << 1 | d.piece.bits()]);
    out.extend(d.behind.to_be_bytes());
    out.extend(d.order.to_be_bytes());
    out.extend(d.time.to_be_bytes());
}

/// Appends a probe of `length` bytes of plaintext in all, at least [`PROBE_HEADER`].
pub fn put_probe(out: &mut Vec<u8>, order: Order, time: u32, length: usize) {
    let end = out.len() + length.max(PROBE_HEADER);
    out.extend([4, 0, 0, 0]);
    put_order(out, order);
    out.extend(time.to_be_bytes());
    out.resize(end, 0);
}

/// Appends a challenge or, if `answer`, its response.
pub fn put_challenge(out: &mut Vec<u8>, token: u64, answer: bool) {
    out.extend([if answer { 6 } else { 5 }, 0, 0, 0]);
    out.extend(token.to_be_bytes());
}

/// How a path is to be used, as announcements say it.
pub fn flags(backup: bool, cost: Cost) -> u8 {
    u8::from(backup) | u8::from(cost.metered) << 1 | cost.prefer.min(MAX_PREFER) << 2
}

/// Appends an announcement, edition `generation` of the list: id, name and [`flags`] of each path; names are cut to [`MAX_NAME`]
/// bytes, and where there are many so that every path carries it.
pub fn put_announce<'a>(
    out: &mut Vec<u8>,
    generation: u8,
    paths: impl ExactSizeIterator<Item = (u16, &'a str, u8)>,
) {
    out.extend([3, 0, paths.len() as u8, generation]);
    let each = (usize::from(MIN_CARRIED) + DATA_HEADER - 4) / paths.len().max(1);
    for (id, name, flags) in paths {
        let name = &name[..name.floor_char_boundary(each.saturating_sub(4).min(MAX_NAME))];
        out.extend(id.to_be_bytes());
        out.extend([flags, name.len() as u8]);
        out.extend(name.as_bytes());
    }
}

/// Appends feedback on as many paths as fit into `room` bytes; says how many did.
pub fn put_feedback(out: &mut Vec<u8>, order: Order, time: u32, reports: &[Report], room: usize) -> usize {
    let start = out.len();
    out.extend([2, 0, 0, 0]);
    put_order(out, order);
    out.extend(time.to_be_bytes());
    let mut count = 0;
    for report in reports.iter().take(MAX_REPORTS) {
        let ranges = report.ranges.len().min(MAX_RANGES);
        if out.len() - start + REPORT + 8 * ranges > room {
            break;
        }
        put_report(out, report, ranges);
        count += 1;
    }
    out[start + 2] = count as u8;
    count
}

/// How many reports fit for certain into a feedback of so many bytes.
pub fn reports_in(room: usize) -> usize {
    room.saturating_sub(FEEDBACK) / FULL_REPORT
}

fn put_report(out: &mut Vec<u8>, report: &Report, ranges: usize) {
    out.extend(report.path.to_be_bytes());
    out.extend([ranges as u8, 0]);
    out.extend(report.largest().unwrap_or(0).to_be_bytes());
    out.extend(report.arrival.to_be_bytes());
    out.extend(report.report_delay.to_be_bytes());
    out.extend(report.bytes.to_be_bytes());
    let d = report.delay;
    for v in [d.samples, d.min, d.mean_over_min, d.max_over_min] {
        out.extend(v.to_be_bytes());
    }
    let mut above: Option<u64> = None;
    for range in &report.ranges[..ranges] {
        if let Some(low) = above {
            out.extend(clamp32(low - range.end() - 1).to_be_bytes());
        }
        out.extend(clamp32(range.end() - range.start() + 1).to_be_bytes());
        above = Some(*range.start());
    }
}

fn clamp32(v: u64) -> u32 {
    u32::try_from(v).unwrap_or(u32::MAX)
}

fn put_order(out: &mut Vec<u8>, order: Order) {
    out.extend(order.floor.to_be_bytes());
    out.extend(order.next.to_be_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], FrameError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(FrameError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(FrameError::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }
    fn skip(&mut self, n: usize) -> Result<(), FrameError> {
        self.take(n).map(drop)
    }
    fn u8(&mut self) -> Result<u8, FrameError> {
        self.array::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }
    fn order(&mut self) -> Result<Order, FrameError> {
        Ok(Order { floor: self.u32()?, next: self.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report() -> Report {
        Report {
            path: 3,
            arrival: 77,
            report_delay: 5,
            bytes: 1 << 40,
            delay: Delay { samples: 9, min: u32::MAX - 3, mean_over_min: 4, max_over_min: 8 },
            ranges: vec![90..=100, 50..=70, 0..=0],
        }
    }

    #[test]
    fn as_many_full_reports_as_are_said_to_fit_do() {
        let ranges = (0..MAX_RANGES as u64).rev().map(|at| 3 * at..=3 * at + 1).collect();
        let full = vec![Report { ranges, ..Report::default() }; MAX_REPORTS];
        for room in ONE_REPORT..MAX_REPORTS * FULL_REPORT {
            let put = put_feedback(&mut Vec::new(), Order { floor: 0, next: 0 }, 0, &full, room);
            assert!(put >= reports_in(room).min(MAX_REPORTS), "{put} in {room}");
        }
    }

    #[test]
    fn feedback_survives_the_wire() {
        let (order, reports) = (Order { floor: 1, next: 9 }, vec![report(), Report { path: 4, ..report() }]);
        let mut out = Vec::new();
        assert_eq!(put_feedback(&mut out, order, 0, &reports, 1200), 2);
        assert_eq!(Frame::parse(&mut out), Ok(Frame::Feedback(order, reports)));
    }

    #[test]
    fn more_reports_than_anybody_sends_are_refused() {
        let mut out = Vec::new();
        put_feedback(&mut out, Order::default(), 0, &vec![report(); MAX_REPORTS + 1], 4000);
        assert_eq!(usize::from(out[2]), MAX_REPORTS);
        put_report(&mut out, &report(), report().ranges.len());
        out[2] += 1;
        assert_eq!(Frame::parse(&mut out), Err(FrameError::Range));
    }

    #[test]
    fn pieces_survive_the_wire() {
        let max = MAX_PIECES as u8;
        for piece in (1..=max).flat_map(|of| (0..of).map(move |index| Piece { index, of })) {
            let data = Data { resend: true, resends: false, piece, behind: 3, order: 9, time: 7 };
            let mut out = Vec::new();
            put_data(&mut out, &data);
            out.push(5);
            assert_eq!(Frame::parse(&mut out), Ok(Frame::Data(data, &mut [5][..])));
            assert_eq!(out[1] == 1, piece == Piece::WHOLE, "whole packets are as they ever were");
        }
    }

    #[test]
    fn feedback_stops_where_the_room_ends() {
        let mut out = Vec::new();
        assert_eq!(put_feedback(&mut out, Order::default(), 0, &vec![report(); 40], 200), 2);
        assert!(out.len() <= 200);
    }

    #[test]
    fn announcement_survives_the_wire() {
        let mut out = Vec::new();
        let cost = Cost { metered: true, prefer: MAX_PREFER, ..Cost::default() };
        put_announce(
            &mut out,
            7,
            [(2, "lte", flags(false, cost)), (4, "a-name-of-more-than-thirty-two-bytes", 1)].into_iter(),
        );
        let Ok(Frame::Announce(7, paths)) = Frame::parse(&mut out) else { panic!("no announcement") };
        assert_eq!(paths[0], Announced { id: 2, name: "lte".into(), backup: false, cost });
        assert_eq!((paths[1].name.len(), paths[1].backup, paths[1].cost), (MAX_NAME, true, Cost::default()));
    }

    /// One input per reason to reject.
    #[test]
    fn every_reason_to_reject() {
        let feedback = |ranges: &[u32], largest: u64| {
            let mut out = Vec::new();
            put_feedback(&mut out, Order::default(), 0, &[Report::default()], 1200);
            out[18] = ranges.len().div_ceil(2) as u8;
            out[20..28].copy_from_slice(&largest.to_be_bytes());
            ranges.iter().for_each(|r| out.extend(r.to_be_bytes()));
            out
        };
        assert!(Frame::parse(&mut feedback(&[1], 0)).is_ok());
        for (mut bytes, error) in [
            (vec![], FrameError::Truncated),
            (vec![1, 0, 0], FrameError::Truncated),
            (vec![5, 0, 0, 0, 1], FrameError::Truncated),
            (vec![9, 0, 0, 0], FrameError::Kind),
            ([vec![1, 1 << 2], vec![0; 10]].concat(), FrameError::Piece),
            ([vec![1, 7 << 2 | 6 << 5], vec![0; 10]].concat(), FrameError::Piece),
            (feedback(&[0], 5), FrameError::Range),
            (feedback(&[7], 5), FrameError::Range),
            (feedback(&[1, 0, 1], 5), FrameError::Range),
            (feedback(&[1, 9, 1], 5), FrameError::Range),
            (feedback(&[1], u64::MAX), FrameError::Range),
            (feedback(&[1; 67], 200), FrameError::Range),
            (vec![3, 0, 1, 0, 0, 1, 0, 1, 0xff], FrameError::Name),
            (vec![3, 0, 1, 0, 0, 1, 0, 1, b'"'], FrameError::Name),
            ([vec![3, 0, 1, 0, 0, 1, 0, 33], vec![b'a'; 33]].concat(), FrameError::Name),
        ] {
            assert_eq!(Frame::parse(&mut bytes.clone()), Err(error), "{bytes:?}");
            bytes.clear();
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..8) {
            if let Some(first) = bytes.first_mut() { *first = kind; }
            let _ = Frame::parse(&mut bytes);
        }
    }
}
