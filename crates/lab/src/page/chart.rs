//! A chart as SVG: lines over a number, or a row of bars for each word, the spread of each point, and hollow marks for what was
//! published. Colours are the page's, so that a chart is readable in light and in dark.

use super::data::Event;
use crate::report::escape;

/// One line, or the bars of one colour.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Which colour and shape.
    colour: usize,
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

/// Units of the drawing, and what is left on each side for labels: to the right for half of a tick's.
pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 22.0;
/// Units that a letter takes, at most but for capitals, and letters of a word beside a row, at most: no more would leave less than half
/// to the bars.
const LETTER: f64 = 9.0;
const LETTERS: usize = 22;
/// Units that a bar is thick, and the space between rows: a row of one bar has room for its word.
const BAR: f64 = 8.0;

/// Colours and shapes that the page has for series; then they begin again.
const COLOURS: usize = 9;

/// The names in a section that have a colour already.
pub(super) type Names = Vec<String>;

impl Series {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), colour: 0, points: Vec::new(), is_course: false }
    }

    /// The course of something.
    pub(super) fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        let point = |(x, y): (f64, f64)| Point { x: x.to_string(), y, spread: None, published: false };
        Self {
            name: name.into(),
            colour: 0,
            points: points.into_iter().map(point).collect(),
            is_course: true,
        }
    }

    /// Where several files have the same case, the first counts.
    pub(super) fn add(&mut self, x: String, y: f64, spread: Option<[f64; 2]>, published: bool) {
        if !self.points.iter().any(|point| point.x == x && point.published == published) {
            self.points.push(Point { x, y, spread, published });
        }
    }

    /// What is `drawn`, in its colour.
    fn group(&self, drawn: &str) -> String {
        format!("<g class=\"c{}\">{drawn}</g>", self.colour % COLOURS)
    }

    pub(super) fn is_published_only(&self) -> bool {
        self.points.iter().all(|point| point.published)
    }
}

/// Where values are drawn: upwards over numbers, to the right in the rows of words.
struct Scale {
    /// What each row is of, or, for lines over numbers, none.
    words: Vec<String>,
    /// The bars of a row.
    bars: usize,
    x: [f64; 2],
    /// To the right goes the logarithm of the numbers: rates from 64 kbit/s to 4 Mbit/s.
    log: bool,
    /// The least value that is drawn: 0, but for lines that differ by little.
    bottom: f64,
    top: f64,
    /// The values' logarithm is drawn, from here on: where the least could not be seen beside the greatest.
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
        Self { words, bars: series.len(), x: [least, greatest], log, bottom, top, log_from }
    }

    /// How high a row is, with the space to the next.
    fn row(&self) -> f64 {
        BAR * (self.bars + 1) as f64
    }

    fn left(&self) -> f64 {
        let widest = self.words.iter().map(|word| word.chars().count()).max();
        widest.map_or(LEFT, |letters| LETTER * letters.min(LETTERS) as f64 + 10.0)
    }

    fn height(&self) -> f64 {
        if self.words.is_empty() { HEIGHT } else { TOP + self.row() * self.words.len() as f64 + BOTTOM }
    }

    /// Where a number is.
    fn x(&self, x: &str) -> Option<f64> {
        let scaled = |value: f64| if self.log { value.ln() } else { value };
        let [low, high] = self.x.map(scaled);
        let share = if high > low { (scaled(x.parse().ok()?) - low) / (high - low) } else { 0.5 };
        Some(LEFT + (0.03 + 0.94 * share) * (WIDTH - LEFT - RIGHT))
    }

    /// Where a value is, of all that is drawn of them.
    fn share(&self, value: f64) -> f64 {
        match self.log_from {
            Some(from) => (value.max(from) / from).ln() / (self.top / from).ln(),
            None => (value - self.bottom) / (self.top - self.bottom),
        }
    }

    fn up(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.share(value) * (HEIGHT - BOTTOM - TOP)
    }

    fn right(&self, value: f64) -> f64 {
        self.left() + self.share(value) * (WIDTH - self.left() - RIGHT)
    }

    /// Which values have a line across.
    fn ticks(&self) -> Vec<f64> {
        let Some(from) = self.log_from else {
            let up = |tick: f64| ((self.bottom + tick) * 1e9).round() / 1e9;
            return ticks(self.top - self.bottom).into_iter().map(up).collect();
        };
        let powers = std::iter::successors(Some(from), |tick| Some(tick * 10.0));
        powers.take_while(|tick| *tick <= self.top).collect()
    }

    /// The numbers that stand below.
    fn labels(&self, series: &[Series]) -> Vec<String> {
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
pub(super) fn draw(title: &str, mut series: Vec<Series>, names: &mut Names, events: &[Event]) -> String {
    colour(&mut series, names);
    let (caption, label) = (escape(title), escape(title).replace('"', "&quot;"));
    let entries = series.iter().filter(|one| series.len() > 1 && !one.name.is_empty());
    let legend = entries.map(|one| {
        let (mark, name) = (mark(one.colour, 7.0, 7.0, false), escape(&one.name));
        format!("<li class=\"c{}\"><svg viewBox=\"0 0 14 14\">{mark}</svg>{name}", one.colour % COLOURS)
    });
    let scale = Scale::of(&series);
    format!(
        "<figure><figcaption>{caption}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{label}\">{}</svg>\
         <ul class=\"legend\">{}</ul></figure>\n",
        scale.height(),
        if scale.words.is_empty() { plot(&series, &scale, events) } else { rows(&series, &scale) },
        legend.collect::<String>()
    )
}

/// A course as a piece of an SVG, with title and legend in it.
pub(super) fn piece(title: &str, mut series: Vec<Series>, names: &mut Names, events: &[Event]) -> String {
    colour(&mut series, names);
    let mut svg = format!("<text x=\"{LEFT}\" y=\"-24\">{}</text>", escape(title));
    let mut right = LEFT;
    for one in &series {
        let (x, name) = (right + 14.0, escape(&one.name));
        svg += &one.group(&mark(one.colour, right + 4.0, -8.5, false));
        svg += &format!("<text x=\"{x}\" y=\"-4\">{name}</text>");
        right += 40.0 + LETTER * one.name.chars().count() as f64;
    }
    svg + &plot(&series, &Scale::of(&series), events)
}

/// What has one name has one colour, shape and place all over a section. What is alone needs none.
fn colour(series: &mut [Series], names: &mut Names) {
    if series.len() < 2 {
        return;
    }
    for one in series.iter_mut() {
        one.colour = names.iter().position(|name| *name == one.name).unwrap_or_else(|| {
            names.push(one.name.clone());
            names.len() - 1
        });
    }
    series.sort_by_key(|one| one.colour);
}

/// Axes, events, and lines. `series` are not empty.
fn plot(series: &[Series], scale: &Scale, events: &[Event]) -> String {
    let mut svg = String::new();
    for (from, to, what) in events {
        let [Some(from), Some(to)] = [from, to].map(|x| scale.x(&x.to_string())) else { continue };
        let (width, height, middle) = ((to - from).max(2.0), HEIGHT - BOTTOM - TOP, (from + to) / 2.0);
        let (base, what) = (TOP + 12.0, escape(what));
        svg += &format!(
            "<rect class=\"event\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\"/>\
             <text class=\"x event\" x=\"{middle:.1}\" y=\"{base}\">{what}</text>"
        );
    }
    for tick in scale.ticks() {
        let (x, y, right) = (LEFT - 6.0, scale.up(tick), WIDTH - RIGHT);
        let (base, label) = (y + 4.0, short(tick));
        svg += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"y\" x=\"{x}\" y=\"{base:.1}\">{label}</text>"
        );
    }
    let mut last = f64::NEG_INFINITY;
    for label in scale.labels(series) {
        let Some(x) = scale.x(&label) else { continue };
        // Those that do not fit are left out.
        if x - last < LETTER * label.chars().count() as f64 + 4.0 {
            continue;
        }
        last = x;
        let (base, label) = (HEIGHT - BOTTOM + 14.0, escape(&label));
        svg += &format!("<text class=\"x\" x=\"{x:.1}\" y=\"{base:.1}\">{label}</text>");
    }
    for one in series {
        svg += &one.group(&line(one, scale));
    }
    svg
}

/// Axes, and a row of bars for each word.
fn rows(series: &[Series], scale: &Scale) -> String {
    let (mut svg, left, low) = (String::new(), scale.left(), scale.height() - BOTTOM);
    for tick in scale.ticks() {
        let (x, base, label) = (scale.right(tick), low + 14.0, short(tick));
        svg += &format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{low:.1}\"/>\
             <text class=\"x\" x=\"{x:.1}\" y=\"{base:.1}\">{label}</text>"
        );
    }
    for (index, word) in scale.words.iter().enumerate() {
        let middle = TOP + scale.row() * (index as f64 + 0.5);
        let (x, y, full) = (left - 6.0, middle + 4.0, escape(word));
        let shown = match word.char_indices().nth(LETTERS) {
            Some(_) => escape(&(word.chars().take(LETTERS - 1).collect::<String>() + "…")),
            None => full.clone(),
        };
        svg += &format!("<text class=\"y\" x=\"{x:.1}\" y=\"{y:.1}\"><title>{full}</title>{shown}</text>");
    }
    for (index, one) in series.iter().enumerate() {
        svg += &one.group(&bars(one, index, scale));
    }
    svg
}

fn line(one: &Series, scale: &Scale) -> String {
    let mut own: Vec<(f64, &Point)> =
        one.points.iter().filter_map(|point| Some((scale.x(&point.x)?, point))).collect();
    if !one.is_course {
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let measured = own.iter().filter(|(_, point)| !point.published);
    let path: Vec<String> = measured.map(|(x, point)| format!("{x:.1},{:.1}", scale.up(point.y))).collect();
    let mut svg = format!("<polyline points=\"{}\"/>", path.join(" "));
    if !one.is_course {
        for &(x, point) in &own {
            if let Some([low, high]) = point.spread.map(|ends| ends.map(|value| scale.up(value))) {
                let path =
                    format!("M{x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6", x - 3.0);
                svg += &format!("<path class=\"spread\" d=\"{path}\"/>");
            }
            svg += &mark(one.colour, x, scale.up(point.y), point.published);
        }
    }
    svg
}

/// The bars of one series, one in each row: the one at `index` of them.
fn bars(one: &Series, index: usize, scale: &Scale) -> String {
    let (mut svg, left) = (String::new(), scale.left());
    for point in &one.points {
        let Some(row) = scale.words.iter().position(|word| *word == point.x) else { continue };
        let y = TOP + scale.row() * row as f64 + BAR * (index + 1) as f64;
        let right = scale.right(point.y);
        if point.published {
            svg += &mark(one.colour, right, y, true);
            continue;
        }
        let (top, width, height) = (y - BAR * 0.43, right - left, BAR * 0.86);
        svg += &format!("<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>");
        if let Some([low, high]) = point.spread.map(|ends| ends.map(|value| scale.right(value))) {
            let path = format!("M{low:.1} {y:.1}H{high:.1}M{low:.1} {0:.1}v5M{high:.1} {0:.1}v5", y - 2.5);
            svg += &format!("<path class=\"spread\" d=\"{path}\"/>");
        }
    }
    svg
}

/// Each colour has a shape of its own; what was published is hollow.
fn mark(colour: usize, x: f64, y: f64, hollow: bool) -> String {
    let class = if hollow { " class=\"hollow\"" } else { "" };
    let r = if hollow { 5.5 } else { 3.8 };
    match colour % 4 {
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
        for words in [["64", "384", "4000"], ["three", "50+10", "20@15±3 1% q50, 5@40 b0.25"]] {
            let mut series = [Series::new("a"), Series::new("b")];
            for (n, word) in words.iter().enumerate() {
                series[0].add((*word).into(), n as f64, Some([0.0, 9.0]), false);
                series[1].add((*word).into(), 9.5, None, true);
            }
            let svg = draw("t", series.into(), &mut Vec::new(), &[]);
            let value = |text: &str| text.split('"').next().unwrap().parse::<f64>().unwrap();
            let height = value(svg.split("0 0 480 ").nth(1).unwrap());
            for (name, end) in [(" y2=\"", height), (" cy=\"", height), (" cx=\"", WIDTH), (" x2=\"", WIDTH)]
            {
                assert!(svg.split(name).skip(1).all(|at| (0.0..=end).contains(&value(at))), "{name} {svg}");
            }
            assert_eq!(svg.contains(">20@15±3 1% q50, 5@40 …</text>"), words[0] == "three", "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("class=\"hollow\"") && svg.contains("class=\"spread\""));
        }
    }
}
