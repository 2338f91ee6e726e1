//! Logs on stderr, which in the background is the journal or, where there is none, a file. Levels by who must act: `error` somebody
//! now, `warn` somebody some day, `info` nobody, `debug` a developer; what happens per packet is `trace`.
//!
//! The lines of a daemon that is ready are written by a thread of their own ([`write_apart`]), others at once.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;
use crate::terminal;

/// The log's file takes so many bytes; then it is put aside as `nawa.log.1`, in place of the one before.
const LARGEST: u64 = 1 << 20;
/// So many lines wait to be written, half a MiB or so: as many as a burst has, and little memory where nobody takes any.
const WAITING: usize = 4096;

/// Where the log goes in the background.
enum Place {
    Journal,
    File(PathBuf),
    Nowhere(String),
}

static PLACE: OnceLock<Place> = OnceLock::new();
/// Why the last line could not be written.
static FAILED: Mutex<Option<String>> = Mutex::new(None);
/// There once lines are written apart.
static APART: OnceLock<NonBlocking> = OnceLock::new();

/// Starts logging at `level`; without one as `RUST_LOG` says, or `info`.
///
/// # Errors
/// Bad input if `level` is no filter.
pub fn start(level: Option<&str>) -> Result<(), Failure> {
    let journal = is_journal();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter(level)?).with_writer(|| Log);
    let colors = io::stderr().is_terminal() && terminal::has_colors(terminal::variable);
    let subscriber = subscriber.with_target(false).with_ansi(colors);
    // That a line cannot be written would be said on the same stderr, with a panic where that fails.
    let subscriber = subscriber.log_internal_errors(false);
    if journal {
        subscriber.without_time().init()
    } else {
        subscriber.init()
    }
    Ok(())
}

/// Lines are written by a thread of their own from here on: who logs does not wait for a reader that stalls. The thread leaves to
/// others the signals that the calling one does. When what is returned is dropped, what waits is written, or a second is over.
pub fn write_apart() -> WorkerGuard {
    let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING).thread_name("log");
    let (lines, guard) = builder.finish(Apart::default());
    // It begins once.
    let _ = APART.set(lines);
    guard
}

/// Where the log of this process is, for people; `None` if it is this process's stderr.
pub fn place() -> Option<String> {
    let of_process = || format!("journalctl _PID={}", std::process::id());
    match PLACE.get() {
        Some(Place::Journal) => Some("journalctl -t nawa".into()),
        Some(Place::File(file)) => match &*FAILED.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Some(format!("none, for {} cannot be written: {why}", file.display())),
            None => Some(file.display().to_string()),
        },
        Some(Place::Nowhere(why)) => Some(format!("none, {why}")),
        None => is_journal().then(of_process),
    }
}

/// Logs to the journal from here on or, where there is none, to `nawa.log` in `folder`.
pub fn leave_terminal(folder: &Path) {
    let file = folder.join("nawa.log");
    let (log, place) = match journal() {
        Ok(journal) => (Ok(OwnedFd::from(journal)), Place::Journal),
        Err(_) => match fs::create_dir_all(folder).and_then(|()| open(&file)) {
            Ok(log) => (Ok(log.into()), Place::File(file)),
            Err(error) => {
                (nothing(), Place::Nowhere(format!("for {} cannot be written: {error}", file.display())))
            }
        },
    };
    if let Err(error) = log.and_then(|log| rustix::stdio::dup2_stderr(log).map_err(io::Error::from)) {
        tracing::warn!("the log stays on the terminal: {error}");
        return;
    }
    // It is left once.
    let _ = PLACE.set(place);
}

fn open(file: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(file)
}

fn nothing() -> io::Result<OwnedFd> {
    File::options().write(true).open("/dev/null").map(OwnedFd::from)
}

/// Takes a line at a time, as it is logged.
struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match APART.get() {
            Some(lines) => lines.clone().write(line),
            None => io::stderr().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what others have logged, and how much found no room.
#[derive(Default)]
struct Apart {
    lost: usize,
}

impl Write for Apart {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut to = writer();
        let lost = APART.get().map_or(0, |lines| lines.error_counter().dropped_lines());
        if lost > self.lost {
            writeln!(to, "nawa: {} lines of the log are lost: nobody took them in time", lost - self.lost)?;
            self.lost = lost;
        }
        let written = to.write(line);
        let failed = written.as_ref().err().map(io::Error::to_string);
        *FAILED.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a line is written to. Whatever else writes to stderr goes to the same place.
fn writer() -> io::Stderr {
    if let Some(Place::File(file)) = PLACE.get()
        && let Ok(old) = current()
        && old.metadata().is_ok_and(|log| log.len() >= LARGEST)
    {
        // Where the disk is full, or read only, the old one goes on.
        let _ =
            begin_anew(file, &old).and_then(|log| rustix::stdio::dup2_stderr(log).map_err(io::Error::from));
    }
    io::stderr()
}

/// A new file, `old` put aside; another daemon that logs there may do so at the same time, or have done so.
fn begin_anew(file: &Path, old: &File) -> io::Result<File> {
    if matches!(old.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(ErrorKind::WouldBlock.into());
    }
    // Where somebody has moved or removed it, nothing has to be put aside.
    if fs::metadata(file)
        .is_ok_and(|there| old.metadata().is_ok_and(|old| place_of(&old) == place_of(&there)))
    {
        let _ = fs::rename(file, file.with_extension("log.1"));
    }
    let new = open(file);
    let _ = old.unlock();
    new
}

fn current() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}

/// Device and inode.
fn place_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether stderr is the journal, as systemd says of it: device and inode.
fn is_journal() -> bool {
    let said = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let own = current().and_then(|own| own.metadata());
    own.is_ok_and(|own| said == format!("{}:{}", own.dev(), own.ino()))
}

/// A stream that systemd-journald reads lines from, as systemd-cat(1) opens it: identifier, unit, priority, then
/// whether lines carry levels and are forwarded.
fn journal() -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect("/run/systemd/journal/stdout")?;
    stream.write_all(b"nawa\n\n6\n0\n0\n0\n0\n")?;
    Ok(stream)
}

fn filter(level: Option<&str>) -> Result<EnvFilter, Failure> {
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let wrong = |level: &str| {
        let write = "write error, warn, info, debug or trace, or that of a part, as tunnel=debug";
        Failure::bad_input(format!("--log-level \"{level}\" is none; {write}"))
    };
    match level {
        // A word alone would be taken for a part's name.
        Some(level) if !level.contains('=') && level.parse::<LevelFilter>().is_err() => Err(wrong(level)),
        Some(level) => builder.parse(level).map_err(|_| wrong(level)),
        None => Ok(builder.from_env_lossy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_put_aside_leaves_two_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("nawa.log");
        let mut log = open(&file).expect("a log");
        for line in ["first\n", "second\n", "third\n"] {
            log.write_all(line.as_bytes()).expect("a line");
            log = begin_anew(&file, &log).expect("another");
        }
        log.write_all(b"fourth\n").expect("a line");
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a log");
        assert_eq!((read("nawa.log").as_str(), read("nawa.log.1").as_str()), ("fourth\n", "third\n"));
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2);
    }

    #[test]
    fn a_log_that_somebody_has_removed_begins_anew() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("nawa.log");
        let log = open(&file).expect("a log");
        fs::remove_file(&file).expect("it is there");
        begin_anew(&file, &log).expect("a log").write_all(b"first\n").expect("a line");
        assert_eq!(fs::read_to_string(&file).expect("a log"), "first\n");
    }

    #[test]
    fn two_daemons_that_log_to_one_file_lose_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("nawa.log");
        let mut logs = [open(&file).expect("a log"), open(&file).expect("a log")];
        logs.iter_mut().for_each(|log| log.write_all(b"old\n").expect("a line"));
        for log in &mut logs {
            *log = begin_anew(&file, log).expect("another");
            log.write_all(b"new\n").expect("a line");
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a log");
        assert_eq!((read("nawa.log").as_str(), read("nawa.log.1").as_str()), ("new\nnew\n", "old\nold\n"));
    }
}
