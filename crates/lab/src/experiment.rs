//! Experiments as data: cases, each a network, a system under test and a workload.

use std::path::PathBuf;
use std::time::Duration;

use link::Bitrate;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::flows::FlowTest;
use crate::iperf::Protocol;
use crate::network::Topology;
use crate::schedule::Schedule;
use crate::system::System;
use crate::{bicast, bond, coding, demo, events, flight, flood, hostile, tunnel};

/// What a run may be asked for.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How much is measured.
    pub size: Size,
    /// What all chances are drawn from.
    pub seed: u64,
    /// A folder of recorded traces to use instead of generated ones.
    pub traces: Option<PathBuf>,
    /// Where to write the results as JSON.
    pub json: Option<PathBuf>,
    /// Where to write the results as a page.
    pub html: Option<PathBuf>,
    /// A folder for what happens in the course of each run of the `flight` experiments.
    pub series: Option<PathBuf>,
    /// The `nawa` that is started as a system under test.
    pub nawa: PathBuf,
    /// Which cases are measured, as [`Experiment::keep`] takes it; all without a word.
    pub only: Vec<String>,
    /// How often each case is measured, if not as often as the experiment says.
    pub repeats: Option<usize>,
    /// How many cases are measured at the same time, if not as many as the experiment says.
    pub side_by_side: Option<usize>,
    /// The commit of which the program was built, with `+` behind it where files had changed.
    pub commit: String,
}

impl RunOptions {
    /// The seed where none is asked for.
    pub const SEED: u64 = 1;
}

impl Default for RunOptions {
    fn default() -> Self {
        // Not `/proc/self/exe` itself: another program starts it, for which that is its own.
        let nawa = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| "nawa".into());
        Self {
            size: Size::Normal,
            seed: Self::SEED,
            traces: None,
            json: None,
            html: None,
            series: None,
            nawa,
            only: Vec::new(),
            repeats: None,
            side_by_side: None,
            commit: "unknown".into(),
        }
    }
}

/// How much an experiment measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// `--quick`: every system, the cases whose figures are quoted, within about two minutes.
    Quick,
    /// As much as the experiment needs by itself.
    #[default]
    Normal,
    /// `--paper`: the paper's sizes and repetitions.
    Paper,
}

/// Names and values of a case's key or of its metrics, in order.
pub type Fields<T> = Vec<(&'static str, T)>;

/// A list of cases under one name.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// As `nawa lab run` takes it.
    pub name: &'static str,
    /// What is measured.
    pub cases: Vec<Case>,
    /// Which cases are measured at the same time, each in a network of its own.
    pub side_by_side: SideBySide,
    /// How often, each time all cases.
    pub repeats: usize,
    /// Makes it again with another seed, where links are drawn by it: each repeat has its own.
    pub draw: Option<Make>,
    /// What is compared with what, sample by sample.
    pub ratios: Vec<Ratio>,
    /// What is compared with a group of cases, repeat by repeat.
    pub shares: Vec<Share>,
    /// What is added up over samples and cases, and then compared.
    pub pooled: Option<Pooled>,
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
    /// Those, one after the other in the list, that agree in these fields of their keys; and groups of them, of any
    /// repeat, up to a sum of their links' rates.
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

/// A metric as a share of what the same repeat measured in the case that differs in one field of its key.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// As in the JSON.
    pub name: &'static str,
    /// What is compared.
    pub metric: &'static str,
    /// The field, and its value in the case that is compared with.
    pub of: (&'static str, Reference),
}

/// A metric as a share of what the same repeat measured in a group of cases, whose keys are the case's own but for the system
/// and some other fields. None where one of the group was not measured.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// As in the JSON.
    pub name: &'static str,
    /// What is compared.
    pub metric: &'static str,
    /// How the systems' names in the group begin.
    pub systems: &'static str,
    /// What is taken of the group.
    pub of: Whole,
    /// The other fields in which the group's keys may differ.
    pub over: &'static [&'static str],
}

/// What is taken of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// The greatest of all.
    Greatest,
    /// All together.
    Sum,
}

/// A count that is too rare to have a ratio in each repeat: its sum over all samples of all cases that differ in some fields
/// only, and what share that is of the sum in the cases compared with.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// The share, and of what. Only repeats count that both cases have.
    pub ratio: Ratio,
    /// The fields over which it is added up.
    pub over: &'static [&'static str],
}

/// A value of a field of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// A name.
    Name(&'static str),
    /// A number.
    Number(f64),
    /// A name, in the case where another field has the number given, whatever that field is in ours.
    NameAt(&'static str, (&'static str, f64)),
}

impl Reference {
    pub(crate) fn is(self, value: &Value) -> bool {
        match self {
            Reference::Name(name) | Reference::NameAt(name, _) => value.as_str() == Some(name),
            Reference::Number(number) => value.as_f64() == Some(number),
        }
    }

    /// The other field that the case compared with is found by, and its value there.
    pub(crate) fn other_field(self) -> Option<(&'static str, f64)> {
        match self {
            Reference::NameAt(_, other) => Some(other),
            Reference::Name(_) | Reference::Number(_) => None,
        }
    }
}

/// One system on one network, doing one thing.
#[derive(Clone, Debug)]
pub struct Case {
    /// What tells it from the other cases, as in the JSON.
    pub key: Fields<Value>,
    /// The network, built anew for each run.
    pub topology: Topology,
    /// What is under test.
    pub system: System,
    /// The congestion control of both ends' TCP.
    pub congestion_control: &'static str,
    /// What is done with it.
    pub workload: Workload,
    /// How long one run takes, about.
    pub estimate: Duration,
}

impl Case {
    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        self.key.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// What is done with a system, and thereby what is measured.
#[derive(Clone, Debug)]
pub enum Workload {
    /// A file is fetched by curl, `ping` beside it.
    Fetch {
        /// The file's size.
        bytes: u64,
        /// What happens on the way.
        event: Option<Event>,
        /// Whether what TCP's loss recovery and Nawa's copies cost is counted as well.
        recovery: bool,
    },
    /// One flow of iperf3 from client to server.
    Stream {
        /// What it sends.
        protocol: Protocol,
        /// How long it is measured, whole seconds.
        time: Duration,
    },
    /// TCP flows of iperf3, and a ping and a call beside them.
    Bond(bond::Test),
    /// TCP flows of the lab's own, with congestion controls of their own.
    Flows(Box<FlowTest>),
    /// One TCP flow while somebody attacks.
    Attacked {
        /// How long it is measured, whole seconds.
        time: Duration,
        /// Who is attacked with what.
        attack: hostile::Attack,
    },
    /// Messages flooded over a medium of their own; the case's topology stands by unused.
    Flood(Box<flood::Test>),
    /// TCP over a chain of nodes that share an 802.11 medium; the case's topology stands by unused.
    Coding(Box<coding::Test>),
    /// Files over SCTP between hosts with two paths; the case's topology stands by unused.
    Bicast(Box<bicast::Test>),
}

/// Something that happens in mid-transfer.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What.
    pub change: Change,
    /// When this share of the file has arrived.
    pub at: f64,
}

/// What may happen to a network while it is used.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A link is cut, without notice and in both directions, and comes back.
    Cut {
        /// The path (from 0).
        path: usize,
        /// How long it stays cut.
        time: Duration,
    },
    /// The client's address on the first path changes.
    ReaddressClient,
    /// The client's addresses on all paths change at once.
    ReaddressClientAll,
    /// A NAT on the first path gives the client another port.
    Rebind,
    /// The server's address changes.
    ReaddressServer,
    /// The first path's relay is killed and started again.
    RelayRestart,
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
    /// How long the whole takes, about.
    pub fn estimate(&self) -> Duration {
        Schedule::new(self, |_, _| false).estimate()
    }

    /// The cases of these numbers, their networks drawn from `seed`.
    pub(crate) fn drawn(&self, cases: &[usize], options: &RunOptions, seed: u64) -> Result<Vec<Case>, Error> {
        let again = self.draw.map(|make| make(&RunOptions { seed, ..options.clone() })).transpose()?;
        let drawn = |&index: &usize| {
            let case = &self.cases[index];
            let same = again.iter().flat_map(|again| &again.cases).find(|other| other.key == case.key);
            Case { topology: same.unwrap_or(case).topology.clone(), ..case.clone() }
        };
        Ok(cases.iter().map(drawn).collect())
    }

    /// The cases, cut into those that start at the same time.
    pub(crate) fn groups(&self) -> Box<dyn Iterator<Item = &[Case]> + '_> {
        match self.side_by_side {
            SideBySide::Cases(count) => Box::new(self.cases.chunks(count.max(1))),
            SideBySide::Rates(up_to) => Box::new(within(&self.cases, up_to)),
            SideBySide::Links { alike, .. } => Box::new(
                self.cases
                    .chunk_by(|one, other| alike.iter().all(|name| one.field(name) == other.field(name))),
            ),
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
            sum += case.topology.rate().as_bps();
            sum <= up_to.as_bps()
        };
        let count = cases.iter().take_while(fits).count().max(1).min(cases.len());
        let (group, rest) = cases.split_at(count);
        cases = rest;
        (!group.is_empty()).then_some(group)
    })
}

/// How long cases take side by side.
pub(crate) fn longest<'a>(cases: impl Iterator<Item = &'a Case>) -> Duration {
    cases.map(|case| case.estimate).max().unwrap_or_default()
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
pub type Make = fn(&RunOptions) -> Result<Experiment, Error>;

const EXPERIMENTS: [(&str, &str, Make); 25] = [
    ("bond", bond::ABOUT, bond::experiment),
    ("demo", demo::ABOUT, demo::experiment),
    ("tunnel", tunnel::ABOUT, tunnel::experiment),
    ("tunnel-events", events::ABOUT, events::experiment),
    ("tunnel-hostile", hostile::ABOUT, hostile::experiment),
    ("flight-wired", flight::ABOUT_WIRED, flight::wired),
    ("flight-loss", flight::ABOUT_LOSS, flight::loss),
    ("flight-fairness", flight::ABOUT_FAIRNESS, flight::fairness),
    ("flight-radio", flight::ABOUT_RADIO, flight::radio),
    ("flight-field", flight::ABOUT_FIELD, flight::field),
    ("flood-relay", flood::ABOUT_RELAY, flood::relay),
    ("flood-breakdown", flood::ABOUT_BREAKDOWN, flood::breakdown),
    ("flood-rate", flood::ABOUT_RATE, flood::rate),
    ("flood-reach", flood::ABOUT_REACH, flood::reach),
    ("coding-wait", coding::ABOUT_WAIT, coding::wait),
    ("coding-gain", coding::ABOUT_GAIN, coding::gain),
    ("coding-loss", coding::ABOUT_LOSS, coding::loss),
    ("bicast-loss", bicast::ABOUT_LOSS, bicast::loss),
    ("bicast-load", bicast::ABOUT_LOAD, bicast::load),
    ("bicast-burst", bicast::ABOUT_BURST, bicast::burst),
    ("bicast-uneven", bicast::ABOUT_UNEVEN, bicast::uneven),
    ("bicast-cut", bicast::ABOUT_CUT, bicast::cut),
    ("bicast-budget", bicast::ABOUT_BUDGET, bicast::budget),
    ("bicast-dropping", bicast::ABOUT_DROPPING, bicast::dropping),
    ("bicast-tcp", bicast::ABOUT_TCP, bicast::tcp),
];

/// The experiments: name, and in one line what each measures.
pub fn list() -> Vec<(&'static str, &'static str)> {
    EXPERIMENTS.iter().map(|&(name, about, _)| (name, about)).collect()
}

/// The experiment `name` as `options` want it.
pub fn find(name: &str, options: &RunOptions) -> Result<Experiment, Error> {
    let found = EXPERIMENTS.iter().find(|(known, ..)| *known == name);
    let (_, _, make) = found.ok_or_else(|| Error::UnknownExperiment(name.into()))?;
    make(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_bad_input() {
        let error = find("nothing", &RunOptions::default()).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }

    #[test]
    fn every_experiment_has_distinct_cases_of_a_stated_length() {
        for (name, _) in list() {
            let experiment = find(name, &RunOptions::default()).unwrap();
            assert_eq!(experiment.name, name);
            assert!(experiment.repeats > 0 && !experiment.estimate().is_zero());
            let titles: std::collections::BTreeSet<_> =
                experiment.cases.iter().map(Experiment::title).collect();
            assert_eq!(titles.len(), experiment.cases.len());
        }
    }
}
