//! Strands and experiments that the lab does not have, from end to end: what it takes to add one, and all experiments into one folder,
//! killed and started again. And one that needs no `nawa`.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{alone, left_in, report};
use lab::catalog::find;
use lab::experiment::{Case, Experiment};
use lab::workload::{Need, Prepared, Site, Workload};
use lab::{Result, RunOptions, Size, run_each};
use serde_json::Value;

/// The folder of a run that a test starts as a process of its own, to kill it.
const FOLDER: &str = "NAWA_TEST_FOLDER";

/// Cases of each of two experiments, and how often each is measured.
const CASES: u32 = 8;
const REPEATS: usize = 3;
const SAMPLES: usize = 2 * CASES as usize * REPEATS;

/// Multiplies instead of measuring; where there is a log, it takes its time, and leaves a line for each time that it did.
#[derive(Debug)]
struct MadeUp {
    factor: u32,
    needs: Option<&'static str>,
    log: Option<PathBuf>,
}

impl Workload for MadeUp {
    fn needs(&self) -> Vec<Need> {
        self.needs.map(Need::CongestionControl).into_iter().collect()
    }

    fn prepare<'a>(&'a self, _: Site<'a>) -> Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(|| {
            if let Some(log) = &self.log {
                std::thread::park_timeout(TIME);
                let mut log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
                log.write_all(b"measured\n").unwrap();
            }
            Ok(vec![("product", f64::from(self.factor * 2))].into())
        }))
    }
}

/// How long one takes.
const TIME: Duration = Duration::from_millis(20);

fn case(factor: u32, needs: Option<&'static str>, log: Option<PathBuf>) -> Case {
    let workload = MadeUp { factor, needs, log };
    Case::new(vec![("factor", factor.into())], workload, TIME)
}

#[test]
fn a_strand_of_its_own_is_prepared_measured_and_reported() {
    let Some(_alone) = alone("a_strand_of_its_own_is_prepared_measured_and_reported") else { return };
    let cases = vec![case(2, None, None), case(3, None, None), case(4, Some("nawa_test_none"), None)];
    let experiment = Experiment { name: "made-up", cases, repeats: 3, ..Experiment::default() };
    let json = report(&experiment, RunOptions::default());
    let results = json["results"].as_array().unwrap();
    let products: Vec<_> = results.iter().map(|result| result["metrics"]["product"].as_f64()).collect();
    assert_eq!(products, [Some(4.0), Some(6.0)]);
    assert!(json["notes"][0].as_str().unwrap().starts_with("nawa_test_none: not measured"));
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

fn experiments(log: &Path) -> Vec<Experiment> {
    let cases: Vec<Case> = (1..=CASES).map(|factor| case(factor, None, Some(log.into()))).collect();
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

#[test]
fn flood_rate_finds_a_rate_of_a_bare_program_and_leaves_nothing() {
    let Some(_alone) = alone("flood_rate_finds_a_rate_of_a_bare_program_and_leaves_nothing") else { return };
    let options = RunOptions { size: Size::Quick, ..RunOptions::default() };
    let mut experiment = find("flood-rate", &options).unwrap();
    experiment.keep(&["mode=xdp-tx".into()]).unwrap();
    experiment.repeats = 1;
    let report = report(&experiment, options);
    let rate = report["results"][0]["metrics"]["frames_per_s"].as_f64();
    assert!(rate > Some(0.0), "{report:#}");
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}
