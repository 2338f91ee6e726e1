//! The program that transfers, `transfer.c`, and one run of it at both ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::network::{Network, Place};
use super::test::{Stack, Test};
use crate::command::complete;
use crate::error::{Doing, Error, Result};
use crate::guest::{Job, write_program};
use crate::namespace::Namespace;
use crate::program::Process;

const SOURCE: &str = include_str!("transfer.c");
/// The program for the kernel's SCTP (`build.rs`).
const FOR_KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/transfer"));

/// The receiver's port for the first transfer; each has its own.
const PORT: usize = 5001;

/// How long programs may take to get ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// Writes it into `folder`; that for usrsctp is compiled now, with the library that is installed.
    pub(super) fn make(stack: Stack, folder: &Path) -> Result<Self> {
        if stack == Stack::Usrsctp {
            return Self::compile(folder);
        }
        let path = folder.join("transfer");
        write_program(&path, FOR_KERNEL).map(|()| Self(path))
    }

    /// Holds senders of usrsctp back until this is dropped (`transfer.c`).
    fn hold_senders(&self) -> Result<File> {
        let doing = || format!("lock {}", self.0.display());
        let file = File::open(&self.0).doing(doing)?;
        flock(&file, FlockOperation::LockExclusive).map_err(std::io::Error::from).doing(doing)?;
        Ok(file)
    }

    /// Starts it at `place` with `words`; it is ended after `limit`.
    fn start(&self, place: Place, words: &[String], limit: Duration) -> Result<Running> {
        match place {
            Place::Guest(guest) => {
                let line = format!("exec '{}' {}", self.0.display(), words.join(" "));
                guest.start(&line).map(Running::Guest)
            }
            Place::Host(host) => self.start_on(host, words, limit),
        }
    }

    pub(crate) fn start_on(&self, host: &Namespace, words: &[String], limit: Duration) -> Result<Running> {
        let mut arguments = vec![limit.as_secs().to_string(), self.0.to_string_lossy().into_owned()];
        arguments.extend_from_slice(words);
        let mut process = Process::start(host, "timeout", &arguments)?;
        let lines = BufReader::new(process.stdout()?);
        Ok(Running::Host(process, lines))
    }

    /// Compiles it in `folder` with the usrsctp that is installed.
    pub(crate) fn compile(folder: &Path) -> Result<Self> {
        let (source, program) = (folder.join("transfer.c"), folder.join("transfer"));
        fs::write(&source, SOURCE).doing(|| format!("write {}", source.display()))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-DUSRSCTP", "-o"]).args([&program, &source]).args(["-lusrsctp", "-lpthread"]);
        complete("cc", &mut compiler, "").map(|_| Self(program))
    }
}

/// A program at work.
pub(crate) enum Running {
    Guest(Job),
    Host(Process, BufReader<ChildStdout>),
}

impl Running {
    /// The next line that it says; `None` at its end. Fails if it has failed.
    fn line(&mut self, limit: Duration) -> Result<Option<String>> {
        match self {
            Running::Guest(job) => job.next_line(limit),
            Running::Host(process, lines) => {
                let mut line = String::new();
                lines.read_line(&mut line).doing(|| "read what `transfer` says".into())?;
                if line.is_empty() {
                    process.finish()?;
                }
                Ok(Some(line.trim().to_owned()).filter(|line| !line.is_empty()))
            }
        }
    }

    /// Whether one on a host has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if let Running::Host(process, _) = self { process.has_ended() } else { false }
    }

    pub(crate) fn expect_line(&mut self, limit: Duration) -> Result<String> {
        self.line(limit)?.ok_or_else(|| Error::program("transfer", "it has ended without a word"))
    }
}

/// What one transfer did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// At the receiver, from the association's being up to the last byte.
    pub(crate) seconds: f64,
    /// Between two bytes reaching the receiving program.
    pub(crate) longest_gap_ms: f64,
    /// Gaps over 500 ms.
    pub(super) long_gaps: f64,
    /// Of the sender's retransmission timer. The kernel counts for all transfers together: the first has the sum.
    pub(super) t3_expiries: f64,
    pub(super) retransmitted_chunks: f64,
}

/// Does the transfers of `test`, each with its primary path, and `meanwhile` once all have begun.
pub(super) fn run(
    network: &mut Network,
    program: &Program,
    test: &Test,
    primaries: &[usize],
    meanwhile: impl FnOnce(&mut Network) -> Result<()>,
) -> Result<Vec<Outcome>> {
    let probe = test.stack.is_probed().then(|| "probe".to_owned());
    let words = |own: Vec<String>| probe.clone().into_iter().chain(own).collect::<Vec<_>>();
    let mut receivers = Vec::new();
    let [first, second] = network.receiver().1;
    for number in 0..primaries.len() {
        let own = ["receive".into(), port(number), test.bytes.to_string(), first.clone(), second.clone()];
        let words = words(own.into());
        let mut receiver = program.start(network.receiver().0, &words, test.limit)?;
        receiver.expect_line(READY_LIMIT)?;
        receivers.push(receiver);
    }
    let mut senders = Vec::new();
    let held = (test.stack == Stack::Usrsctp).then(|| program.hold_senders()).transpose()?;
    for (number, primary) in primaries.iter().enumerate() {
        let (place, own) = network.sender(number);
        let mut words = words(vec!["send".into(), port(number), test.bytes.to_string(), primary.to_string()]);
        words.extend(own.into_iter().chain([first.clone(), second.clone()]));
        let mut sender = program.start(place, &words, test.limit)?;
        if held.is_some() {
            sender.expect_line(READY_LIMIT)?;
        }
        senders.push(sender);
    }
    drop(held);
    meanwhile(network)?;
    let mut outcomes = Vec::new();
    for (mut receiver, mut sender) in receivers.into_iter().zip(senders) {
        let line = match receiver.expect_line(test.limit) {
            Ok(line) => line,
            // If the sender has failed, that is why.
            Err(error) => return Err(sender.line(Duration::ZERO).err().unwrap_or(error)),
        };
        let mut outcome = Outcome::read(&line)?;
        let mut said = String::new();
        while let Some(line) = sender.line(test.limit)? {
            said += &(line + "\n");
        }
        if test.stack == Stack::Usrsctp {
            outcome.t3_expiries = counted(&said, "t3_expiries")?;
            outcome.retransmitted_chunks = counted(&said, "retransmitted_chunks")?;
        }
        outcomes.push(outcome);
    }
    for text in network.kernel_counters(test.stack)? {
        let counted = |name| counted(&text, name);
        outcomes[0].t3_expiries += counted("SctpT3RtxExpireds")?;
        outcomes[0].retransmitted_chunks += counted("SctpFastRetransmits")? + counted("SctpT3Retransmits")?;
    }
    Ok(outcomes)
}

fn port(number: usize) -> String {
    (PORT + number).to_string()
}

impl Outcome {
    /// What a receiver says of it.
    pub(crate) fn read(line: &str) -> Result<Self> {
        let numbers: Option<Vec<f64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[seconds, longest_gap_ms, long_gaps]) => {
                Ok(Self { seconds, longest_gap_ms, long_gaps, ..Self::default() })
            }
            _ => Err(Error::program("transfer", format!("it says `{line}`"))),
        }
    }
}

/// What lines of NAME, blanks, NUMBER have by this name.
fn counted(text: &str, name: &str) -> Result<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let number = lines.find(|(own, _)| *own == name).and_then(|(_, number)| number.trim().parse().ok());
    number.ok_or_else(|| Error::program("SCTP", format!("it does not count {name}, but: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_read() {
        let outcome = Outcome::read("1.500000 20.500 2").unwrap();
        assert_eq!((outcome.seconds, outcome.longest_gap_ms, outcome.long_gaps), (1.5, 20.5, 2.0));
        let said = "SctpT3RtxExpireds               \t4\nt3_expiries 3\nSctpFastRetransmits x\n";
        assert_eq!(counted(said, "SctpT3RtxExpireds").unwrap() + counted(said, "t3_expiries").unwrap(), 7.0);
        assert!(counted(said, "SctpFastRetransmits").is_err() && counted(said, "SctpT3").is_err());
        assert!(Outcome::read("transfer: receive: Connection reset by peer").is_err());
    }
}
