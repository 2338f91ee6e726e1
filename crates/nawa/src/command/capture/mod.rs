//! `nawa capture`

mod file;

use std::cell::Cell;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use device::monotonic;
use device::poller::{Interest, Poller, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::file::File;
use crate::config::value;
use crate::control::capture::{Line, Wanted};
use crate::control::client::Daemon;
use crate::control::{Request, STALLED};
use crate::failure::Failure;

/// The longest line that a daemon writes: a packet of 64 KiB, in base64 and with its comment.
const LONGEST: usize = 256 << 10;
/// Bytes that a pipe takes without a pause where it takes any (pipe(7)).
const PIPE_BUF: usize = 4096;
/// How long a reader has, at the end, to make room for the rest: one that pauses makes some, one that has stopped does not.
const LAST: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const READ: usize = 64 << 10;

/// What to capture, and where to write it.
#[derive(Args, Debug)]
pub struct Capture {
    /// The file, which is overwritten; `-`: standard output
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Only what goes to and comes from this peer
    #[arg(long, value_name = "NAME")]
    pub peer: Option<String>,
    /// Only what goes over paths of this name
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// Only inner packets
    #[arg(long, conflicts_with = "outer")]
    pub inner: bool,
    /// Only outer packets
    #[arg(long)]
    pub outer: bool,
    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = value::whole::<u64>(1..=u64::MAX))]
    pub count: Option<u64>,
    /// End after so long, with its unit
    #[arg(long, value_name = "TIME", value_parser = value::time)]
    pub duration: Option<Duration>,
}

/// Why it ends.
enum End {
    /// As it was told to.
    Told,
    /// The daemon, or its tunnel, has gone.
    Gone(String),
}

/// Captures until there is enough, or somebody ends it.
pub fn run(capture: &Capture) -> Result<(), Failure> {
    let Capture { file, peer, path, inner, outer, .. } = capture;
    let to_stdout = file == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::bad_input(
            "packets make no sense on a terminal; name a file, or pipe it: nawa capture - | wireshark -k -i -",
        ));
    }
    let mut daemon = Daemon::connect()?;
    super::path::select(&mut daemon.ask(Request::Status)?, peer.as_deref(), path.as_deref())?;
    let wanted = Wanted { peer: peer.clone(), path: path.clone(), inner: !outer, outer: !inner };
    let answer = daemon.ask(Request::Capture(wanted))?;
    let interface = answer["capturing"].as_str().unwrap_or("inner").to_owned();
    let cannot = |error| Failure::failed(format!("cannot write to {}: {error}", file.display()));
    let opened =
        if to_stdout { io::stdout().as_fd().try_clone_to_owned().map(Into::into) } else { create(file) };
    let out = opened.map_err(cannot)?;
    // A pipe without a reader has been waited for, as long as nobody ended that.
    let signals = Signals::new().map_err(|error| Failure::failed(format!("cannot wait: {error}")))?;
    let due = capture.duration.map(|duration| monotonic() + duration);
    let ending = Rc::new(Ending { signals, due, since: Cell::new(None) });
    let who = daemon.who();
    let (stream, come) = daemon.into_stream();
    let begun = File::new(Box::new(Out { out, ending: Rc::clone(&ending) }), &interface);
    let written = begun.and_then(|mut file| {
        let end = write(&mut file, capture.count, &ending, (&stream, come, &who))?;
        let total = file.end()?;
        Ok((end, total))
    });
    match written {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(cannot(error)),
        Ok((end, total)) => {
            say(&total);
            match end {
                End::Told => Ok(()),
                End::Gone(why) => Err(Failure::failed(format!("{why}; what came until then is written"))),
            }
        }
    }
}

fn say(total: &file::Total) {
    let missed = match total.missed {
        0 => String::new(),
        missed => format!("; {missed} came too fast to be written"),
    };
    // Where nobody listens, the file says it as well.
    let _ = writeln!(io::stderr(), "nawa: {} packets written{missed}", total.packets);
}

fn create(file: &Path) -> io::Result<std::fs::File> {
    // Whoever reads an old one through a descriptor goes on with what is new: it is emptied only if it is the caller's.
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(file)?;
    let found = file.metadata()?;
    // The rights of a pipe or a device are those of whoever made it.
    if found.is_file() {
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user; remove it, or name another file"));
        }
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    }
    Ok(file)
}

/// What ends it, whatever comes.
struct Ending {
    signals: Signals,
    due: Option<Duration>,
    /// Since when it has.
    since: Cell<Option<Duration>>,
}

impl Ending {
    fn has_come(&self) -> bool {
        let now = monotonic();
        let comes = || self.due.is_some_and(|due| now >= due) || self.signals.next().is_some();
        if self.since.get().is_none() && comes() {
            self.since.set(Some(now));
        }
        self.since.get().is_some()
    }

    /// How long the end, or what is left to do behind it, may be waited for.
    fn rest(&self) -> Option<Duration> {
        let last = self.since.get().map(|since| since + LAST);
        last.or(self.due).map(|due| due.saturating_sub(monotonic()))
    }
}

/// Hands on what its reader takes, until the end: a reader that has stopped holds nothing up.
struct Out {
    out: std::fs::File,
    ending: Rc<Ending>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let over = self.ending.has_come();
            let wait = self.ending.rest().and_then(|time| Timespec::try_from(time).ok());
            let mut ready =
                [PollFd::new(&self.out, PollFlags::OUT), PollFd::new(&self.ending.signals, PollFlags::IN)];
            // A signal that has come is not waited for.
            let waits_for = if over { 1 } else { 2 };
            poll(&mut ready[..waits_for], wait.as_ref())?;
            if !ready[0].revents().is_empty() {
                return self.out.write(&bytes[..bytes.len().min(PIPE_BUF)]);
            }
            if over {
                return Err(io::Error::other("its reader takes nothing, and has not had all"));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what comes on `stream`; what has come of it is first.
fn write(
    file: &mut File,
    count: Option<u64>,
    ending: &Ending,
    (stream, mut come, who): (&UnixStream, Vec<u8>, &str),
) -> io::Result<End> {
    let mut poller = Poller::new()?;
    poller.add(&ending.signals, 0, Interest::Read)?;
    poller.add(stream, 1, Interest::Read)?;
    stream.set_nonblocking(true)?;
    let (mut stream, mut buffer) = (stream, vec![0; READ]);
    file.flush()?;
    while !ending.has_come() {
        while let Some(length) = come.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = come.drain(..=length).collect();
            match serde_json::from_slice(&line) {
                Ok(Line::Packet(packet)) => file.put(&packet)?,
                Ok(Line::Missed { missed }) => file.miss(missed),
                Ok(Line::Error { error }) => return Ok(End::Gone(error)),
                Err(error) => {
                    return Ok(End::Gone(format!("the daemon ({who}) is of another version: {error}")));
                }
            }
            if count.is_some_and(|count| file.packets() >= count) {
                return Ok(End::Told);
            }
        }
        if come.len() > LONGEST {
            return Ok(End::Gone(format!("the daemon ({who}) writes no lines")));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(End::Gone(why_it_ends(who))),
            Ok(length) => come.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                file.flush()?;
                poller.wait(ending.rest())?.for_each(drop);
            }
            Err(error) => return Ok(End::Gone(format!("the daemon ({who}) went away: {error}"))),
        }
    }
    Ok(End::Told)
}

/// Why the daemon writes no more, though it says nothing.
fn why_it_ends(who: &str) -> String {
    match Daemon::find() {
        Ok(Some(daemon)) if daemon.who() == who => {
            let minutes = STALLED.as_secs() / 60;
            format!("the daemon ({who}) waits no longer, for nothing was taken from it for {minutes} minutes")
        }
        _ => format!("the daemon ({who}) went away"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_becomes_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let old = folder.path().join("old.pcapng");
        std::fs::write(&old, "packets").expect("a file");
        std::fs::set_permissions(&old, Permissions::from_mode(0o644)).expect("its mode");
        let file = create(&old).expect("it is overwritten");
        let found = file.metadata().expect("it is there");
        assert_eq!((found.mode() & 0o777, found.len()), (0o600, 0));
        let mode = || std::fs::metadata("/dev/null").expect("a device").mode();
        let before = mode();
        create(Path::new("/dev/null")).expect("it takes all");
        assert_eq!(mode(), before);
        std::fs::write(&old, "packets").expect("a file");
        // Root alone can give a file away.
        if std::os::unix::fs::chown(&old, Some(1), None).is_ok() {
            create(&old).expect_err("it is another's");
            assert_eq!(std::fs::read(&old).expect("the file"), b"packets");
        }
    }
}
