//! How `nawa top` looks: lines of plain text, cut to the screen's width. Whatever comes from a file or from another host is
//! printed as ASCII, so that no name can do anything to the terminal.

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::model::{Chosen, Known, Model, Part, Series, Sort, path_name};
use crate::command::monitor;
use crate::command::status::view::{Coding, Flight, Flood, Flow, Path, Peer, State};
use crate::flight::Line as Connection;
use crate::terminal;

/// The least screen, in columns and rows.
const LEAST: (u16, u16) = (72, 12);
/// Rows of the longest list of a screen that shows every part.
const SHORT: usize = 3;
/// Rows of a sparkline at most.
const TALLEST: usize = 2;
/// A path's name has so many columns, and two before it.
const NAME: usize = 14;
/// The longest address with its port: IPv6.
const ADDRESS: usize = 47;
/// From so many columns on there is room for one number more of each path.
const WIDE: usize = 120;
/// Shares of packets lost that are worth a look, and that hurt, percent.
const LOSES: f64 = 1.0;
const LOSES_MUCH: f64 = 5.0;

/// The heights of a sparkline's columns, the least first.
type Ramp = [char; 8];
const BLOCKS: Ramp = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LETTERS: Ramp = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// What the terminal is able to show.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    color: bool,
    ramp: Ramp,
}

impl Look {
    /// As the environment says: no colours where NO_COLOR is set (no-color.org), and nothing but ASCII where the locale is not
    /// UTF-8, or on the kernel's console, whose font has few of the blocks.
    pub fn of_environment() -> Look {
        Look::of(terminal::variable)
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Look {
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| variable(name)).unwrap_or_default();
        let utf8 = ["UTF-8", "UTF8"].iter().any(|name| locale.to_ascii_uppercase().ends_with(name));
        let console = variable("TERM").is_none_or(|term| term == "linux");
        let ramp = if utf8 && !console { BLOCKS } else { LETTERS };
        Look { color: terminal::has_colors(variable), ramp }
    }

    fn style(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.style(Color::Green)
    }

    fn doubtful(self) -> Style {
        self.style(Color::Yellow)
    }

    /// Seen without colours as well.
    fn bad(self) -> Style {
        self.style(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn sparkline(self) -> Style {
        self.style(Color::Cyan)
    }

    fn title(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn of_state(self, state: &str) -> Style {
        match state {
            "up" => self.good(),
            "silent" | "checking" => self.doubtful(),
            _ => self.bad(),
        }
    }
}

/// A part of the screen: its title and its rows.
struct Section {
    part: Part,
    title: String,
    rows: Vec<Line<'static>>,
    /// How many rows at the end may be left out where there is no room.
    spare: usize,
}

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, model: &mut Model, look: Look) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{width}x{height} is too small; {}x{} is the least", LEAST.0, LEAST.1);
        return put(frame, 0, &Line::from(text));
    }
    let mut head = head(model, look, width);
    let room = height - head.len() - 1;
    let lines = body(model.shown(), &model.chosen, look, width, room);
    model.chosen.scroll = model.chosen.scroll.min(lines.len().saturating_sub(room));
    let below = lines.len().saturating_sub(model.chosen.scroll + room);
    let shown = lines.into_iter().skip(model.chosen.scroll).take(room);
    head.extend(shown);
    for (row, line) in (0..).zip(&head) {
        put(frame, row, line);
    }
    put(frame, area.height - 1, &keys(model, look, width, below));
}

fn put(frame: &mut Frame<'_>, row: u16, line: &Line<'_>) {
    let width = frame.area().width;
    frame.buffer_mut().set_line(0, row, line, width);
}

/// Who this is, how it goes in all, and what is amiss with it as a whole.
fn head(model: &Model, look: Look, width: usize) -> Vec<Line<'static>> {
    let known = model.shown();
    let Some(state) = &known.state else {
        let why = known.silence.clone().unwrap_or_else(|| "asks the daemon".into());
        return vec![bar("nawa top", &ascii(&why), look, width)];
    };
    let interface = state.interface.as_deref().unwrap_or("no tunnel");
    let peers: Vec<_> = state.tunnel.iter().flat_map(|tunnel| &tunnel.peers).collect();
    let up = peers.iter().filter(|peer| peer.up).count();
    let rate = |of: fn(&monitor::Line) -> Option<f64>| {
        let sum = known.paths.iter().filter_map(of).sum::<f64>() / 1e6;
        figure(Some(sum).filter(|_| known.silence.is_none()))
    };
    let left = format!(
        "nawa {}  {}  {up} of {} peers up  out {} in {} Mbit/s",
        ascii(&state.version),
        ascii(interface),
        peers.len(),
        rate(|line| line.sent_bps),
        rate(|line| line.received_bps),
    );
    let right = match model.is_paused() {
        true => "PAUSED".to_owned(),
        false => format!("each {} s", model.interval.as_secs_f64()),
    };
    let mut lines = vec![bar(&left, &right, look, width)];
    let mut amiss = |text: String| lines.push(Line::styled(format!(" {}", ascii(&text)), look.bad()));
    known.silence.iter().for_each(|why| amiss(why.clone()));
    for failed in state.failed.iter().take(2) {
        amiss(format!("{} failed: {}", failed.strand, failed.why));
    }
    if let Some(first) = state.reload_refused.first() {
        amiss(format!("the last reload changed nothing: {first}"));
    }
    lines
}

fn keys(model: &Model, look: Look, width: usize, below: usize) -> Line<'static> {
    let Chosen { part, sort, filter, typing, .. } = &model.chosen;
    if *typing {
        return bar(&format!("filter: {filter}_"), "Enter keeps it, Esc clears it", look, width);
    }
    let parts = match part {
        None => "all",
        Some(Part::Paths) => "paths",
        Some(Part::Flows) => "flows",
        Some(Part::Flight) => "flight",
        Some(Part::Coding) => "coding",
        Some(Part::Flood) => "flood",
    };
    let filter = if filter.is_empty() { "/ filter".to_owned() } else { format!("/ filter \"{filter}\"") };
    let left = format!("q quit  p pause  {filter}  s sort: {}  0-5 parts: {parts}", sort.name());
    let right = if below > 0 { format!("{below} more below: j k") } else { String::new() };
    bar(&left, &right, look, width)
}

/// A reversed line with something at each end.
fn bar(left: &str, right: &str, look: Look, width: usize) -> Line<'static> {
    let room = width.saturating_sub(right.len() + 3);
    Line::styled(format!(" {left:room$.room$} {right} "), look.title())
}

/// The parts that there are, as many lines of each as there is room for.
fn body(known: &Known, chosen: &Chosen, look: Look, width: usize, room: usize) -> Vec<Line<'static>> {
    let Some(state) = &known.state else { return Vec::new() };
    let build = |tall: usize| {
        let mut sections = sections(known, state, chosen, look, (width, tall));
        sections.retain(|section| chosen.part.is_none_or(|part| part == section.part));
        sections
    };
    let lines = |sections: &[Section]| sections.iter().map(|section| section.rows.len() + 1).sum::<usize>();
    let tall = (1..=TALLEST).rev().find(|tall| lines(&build(*tall)) <= room).unwrap_or(1);
    let mut sections = build(tall);
    let mut over = lines(&sections).saturating_sub(room);
    while over > 0 && chosen.part.is_none() {
        let Some(longest) = sections.iter_mut().filter(|one| one.spare > 0).max_by_key(|one| one.spare)
        else {
            break;
        };
        longest.rows.pop();
        (longest.spare, over) = (longest.spare - 1, over - 1);
    }
    if sections.iter().all(|section| section.rows.is_empty()) && !chosen.filter.is_empty() {
        let text = format!(" nothing has \"{}\" in its name; / and Esc show all again", chosen.filter);
        return vec![Line::from(text)];
    }
    if sections.is_empty() {
        return vec![Line::from(match chosen.part {
            Some(_) => " the daemon has nothing of this part; 0 shows all",
            None => " the daemon runs nothing that is shown here; `nawa status` shows relay and bicast",
        })];
    }
    let title = |section: &Section| Line::styled(format!("{:width$.width$}", section.title), bold());
    sections.into_iter().flat_map(|section| [title(&section)].into_iter().chain(section.rows)).collect()
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD).add_modifier(Modifier::UNDERLINED)
}

fn sections(
    known: &Known,
    state: &State,
    chosen: &Chosen,
    look: Look,
    (width, tall): (usize, usize),
) -> Vec<Section> {
    let mut all = Vec::new();
    if let Some(tunnel) = &state.tunnel {
        all.push(paths(known, &tunnel.peers, chosen, look, (width, tall)));
        all.extend(flows(&tunnel.peers, chosen, look, width));
    }
    all.extend(state.flight.as_ref().and_then(|flight| connections(flight, chosen, look, width)));
    all.extend(coding(known, &state.coding, chosen, look, width));
    all.extend(flood(known, &state.flood, chosen, look));
    all
}

// ---- paths ----------------------------------------------------------------------------------------------------------

/// A number of a path: its heading, its name among the series, and the least that a sparkline's full height stands for.
type Column = (&'static str, &'static str, f64);
const COLUMNS: [Column; 7] = [
    ("out Mbit/s", "out", 0.1),
    ("in Mbit/s", "in", 0.1),
    ("rtt ms", "rtt", 1.0),
    ("queue ms", "queue", 10.0),
    ("loss %", "loss", LOSES_MUCH),
    ("weight", "weight", 1.0),
    ("flight kB", "flight", 10.0),
];

fn paths(
    known: &Known,
    peers: &[Peer],
    chosen: &Chosen,
    look: Look,
    (width, tall): (usize, usize),
) -> Section {
    let columns = &COLUMNS[..if width < WIDE { 6 } else { 7 }];
    let cell = (width - NAME) / columns.len();
    let mut title = format!(" {:1$}", "PATHS", NAME - 1);
    columns.iter().for_each(|(heading, ..)| title += &format!("{heading:>0$} ", cell - 1));
    let mut rows = Vec::new();
    for peer in peers {
        let mut shown: Vec<_> =
            peer.paths.iter().filter(|path| chosen.passes(&[&peer.name, &path.name])).collect();
        if shown.is_empty() && !chosen.passes(&[&peer.name]) {
            continue;
        }
        sort_paths(known, peer, &mut shown, chosen.sort);
        rows.push(peer_line(known, peer, look));
        for path in shown {
            rows.extend(path_lines(known, peer, path, look, (columns, cell, tall)));
        }
    }
    Section { part: Part::Paths, title, rows, spare: 0 }
}

fn sort_paths(known: &Known, peer: &Peer, paths: &mut [&Path], sort: Sort) {
    let of = |path: &Path, what| known.series(&path_name(&peer.name, &path.name, path.id), what).now();
    let (what, greatest_first) = match sort {
        Sort::Given => return,
        Sort::Rate => ("out", true),
        Sort::RoundTrip => ("rtt", false),
        Sort::Loss => ("loss", true),
    };
    let unknown = if greatest_first { f64::MIN } else { f64::MAX };
    let value = |path: &Path| of(path, what).unwrap_or(unknown);
    paths.sort_by(|a, b| match greatest_first {
        true => value(b).total_cmp(&value(a)),
        false => value(a).total_cmp(&value(b)),
    });
}

fn peer_line(known: &Known, peer: &Peer, look: Look) -> Line<'static> {
    let (state, style) = if peer.up { ("up", look.good()) } else { ("down", look.bad()) };
    let queue = known.series(&peer.name, "queue");
    let mut spans = vec![
        Span::styled(format!(" {} ", ascii(&peer.name)), Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(state, style),
    ];
    if let Some(why) = &peer.why {
        spans.push(Span::styled(format!("  {}", ascii(why)), look.doubtful()));
        return Line::from(spans);
    }
    spans.push(Span::raw(format!("  {}  waiting {} kB ", ascii(&peer.scheduler), figure(queue.now()))));
    spans.push(Span::styled(sparkline(&queue, look, (12, 1), 10.0).concat(), look.sparkline()));
    spans
        .push(Span::raw(format!("  sent again {}  given up {}", peer.resent_packets, peer.given_up_packets)));
    Line::from(spans)
}

/// The numbers, and below them their sparklines beside the state; of a path that does not carry, why.
fn path_lines(
    known: &Known,
    peer: &Peer,
    path: &Path,
    look: Look,
    (columns, cell, tall): (&[Column], usize, usize),
) -> Vec<Line<'static>> {
    let of = path_name(&peer.name, &path.name, path.id);
    let name = |text: &str| format!("  {:1$.1$} ", ascii(text), NAME - 3);
    let first = Span::styled(name(&path.name), Style::new().add_modifier(Modifier::BOLD));
    if path.state != "up" {
        let why = path.why.as_deref().unwrap_or("no reason is known");
        let state = Span::styled(format!("{}: ", ascii(&path.state)), look.of_state(&path.state));
        return vec![Line::from(vec![first, state, Span::raw(ascii(why))])];
    }
    let series: Vec<_> = columns.iter().map(|(_, what, _)| known.series(&of, what)).collect();
    let mut numbers = vec![first];
    for ((_, what, _), series) in columns.iter().zip(&series) {
        let style = match (*what, series.now()) {
            ("loss", Some(loss)) if loss >= LOSES_MUCH => look.bad(),
            ("loss", Some(loss)) if loss >= LOSES => look.doubtful(),
            _ => Style::new(),
        };
        numbers.push(Span::styled(format!("{:>1$} ", figure(series.now()), cell - 1), style));
    }
    let mut lines = vec![Line::from(numbers)];
    let sparklines: Vec<_> = columns
        .iter()
        .zip(&series)
        .map(|((.., least), series)| sparkline(series, look, (cell - 1, tall), *least))
        .collect();
    for row in 0..tall {
        let mut spans = vec![match row {
            0 => Span::styled(name(&use_of(path)), look.of_state(&path.state)),
            _ => Span::raw(name("")),
        }];
        for rows in &sparklines {
            spans.push(Span::styled(format!("{} ", rows[row]), look.sparkline()));
        }
        lines.push(Line::from(spans));
    }
    lines.extend(path.why.iter().map(|why| Line::styled(format!("    {}", ascii(why)), look.doubtful())));
    lines
}

fn use_of(path: &Path) -> String {
    match path {
        Path { backup: true, .. } => "up, backup".into(),
        Path { prefer: 1.., .. } => format!("up, pref {}", path.prefer),
        Path { metered: true, .. } => "up, metered".into(),
        Path { relayed: true, .. } => "up, relayed".into(),
        _ => "up".into(),
    }
}

// ---- the other parts ------------------------------------------------------------------------------------------------

fn flows(peers: &[Peer], chosen: &Chosen, look: Look, width: usize) -> Option<Section> {
    let mut all: Vec<(&Peer, &Flow)> =
        peers.iter().flat_map(|peer| peer.flows.iter().map(move |flow| (peer, flow))).collect();
    all.retain(|(peer, flow)| chosen.passes(&[&peer.name, &flow.source, &flow.destination, &flow.protocol]));
    all.sort_by(|(_, a), (_, b)| b.rate_bps.total_cmp(&a.rate_bps));
    // Two ends, and as much again of an IPv6 address as there is room for.
    let end = ((width - 40) / 2 - 1).min(ADDRESS);
    let row = |(peer, flow): (&Peer, &Flow)| {
        let limited = if flow.limited { "window" } else { "" };
        Line::from(vec![
            Span::raw(format!(
                "  {:8.8} {:5.5} {:end$.end$} {:end$.end$} ",
                ascii(&peer.name),
                ascii(&flow.protocol),
                ascii(&flow.source),
                ascii(&flow.destination)
            )),
            Span::raw(format!(
                "{:>6} {:>7} ",
                figure(Some(flow.rate_bps / 1e6)),
                figure(Some(flow.queue_bytes as f64 / 1e3))
            )),
            Span::styled(limited, look.faint()),
        ])
    };
    let rows: Vec<_> = all.into_iter().map(row).collect();
    let title = format!(
        " {:9.9} {:5} {:end$} {:end$} {:>6} {:>7} limit",
        "FLOWS to", "", "from", "to", "Mbit/s", "wait kB"
    );
    let spare = rows.len().saturating_sub(SHORT);
    (!rows.is_empty()).then_some(Section { part: Part::Flows, title, rows, spare })
}

fn connections(flight: &Flight, chosen: &Chosen, look: Look, width: usize) -> Option<Section> {
    let end = ((width - 38) / 2 - 1).min(ADDRESS);
    let title = format!(
        " {:first$} {:end$} {:6} {:>7} {:>6} {:>6} {:>6}",
        "FLIGHT from",
        "to",
        "mode",
        "space k",
        "cwnd k",
        "rtt ms",
        "lost",
        first = end + 1
    );
    let row = |line: &Connection| {
        let kilobytes = |bytes: u64| figure(Some(bytes as f64 / 1e3));
        let lost = format!("{}+{}", line.losses_radio, line.losses_congestion);
        Line::from(format!(
            "  {:end$.end$} {:end$.end$} {:6.6} {:>7} {:>6} {:>6} {:>6}",
            ascii(&line.local),
            ascii(&line.remote),
            ascii(&line.mode),
            kilobytes(line.space_bytes),
            kilobytes(line.cwnd_bytes),
            figure(line.rtt_min_us.map(|rtt| rtt as f64 / 1e3)),
            lost
        ))
    };
    let shown = flight.connections.iter();
    let shown = shown
        .filter(|line| chosen.passes(&[&line.local, &line.remote, &line.congestion_control, &line.mode]));
    let mut rows: Vec<_> = shown.map(row).collect();
    if let Some(error) = &flight.error {
        rows.push(Line::styled(format!("  {}", ascii(error)), look.bad()));
    } else if rows.is_empty() && !chosen.filter.is_empty() {
        return None;
    } else if rows.is_empty() {
        let default = ascii(&flight.default);
        rows.push(Line::styled(format!("  no connection uses it; the default is {default}"), look.faint()));
    }
    let spare = rows.len().saturating_sub(SHORT);
    Some(Section { part: Part::Flight, title, rows, spare })
}

fn coding(known: &Known, all: &[Coding], chosen: &Chosen, look: Look, width: usize) -> Option<Section> {
    let title = format!(
        " {:11} {:10} {:>8} {:>7} {:>7} {:>6} {:>6}  sums per 100 frames",
        "CODING on", "mode", "frames/s", "relay/s", "decod/s", "miss/s", "gain %"
    );
    let mut rows = Vec::new();
    for one in all.iter().filter(|one| chosen.passes(&[&one.interface, &one.master])) {
        let of = format!("coding {}", one.interface);
        let number = |what| figure(known.series(&of, what).now());
        if let Some(why) = &one.waits_because {
            let text = format!("  {:10} waits: {}", ascii(&one.interface), ascii(why));
            rows.push(Line::styled(text, look.bad()));
            continue;
        }
        let gain = known.series(&of, "gain");
        let room = width.saturating_sub(66).clamp(4, 60);
        rows.push(Line::from(vec![
            Span::raw(format!(
                "  {:10.10} {:10.10} {:>8} {:>7} {:>7} {:>6} {:>6}  ",
                ascii(&one.interface),
                ascii(&one.mode),
                number("frames"),
                number("relayed"),
                number("decoded"),
                number("missed"),
                figure(gain.now())
            )),
            Span::styled(sparkline(&gain, look, (room, 1), 50.0).concat(), look.sparkline()),
        ]));
        for note in one.off_because.iter().chain(&one.holds_nothing_because).chain(&one.warning) {
            rows.push(Line::styled(format!("    {}", ascii(note)), look.doubtful()));
        }
        for neighbour in &one.neighbours {
            let left_out = if neighbour.left_out { ", left out" } else { "" };
            rows.push(Line::styled(
                format!(
                    "    neighbour {}: {} frames overheard{left_out}",
                    ascii(&neighbour.address),
                    neighbour.overheard_frames
                ),
                look.faint(),
            ));
        }
    }
    (!rows.is_empty()).then_some(Section { part: Part::Coding, title, rows, spare: 0 })
}

fn flood(known: &Known, all: &[Flood], chosen: &Chosen, look: Look) -> Option<Section> {
    let title = format!(
        " {:11} {:>10} {:16} {:>6} {:>6} {:>7} {:>6} {:>6}",
        "FLOOD on", "id", "relayed by", "new/s", "sent/s", "relay/s", "left/s", "drop/s"
    );
    let row = |one: &Flood| {
        let of = format!("flood {}", one.interface);
        let number = |what| figure(known.series(&of, what).now());
        let Some(relay) = &one.relay else {
            let why = one.waits.as_deref().unwrap_or("no reason is known");
            let text = format!("  {:10} {:>10} waits: {}", ascii(&one.interface), one.id, ascii(why));
            return Line::styled(text, look.bad());
        };
        Line::from(format!(
            "  {:10.10} {:>10} {:16.16} {:>6} {:>6} {:>7} {:>6} {:>6}",
            ascii(&one.interface),
            one.id,
            ascii(relay),
            number("new"),
            number("sent"),
            number("relayed"),
            number("left"),
            number("dropped")
        ))
    };
    let rows: Vec<_> = all.iter().filter(|one| chosen.passes(&[&one.interface])).map(row).collect();
    (!rows.is_empty()).then_some(Section { part: Part::Flood, title, rows, spare: 0 })
}

// ---- text -----------------------------------------------------------------------------------------------------------

/// Printable ASCII alone.
fn ascii(text: &str) -> String {
    text.chars().map(|one| if one.is_ascii_graphic() || one == ' ' { one } else { '?' }).collect()
}

/// Three digits that count, or four.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 0.005 => "0".into(),
        Some(value) if value < 9.995 => format!("{value:.2}"),
        Some(value) if value < 99.95 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// The last values as rows of columns, the highest row first; the greatest value, or `least`, is the full height.
fn sparkline(series: &Series, look: Look, (width, tall): (usize, usize), least: f64) -> Vec<String> {
    let values: Vec<_> = series.last(width).collect();
    let most = values.iter().flatten().fold(least, |most, value| most.max(*value));
    let steps = look.ramp.len();
    let height = |value: f64| (value / most * (tall * steps) as f64).ceil().max(1.0) as usize;
    let letter = |value: Option<f64>, row: usize| {
        let Some(value) = value else { return ' ' };
        match height(value).saturating_sub((tall - 1 - row) * steps) {
            0 => ' ',
            height => look.ramp[height.min(steps) - 1],
        }
    };
    let row = |row| {
        let drawn: String = values.iter().map(|value| letter(*value, row)).collect();
        format!("{drawn:>width$}")
    };
    (0..tall).map(row).collect()
}

#[cfg(test)]
mod tests;
