//! A chart as SVG: lines or bars over a number or a word, the spread of each point, and hollow marks for what was published. Colours
//! are the page's, so that a chart is readable in light and in dark.

use std::fmt::Write as _;

use super::data::Event;
use crate::report::escape;

/// One line, or the bars of one colour.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    points: Vec<Point>,
    /// A line of a course, without marks.
    is_course: bool,
}

#[derive(Debug)]
struct Point {
    x: String,
    y: f64,
    spread: Option<[f64; 2]>,
    published: bool,
}

/// Units of the drawing, and what is left for labels.
pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;

/// Colours and shapes that the page has for series; then they begin again.
const COLOURS: usize = 9;

impl Series {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), points: Vec::new(), is_course: false }
    }

    /// The course of something.
    pub(super) fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        let point = |(x, y): (f64, f64)| Point { x: x.to_string(), y, spread: None, published: false };
        Self { name: name.into(), points: points.into_iter().map(point).collect(), is_course: true }
    }

    /// Where several files have the same case, the first counts.
    pub(super) fn add(&mut self, x: String, y: f64, spread: Option<[f64; 2]>, published: bool) {
        if !self.points.iter().any(|point| point.x == x && point.published == published) {
            self.points.push(Point { x, y, spread, published });
        }
    }

    pub(super) fn is_published_only(&self) -> bool {
        self.points.iter().all(|point| point.published)
    }
}

/// Where values are drawn.
struct Scale {
    /// The words to the right, or, for numbers, none.
    words: Vec<String>,
    x: [f64; 2],
    /// To the right goes the logarithm: rates from 64 kbit/s to 4 Mbit/s.
    log: bool,
    /// What is drawn at the bottom: 0, but for lines that differ by little.
    bottom: f64,
    top: f64,
    /// Upwards goes the logarithm, from here on: where the least could not be seen beside the greatest.
    log_from: Option<f64>,
}

/// From this ratio of the greatest value to the least on, the logarithm is drawn.
const WIDE: f64 = 300.0;

impl Scale {
    fn of(series: &[Series]) -> Self {
        let points = || series.iter().flat_map(|series| &series.points);
        let numbers: Vec<f64> = points().filter_map(|point| point.x.parse().ok()).collect();
        let mut words: Vec<String> = Vec::new();
        if numbers.len() < points().count() {
            points().for_each(|point| {
                if !words.contains(&point.x) {
                    words.push(point.x.clone())
                }
            });
        }
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let tops = points().map(|point| point.spread.map_or(point.y, |[_, high]| high.max(point.y)));
        let log = words.is_empty() && least > 0.0 && greatest / least > 20.0 && !series[0].is_course;
        let top = tops.fold(0.0, f64::max);
        let lows = || points().map(|point| point.spread.map_or(point.y, |[low, _]| low.min(point.y)));
        let least_y = lows().filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
        let log_from =
            (top / least_y > WIDE && !series[0].is_course).then(|| 10f64.powf(least_y.log10().floor()));
        let top = if top > 0.0 { top * 1.05 } else { 1.0 };
        let step = ticks(top - least_y).get(1).copied().unwrap_or(1.0);
        let is_narrow =
            words.is_empty() && lows().all(|low| low > top / 2.0) && least_y < top && !series[0].is_course;
        let bottom = if is_narrow { (least_y / step).floor() * step } else { 0.0 };
        Self { words, x: [least, greatest], log, bottom, top, log_from }
    }

    /// `None` for a word that is not there.
    fn x(&self, x: &str) -> Option<f64> {
        let share = if self.words.is_empty() {
            let scaled = |value: f64| if self.log { value.ln() } else { value };
            let [low, high] = self.x.map(scaled);
            let share = if high > low { (scaled(x.parse().ok()?) - low) / (high - low) } else { 0.5 };
            0.03 + 0.94 * share
        } else {
            let index = self.words.iter().position(|word| word == x)?;
            (index as f64 + 0.5) / self.words.len() as f64
        };
        Some(LEFT + share * (WIDTH - LEFT - RIGHT))
    }

    fn y(&self, y: f64) -> f64 {
        let share = match self.log_from {
            Some(from) => (y.max(from) / from).ln() / (self.top / from).ln(),
            None => (y - self.bottom) / (self.top - self.bottom),
        };
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }

    /// Where a line goes across.
    fn ticks(&self) -> Vec<f64> {
        let Some(from) = self.log_from else {
            let up = |tick: f64| ((self.bottom + tick) * 1e9).round() / 1e9;
            return ticks(self.top - self.bottom).into_iter().map(up).collect();
        };
        let powers = std::iter::successors(Some(from), |tick| Some(tick * 10.0));
        powers.take_while(|tick| *tick <= self.top).collect()
    }

    /// What stands below.
    fn labels(&self, series: &[Series]) -> Vec<String> {
        if !self.words.is_empty() {
            return self.words.clone();
        }
        if series[0].is_course {
            let [low, high] = self.x;
            let step = ticks(high - low).get(1).copied().unwrap_or(1.0);
            let after = |tick: f64| ((low / step).ceil() * step + tick) * 1e9;
            let round = ticks(high - low).into_iter().map(|tick| after(tick).round() / 1e9);
            return round.filter(|tick| *tick <= high).map(|tick| tick.to_string()).collect();
        }
        let label = |point: &Point| Some((point.x.parse::<f64>().ok()?, point.x.clone()));
        let mut labels: Vec<(f64, String)> =
            series.iter().flat_map(|series| &series.points).filter_map(label).collect();
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        labels.dedup_by(|a, b| a.0 == b.0);
        labels.into_iter().map(|(_, label)| label).collect()
    }
}

/// Round numbers from 0 to `top`, about five.
fn ticks(top: f64) -> Vec<f64> {
    let rough = top / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|of| of * power).find(|step| *step >= rough);
    let step = step.filter(|step| step.is_finite() && *step > 0.0).unwrap_or(1.0);
    let count = (top / step).floor().clamp(0.0, 20.0) as usize;
    (0..=count).map(|n| (n as f64 * step * 1e9).round() / 1e9).collect()
}

/// A chart of `series`, of which there are some.
pub(super) fn draw(title: &str, series: &[Series], events: &[Event]) -> String {
    let (caption, label) = (escape(title), escape(title).replace('"', "&quot;"));
    let entries = series.iter().enumerate().filter(|(_, one)| !one.name.is_empty());
    let legend = entries.map(|(index, one)| {
        let (mark, name) = (mark(index, 7.0, 7.0, false), escape(&one.name));
        format!("<li class=\"c{}\"><svg viewBox=\"0 0 14 14\">{mark}</svg>{name}", index % COLOURS)
    });
    format!(
        "<figure><figcaption>{caption}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">{}</svg>\
         <ul class=\"legend\">{}</ul></figure>\n",
        plot(series, events),
        legend.collect::<String>()
    )
}

/// The same as a piece of an SVG, with title and legend in it, moved to the right and down.
pub(super) fn piece(title: &str, series: &[Series], events: &[Event], [x, y]: [f64; 2]) -> String {
    let mut svg =
        format!("<g transform=\"translate({x} {y})\"><text x=\"{LEFT}\" y=\"-24\">{}</text>", escape(title));
    let mut right = LEFT;
    for (index, one) in series.iter().enumerate() {
        let (mark, name) = (mark(index, right + 4.0, -8.5, false), escape(&one.name));
        let _ = write!(
            svg,
            "<g class=\"c{}\">{mark}</g><text x=\"{}\" y=\"-4\">{name}</text>",
            index % COLOURS,
            right + 14.0
        );
        right += 40.0 + 7.5 * one.name.chars().count() as f64;
    }
    svg + &plot(series, events) + "</g>\n"
}

/// Axes, events, and lines or bars. `series` are not empty.
fn plot(series: &[Series], events: &[Event]) -> String {
    let (scale, mut svg) = (Scale::of(series), String::new());
    for (from, to, what) in events {
        let [Some(from), Some(to)] = [from, to].map(|x| scale.x(&x.to_string())) else { continue };
        let (width, height, middle) = ((to - from).max(2.0), HEIGHT - BOTTOM - TOP, (from + to) / 2.0);
        let _ = write!(
            svg,
            "<rect class=\"event\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\"/>\
             <text class=\"x event\" x=\"{middle:.1}\" y=\"{}\">{}</text>",
            TOP + 12.0,
            escape(what)
        );
    }
    for tick in scale.ticks() {
        let y = scale.y(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        );
        let _ =
            write!(svg, "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>", LEFT - 6.0, y + 4.0, short(tick));
    }
    let labels = scale.labels(series);
    let room = (WIDTH - LEFT - RIGHT) / labels.len().max(1) as f64;
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as f64 * 7.5;
    let mut last = f64::NEG_INFINITY;
    for (index, label) in labels.iter().enumerate() {
        let Some(x) = scale.x(label) else { continue };
        // Words that do not fit beside each other stand in two lines; numbers that do not are left out.
        let line = if scale.words.is_empty() || widest <= room { 0 } else { index % 2 };
        let own = label.chars().count() as f64 * 7.5;
        if scale.words.is_empty() && x - last < own + 4.0 {
            continue;
        }
        last = x;
        let y = HEIGHT - BOTTOM + 14.0 + 13.0 * line as f64;
        let _ = write!(svg, "<text class=\"x\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(label));
    }
    for (index, one) in series.iter().enumerate() {
        let _ = write!(svg, "<g class=\"c{}\">", index % COLOURS);
        svg += &if scale.words.is_empty() {
            line(one, index, &scale)
        } else {
            bars(one, index, series.len(), &scale)
        };
        svg += "</g>";
    }
    svg
}

fn line(one: &Series, index: usize, scale: &Scale) -> String {
    let mut own: Vec<(f64, &Point)> =
        one.points.iter().filter_map(|point| Some((scale.x(&point.x)?, point))).collect();
    if !one.is_course {
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let measured = own.iter().filter(|(_, point)| !point.published);
    let path: Vec<String> = measured.map(|(x, point)| format!("{x:.1},{:.1}", scale.y(point.y))).collect();
    let mut svg = format!("<polyline points=\"{}\"/>", path.join(" "));
    if !one.is_course {
        for &(x, point) in &own {
            svg += &(spread(x, point, scale) + &mark(index, x, scale.y(point.y), point.published));
        }
    }
    svg
}

/// The bars of one series, one in each word's place.
fn bars(one: &Series, index: usize, count: usize, scale: &Scale) -> String {
    let place = (WIDTH - LEFT - RIGHT) / scale.words.len() as f64 * 0.86;
    let width = place / count as f64;
    let mut svg = String::new();
    for point in &one.points {
        let Some(middle) = scale.x(&point.x) else { continue };
        let x = middle - place / 2.0 + width * (index as f64 + 0.5);
        let (top, floor) = (scale.y(point.y), scale.y(0.0));
        if !point.published {
            let bar = (width * 0.86).min(34.0);
            let _ = write!(
                svg,
                "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{:.1}\"/>",
                x - bar / 2.0,
                floor - top
            );
        }
        svg += &spread(x, point, scale);
        if point.published {
            svg += &mark(index, x, top, true);
        }
    }
    svg
}

fn spread(x: f64, point: &Point, scale: &Scale) -> String {
    let Some([low, high]) = point.spread else { return String::new() };
    let (low, high) = (scale.y(low), scale.y(high));
    format!(
        "<path class=\"spread\" d=\"M{x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6\"/>",
        x - 3.0
    )
}

/// Each series has a shape of its own; what was published is hollow.
fn mark(index: usize, x: f64, y: f64, hollow: bool) -> String {
    let class = if hollow { " class=\"hollow\"" } else { "" };
    let r = if hollow { 5.5 } else { 3.8 };
    match index % 4 {
        0 => format!("<circle{class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\"/>"),
        1 => format!("<path{class} d=\"M{:.1} {:.1}h{s}v{s}h-{s}z\"/>", x - r, y - r, s = 2.0 * r),
        2 => format!("<path{class} d=\"M{x:.1} {:.1}l{r} {t}h-{t}z\"/>", y - r, t = 2.0 * r),
        _ => format!("<path{class} d=\"M{x:.1} {:.1}l{r} {r}l-{r} {r}l-{r} -{r}z\"/>", y - r),
    }
}

/// A tick's value in few letters.
fn short(value: f64) -> String {
    if value >= 10_000.0 { format!("{}k", value / 1000.0) } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.33), [0.0, 0.1, 0.2, 0.3]);
        for top in [1e-6, 0.7, 3.0, 17.0, 444.0, 9e5, 0.0, f64::NAN] {
            assert!((1..=21).contains(&ticks(top).len()), "{top}");
        }
    }

    #[test]
    fn everything_is_drawn_within_the_frame() {
        for words in [["64", "384", "4000"], ["three", "50+10", "tiny"]] {
            let mut series = [Series::new("a"), Series::new("b")];
            for (n, word) in words.iter().enumerate() {
                series[0].add((*word).into(), n as f64, Some([0.0, 9.0]), false);
                series[1].add((*word).into(), 9.5, None, true);
            }
            let svg = draw("t", &series, &[]);
            for y in svg.split(" y1=\"").skip(1).chain(svg.split(" cy=\"").skip(1)) {
                let y: f64 = y.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=HEIGHT).contains(&y), "{y}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("class=\"hollow\"") && svg.contains("class=\"spread\""));
        }
    }
}
