//! `nawa capture`

mod file;

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use device::monotonic;
use device::poller::{Interest, Poller, Signals};

use self::file::File;
use crate::config::value;
use crate::control::Request;
use crate::control::capture::{Line, Wanted};
use crate::control::client::Daemon;
use crate::failure::Failure;

/// The longest line that a daemon writes: a packet of 64 KiB, in base64 and with its comment.
const LONGEST: usize = 256 << 10;
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after so long, with its unit
    #[arg(long, value_name = "TIME", value_parser = value::pause)]
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
    let wait = |error: io::Error| Failure::failed(format!("cannot wait: {error}"));
    let signals = Signals::new().map_err(wait)?;
    let mut state = daemon.ask(Request::Status)?;
    if state["tunnel"].is_null() {
        return Err(Failure::failed(super::status::no_tunnel(&state)));
    }
    if let Some(peer) = peer {
        let name = path.clone();
        let show = crate::cli::PathShow { peer: Some(peer.clone()), name, json: false };
        super::path::select(&mut state, &show)?;
    }
    let wanted = Wanted { peer: peer.clone(), path: path.clone(), inner: !outer, outer: !inner };
    let answer = daemon.ask(Request::Capture(wanted))?;
    let interface = answer["capturing"].as_str().unwrap_or("inner").to_owned();
    let out: Box<dyn Write> = if to_stdout { Box::new(io::stdout()) } else { Box::new(create(file)?) };
    let pid = daemon.pid();
    let (stream, come) = daemon.into_stream();
    let begun = File::new(out, &interface);
    let written = begun.and_then(|mut file| {
        let end = write(&mut file, capture, &signals, (&stream, come, pid))?;
        let total = file.end()?;
        Ok((end, total))
    });
    match written {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("cannot write to {}: {error}", file.display()))),
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

fn create(file: &Path) -> Result<std::fs::File, Failure> {
    let created = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    created.map_err(|error| Failure::failed(format!("cannot write to {}: {error}", file.display())))
}

/// Writes what comes on `stream`; what has come of it is first.
fn write(
    file: &mut File,
    capture: &Capture,
    signals: &Signals,
    (stream, mut come, pid): (&UnixStream, Vec<u8>, i32),
) -> io::Result<End> {
    let mut poller = Poller::new()?;
    poller.add(signals, 0, Interest::Read)?;
    poller.add(stream, 1, Interest::Read)?;
    stream.set_nonblocking(true)?;
    let (mut stream, mut buffer) = (stream, vec![0; READ]);
    let due = capture.duration.map(|duration| monotonic() + duration);
    file.flush()?;
    loop {
        while let Some(length) = come.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = come.drain(..=length).collect();
            match serde_json::from_slice(&line) {
                Ok(Line::Packet(packet)) => file.put(&packet)?,
                Ok(Line::Missed { missed }) => file.miss(missed),
                Ok(Line::Error { error }) => return Ok(End::Gone(error)),
                Err(error) => {
                    return Ok(End::Gone(format!(
                        "the daemon (process {pid}) is of another version: {error}"
                    )));
                }
            }
            if capture.count.is_some_and(|count| file.packets() >= count) {
                return Ok(End::Told);
            }
        }
        if come.len() > LONGEST {
            return Ok(End::Gone(format!("the daemon (process {pid}) writes no lines")));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(End::Gone(format!("the daemon (process {pid}) went away"))),
            Ok(length) => {
                come.extend_from_slice(&buffer[..length]);
                if signals.next().is_none() && due.is_none_or(|due| monotonic() < due) {
                    continue;
                }
                return Ok(End::Told);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => file.flush()?,
            Err(error) => return Ok(End::Gone(format!("the daemon (process {pid}) went away: {error}"))),
        }
        let rest = due.map(|due| due.saturating_sub(monotonic()));
        poller.wait(rest)?.for_each(drop);
        if signals.next().is_some() || due.is_some_and(|due| monotonic() >= due) {
            return Ok(End::Told);
        }
    }
}
