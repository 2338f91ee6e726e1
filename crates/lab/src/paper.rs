//! What of a paper is drawn and judged, as data: figures and claims, which `nawa lab report` fills with results.

use crate::error::{Error, Result};

/// A paper, or the project's own goals.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Its number; the name of its part of the page.
    pub number: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What is drawn: TITLE | EXPERIMENT KEY=VALUE,… | METRIC by FIELD FIELD…, the first field to the right, a line for each value
    /// of the others; with `time_s` in the first field's place the course of each case.
    pub figures: &'static [&'static str],
    /// What is judged: TEXT | EXPERIMENT KEY=VALUE,… | METRIC >= NUMBER, or <=, in all of these cases or, with `once`, in one.
    pub claims: &'static [&'static str],
}

/// One metric of one experiment, a line for each value of some fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    pub(crate) experiment: &'static str,
    /// The cases, as `nawa lab run` takes them.
    pub(crate) only: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) x: &'static str,
    /// The fields whose values are lines, separated by blanks.
    pub(crate) lines: &'static str,
}

impl Figure {
    /// Whether it is of values in the course of a sample.
    pub(crate) fn is_course(&self) -> bool {
        self.x == "time_s"
    }
}

/// Something that a paper says, or that the project sets out to reach, in numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) text: &'static str,
    pub(crate) experiment: &'static str,
    pub(crate) only: &'static str,
    pub(crate) metric: &'static str,
    /// The metric is to be at least `bound`, not at most.
    pub(crate) is_least: bool,
    pub(crate) bound: f64,
    /// One case is enough.
    pub(crate) once: bool,
}

impl Paper {
    pub(crate) fn figures(&self) -> Result<Vec<Figure>> {
        let figure = |text: &&'static str| {
            let (title, experiment, only, rest) = parts(text)?;
            let (metric, fields) = rest.split_once(" by ")?;
            let (x, lines) = fields.split_once(' ').unwrap_or((fields, ""));
            Some(Figure { title, experiment, only, metric, x, lines })
        };
        self.figures.iter().map(|text| figure(text).ok_or_else(|| bad(text))).collect()
    }

    pub(crate) fn claims(&self) -> Result<Vec<Claim>> {
        let claim = |text: &&'static str| {
            let (text, experiment, only, rest) = parts(text)?;
            let [metric, sign, bound, ref once @ ..] = rest.split(' ').collect::<Vec<_>>()[..] else {
                return None;
            };
            let (is_least, once) = (sign == ">=", once == ["once"]);
            Some(Claim { text, experiment, only, metric, is_least, bound: bound.parse().ok()?, once })
        };
        self.claims.iter().map(|text| claim(text).ok_or_else(|| bad(text))).collect()
    }
}

/// What it is about, the experiment, its cases, and the rest.
fn parts(text: &'static str) -> Option<(&'static str, &'static str, &'static str, &'static str)> {
    let [about, cases, rest] = text.split(" | ").collect::<Vec<_>>()[..] else { return None };
    let (experiment, only) = cases.split_once(' ').unwrap_or((cases, ""));
    Some((about, experiment, only, rest))
}

fn bad(text: &str) -> Error {
    Error::BadCell { field: "figure or claim".into(), value: text.into() }
}

impl Claim {
    /// Whether `value` is as claimed.
    pub(crate) fn holds(&self, value: f64) -> bool {
        if self.is_least { value >= self.bound } else { value <= self.bound }
    }
}
