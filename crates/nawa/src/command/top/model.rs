//! What `nawa top` shows: the last state and, of each number, its last values; and what of it the keys have chosen.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::command::monitor::{self, Last, Line};
use crate::command::status::view::{Coding, Flood, State};

/// Values that are kept of each number: the widest sparkline that a screen has room for.
const KEPT: usize = 240;
/// The longest filter: as long as a name.
const LONGEST_FILTER: usize = 32;

/// The last values of a number, the newest last; `None` where it was not known.
#[derive(Clone, Debug, Default)]
pub struct Series(VecDeque<Option<f64>>);

impl Series {
    fn push(&mut self, value: Option<f64>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The last `count` of them.
    pub fn last(&self, count: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        self.0.iter().skip(self.0.len().saturating_sub(count)).copied()
    }

    /// The value now.
    pub fn now(&self) -> Option<f64> {
        self.0.back().copied().flatten()
    }
}

/// What is known of the daemon.
#[derive(Clone, Default)]
pub struct Known {
    /// As it said last.
    pub state: Option<Rc<State>>,
    /// Its paths, peer by peer.
    pub paths: Rc<Vec<Line>>,
    /// Why there is no news.
    pub silence: Option<String>,
    series: BTreeMap<String, Series>,
}

impl Known {
    /// The last values of what is called so, none if nothing is.
    pub fn series(&self, of: &str, what: &str) -> Series {
        self.series.get(&format!("{of} {what}")).cloned().unwrap_or_default()
    }
}

/// A part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Paths,
    Flows,
    Flight,
    Coding,
    Flood,
}

/// The order of paths, and of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Given,
    Rate,
    RoundTrip,
    Loss,
}

impl Sort {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Given => "as given",
            Sort::Rate => "rate",
            Sort::RoundTrip => "rtt",
            Sort::Loss => "loss",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Given => Sort::Rate,
            Sort::Rate => Sort::RoundTrip,
            Sort::RoundTrip => Sort::Loss,
            Sort::Loss => Sort::Given,
        }
    }
}

/// What the keys have chosen.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// This part alone.
    pub part: Option<Part>,
    /// The order.
    pub sort: Sort,
    /// What names have to hold.
    pub filter: String,
    /// Keys are the filter's.
    pub typing: bool,
    /// Lines above the first that is shown.
    pub scroll: usize,
}

impl Chosen {
    /// Whether one of `names` holds what is looked for.
    pub fn passes(&self, names: &[&str]) -> bool {
        let wanted = self.filter.to_ascii_lowercase();
        names.iter().any(|name| name.to_ascii_lowercase().contains(&wanted))
    }
}

/// All of it.
pub struct Model {
    /// The time from one state to the next.
    pub interval: Duration,
    /// What the keys have chosen.
    pub chosen: Chosen,
    now: Known,
    /// What was known when somebody stopped the screen.
    paused: Option<Known>,
    last: Last,
    counts: BTreeMap<String, (Duration, u64)>,
    process: u32,
}

impl Model {
    /// Nothing is known yet.
    pub fn new(interval: Duration) -> Model {
        Model {
            interval,
            chosen: Chosen::default(),
            now: Known::default(),
            paused: None,
            last: None,
            counts: BTreeMap::new(),
            process: 0,
        }
    }

    /// What is to be shown.
    pub fn shown(&self) -> &Known {
        self.paused.as_ref().unwrap_or(&self.now)
    }

    /// Whether that stands still.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The daemon has said how it is.
    pub fn handle_state(&mut self, now: Duration, state: Rc<State>) {
        if std::mem::replace(&mut self.process, state.pid) != state.pid {
            // Another daemon counts anew.
            self.last = None;
            self.counts.clear();
        }
        let round = monitor::round(&state, now, now, &mut self.last);
        let mut values = Vec::new();
        let peers = state.tunnel.iter().flat_map(|tunnel| &tunnel.peers);
        let mut lines = round.paths.iter();
        for peer in peers {
            values.push((peer.name.clone(), "queue", Some(peer.queue_bytes as f64 / 1e3)));
            for (path, line) in peer.paths.iter().zip(&mut lines) {
                let of = path_name(&peer.name, &path.name, path.id);
                let queue = path.rtt_ms.zip(path.rtt_min_ms).map(|(rtt, least)| (rtt - least).max(0.0));
                for (what, value) in [
                    ("out", line.sent_bps.map(|bps| bps / 1e6)),
                    ("in", line.received_bps.map(|bps| bps / 1e6)),
                    ("rtt", path.rtt_ms),
                    ("queue", queue),
                    ("loss", line.loss_percent),
                    ("weight", Some(path.weight)),
                    ("flight", Some(path.in_flight_bytes as f64 / 1e3)),
                ] {
                    values.push((of.clone(), what, value));
                }
            }
        }
        for coding in &state.coding {
            self.measure_coding(now, coding, &mut values);
        }
        for flood in &state.flood {
            self.measure_flood(now, flood, &mut values);
        }
        let mut before = std::mem::take(&mut self.now.series);
        for (of, what, value) in values {
            let name = format!("{of} {what}");
            let mut series = before.remove(&name).unwrap_or_default();
            series.push(value);
            self.now.series.insert(name, series);
        }
        (self.now.state, self.now.paths, self.now.silence) = (Some(state), Rc::new(round.paths), None);
    }

    /// There is no news, and why.
    pub fn handle_silence(&mut self, why: String) {
        self.now.silence = Some(why);
        self.now.series.values_mut().for_each(|series| series.push(None));
        // What went on meanwhile says nothing of any second.
        self.last = None;
        self.counts.clear();
    }

    fn measure_coding(&mut self, now: Duration, coding: &Coding, values: &mut Vec<Value>) {
        let of = format!("coding {}", coding.interface);
        let mut per_second = |what, count| self.per_second(now, &of, what, count);
        let frames = per_second("frames", coding.sent_frames);
        let sums = per_second("sums", coding.sent_coded_frames);
        let missing = coding.missing_partner_frames + coding.wrong_partner_frames;
        let share = |part: Option<f64>, of: Option<f64>| {
            part.zip(of).filter(|(_, of)| *of > 0.0).map(|(part, of)| part / of)
        };
        for (what, value) in [
            ("frames", frames),
            // Each sum is a frame less.
            ("gain", share(sums, frames).map(|share| 100.0 * share)),
            ("relayed", per_second("relayed", coding.relayed_packets)),
            ("decoded", per_second("decoded", coding.decoded_packets)),
            ("missed", per_second("missed", missing)),
        ] {
            values.push((of.clone(), what, value));
        }
    }

    fn measure_flood(&mut self, now: Duration, flood: &Flood, values: &mut Vec<Value>) {
        let of = format!("flood {}", flood.interface);
        for (what, count) in [
            ("sent", flood.sent_frames),
            ("new", flood.new_frames),
            ("relayed", flood.relayed_frames),
            ("left", flood.suppressed_frames),
            ("dropped", flood.dropped_frames.values().sum()),
        ] {
            values.push((of.clone(), what, self.per_second(now, &of, what, count)));
        }
    }

    /// How fast a count grows; not known the first time.
    fn per_second(&mut self, now: Duration, of: &str, what: &'static str, count: u64) -> Option<f64> {
        let (then, before) = self.counts.insert(format!("{of} {what}"), (now, count))?;
        let time = now.saturating_sub(then).as_secs_f64().max(1e-3);
        Some(count.saturating_sub(before) as f64 / time)
    }

    /// A key; true if it ends the program.
    pub fn handle_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.chosen.typing {
            if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
                self.type_filter(key.code);
            }
            return false;
        }
        let chosen = &mut self.chosen;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('p' | ' ') => {
                self.paused = match self.paused.take() {
                    None => Some(self.now.clone()),
                    Some(_) => None,
                };
            }
            KeyCode::Char('/') => chosen.typing = true,
            KeyCode::Char('s') => chosen.sort = chosen.sort.next(),
            KeyCode::Down | KeyCode::Char('j') => chosen.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => chosen.scroll = chosen.scroll.saturating_sub(1),
            KeyCode::PageDown => chosen.scroll += 10,
            KeyCode::PageUp => chosen.scroll = chosen.scroll.saturating_sub(10),
            KeyCode::Home => chosen.scroll = 0,
            KeyCode::Char(digit @ '0'..='5') => {
                chosen.scroll = 0;
                chosen.part = match digit {
                    '1' => Some(Part::Paths),
                    '2' => Some(Part::Flows),
                    '3' => Some(Part::Flight),
                    '4' => Some(Part::Coding),
                    '5' => Some(Part::Flood),
                    _ => None,
                };
            }
            _ => {}
        }
        false
    }

    fn type_filter(&mut self, key: KeyCode) {
        let Chosen { filter, typing, scroll, .. } = &mut self.chosen;
        *scroll = 0;
        match key {
            KeyCode::Enter => *typing = false,
            KeyCode::Esc => {
                filter.clear();
                *typing = false;
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(letter) if letter.is_ascii_graphic() && filter.len() < LONGEST_FILTER => {
                filter.push(letter);
            }
            _ => {}
        }
    }
}

/// Of what, which number of it, and that.
type Value = (String, &'static str, Option<f64>);

/// What a path's numbers are kept under.
pub fn path_name(peer: &str, path: &str, id: u16) -> String {
    format!("path {peer} {path} {id}")
}
