//! What a run shows: how long it takes, how far it is, a table, and the results as JSON or as a page.

mod progress;
mod ratios;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};

use crate::clock;
use crate::error::{Doing, Error, Result};
use crate::experiment::{Experiment, Fields, RunOptions, object, plain};
use crate::partial::write_whole;
use crate::statistics::{Interval, interval, median};
use crate::workload::Sample;

pub(crate) use progress::{Progress, rough};

/// The results of an experiment, in the order of its cases.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    experiment: &'a Experiment,
    conditions: Value,
    /// By case, and by the repeat in which each was taken.
    samples: Vec<BTreeMap<usize, Sample>>,
    notes: Vec<String>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(experiment: &'a Experiment, options: &RunOptions) -> Self {
        let samples = vec![BTreeMap::new(); experiment.cases.len()];
        Self { experiment, conditions: conditions(options), samples, notes: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: usize, repeat: usize, sample: Sample) {
        if let Some(remark) = &sample.remark {
            self.note(case, remark);
        }
        self.samples[case].insert(repeat, sample);
    }

    pub(crate) fn fail(&mut self, case: usize, error: &Error) {
        self.note(case, &format!("not measured: {error}"));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.iter().all(BTreeMap::is_empty)
    }

    fn note(&mut self, case: usize, text: &str) {
        self.notes.push(format!("{}: {text}", Experiment::title(&self.experiment.cases[case])));
    }

    /// Says in the conditions that so many samples are of earlier runs, which were interrupted.
    pub(crate) fn continues(&mut self, samples: usize) {
        self.conditions["samples_of_earlier_runs"] = samples.into();
    }

    /// Says in the conditions when the run ended, and what else the machine did then.
    pub(crate) fn ends(&mut self) {
        self.conditions["repeats"] = self.experiment.repeats.into();
        self.conditions["ended"] = clock::timestamp().ok().into();
        self.conditions["load_at_end"] = load().into();
    }

    /// Prints the table and the notes.
    pub(crate) fn print(&self) {
        say(&self.table().to_string());
        let kinds = distinct_kinds(&self.results());
        kinds.iter().for_each(|(samples, kind)| say(&format!("  [low..high] of {samples} samples: {kind}")));
        self.all_notes().iter().for_each(|note| say(&format!("  {note}")));
    }

    /// Writes the files that `options` name.
    pub(crate) fn write(&self, options: &RunOptions) -> Result<()> {
        let files = [(&options.json, lines(&self.json())), (&options.html, self.html())];
        for (path, text) in files {
            if let Some(path) = path {
                write_whole(path, text.as_bytes()).doing(|| format!("write {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Each once, and of how many runs it is if of several.
    fn all_notes(&self) -> Vec<String> {
        let all = self.notes.iter().chain(&self.experiment.notes).map(String::as_str).collect();
        let note = |note: &str| match self.notes.iter().filter(|other| *other == note).count() {
            0 | 1 => note.to_owned(),
            runs => format!("{note} ({runs} runs)"),
        };
        distinct(all).into_iter().map(note).collect()
    }

    fn results(&self) -> Vec<Outcome<'_>> {
        let measured =
            self.experiment.cases.iter().zip(&self.samples).filter(|(_, samples)| !samples.is_empty());
        measured.map(|(case, samples)| Outcome::of(&case.key, samples.values().collect())).collect()
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let (keys, metrics) = self.columns();
        table.set_header(keys.iter().chain(&metrics));
        for result in self.results() {
            let cells = keys.iter().map(|name| field(result.key, name).map(plain).unwrap_or_default());
            table.add_row(cells.chain(metrics.iter().map(|name| result.cell(name))));
        }
        for column in table.column_iter_mut().skip(keys.len()) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// The names of keys and of metrics, each in the order in which it first occurs.
    fn columns(&self) -> (Vec<&str>, Vec<&str>) {
        let (mut keys, mut metrics) = (Vec::new(), Vec::new());
        for result in self.results() {
            keys.extend(result.key.iter().map(|(name, _)| *name));
            metrics.extend(result.metrics.iter().map(|metric| metric.name));
        }
        (distinct(keys), distinct(metrics))
    }

    fn json(&self) -> Value {
        let paper = self.experiment.paper.iter();
        let paper =
            paper.map(|entry| json!({ "case": object(&entry.key), "metrics": object(&entry.metrics) }));
        let mut report = json!({
            "schema": 2,
            "experiment": self.experiment.name,
            "conditions": self.conditions,
            "results": self.results().iter().map(Outcome::json).collect::<Vec<_>>(),
            "paper": paper.collect::<Vec<_>>(),
            "notes": self.all_notes(),
        });
        let events = self.experiment.events.iter();
        let events: Vec<_> = events.map(|(time, what)| json!([time.start, time.end, what])).collect();
        if !events.is_empty() {
            report["events"] = events.into();
        }
        report
    }

    fn html(&self) -> String {
        let name = self.experiment.name;
        let mut page =
            format!("<!doctype html>\n<meta charset=\"utf-8\">\n<title>nawa: {name}</title>\n<table>\n");
        let table = self.table();
        let rows = table.header().into_iter().chain(table.row_iter());
        for row in rows {
            let cells: String =
                row.cell_iter().map(|cell| format!("<td>{}", escape(&cell.content()))).collect();
            let _ = writeln!(page, "<tr>{cells}");
        }
        let notes: String = self.all_notes().iter().map(|note| format!("<li>{}\n", escape(note))).collect();
        let conditions = escape(&format!("{:#}", self.conditions));
        let _ = write!(page, "</table>\n<ul>\n{notes}</ul>\n<pre>{conditions}</pre>\n");
        page
    }
}

/// Prints a line; if nobody reads any more, the files are still written and the exit status still says how it went.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Under which conditions the figures were made.
fn conditions(options: &RunOptions) -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let arguments: Vec<String> = std::env::args().skip(1).map(|word| quoted(&word)).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": options.commit,
        "kernel": kernel.trim(),
        "cpus": cpus,
        "seed": options.seed,
        "size": options.size.name(),
        "command": format!("nawa {}", arguments.join(" ")),
        "run": options.run,
        "started": clock::timestamp().ok(),
        "load_at_start": load(),
    })
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+,-./:=@_%…".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Processes that ran or wanted to within the last minute, on the average (proc(5), loadavg).
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// One case's results.
struct Outcome<'a> {
    key: &'a Fields<Value>,
    metrics: Vec<Metric<'a>>,
    samples: Vec<&'a Sample>,
}

/// Over those samples that have it.
struct Metric<'a> {
    name: &'a str,
    median: f64,
    /// Where the median lies, if there are several.
    interval: Option<Interval>,
    samples: usize,
}

impl<'a> Outcome<'a> {
    fn of(key: &'a Fields<Value>, samples: Vec<&'a Sample>) -> Self {
        let all = samples.iter().flat_map(|&sample| &sample.metrics);
        let names = distinct(all.map(|(name, _)| &**name).collect());
        let values = |name| -> Vec<f64> {
            samples.iter().filter_map(|sample| field(&sample.metrics, name)).copied().collect()
        };
        let of = |name| {
            let samples = values(name).len();
            let interval = interval(values(name)).filter(|_| samples > 1);
            Metric { name, median: median(values(name)), interval, samples }
        };
        let metrics = names.into_iter().map(of).collect();
        Self { key, metrics, samples }
    }

    /// The median, where it lies if there was more than one sample, and how many have it unless all do.
    fn cell(&self, name: &str) -> String {
        let Some(metric) = self.metrics.iter().find(|metric| metric.name == name) else {
            return String::new();
        };
        let mut cell = number(metric.median);
        if let Some(Interval { low, high, .. }) = metric.interval {
            cell += &format!(" [{}..{}]", number(low), number(high));
        }
        if metric.samples < self.samples.len() {
            cell += &format!(" of {}", metric.samples);
        }
        cell
    }

    fn json(&self) -> Value {
        let of = |value: &dyn Fn(&Metric) -> Option<Value>| -> Map<String, Value> {
            let own = |metric: &Metric| Some((metric.name.to_owned(), value(metric)?));
            self.metrics.iter().filter_map(own).collect()
        };
        let metrics = of(&|metric| Some(rounded(metric.median).into()));
        let intervals = of(&|metric| metric.interval.map(|it| json!([rounded(it.low), rounded(it.high)])));
        let all = self.samples.len();
        let fewer = of(&|metric| (metric.samples < all).then(|| metric.samples.into()));
        let mut json =
            json!({ "case": object(self.key), "metrics": metrics, "intervals": intervals, "samples": all });
        if !fewer.is_empty() {
            json["samples_of"] = fewer.into();
        }
        let course = &self.samples[0].course;
        if !course.is_empty() {
            let course = course.iter().map(|(name, own)| (name.to_string(), self.course(name, own.len())));
            json["course"] = course.collect::<Map<_, _>>().into();
        }
        json
    }

    /// The median of all samples in each second.
    fn course(&self, name: &str, seconds: usize) -> Value {
        let courses = || self.samples.iter().filter_map(|sample| field(&sample.course, name));
        let at = |second: usize| courses().filter_map(|course| course.get(second)).copied().collect();
        (0..seconds).map(|second| rounded(median(at(second)))).collect()
    }
}

/// Five digits: more than anything here is measured by.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// A line for each entry of a list, so that files can be compared and stay small.
fn lines(json: &Value) -> String {
    let Value::Object(fields) = json else { return json.to_string() };
    let field = |(name, value): (&String, &Value)| match value {
        Value::Array(entries) if !entries.is_empty() => {
            let entries: Vec<String> = entries.iter().map(|entry| format!("  {entry}")).collect();
            format!("\"{name}\": [\n{}\n]", entries.join(",\n"))
        }
        _ => format!("\"{name}\": {value}"),
    };
    let fields: Vec<String> = fields.iter().map(field).collect();
    format!("{{\n{}\n}}\n", fields.join(",\n"))
}

/// What the intervals in the table are, by the number of samples.
fn distinct_kinds(results: &[Outcome]) -> BTreeMap<usize, String> {
    let metrics = results.iter().flat_map(|result| &result.metrics);
    metrics.filter_map(|metric| Some((metric.samples, metric.interval?.kind()))).collect()
}

fn field<'f, N: AsRef<str>, T>(fields: &'f [(N, T)], name: &str) -> Option<&'f T> {
    fields.iter().find(|(known, _)| known.as_ref() == name).map(|(_, value)| value)
}

pub(crate) fn distinct(mut names: Vec<&str>) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

/// Three digits are enough: nothing here is measured more precisely.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Text as HTML has it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    /// That of an experiment as it is by itself, before anything is measured.
    pub(in crate::report) fn report_of(name: &str) -> Report<'static> {
        let options = RunOptions::default();
        let experiment = catalog::find(name, &options).unwrap();
        Report::new(Box::leak(Box::new(experiment)), &options)
    }

    fn sample(goodput: f64) -> Sample {
        vec![("goodput_mbps", goodput)].into()
    }

    #[test]
    fn results_are_medians_with_their_samples() {
        let mut report = report_of("tunnel");
        (0..).zip([3.0, 1.0, 2.5]).for_each(|(repeat, goodput)| report.add(0, repeat, sample(goodput)));
        let json = report.json();
        assert_eq!(json["schema"], 2);
        assert_eq!(json["results"][0]["metrics"]["goodput_mbps"], 2.5);
        assert_eq!(json["results"][0]["samples"], 3);
        assert_eq!(json["results"][0]["intervals"]["goodput_mbps"], json!([1.0, 3.0]));
        assert_eq!(serde_json::from_str::<Value>(&lines(&json)).unwrap(), json);
        assert_eq!(json["results"].as_array().unwrap().len(), 1, "a case without samples has no result");
        assert_eq!(json["paper"][9]["case"]["paths"], 10);
    }

    #[test]
    fn what_not_all_samples_have_says_how_many_do() {
        let mut report = report_of("field");
        for gap in [Some(2.0), None, Some(1.0), None] {
            let mut sample = sample(1.0);
            sample.add(gap.map(|gap| ("sctp_longest_gap_ms", gap)));
            sample.remark = gap.is_none().then(|| "not arrived".into());
            report.add(0, report.samples[0].len(), sample);
        }
        let json = report.json();
        let own = &json["results"][0];
        assert_eq!((&own["samples"], &own["samples_of"]), (&json!(4), &json!({ "sctp_longest_gap_ms": 2 })));
        assert_eq!(report.results()[0].cell("sctp_longest_gap_ms"), "1.50 [1.00..2.00] of 2");
        assert_eq!(json["notes"][0], "nawa: not arrived (2 runs)");
    }

    #[test]
    fn a_course_is_the_median_in_each_second() {
        let mut report = report_of("field");
        for (repeat, course) in [vec![1.0, 9.0], vec![2.0, 7.0], vec![4.0]].into_iter().enumerate() {
            let course = vec![("goodput_mbps".into(), course)];
            report.add(0, repeat, Sample { course, ..sample(1.0) });
        }
        let json = report.json();
        assert_eq!(json["results"][0]["course"], json!({ "goodput_mbps": [2.0, 8.0] }));
        assert_eq!(json["events"][1], json!([9, 13, "lte lost"]));
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let mut report = report_of("demo");
        report.fail(0, &Error::NoSctp);
        assert!(report.is_empty());
        assert!(report.json()["notes"][0].as_str().unwrap().starts_with("cubic: not measured: "));
    }

    #[test]
    fn a_command_can_be_given_again() {
        assert_eq!(
            ["case=50+10", "a b", "it's", ""].map(quoted),
            ["case=50+10", "'a b'", r"'it'\''s'", "''"]
        );
    }
}
