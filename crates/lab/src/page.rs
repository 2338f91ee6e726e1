//! One page of a folder of results, and one of a single run: HTML that needs nothing else, for light and dark, narrow and wide.

mod chart;
mod data;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use chart::{Names, Series};
use data::{Results, Row};

use crate::catalog::{PAPERS, PICTURE};
use crate::error::{Doing, Error, Result};
use crate::paper::{Claim, Figure, Paper};
use crate::partial::write_whole;
use crate::report::{escape, number};
use crate::series::FIRST;

const STYLE: &str = include_str!("page/style.css");

/// Writes a page of all results in `folder` (`*.json`): the goals and each paper with its figures drawn again, a verdict for each
/// claim, conditions, and how to run it again.
pub fn report(folder: &Path, file: &Path) -> Result<()> {
    let results = Results::read(folder)?;
    let mut body = String::from("<nav>");
    for paper in &PAPERS {
        let _ = write!(body, "<a href=\"#{0}\">{0}</a>", paper.number);
    }
    body += "<a href=\"#conditions\">conditions</a></nav>\n";
    let verdicts = PAPERS.iter().map(|paper| verdicts(paper, &results)).collect::<Result<Vec<_>>>()?;
    body += &summary(&verdicts);
    for (paper, verdicts) in PAPERS.iter().zip(&verdicts) {
        body += &section(paper, verdicts, &results)?;
    }
    body += &conditions(&results);
    write_page(file, "What Nawa's lab measured", &body)
}

/// Writes the picture of all strands at work, as `folder` has it: the network, and what happened there in the course of time.
pub fn picture(folder: &Path, file: &Path) -> Result<()> {
    let (results, (drawing, paper)) = (Results::read(folder)?, PICTURE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 980 560\" role=\"img\" aria-label=\"{}\">\n<style>\n{STYLE}</style>\n{drawing}",
        escape(paper.title)
    );
    let mut names = Vec::new();
    for (figure, x) in paper.figures()?.iter().zip([0.0, chart::WIDTH + 20.0]) {
        let series = drawn(figure, &results);
        if series.is_empty() {
            return Err(Error::BadInput(format!(
                "the folder holds no course of `{0}`: `nawa lab run {0} --json FILE` measures it",
                figure.experiment
            )));
        }
        let unit = figure.metric.rsplit('_').next().unwrap_or_default();
        let title = format!("{}, {}", figure.title, unit.replace("mbps", "Mbit/s"));
        let piece = chart::piece(&title, series, &mut names, results.events(figure.experiment));
        let _ = writeln!(svg, "<g transform=\"translate({x} {})\">{piece}</g>", 560.0 - chart::HEIGHT);
    }
    write_whole(file, (svg + "</svg>\n").as_bytes()).doing(|| format!("write {}", file.display()))
}

/// Writes a page of one run that `--series` has written: what it has of queues, windows, round trips and rates in the course of time,
/// and how they are distributed.
pub fn show(run: &Path, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(run).doing(|| format!("read {}", run.display()))?;
    let mut body = String::new();
    for name in ["queue_packets", "cwnd_packets", "rtt_ms", "mbps"] {
        let reason = "it is not a series of the lab: the first line has to begin with";
        let none = || Error::BadInput(format!("{}: {reason} {FIRST}", run.display()));
        let flows = data::flows(&text, name).ok_or_else(none)?;
        if flows.is_empty() {
            continue;
        }
        let shares = flows.iter().map(|(flow, points)| Series::line(flow, distribution(points))).collect();
        let course = flows.into_iter().map(|(flow, points)| Series::line(&flow, points)).collect();
        let mut names = Vec::new();
        let charts = [
            chart::draw(&format!("{name} by time in s"), course, &mut names, &[]),
            chart::draw(&format!("share of {name} up to it"), shares, &mut names, &[]),
        ];
        let _ = write!(body, "<h2>{name}</h2><div class=\"charts\">{}</div>", charts.concat());
    }
    let name = run.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    write_page(file, &name, &body)
}

/// How many points of a distribution are drawn.
const STEPS: usize = 200;

/// The values of `points`, and the share that is not greater.
fn distribution(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    values.sort_unstable_by(f64::total_cmp);
    let at = |step: usize| {
        let index = (values.len() - 1) * step / STEPS;
        (values[index], (index + 1) as f64 / values.len() as f64)
    };
    if values.is_empty() { Vec::new() } else { (0..=STEPS).map(at).collect() }
}

fn write_page(file: &Path, title: &str, body: &str) -> Result<()> {
    let title = escape(title);
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<main><h1>{title}</h1>\n{body}</main></html>\n"
    );
    write_whole(file, page.as_bytes()).doing(|| format!("write {}", file.display()))
}

/// What became of a claim.
struct Verdict<'a> {
    claim: Claim,
    /// The case that decides, as far as it was measured.
    row: Option<&'a Row>,
    /// How many cases that it is about lack the metric.
    lacking: usize,
}

impl Verdict<'_> {
    fn value(&self) -> Option<f64> {
        self.row?.metrics.get(self.claim.metric).copied()
    }

    fn word(&self) -> (&'static str, &'static str) {
        match self.value().map(|value| self.claim.holds(value)) {
            Some(true) => ("holds", "✓ holds"),
            Some(false) => ("fails", "✗ does not hold"),
            None => ("unknown", "– not measured"),
        }
    }
}

fn verdicts<'a>(paper: &Paper, results: &'a Results) -> Result<Vec<Verdict<'a>>> {
    let verdict = |claim: Claim| {
        let mut rows: Vec<&Row> = results.rows(claim.experiment, claim.only).collect();
        let all = rows.len();
        rows.retain(|row| row.metrics.contains_key(claim.metric));
        rows.sort_by(|a, b| a.metrics[claim.metric].total_cmp(&b.metrics[claim.metric]));
        // One case is enough: the best decides; otherwise the worst.
        let row = if claim.is_least != claim.once { rows.first() } else { rows.last() };
        Verdict { claim, row: row.copied(), lacking: all - rows.len() }
    };
    Ok(paper.claims()?.into_iter().map(verdict).collect())
}

fn summary(verdicts: &[Vec<Verdict>]) -> String {
    let count = |class: &str| verdicts.iter().flatten().filter(|verdict| verdict.word().0 == class).count();
    format!(
        "<p class=\"summary\">Of {} claims <b class=\"holds\">{} hold</b>, <b class=\"fails\">{} do not</b>, and \
         <b class=\"unknown\">{} were not measured</b> here. Bars are where the median lies; a hollow mark is what was \
         published.</p>\n",
        verdicts.iter().map(Vec::len).sum::<usize>(),
        count("holds"),
        count("fails"),
        count("unknown"),
    )
}

fn section(paper: &Paper, verdicts: &[Verdict], results: &Results) -> Result<String> {
    let number = paper.number;
    let heading = if number.starts_with('0') { format!("Paper {number}: ") } else { String::new() };
    let mut text = format!("<section id=\"{number}\"><h2>{heading}{}</h2>\n", escape(paper.title));
    text +=
        "<div class=\"scroll\"><table class=\"claims\"><tr><th>claim<th>has to be<th>measured<th>verdict\n";
    verdicts.iter().for_each(|verdict| text += &verdict_row(verdict));
    text += "</table></div>\n<div class=\"charts\">\n";
    let (figures, mut names) = (paper.figures()?, Vec::new());
    figures.iter().for_each(|figure| text += &draw(figure, results, &mut names));
    let claims = verdicts.iter().map(|verdict| verdict.claim.experiment);
    let experiments: BTreeSet<&str> = figures.iter().map(|figure| figure.experiment).chain(claims).collect();
    text += "</div>\n<details><summary>How to run it again, and what to know</summary>\n";
    for name in experiments {
        let files = results.files.iter().filter(|file| file.experiment == name);
        let _ = write!(text, "<h3>{name}</h3>");
        for (number, file) in files.enumerate() {
            let _ = write!(text, "<pre>{}</pre>", escape(file.condition("command").as_str()));
            let notes: String = file.notes.iter().map(|note| format!("<li>{}", escape(note))).collect();
            let _ = if number == 0 { write!(text, "<ul>{notes}</ul>") } else { Ok(()) };
        }
        if results.files.iter().all(|file| file.experiment != name) {
            let _ = write!(text, "<pre>nawa lab run {name}</pre>");
        }
    }
    Ok(text + "</details></section>\n")
}

fn verdict_row(verdict: &Verdict) -> String {
    let claim = verdict.claim;
    let (sign, once) = (if claim.is_least { "≥" } else { "≤" }, if claim.once { " somewhere" } else { "" });
    let bound = format!("{sign} {}{once}", number(claim.bound));
    let measured = verdict.row.zip(verdict.value()).map(|(row, value)| {
        let spread = row.intervals.get(claim.metric);
        let spread = spread.map(|[low, high]| format!(" [{}..{}]", number(*low), number(*high)));
        let (value, spread, title) = (number(value), spread.unwrap_or_default(), escape(&row.title()));
        let lacking = match verdict.lacking {
            0 => String::new(),
            cases => format!("; {cases} of the cases without"),
        };
        format!("{value}{spread}<br><small>{title}{lacking}</small>")
    });
    let measured = measured
        .unwrap_or_else(|| format!("<small>nawa lab run {} {}</small>", claim.experiment, claim.only));
    let (class, word) = verdict.word();
    format!(
        "<tr><td>{}<td>{} {bound}<td>{measured}<td class=\"{class}\">{word}\n",
        escape(claim.text),
        claim.metric
    )
}

/// The figure with what was measured and what was published; a sentence where nothing was measured.
fn draw(figure: &Figure, results: &Results, names: &mut Names) -> String {
    let title = format!("{} ({} by {})", figure.title, figure.metric, figure.x);
    let series = drawn(figure, results);
    if series.iter().all(Series::is_published_only) {
        let Figure { experiment, only, .. } = figure;
        return format!(
            "<figure><figcaption>{}</figcaption><p>Not measured: <code>nawa lab run {experiment} {only}</code></p></figure>\n",
            escape(&title)
        );
    }
    let events = if figure.is_course() { results.events(figure.experiment) } else { &[] };
    chart::draw(&title, series, names, events)
}

fn drawn(figure: &Figure, results: &Results) -> Vec<Series> {
    // A number says by itself nothing of what it is.
    let word = |row: &Row, field: &str| {
        let value = row.field(field)?;
        let is_plain = value.parse::<f64>().is_err() && value.parse::<bool>().is_err();
        Some(if is_plain { value } else { format!("{field} {value}") })
    };
    let words = |row: &Row| {
        figure.lines.split_whitespace().filter_map(|field| word(row, field)).collect::<Vec<_>>().join(" ")
    };
    if figure.is_course() {
        let mut drawn: BTreeMap<String, Series> = BTreeMap::new();
        for row in results.rows(figure.experiment, figure.only) {
            let Some(course) = row.course.get(figure.metric) else { continue };
            // A value is of the second that begins there.
            let points = (0..).zip(course).map(|(second, value)| (f64::from(second) + 0.5, *value));
            drawn.entry(words(row)).or_insert_with(|| Series::line(&words(row), points.collect()));
        }
        return drawn.into_values().collect();
    }
    let mut series: Vec<Series> = Vec::new();
    let published = results.published(figure.experiment, figure.only).map(|row| (row, true));
    for (row, is_published) in
        results.rows(figure.experiment, figure.only).map(|row| (row, false)).chain(published)
    {
        let (Some(x), Some(y)) = (row.field(figure.x), row.metrics.get(figure.metric)) else { continue };
        let name = words(row);
        let index = series.iter().position(|one| one.name == name).unwrap_or_else(|| {
            series.push(Series::new(&name));
            series.len() - 1
        });
        series[index].add(x, *y, row.intervals.get(figure.metric).copied(), is_published);
    }
    series
}

/// Which files the page is of, and under which conditions each was made.
fn conditions(results: &Results) -> String {
    const FIELDS: &str =
        "commit size seed repeats started ended load_at_start load_at_end cpus kernel version";
    let mut text = String::from(
        "<section id=\"conditions\"><h2>Conditions</h2><div class=\"scroll\"><table><tr><th>file",
    );
    FIELDS.split(' ').for_each(|field| text += &format!("<th>{}", field.replace('_', " ")));
    for file in &results.files {
        let _ = write!(text, "\n<tr><td>{}", escape(&file.name));
        FIELDS.split(' ').for_each(|field| text += &format!("<td>{}", escape(&file.condition(field))));
    }
    text + "\n</table></div></section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let page = folder.path().join("report.html");
        report(folder.path(), &page).unwrap();
        std::fs::read_to_string(page).unwrap()
    }

    const LOSS: &str = r#"{"schema": 2, "experiment": "flight-loss", "conditions": {"commit": "abc<d>", "command": "nawa lab run flight-loss"},
        "results": [
            {"case": {"cc": "fsat_paper", "rate_kbps": 1000, "loss_percent": 0.0}, "metrics": {"goodput_mbps": 0.95}, "samples": 1},
            {"case": {"cc": "fsat_paper", "rate_kbps": 1000, "loss_percent": 1.0},
             "metrics": {"goodput_mbps": 0.9, "goodput_of_lossless": 0.947},
             "intervals": {"goodput_mbps": [0.8, 0.93], "goodput_of_lossless": [0.9, 0.96]}, "samples": 3},
            {"case": {"cc": "fsat_paper", "rate_kbps": 2000, "loss_percent": 1.0}, "metrics": {"goodput_mbps": 1.9}, "samples": 1},
            {"case": {"cc": "reno", "rate_kbps": 1000, "loss_percent": 1.0},
             "metrics": {"goodput_mbps": 0.4, "goodput_of_lossless": 0.95}, "samples": 1}],
        "paper": [], "notes": ["a note"]}"#;

    #[test]
    fn a_claim_holds_or_not_or_was_not_measured() {
        let page = written(&[("flight-loss.json", LOSS)]);
        let row = |text: &str| page.split("<tr>").find(|row| row.contains(text)).unwrap().to_owned();
        let slows = row("1 % of random loss hardly slows it");
        assert!(slows.contains("✓ holds") && slows.contains("0.947 [0.900..0.960]"), "{slows}");
        assert!(slows.contains("; 1 of the cases without<"), "{slows}");
        let reno = row("and slows Reno");
        assert!(reno.contains("✗ does not hold") && !reno.contains("without"), "{reno}");
        assert!(row("On wired links").contains("– not measured"));
        assert!(page.contains("a note") && page.contains("abc&lt;d&gt;"));
    }

    #[test]
    fn figures_without_results_are_sentences_and_no_chart_is_empty() {
        let page = written(&[("flight-loss.json", LOSS)]);
        let (charts, figures) = (page.matches("role=\"img\"").count(), page.matches("<figure>").count());
        let expected: usize = PAPERS.iter().map(|paper| paper.figures.len()).sum();
        assert_eq!(figures, expected);
        assert!(page.contains("Not measured: <code>nawa lab run demo"));
        let chart = page.split("<figure>").find(|figure| figure.contains("<svg")).unwrap();
        assert!(
            charts >= 1 && chart.matches("<circle").count() + chart.matches("<path").count() >= 3,
            "{chart}"
        );
    }

    #[test]
    fn what_is_no_result_is_left_out_and_an_empty_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.json"), "{}").unwrap();
        let error = report(folder.path(), &folder.path().join("r.html")).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }

    const FIELD: &str = r#"{"schema": 2, "experiment": "field", "conditions": {}, "events": [[1, 2, "lte lost"]], "results": [
        {"case": {"system": "nawa"}, "metrics": {"goodput_of_stock": 1.5},
         "course": {"goodput_mbps": [4.0, 2.0, 5.0], "interactive_ms": [50, 900, 60]}},
        {"case": {"system": "stock"}, "metrics": {}, "course": {"goodput_mbps": [3.0, 1.0, 3.0], "interactive_ms": [80, 4000, 90]}}]}"#;

    #[test]
    fn a_course_is_drawn_with_what_happened() {
        let page = written(&[("field.json", FIELD)]);
        let section =
            page.split("<section id=\"convoy\">").nth(1).unwrap().split("</section>").next().unwrap();
        assert_eq!(section.matches("<polyline").count(), 4);
        assert_eq!(section.matches(">lte lost</text>").count(), 2);
        assert!(section.contains("✓ holds") && section.contains("– not measured"), "{section}");
    }

    #[test]
    fn the_picture_stands_alone_and_is_not_drawn_of_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, picture) = (folder.path().join("field.json"), folder.path().join("field.svg"));
        std::fs::write(&file, FIELD).unwrap();
        super::picture(folder.path(), &picture).unwrap();
        let svg = std::fs::read_to_string(&picture).unwrap();
        assert!(svg.starts_with("<svg xmlns=") && svg.contains(">hub</text>") && svg.contains(":root {"));
        assert_eq!((svg.matches("<polyline").count(), svg.matches(">lte lost</text>").count()), (4, 2));
        std::fs::write(&file, FIELD.replace("course", "curse")).unwrap();
        let error = super::picture(folder.path(), &picture).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("nawa lab run field --json"), "{error}");
    }

    #[test]
    fn the_picture_in_docs_is_of_the_results_there() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let picture = tempfile::NamedTempFile::new().unwrap();
        super::picture(&docs.join("results"), picture.path()).unwrap();
        let [drawn, kept] =
            [picture.path(), &docs.join("field.svg")].map(|path| std::fs::read_to_string(path).unwrap());
        assert!(drawn == kept, "docs/field.svg is of other results: `make readme` draws it anew");
    }

    #[test]
    fn a_run_is_shown_by_time_and_by_share() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("cubic 1.csv");
        let text = "time_s,queue_packets,flow,cwnd_packets,ssthresh_packets,unacked_packets,window_bytes,rtt_ms\n\
                    0.00,0,0,10,1,1,1,20.0\n0.02,4,0,12,1,1,1,24.0\n0.04,2,1,,,,,\n";
        std::fs::write(&run, text).unwrap();
        let page = folder.path().join("x.html");
        show(&run, &page).unwrap();
        let page = std::fs::read_to_string(page).unwrap();
        assert_eq!(page.matches("role=\"img\"").count(), 6);
        assert_eq!(distribution(&[(0.0, 4.0), (1.0, 2.0)]).first(), Some(&(2.0, 0.5)));
        std::fs::write(&run, "a,b\n1,2\n").unwrap();
        assert!(show(&run, &folder.path().join("y.html")).unwrap_err().is_bad_input());
    }
}
