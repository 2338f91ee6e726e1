//! Results as files have them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Doing, Error, Result};
use crate::experiment::plain;
use crate::series::FIRST;

pub(super) struct Results {
    pub(super) files: Vec<File>,
}

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(skip)]
    pub(super) name: String,
    pub(super) experiment: String,
    conditions: Map<String, Value>,
    results: Vec<Row>,
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default)]
    paper: Vec<Row>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Row {
    case: Map<String, Value>,
    pub(super) metrics: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) intervals: BTreeMap<String, [f64; 2]>,
    /// A value for each second.
    #[serde(default)]
    pub(super) course: BTreeMap<String, Vec<f64>>,
}

/// From one second until another, and what happens then.
pub(super) type Event = (f64, f64, String);

impl Results {
    /// Those of `folder`, by name. What is no result is left out.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let entries = std::fs::read_dir(folder).doing(|| format!("read the folder {}", folder.display()))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        let file = |path: &std::path::PathBuf| {
            let mut file: File = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
            file.name = path.file_name()?.to_string_lossy().into_owned();
            Some(file)
        };
        let files: Vec<File> = paths.iter().filter_map(file).collect();
        if files.is_empty() {
            let (folder, make) = (folder.display(), "`nawa lab run all --out DIR` makes some");
            return Err(Error::BadInput(format!("the folder {folder} holds no results: {make}")));
        }
        Ok(Self { files })
    }

    /// The measured cases of an experiment that are as `only` says, of all its files.
    pub(super) fn rows<'a>(&'a self, experiment: &'a str, only: &'a str) -> impl Iterator<Item = &'a Row> {
        self.of(experiment).flat_map(|file| &file.results).filter(move |row| row.is(only, false))
    }

    /// Those that were published. Fields that they do not name may be anything.
    pub(super) fn published<'a>(
        &'a self,
        experiment: &'a str,
        only: &'a str,
    ) -> impl Iterator<Item = &'a Row> {
        self.of(experiment).take(1).flat_map(|file| &file.paper).filter(move |row| row.is(only, true))
    }

    /// What happens in the course of each of its cases.
    pub(super) fn events<'a>(&'a self, experiment: &'a str) -> &'a [Event] {
        self.of(experiment).map(|file| &*file.events).find(|events| !events.is_empty()).unwrap_or_default()
    }

    fn of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| file.experiment == experiment)
    }
}

impl File {
    /// One of its conditions, as a person writes it; `-` for one that it does not have.
    pub(super) fn condition(&self, name: &str) -> String {
        self.conditions.get(name).filter(|value| !value.is_null()).map_or_else(|| "-".into(), plain)
    }
}

impl Row {
    pub(super) fn field(&self, name: &str) -> Option<String> {
        self.case.get(name).map(plain)
    }

    /// The case in words.
    pub(super) fn title(&self) -> String {
        let fields = self.case.iter().map(|(name, value)| format!("{name}={}", plain(value)));
        fields.collect::<Vec<_>>().join(" ")
    }

    fn is(&self, only: &str, or_open: bool) -> bool {
        only.split_whitespace().all(|word| {
            let (name, values) = word.split_once('=').unwrap_or((word, ""));
            self.field(name).map_or(or_open, |own| values.split(',').any(|value| value == own))
        })
    }
}

/// A flow's name, and its values with their times in seconds.
pub(super) type Series = (String, Vec<(f64, f64)>);

/// What the column `name` of a series has at each time, by flow, which is a number or a way of a link; nothing of a column that is
/// not there, and `None` if the text is no series.
pub(super) fn flows(text: &str, name: &str) -> Option<Vec<Series>> {
    let mut lines = text.lines();
    let header = lines.next().filter(|header| header.starts_with(FIRST))?;
    let column = header.split(',').position(|own| own == name).unwrap_or(usize::MAX);
    let mut flows: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
        if let (Some(time), Some(value), Some(flow)) = (number(0), number(column), fields.get(2)) {
            let flow = if flow.parse::<u32>().is_ok() { format!("flow {flow}") } else { (*flow).into() };
            flows.entry(flow).or_default().push((time, value));
        }
    }
    Some(flows.into_iter().collect())
}
