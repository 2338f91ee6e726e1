//! `nawa peer add|del`: what may be typed is what is asked of the daemon. A member of a request has the name of its flag, and the
//! value that would stand in the file.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use tunnel::PublicKey;

use crate::config::value;

/// Adds a peer.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Add {
    /// What to call it; another name than the other peers have
    #[arg(value_parser = value::label)]
    pub name: String,
    /// Its public key
    #[arg(long, value_name = "KEY")]
    pub public_key: PublicKey,
    /// An inner prefix that it may use and is routed; give it again for more
    #[arg(long = "route", value_name = "PREFIX", required = true, value_parser = value::route)]
    pub routes: Vec<ipnet::IpNet>,
    /// An idle end sends so often, and so notices that the other is gone; with its unit, as 20s [default: never]
    #[arg(long, value_name = "TIME", value_parser = keepalive)]
    pub keepalive: Option<String>,
    /// A file with a second, shared secret, mode 0600
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    pub preshared_key_file: Option<PathBuf>,
}

/// Removes a peer, with its paths and routes.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Del {
    /// The peer's name
    pub name: String,
}

fn keepalive(text: &str) -> Result<String, String> {
    value::keepalive(&text.into()).map(|_| text.to_owned())
}

/// The daemon reads it, and has another working directory.
fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}
