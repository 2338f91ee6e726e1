//! Nawa as a user sets it up: keys by `nawa keygen`, one configuration file per host, `nawa run` on each.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::clocks::{Clock, Clocks};
use super::ready::{Identity, Means, Ready, START_LIMIT};
use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;
use crate::network::{Network, SERVER};
use crate::program::{self, Process};
use crate::{clock, ping};

const INNER_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

pub(super) fn start(setup: &NawaSetup, network: &Network, means: &Means) -> Result<Ready> {
    let (client, server) = (means.identity("a")?, means.identity("b")?);
    let hosts = if setup.relayed { &network.relays[..] } else { &[] };
    let relays = (1..=hosts.len()).map(|index| means.identity(format!("r{index}")));
    let relays = relays.collect::<Result<Vec<_>>>()?;

    let end = |clock: Clock, host: &Namespace, identity: &Identity, text: String| {
        run(means, host, &clock.launcher(means.folder)?, &identity.name, &text)
    };
    let text = end_file(setup, [(&server, "10.77.0.2"), (&client, "10.77.0.1")]);
    let far = end(setup.clocks.server, &network.server, &server, text)?;
    let relay = |(host, relay): (&Namespace, &Identity)| {
        run(means, host, &[], &relay.name, &relay_file(relay, &client))
    };
    let between = hosts.iter().zip(&relays).map(relay).collect::<Result<Vec<_>>>()?;
    let text = client_file(setup, network, &client, &server, &relays);
    let near = end(setup.clocks.client, &network.client, &client, text)?;

    let mut ready = Ready { relays: between, ..Ready::tunnel(INNER_SERVER, vec![far, near]) };
    let answer = await_paths(network, means);
    let answer = answer.and_then(|()| ping::await_answer(&network.client, INNER_SERVER, START_LIMIT));
    answer.or_else(|late| ready.check().and(Err(late)))?;
    Ok(ready)
}

/// The bytes that the client has received over each path, as its `nawa status --json` has them; none of a path that it
/// does not show.
pub(super) fn received(network: &Network, nawa: &Path) -> Option<Vec<u64>> {
    let status = program::status(&network.client, nawa).ok()?;
    let paths = status["tunnel"]["peers"][0]["paths"].as_array()?;
    let bytes = |name: &String| {
        let path = paths.iter().find(|path| path["name"] == name.as_str());
        path.and_then(|path| path["received_bytes"].as_u64()).unwrap_or(0)
    };
    Some(network.path_names().iter().map(bytes).collect())
}

/// Waits until the client's `nawa status --json` shows every path as up.
fn await_paths(network: &Network, means: &Means) -> Result<()> {
    let wanted = network.path_names().len();
    let mut up = 0;
    let all_up = || {
        let status = program::status(&network.client, means.nawa).ok()?;
        let paths = status["tunnel"]["peers"][0]["paths"].as_array();
        up = paths.into_iter().flatten().filter(|path| path["state"] == "up").count();
        (up == wanted).then_some(())
    };
    let all_up = clock::poll_until(START_LIMIT, all_up);
    let what = format!("only {up} of {wanted} paths of Nawa came up");
    all_up.ok_or(Error::late(what, START_LIMIT))
}

/// Starts `nawa run` with a file of this `text`, by `launcher`; returns when it says that it is ready.
pub(crate) fn run(
    means: &Means,
    host: &Namespace,
    launcher: &[OsString],
    name: &str,
    text: &str,
) -> Result<Process> {
    let path = means.folder.join(format!("{name}.toml"));
    fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    let state = format!("STATE_DIRECTORY={}", means.folder.display());
    let mut words = vec!["env".into(), state.into()];
    words.extend(launcher.to_vec());
    words.extend([means.nawa.into(), "run".into(), path.into()]);
    let mut process = Process::start(host, &words[0], &words[1..])?;
    let ready = || match process.said().contains("ready") {
        true => Some(Ok(())),
        false => process.check().err().map(Err),
    };
    clock::within(START_LIMIT, format!("`nawa run {name}.toml` did not get ready"), ready)??;
    Ok(process)
}

/// The sections of a node and of its tunnel, with further lines of the latter.
pub(crate) fn node_sections(key_file: &Path, inner: &str, more: &str) -> String {
    format!(
        "[node]\nkey-file = {key_file:?}\n\n[tunnel]\ninterface = \"nawa0\"\naddresses = [\"{inner}/24\"]\n{more}"
    )
}

/// The section of a peer, with further lines.
pub(crate) fn peer_section(name: &str, public_key: &str, inner: &str, more: &str) -> String {
    format!("\n[[peer]]\nname = \"{name}\"\npublic-key = \"{public_key}\"\nroutes = [\"{inner}/32\"]\n{more}")
}

/// What both ends have: their own section, and the other's.
fn end_file(setup: &NawaSetup, [own, other]: [(&Identity, &str); 2]) -> String {
    let NawaSetup { scheduler, resend, bicast, .. } = setup;
    let ((identity, address), (peer, peer_address)) = (own, other);
    let tunnel = format!("listen = 51900\nscheduler = \"{scheduler}\"\n");
    let more = format!("resend = {resend}\nbicast = \"{bicast}\"\n");
    node_sections(&identity.key_file, address, &tunnel)
        + &peer_section(&peer.name, &peer.public_key, peer_address, &more)
}

fn relay_file(relay: &Identity, client: &Identity) -> String {
    let (key_file, allowed) = (&relay.key_file, &client.public_key);
    format!("[node]\nkey-file = {key_file:?}\n\n[relay]\nlisten = 51901\nallow = [\"{allowed}\"]\n")
}

fn client_file(
    setup: &NawaSetup,
    network: &Network,
    client: &Identity,
    server: &Identity,
    relays: &[Identity],
) -> String {
    let mut text = end_file(setup, [(client, "10.77.0.1"), (server, "10.77.0.2")]);
    for (path, name) in network.path_names().iter().enumerate() {
        let interface = network.interface(path);
        let head = format!("\n[[peer.path]]\nname = \"{name}\"\nlocal = \"{interface}\"\n");
        let _ = writeln!(text, "{head}remote = \"{SERVER}:51900\"");
        if setup.one_path_back && path > 0 {
            text += "receive = false\n";
        }
        if let Some(relay) = relays.get(path) {
            let (address, key) = (network.relay_address(path), &relay.public_key);
            let _ = writeln!(text, "via = {{ address = \"{address}:51901\", public-key = \"{key}\" }}");
        }
    }
    text
}

/// How Nawa is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NawaSetup {
    /// `scheduler` in the configuration: "auto", "paper" or "paper-absolute".
    pub scheduler: &'static str,
    /// The clocks that its two ends see.
    pub clocks: Clocks,
    /// Whether the server may send over the first path alone, as in the paper's measurements.
    pub one_path_back: bool,
    /// True for paths through the relays, false for paths from end to end.
    pub relayed: bool,
    /// `resend` of the peer, at both ends.
    pub resend: bool,
    /// `bicast` of the peer, at both ends: "off", "selective" or "adaptive".
    pub bicast: &'static str,
}

impl NawaSetup {
    /// What Nawa does when nothing is configured, through relays.
    pub const AUTO: NawaSetup = NawaSetup {
        scheduler: "auto",
        clocks: Clocks::SAME,
        one_path_back: false,
        relayed: true,
        resend: true,
        bicast: "off",
    };
}
