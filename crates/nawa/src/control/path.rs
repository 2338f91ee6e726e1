//! `nawa path add|del|set`: what may be typed is what is asked of the daemon. A member of a request has the name of its
//! flag, and the value that would stand in the file.

use clap::Args;
use serde::{Deserialize, Serialize};
use tunnel::PublicKey;

use crate::config::value::{self, HostPort, yes};

/// Adds a path.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Add {
    /// The peer's name
    pub peer: String,
    /// What to call the path; another name than the peer's other paths have
    #[arg(value_parser = value::label)]
    pub name: String,
    /// The peer's address, as seen from the relay if there is one
    #[arg(long, value_name = "HOST:PORT")]
    pub remote: HostPort,
    /// The interface, or this host's address, to leave by [default: as the routing table says]
    #[arg(long, value_name = "DEV|ADDRESS", value_parser = local)]
    pub local: Option<String>,
    /// A relay to go through
    #[arg(long, value_name = "HOST:PORT", requires = "via_key")]
    pub via: Option<HostPort>,
    /// The relay's public key
    #[arg(long, value_name = "KEY", requires = "via")]
    pub via_key: Option<PublicKey>,
    /// Reach the relay by TLS over TCP, where no UDP passes; slower
    #[arg(long, requires = "via")]
    #[serde(default)]
    pub via_tls: bool,
    /// Carry data only while no other path does
    #[arg(long)]
    #[serde(default)]
    pub backup: bool,
    /// Whether the peer sends on it beside other paths
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    #[serde(default = "yes")]
    pub receive: bool,
    /// It is paid for by the byte: no copies go over it, and few probes
    #[arg(long)]
    #[serde(default)]
    pub metered: bool,
    /// Use it only where paths with lower ones are full; 0 to 15
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value::whole::<u8>(0..=tunnel::config::MAX_PREFER.into()))]
    #[serde(default)]
    pub prefer: u8,
    /// What it may carry in a month, both ways, as 30GB; then it is a backup
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub monthly_cap: Option<String>,
}

/// Removes a path.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Del {
    /// The peer's name
    pub peer: String,
    /// The path's name
    pub name: String,
}

/// Changes what is given of a path.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Set {
    /// The peer's name
    pub peer: String,
    /// The path's name
    pub name: String,
    /// The peer's address, as seen from the relay if there is one
    #[arg(long, value_name = "HOST:PORT")]
    pub remote: Option<HostPort>,
    /// The interface, or this host's address, to leave by
    #[arg(long, value_name = "DEV|ADDRESS", value_parser = local)]
    pub local: Option<String>,
    /// Leave as the routing table says
    #[arg(long, conflicts_with = "local")]
    #[serde(default)]
    pub no_local: bool,
    /// The relay to go through
    #[arg(long, value_name = "HOST:PORT", requires = "via_key")]
    pub via: Option<HostPort>,
    /// The relay's public key
    #[arg(long, value_name = "KEY", requires = "via")]
    pub via_key: Option<PublicKey>,
    /// Reach the relay by TLS over TCP, where no UDP passes; slower
    #[arg(long, requires = "via")]
    #[serde(default)]
    pub via_tls: bool,
    /// Go directly
    #[arg(long, conflicts_with = "via")]
    #[serde(default)]
    pub no_via: bool,
    /// Carry data only while no other path does
    #[arg(long, value_name = "BOOL")]
    pub backup: Option<bool>,
    /// Whether the peer sends on it beside other paths
    #[arg(long, value_name = "BOOL")]
    pub receive: Option<bool>,
    /// It is paid for by the byte: no copies go over it, and few probes
    #[arg(long, value_name = "BOOL")]
    pub metered: Option<bool>,
    /// Use it only where paths with lower ones are full; 0 to 15
    #[arg(long, value_name = "N", value_parser = value::whole::<u8>(0..=tunnel::config::MAX_PREFER.into()))]
    pub prefer: Option<u8>,
    /// What it may carry in a month, both ways, as 30GB; then it is a backup
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub monthly_cap: Option<String>,
    /// It may carry what it can
    #[arg(long, conflicts_with = "monthly_cap")]
    #[serde(default)]
    pub no_monthly_cap: bool,
}

fn size(text: &str) -> Result<String, String> {
    value::bytes(text).map(|_| text.to_owned())
}

impl Set {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        let Set { remote, local, no_local, via, no_via, backup, receive, metered, prefer, .. } = self;
        (metered.is_none() && prefer.is_none() && self.monthly_cap.is_none() && !self.no_monthly_cap)
            && (remote.is_none() && local.is_none() && via.is_none() && backup.is_none() && receive.is_none())
            && !(*no_local || *no_via)
    }
}

fn local(text: &str) -> Result<String, String> {
    value::local(text).map(|_| text.to_owned())
}
