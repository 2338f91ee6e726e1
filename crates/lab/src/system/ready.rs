//! What a system is given to start, keys among it, and what it is once it carries traffic.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::command::complete;
use crate::error::{Doing, Error, Result};
use crate::network::{Network, SERVER};
use crate::program::Process;

/// For so long a tunnel may take to get ready: a guest without KVM, beside other work, takes more than 15 s.
pub(super) const START_LIMIT: Duration = Duration::from_secs(60);

/// What a system may need to be started.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// The `nawa` to start.
    pub nawa: &'a Path,
    /// An empty folder for configuration files, as long as the system runs.
    pub folder: &'a Path,
}

impl Means<'_> {
    /// Somebody with a new key, in the folder.
    pub(crate) fn identity(&self, name: impl Into<String>) -> Result<Identity> {
        let (private, name) = (run(self.nawa, "keygen", "")?, name.into());
        let path = self.folder.join(format!("{name}.key"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(private.as_bytes()));
        written.doing(|| format!("write {}", path.display()))?;
        let public_key = run(self.nawa, "pubkey", &private)?.trim().into();
        Ok(Identity { name, key_file: path, public_key })
    }

    /// The public key of the Nawa that was started as `name`.
    pub(crate) fn public_key(&self, name: &str) -> Result<[u8; 32]> {
        let file = self.folder.join(format!("{name}.key"));
        let private = std::fs::read_to_string(&file).doing(|| format!("read {}", file.display()))?;
        let public = STANDARD.decode(run(self.nawa, "pubkey", &private)?.trim()).ok();
        let public = public.and_then(|bytes| bytes.try_into().ok());
        public.ok_or_else(|| Error::program("nawa pubkey", "it printed no key"))
    }
}

/// A system that carries traffic. Dropping it stops it.
#[derive(Debug)]
pub struct Ready {
    /// Words that precede every program that uses it.
    pub launcher: &'static [&'static str],
    /// Whether servers listen for MPTCP.
    pub multipath: bool,
    /// The server's address through it.
    pub server: IpAddr,
    /// The addresses that clients, and `ping` beside them, bind, one per connection; `None` leaves it to the kernel.
    pub sources: Vec<Option<IpAddr>>,
    pub(super) processes: Vec<Process>,
    /// The relays' programs, one per path; none where a system has none.
    pub(super) relays: Vec<Process>,
}

impl Ready {
    /// Plain connections to the server, one from each of `sources`.
    pub(super) fn plain(sources: Vec<IpAddr>) -> Self {
        Self::of(SERVER, sources.into_iter().map(Some).collect(), Vec::new())
    }

    /// A tunnel, whose `server` address is reached as the kernel routes it.
    pub(super) fn tunnel(server: IpAddr, processes: Vec<Process>) -> Self {
        Self::of(server, vec![None], processes)
    }

    fn of(server: IpAddr, sources: Vec<Option<IpAddr>>, processes: Vec<Process>) -> Self {
        Self { launcher: &[], multipath: false, server, sources, processes, relays: Vec::new() }
    }

    /// The program that attackers are after: the first relay's, or the server's.
    pub(crate) fn attacked(&self, relay: bool) -> Option<&Process> {
        if relay { self.relays.first() } else { self.processes.first() }
    }

    /// Fails if a program of the system has ended.
    pub fn check(&mut self) -> Result<()> {
        self.processes.iter_mut().chain(&mut self.relays).try_for_each(Process::check)
    }

    /// Kills the relay of path `path` (from 0) and starts it again; nothing where there is none.
    pub fn restart_relay(&mut self, network: &Network, path: usize) -> Result<()> {
        self.relays.get_mut(path).map_or(Ok(()), |relay| relay.restart(&network.relays[path]))
    }
}

/// Somebody who has a key.
pub(crate) struct Identity {
    /// In names of files.
    pub(crate) name: String,
    /// The private key, which only the file's owner may read.
    pub(crate) key_file: PathBuf,
    /// In base64.
    pub(crate) public_key: String,
}

/// What `nawa COMMAND` prints when it reads `input`.
fn run(nawa: &Path, command: &str, input: &str) -> Result<String> {
    complete(&format!("nawa {command}"), Command::new(nawa).arg(command), input)
}
