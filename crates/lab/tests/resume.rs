//! All experiments into one folder, killed and started again.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::alone;
use lab::experiment::{Case, Experiment};
use lab::workload::{Need, Prepared, Site, Workload};
use lab::{Error, RunOptions, run_each};
use serde_json::Value;

/// The folder of a run that a test starts as a process of its own, to kill it.
const FOLDER: &str = "NAWA_TEST_FOLDER";

/// Cases of each of two experiments, and how often each is measured.
const CASES: u32 = 8;
const REPEATS: usize = 3;
const SAMPLES: usize = 2 * CASES as usize * REPEATS;

/// Multiplies, takes its time, and leaves a line for each time that it did.
#[derive(Debug)]
struct MadeUp {
    factor: u32,
    log: PathBuf,
}

impl Workload for MadeUp {
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn prepare<'a>(&'a self, _: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        Ok(Box::new(|| {
            std::thread::park_timeout(Duration::from_millis(20));
            let mut log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
            log.write_all(b"measured\n").unwrap();
            Ok(vec![("product", f64::from(self.factor * 2))].into())
        }))
    }
}

fn experiments(log: &Path) -> Vec<Experiment> {
    let case = |factor: u32| {
        let workload = MadeUp { factor, log: log.into() };
        let estimate = Duration::from_millis(20);
        Case { key: vec![("factor", factor.into())], workload, estimate }.erase()
    };
    let cases: Vec<Case> = (1..=CASES).map(case).collect();
    let named = |name| Experiment { name, cases: cases.clone(), repeats: REPEATS, ..Experiment::default() };
    ["one", "two"].map(named).to_vec()
}

/// Does nothing, unless a test here starts it.
#[test]
fn run_in_a_process() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        run_each(&experiments(&folder.join("log")), &RunOptions::default(), &folder).unwrap();
    }
}

fn start(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["run_in_a_process", "--exact"]).env(FOLDER, folder).stdout(Stdio::null()).spawn().unwrap()
}

fn run_to_the_end(folder: &Path) {
    assert!(start(folder).wait().unwrap().success());
}

fn measured(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default().lines().count()
}

/// The names of all files, and what each result says but for when and how it came about.
fn contents(folder: &Path) -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let content = |path: PathBuf| {
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap_or_default();
        json.as_object_mut().map(|fields| fields.remove("conditions"));
        (path.file_name().unwrap().to_string_lossy().into_owned(), json)
    };
    files.map(content).collect()
}

#[test]
fn killed_at_five_points_it_ends_with_the_same_set() {
    let Some(_alone) = alone("killed_at_five_points_it_ends_with_the_same_set") else { return };
    let [whole, broken] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    run_to_the_end(whole.path());
    assert_eq!(measured(whole.path()), SAMPLES);
    for point in 1..=5 {
        let mut run = start(broken.path());
        let enough = || measured(broken.path()) >= point * SAMPLES / 6;
        while !enough() && run.try_wait().unwrap().is_none() {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        run.kill().unwrap();
        run.wait().unwrap();
    }
    run_to_the_end(broken.path());
    // What was under way is measured again, and nothing else.
    assert!((SAMPLES..=SAMPLES + 5).contains(&measured(broken.path())), "{}", measured(broken.path()));
    let [whole, broken] = [whole, broken].map(|folder| {
        let before = measured(folder.path());
        run_to_the_end(folder.path());
        assert_eq!(measured(folder.path()), before, "what is there is measured again");
        let mut contents = contents(folder.path());
        contents.remove("log");
        contents
    });
    assert_eq!(whole.keys().collect::<Vec<_>>(), ["one.json", "two.json"]);
    let paths = |contents: &BTreeMap<String, Value>| serde_json::to_string(contents).unwrap();
    assert_eq!(paths(&whole), paths(&broken));
}

#[test]
fn a_folder_of_another_run_is_not_written_to() {
    let Some(_alone) = alone("a_folder_of_another_run_is_not_written_to") else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiments = experiments(&folder.path().join("log"));
    run_each(&experiments, &RunOptions::default(), folder.path()).unwrap();
    let before = contents(folder.path());
    let other = RunOptions { seed: 2, ..RunOptions::default() };
    let error = run_each(&experiments, &other, folder.path()).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("one.json"), "{error}");
    assert_eq!(contents(folder.path()), before);
}
