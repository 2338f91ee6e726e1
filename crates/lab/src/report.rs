//! What a run shows: how long it takes, how far it is, a table, and the results as JSON or as a page.

mod progress;

use std::fmt::Write as _;
use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::clock;
use crate::error::{Doing, Error};
use crate::experiment::{Experiment, Fields, RunOptions, Size, object, plain};
use crate::runner::Sample;

pub(crate) use progress::Progress;

/// The results of an experiment, in the order of its cases.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    experiment: &'a Experiment,
    conditions: Value,
    samples: Vec<Vec<Sample>>,
    notes: Vec<String>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(experiment: &'a Experiment, options: &RunOptions) -> Self {
        let samples = vec![Vec::new(); experiment.cases.len()];
        Self { experiment, conditions: conditions(options), samples, notes: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: usize, sample: Sample) {
        if let Some(remark) = &sample.remark {
            self.note(case, remark);
        }
        self.samples[case].push(sample);
    }

    pub(crate) fn fail(&mut self, case: usize, error: &Error) {
        self.note(case, &format!("not measured: {error}"));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.iter().all(Vec::is_empty)
    }

    fn note(&mut self, case: usize, text: &str) {
        let note = format!("{}: {text}", Experiment::title(&self.experiment.cases[case]));
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Prints the table and the notes.
    pub(crate) fn print(&self) {
        say(&self.table().to_string());
        self.all_notes().for_each(|note| say(&format!("  {note}")));
    }

    /// Writes the files that `options` name.
    pub(crate) fn write(&self, options: &RunOptions) -> Result<(), Error> {
        let files = [(&options.json, format!("{:#}\n", self.json())), (&options.html, self.html())];
        for (path, text) in files {
            if let Some(path) = path {
                std::fs::write(path, text).doing(|| format!("write {}", path.display()))?;
            }
        }
        Ok(())
    }

    fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.experiment.notes)
    }

    fn results(&self) -> impl Iterator<Item = (&'a Fields<Value>, Fields<f64>, &Vec<Sample>)> {
        let measured =
            self.experiment.cases.iter().zip(&self.samples).filter(|(_, samples)| !samples.is_empty());
        measured.map(|(case, samples)| (&case.key, medians(samples), samples))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let (keys, metrics) = self.columns();
        table.set_header(keys.iter().chain(&metrics));
        for (key, values, _) in self.results() {
            let cells = keys.iter().map(|name| field(key, name).map(plain).unwrap_or_default());
            let numbers = metrics.iter().map(|name| field(&values, name).map(|value| number(*value)));
            table.add_row(cells.chain(numbers.map(Option::unwrap_or_default)));
        }
        for column in table.column_iter_mut().skip(keys.len()) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// The names of keys and of metrics, each in the order in which it first occurs.
    fn columns(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut keys, mut metrics) = (Vec::new(), Vec::new());
        for (key, values, _) in self.results() {
            keys.extend(key.iter().map(|(name, _)| *name));
            metrics.extend(values.iter().map(|(name, _)| *name));
        }
        (distinct(keys), distinct(metrics))
    }

    fn json(&self) -> Value {
        let result = |(key, metrics, samples): (&Fields<Value>, Fields<f64>, &Vec<Sample>)| {
            let samples: Vec<_> = samples.iter().map(|sample| object(&sample.metrics)).collect();
            json!({ "case": object(key), "metrics": object(&metrics), "samples": samples })
        };
        let paper = self.experiment.paper.iter();
        let paper =
            paper.map(|entry| json!({ "case": object(&entry.key), "metrics": object(&entry.metrics) }));
        json!({
            "schema": 1,
            "experiment": self.experiment.name,
            "conditions": self.conditions,
            "results": self.results().map(result).collect::<Vec<_>>(),
            "paper": paper.collect::<Vec<_>>(),
            "notes": self.all_notes().collect::<Vec<_>>(),
        })
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
        let notes: String = self.all_notes().map(|note| format!("<li>{}\n", escape(note))).collect();
        let conditions = escape(&format!("{:#}", self.conditions));
        let _ = write!(page, "</table>\n<ul>\n{notes}</ul>\n<pre>{conditions}</pre>\n");
        page
    }
}

/// Prints a line; if nobody reads any more, the files are still written and the exit status still says how it went.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Under which conditions the figures were made.
fn conditions(options: &RunOptions) -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = match options.size {
        Size::Quick => "quick",
        Size::Normal => "normal",
        Size::Paper => "paper",
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": kernel.trim(),
        "cpus": cpus,
        "seed": options.seed,
        "size": size,
        "command": format!("nawa {}", arguments.join(" ")),
        "started": clock::timestamp(),
    })
}

/// The median of each metric over those samples that have it.
fn medians(samples: &[Sample]) -> Fields<f64> {
    let names = distinct(samples.iter().flat_map(|sample| &sample.metrics).map(|(name, _)| *name).collect());
    let values =
        |name| samples.iter().filter_map(move |sample| field(&sample.metrics, name)).copied().collect();
    names.into_iter().map(|name| (name, median(values(name)))).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn field<'f, T>(fields: &'f Fields<T>, name: &str) -> Option<&'f T> {
    fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn distinct(mut names: Vec<&'static str>) -> Vec<&'static str> {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

/// Three digits are enough: nothing here is measured more precisely.
pub(crate) fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    fn sample(goodput: f64) -> Sample {
        Sample { metrics: vec![("goodput_mbps", goodput)], remark: None }
    }

    #[test]
    fn results_are_medians_with_their_samples() {
        let options = RunOptions::default();
        let experiment = experiment::find("tunnel", &options).unwrap();
        let mut report = Report::new(&experiment, &options);
        [3.0, 1.0, 2.5].into_iter().for_each(|goodput| report.add(0, sample(goodput)));
        let json = report.json();
        assert_eq!(json["schema"], 1);
        assert_eq!(json["results"][0]["metrics"]["goodput_mbps"], 2.5);
        assert_eq!(json["results"][0]["samples"].as_array().unwrap().len(), 3);
        assert_eq!(json["results"].as_array().unwrap().len(), 1, "a case without samples has no result");
        assert_eq!(json["paper"][9]["case"]["paths"], 10);
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let options = RunOptions::default();
        let experiment = experiment::find("demo", &options).unwrap();
        let mut report = Report::new(&experiment, &options);
        report.fail(0, &Error::NotRoot);
        assert!(report.is_empty());
        assert!(report.json()["notes"][0].as_str().unwrap().starts_with("cubic: not measured: "));
    }

    #[test]
    fn a_median_of_two_lies_between_them() {
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(median(vec![4.0]), 4.0);
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([number(1234.5), number(12.34), number(1.234)], ["1234", "12.3", "1.23"]);
    }
}
