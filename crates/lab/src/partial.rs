//! What an interrupted run has measured: beside the JSON that was asked for, as `FILE.partial`, a line of JSON each.
//!
//! The first line says what is being run; the others are samples. A run that asks for the same goes on from there; any
//! other begins anew, and says so. The file goes when the run is complete.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Doing, Result};
use crate::experiment::{Experiment, RunOptions};
use crate::workload::Sample;

/// The samples of an earlier run, and the file that takes this one's.
#[derive(Debug)]
pub(crate) struct Partial {
    samples: BTreeMap<(usize, usize), Sample>,
    /// None without `--json`.
    file: Option<(PathBuf, File)>,
}

impl Partial {
    /// What there is of `experiment` as `options` want it, and what to say about it.
    pub(crate) fn open(experiment: &Experiment, options: &RunOptions) -> Result<(Self, Option<String>)> {
        let Some(json) = &options.json else {
            return Ok((Self { samples: BTreeMap::new(), file: None }, None));
        };
        let mut path = json.clone().into_os_string();
        path.push(".partial");
        Self::at(path.into(), &identity(experiment, options)?)
    }

    fn at(path: PathBuf, identity: &str) -> Result<(Self, Option<String>)> {
        let earlier = fs::read_to_string(&path).ok();
        let samples = earlier.as_deref().and_then(|text| samples(text, identity));
        let said = earlier.is_some().then(|| match &samples {
            Some(samples) => format!("continuing {}: {} runs are there", path.display(), samples.len()),
            None => format!("starting anew: {} is of another version or other options", path.display()),
        });
        let samples = samples.unwrap_or_default();
        let file = rewrite(&path, identity, &samples).doing(|| format!("write {}", path.display()))?;
        Ok((Self { samples, file: Some((path, file)) }, said))
    }

    /// How many samples of an earlier run are left to take.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// True if this sample need not be taken again.
    pub(crate) fn has(&self, case: usize, repeat: usize) -> bool {
        self.samples.contains_key(&(case, repeat))
    }

    /// The samples of an earlier run, by case and repeat.
    pub(crate) fn take(&mut self) -> BTreeMap<(usize, usize), Sample> {
        std::mem::take(&mut self.samples)
    }

    /// Keeps a sample for a later run.
    pub(crate) fn record(&mut self, case: usize, repeat: usize, sample: &Sample) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        write_line(file, case, repeat, sample).doing(|| format!("write {}", path.display()))
    }

    /// The run is complete.
    pub(crate) fn remove(&self) {
        if let Some((path, _)) = &self.file {
            let _ = fs::remove_file(path);
        }
    }
}

/// The file with only its whole lines: the last may have been cut off. Whoever is killed meanwhile leaves the old file or the new.
fn rewrite(path: &Path, identity: &str, samples: &BTreeMap<(usize, usize), Sample>) -> std::io::Result<File> {
    let mut text = format!("{identity}\n").into_bytes();
    for (&(case, repeat), sample) in samples {
        write_line(&mut text, case, repeat, sample)?;
    }
    write_whole(path, &text)?;
    OpenOptions::new().append(true).open(path)
}

/// Writes a file so that it has either its old content or all of `text`, whenever this program is killed.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut new = path.to_owned().into_os_string();
    new.push(".new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path))
}

fn write_line(file: &mut impl Write, case: usize, repeat: usize, sample: &Sample) -> std::io::Result<()> {
    let line = serde_json::to_string(&(case, repeat, sample))? + "\n";
    file.write_all(line.as_bytes())
}

/// The samples in `text`; `None` if it is of another run. A line that is not whole ends it.
fn samples(text: &str, identity: &str) -> Option<BTreeMap<(usize, usize), Sample>> {
    let mut lines = text.lines();
    let same = lines.next() == Some(identity);
    let parsed = lines.map_while(|line| serde_json::from_str(line).ok());
    same.then(|| parsed.map(|(case, repeat, sample)| ((case, repeat), sample)).collect())
}

/// What makes two runs the same: the experiment and its cases, the options, and the very program under test.
pub(crate) fn identity(experiment: &Experiment, options: &RunOptions) -> Result<String> {
    let nawa = fs::read(&options.nawa).doing(|| format!("read {}", options.nawa.display()))?;
    let rival = options.rival.as_ref().map(|rival| fs::read(rival).map(|bytes| hash(&bytes)));
    let identity = serde_json::json!({
        "experiment": experiment.name,
        "repeats": experiment.repeats,
        "seed": options.seed,
        "version": env!("CARGO_PKG_VERSION"),
        "nawa": hash(&nawa),
        "rival": rival.transpose().doing(|| "read the rival's program".into())?,
        "cases": hash(format!("{:?}", experiment.cases).as_bytes()),
    });
    Ok(identity.to_string())
}

/// The same in a word, which a result names.
pub(crate) fn run_of(experiment: &Experiment, options: &RunOptions) -> Result<String> {
    Ok(hash(identity(experiment, options)?.as_bytes())[..16].to_owned())
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(goodput: f64) -> Sample {
        Sample { metrics: vec![("goodput_mbps".into(), goodput)], ..Sample::default() }
    }

    fn interrupted(path: &Path) {
        let (mut partial, said) = Partial::at(path.into(), "one").unwrap();
        assert_eq!(said, None);
        partial.record(0, 0, &sample(0.1)).unwrap();
        partial.record(7, 2, &sample(85.25)).unwrap();
    }

    #[test]
    fn the_same_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json.partial");
        interrupted(&path);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"[1,0,{\"met").unwrap();
        for _ in 0..2 {
            let (mut partial, said) = Partial::at(path.clone(), "one").unwrap();
            assert!(said.unwrap().contains("2 runs"));
            assert!(partial.has(0, 0) && !partial.has(1, 0));
            assert_eq!(partial.take().get(&(7, 2)), Some(&sample(85.25)));
        }
    }

    #[test]
    fn another_run_starts_anew_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json.partial");
        interrupted(&path);
        let (mut partial, said) = Partial::at(path.clone(), "two").unwrap();
        assert!(said.unwrap().starts_with("starting anew"));
        assert!(partial.take().is_empty());
        partial.remove();
        assert!(!path.exists());
    }
}
