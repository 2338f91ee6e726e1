//! Logs on stderr. Levels by who must act: `error` somebody now, `warn` somebody some day, `info` nobody,
//! `debug` a developer; what happens per packet is `trace`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;

/// Starts logging at `level`; without one as `RUST_LOG` says, or `info`.
///
/// # Errors
/// Bad input if `level` is no filter.
pub fn start(level: Option<&str>) -> Result<(), Failure> {
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter(level)?).with_writer(std::io::stderr);
    let subscriber =
        subscriber.with_target(false).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if journal {
        subscriber.without_time().init()
    } else {
        subscriber.init()
    }
    Ok(())
}

/// Logs to the journal from here on, or nowhere where there is none.
pub fn leave_terminal() {
    let journal = journal().map(OwnedFd::from);
    let log = journal.or_else(|_| File::options().write(true).open("/dev/null").map(OwnedFd::from));
    if let Err(error) = log.and_then(|log| rustix::stdio::dup2_stderr(log).map_err(io::Error::from)) {
        tracing::warn!(%error, "cannot leave the terminal");
    }
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
    match level {
        Some(level) => builder
            .parse(level)
            .map_err(|error| Failure::bad_input(format!("--log-level {level}: {error}; write e.g. `debug`"))),
        None => Ok(builder.from_env_lossy()),
    }
}
