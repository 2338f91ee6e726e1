//! A rival: a program of anybody's that makes one address reachable over the paths that there are.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::network::{Network, SERVER};
use crate::ping;
use crate::program::Process;

use super::ready::{Means, Ready, START_LIMIT};

const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
const PING_LIMIT: Duration = Duration::from_secs(1);

/// A user-space WireGuard by the name of its program.
const WIREGUARD: &str = include_str!("wireguard");

/// Where such a program is: in the folder that `NAWA_RIVALS` names, or else in `target/rivals/bin`.
pub fn find(program: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("NAWA_RIVALS").map_or_else(|| "target/rivals/bin".into(), PathBuf::from);
    let path = std::path::absolute(folder.join(program)).ok()?;
    path.is_file().then_some(path)
}

/// What starts a user-space WireGuard.
pub(super) fn wireguard(program: &str) -> Result<[OsString; 4]> {
    let missing = || Error::program(program, "it is not installed: run `make rivals`");
    Ok(["sh".into(), "-c".into(), WIREGUARD.into(), find(program).ok_or_else(missing)?.into()])
}

/// Starts `program` with the word `client` and with `server`, each on its host; returns when the server's inner address answers. What
/// they get is in docs/lab.md.
pub(super) fn start(program: &[OsString], network: &Network, means: &Means) -> Result<Ready> {
    let path = |path| format!("{}={}", network.interface(path), network.client_address(path));
    let paths: Vec<String> = (0..network.path_names().len()).map(path).collect();
    let end = |host: &Namespace, role: &str, [own, peer]: [Ipv4Addr; 2]| {
        let mut words: Vec<OsString> = [
            format!("NAWA_LAB_INNER={own}"),
            format!("NAWA_LAB_PEER={peer}"),
            format!("NAWA_LAB_SERVER={SERVER}"),
            format!("NAWA_LAB_PATHS={}", paths.join(" ")),
            format!("NAWA_LAB_FOLDER={}", means.folder.display()),
        ]
        .map(OsString::from)
        .into();
        words.extend(program.iter().cloned().chain([role.into()]));
        Process::start(host, "env", &words)
    };
    let [client, server] = INNER;
    let far = end(&network.server, "server", [server, client])?;
    let near = end(&network.client, "client", [client, server])?;
    let mut ready = Ready::tunnel(IpAddr::V4(server), vec![far, near]);
    // Until the tunnel is there, a relay may say that nobody has the address, and `ping` gives up.
    let answers = || {
        let answer = ping::await_answer(&network.client, server.into(), PING_LIMIT);
        answer.ok().map(Ok).or_else(|| ready.check().err().map(Err))
    };
    clock::within(START_LIMIT, format!("{server} did not answer `ping`"), answers)??;
    Ok(ready)
}
