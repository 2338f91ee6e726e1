//! Experiments as data: cases, and how they are repeated and compared. Here no strand is named.

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use link::Bitrate;
use serde_json::{Map, Value};

use crate::error::Result;
use crate::workload::Workload;

pub use crate::options::{RunOptions, Size};

/// Names and values of a case's key or of its metrics, in order.
pub type Fields<T> = Vec<(&'static str, T)>;

/// A list of cases under one name.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// As `nawa lab run` takes it; the catalogue gives it.
    pub name: &'static str,
    /// What is measured.
    pub cases: Vec<Case>,
    /// Which cases are measured at the same time, each in a network of its own.
    pub side_by_side: SideBySide,
    /// Whether the cases of a repeat come in their order; otherwise their order is drawn from the seed, so that what else the machine
    /// does hits all alike.
    pub in_order: bool,
    /// How often, each time all cases.
    pub repeats: usize,
    /// Makes it again with another seed, where links are drawn by it: each repeat has its own.
    pub draw: Option<Make>,
    /// What is compared with what, sample by sample.
    pub ratios: Vec<Ratio>,
    /// What happens meanwhile, from one second until another.
    pub events: Vec<(Range<u64>, &'static str)>,
    /// What a paper published for the same cases.
    pub paper: Vec<Published>,
    /// What a reader of the figures has to know.
    pub notes: Vec<String>,
}

/// Which cases are measured at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SideBySide {
    /// So many, in their order, and then as many again. 1 where a case may need all that the machine has.
    Cases(usize),
    /// As many, in their order, as their links' rates stay within this sum, at least one, and then the next. They start
    /// together, and no network is made while one is measured.
    Rates(Bitrate),
    /// Those, one after the other in the list, that agree in these fields of their keys, as many as their links' rates stay
    /// within a sum, at least one; and groups of them, of any repeat, up to that sum.
    Links {
        /// The fields.
        alike: &'static [&'static str],
        /// The sum.
        up_to: Bitrate,
    },
}

impl Default for SideBySide {
    fn default() -> Self {
        SideBySide::Cases(1)
    }
}

/// A metric as a share of what the same repeat measured in another case or in several, whose keys are the case's own but for some
/// fields. None where one of them was not measured.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// As in the JSON.
    pub name: &'static str,
    /// What is compared.
    pub metric: &'static str,
    /// These fields, and their values, as they are written, in the case that is compared with, which is another one. A value that ends
    /// with `*` is of all that begin so.
    pub of: &'static [(&'static str, &'static str)],
    /// Other fields in which the keys may differ.
    pub over: &'static [&'static str],
    /// Of several the greatest is taken, and not their sum.
    pub greatest: bool,
}

impl Ratio {
    /// One of another case.
    pub const fn new(
        name: &'static str,
        metric: &'static str,
        of: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, metric, of, over: &[], greatest: false }
    }
}

/// One thing that is measured.
#[derive(Clone, Debug)]
pub struct Case {
    /// What tells it from the other cases, as in the JSON.
    pub key: Fields<Value>,
    /// What is made ready and measured, anew for each run.
    pub workload: Arc<dyn Workload>,
    /// How long one run takes, about.
    pub estimate: Duration,
}

impl Case {
    /// One of `workload`.
    pub fn new(key: Fields<Value>, workload: impl Workload, estimate: Duration) -> Self {
        Self { key, workload: Arc::new(workload), estimate }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        self.key.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Its workload, if that is a `W`.
    pub fn workload<W: Workload>(&self) -> Option<&W> {
        (&*self.workload as &dyn Any).downcast_ref()
    }
}

/// A published result.
#[derive(Clone, Debug)]
pub struct Published {
    /// The case, named as ours.
    pub key: Fields<Value>,
    /// What was published.
    pub metrics: Fields<f64>,
}

impl Experiment {
    /// So many repeats of `cases`, what is compared in them, and what a reader has to know.
    pub(crate) fn of(cases: Vec<Case>, repeats: usize, ratios: &[Ratio], notes: &[&str]) -> Self {
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        Self { cases, repeats, ratios: ratios.to_vec(), notes, ..Self::default() }
    }

    /// The cases of these numbers, drawn from `seed`.
    pub(crate) fn drawn(&self, cases: &[usize], options: &RunOptions, seed: u64) -> Result<Vec<Case>> {
        let again = self.draw.map(|make| make(&RunOptions { seed, ..options.clone() })).transpose()?;
        let drawn = |&index: &usize| {
            let case = &self.cases[index];
            let same = again.iter().flat_map(|again| &again.cases).find(|other| other.key == case.key);
            same.unwrap_or(case).clone()
        };
        Ok(cases.iter().map(drawn).collect())
    }

    /// Puts the rival `program` beside each case whose `system` is `nawa`, under its file's name; how many there are.
    pub(crate) fn add_rival(&mut self, program: &Path) -> usize {
        let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let before = self.cases.len();
        let beside = |case: Case| {
            let is_nawa = case.field("system").is_some_and(|system| *system == "nawa");
            let workload = is_nawa.then(|| case.workload.by_rival(program)).flatten();
            let rival = workload.map(|workload| {
                let mut key = case.key.clone();
                key.iter_mut()
                    .filter(|(field, _)| *field == "system")
                    .for_each(|(_, value)| *value = name.clone().into());
                Case { key, workload, estimate: case.estimate }
            });
            [Some(case), rival].into_iter().flatten()
        };
        self.cases = std::mem::take(&mut self.cases).into_iter().flat_map(beside).collect();
        self.cases.len() - before
    }

    /// The cases, cut into those that start at the same time.
    pub(crate) fn groups(&self) -> Box<dyn Iterator<Item = &[Case]> + '_> {
        match self.side_by_side {
            SideBySide::Cases(count) => Box::new(self.cases.chunks(count.max(1))),
            SideBySide::Rates(up_to) => Box::new(within(&self.cases, up_to)),
            SideBySide::Links { alike, up_to } => {
                let same =
                    |one: &Case, other: &Case| alike.iter().all(|name| one.field(name) == other.field(name));
                Box::new(self.cases.chunk_by(same).flat_map(move |cases| within(cases, up_to)))
            }
        }
    }

    /// The case's key as one word, as "cubic 50+10".
    pub fn title(case: &Case) -> String {
        let words = case.key.iter().map(|(_, value)| plain(value));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// `cases`, cut into runs whose links' rates stay within a sum.
fn within(mut cases: &[Case], up_to: Bitrate) -> impl Iterator<Item = &[Case]> {
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = |case: &&Case| {
            sum += case.workload.rate().as_bps();
            sum <= up_to.as_bps()
        };
        let count = cases.iter().take_while(fits).count().max(1).min(cases.len());
        let (group, rest) = cases.split_at(count);
        cases = rest;
        (!group.is_empty()).then_some(group)
    })
}

/// A JSON value as a person writes it.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Fields as a JSON object.
pub(crate) fn object<N: AsRef<str>, T: Clone + Into<Value>>(fields: &[(N, T)]) -> Map<String, Value> {
    fields.iter().map(|(name, value)| (name.as_ref().to_owned(), value.clone().into())).collect()
}

/// Makes an experiment as a run asks for it.
pub type Make = fn(&RunOptions) -> Result<Experiment>;

/// An experiment as a strand offers it: its name, as `nawa lab run` takes it, in one line what it measures, and what makes it.
pub type Entry = (&'static str, &'static str, Make);
