//! `nawa init`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use tunnel::PublicKey;

use crate::config::{HostPort, value};
use crate::failure::Failure;
use crate::setup::ask::{List, ask};
use crate::setup::cost::Cost;
use crate::setup::cost_flags::Costs;
use crate::setup::file::{self, Made};
use crate::setup::uplinks;

/// The port of a hub, as the sample file has it.
const PORT: u16 = 51900;
const HUB: &str = "10.77.0.1/24,fd77::1/64";
const SPOKE: &str = "10.77.0.2/24,fd77::2/64";

/// What it asks for if it is not given.
#[derive(Args, Debug)]
pub struct Init {
    /// `hub`: others reach this end at an address that stays; `spoke`: this end reaches a hub, over each of its uplinks
    #[arg(long)]
    role: Option<Role>,
    /// A hub's HOST:PORT as others reach it, more with commas between them
    #[arg(long, value_name = "HOST:PORT,…")]
    endpoint: Option<List<HostPort>>,
    /// The hub's HOST:PORT, for a spoke
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<HostPort>,
    /// The hub's public key, for a spoke
    #[arg(long, value_name = "KEY")]
    peer_key: Option<PublicKey>,
    /// A spoke's uplinks, instead of all that are found
    #[arg(long, value_name = "DEV,…")]
    uplinks: Option<List<String>>,
    #[command(flatten)]
    costs: Costs,
    /// This end's inner addresses, with prefix lengths [default: those of the sample file]
    #[arg(long, value_name = "ADDRESS/LENGTH,…")]
    address: Option<List<Address>>,
    /// The file to write; the key is written beside it
    #[arg(long, value_name = "FILE", default_value = "/etc/nawa/nawa.toml")]
    file: PathBuf,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Hub,
    Spoke,
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Role as ValueEnum>::from_str(text, true)
            .map_err(|_| format!("\"{text}\" is no role; write hub or spoke"))
    }
}

/// Asks, writes, and says what comes next.
pub fn run(init: Init) -> Result<(), Failure> {
    let made = Made::begin(&init.file)?;
    let question =
        "Do others reach this end at an address that stays (hub), or does this end reach a hub (spoke)?";
    match ask(init.role, "--role", question, Some("hub"))? {
        Role::Hub => hub(init, made),
        Role::Spoke => spoke(init, made),
    }
}

fn hub(init: Init, mut made: Made) -> Result<(), Failure> {
    let found = uplinks::own_endpoints(PORT).map_err(Failure::failed)?;
    let default = (!found.is_empty()).then(|| found.join(","));
    let question = "HOST:PORT by which others reach this end, with commas between them";
    let List(endpoints) = ask(init.endpoint, "--endpoint", question, default.as_deref())?;
    let port = endpoints.first().map_or(PORT, HostPort::port);
    made.write(&file::end(&addresses(init.address, HUB)?, Some(port), &endpoints))?;
    let (key, file) = (made.key.public(), init.file.display());
    super::print(&format!(
        "{file} is written; this end's public key is {key}\n\
         start it with `nawa up {file}`, and invite each other end with `nawa invite NAME --file {file}`"
    ))?;
    made.keep();
    Ok(())
}

fn spoke(init: Init, mut made: Made) -> Result<(), Failure> {
    let hub = ask(init.peer, "--peer", "The hub's HOST:PORT", None)?;
    let key =
        ask(init.peer_key, "--peer-key", "The hub's public key, as `nawa pubkey` prints it there", None)?;
    let addresses = addresses(init.address, SPOKE)?;
    let remotes = [hub];
    let mut found = uplinks::find(&remotes, "nawa0").map_err(Failure::failed)?;
    let names: Vec<_> = found.iter().map(|uplink| uplink.interface.clone()).collect();
    if init.uplinks.is_some() || !names.is_empty() {
        let question = "Uplinks to use, with commas between them; these have a route to the hub";
        let List(wanted) = ask(init.uplinks, "--uplinks", question, Some(&names.join(",")))?;
        for name in &wanted {
            value::interface(name).map_err(Failure::bad_input)?;
        }
        let [remote] = &remotes;
        let use_of = |interface| uplinks::Uplink { interface, remote: remote.clone(), cost: Cost::default() };
        found = wanted.into_iter().map(use_of).collect();
    }
    init.costs.settle(&mut found)?;
    let first = |address: &IpNet| file::usable(address).next().map(IpNet::from);
    let routes: Vec<_> = addresses.iter().filter_map(first).collect();
    let peer = file::peer("hub", &key, &routes);
    made.write(&(file::end(&addresses, None, &[]) + &peer + &file::paths(&found, &remotes)))?;
    let file = init.file.display();
    let there = file::peer("NAME", &made.key.public(), &file::hosts(&addresses));
    super::print(&format!(
        "{file} is written; put this into the hub's file, with a name for this end:\n{there}\n\
         and reload there (`systemctl reload nawa`); then start this end with `nawa up {file}`"
    ))?;
    made.keep();
    Ok(())
}

fn addresses(given: Option<List<Address>>, default: &str) -> Result<Vec<IpNet>, Failure> {
    let List(addresses) = given.map_or_else(|| default.parse().map_err(Failure::failed), Ok)?;
    Ok(addresses.into_iter().map(|Address(address)| address).collect())
}

/// What an end may have, with its prefix length.
#[derive(Clone, Copy, Debug)]
struct Address(IpNet);

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        value::address(text).map(Address)
    }
}
