//! The relay in the kernel's IP layer, as Kernel-AODV has it (paper 000, 2.1): nftables in `ip prerouting`. A set of what was
//! heard lately drops duplicates; a datagram that is new is sent again by `dup`, with one less TTL, and passed up as it
//! came. What `dup` sends is a broadcast, so it comes back to this host too, where the set knows it. What is no frame is
//! passed up and nothing else: the program counts it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use device::Notices;

use crate::frame::{DATA_MAX, Wire};
use crate::window::{RateLimit, Rules};

/// Elements of a set at most; while it is full, nothing new is relayed.
const ELEMENTS: u32 = 65_536;
/// Bytes of UDP's header.
const UDP: usize = 8;

/// The table of one interface. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    rules: String,
    changes: Notices,
    /// How often somebody else has removed it or its rules.
    pub(crate) mended: u64,
}

impl Table {
    /// Puts it in the place of what a node that was killed has left.
    pub(crate) fn install(interface: &str, port: u16, rules: &Rules) -> io::Result<Table> {
        let name = name(interface);
        let rules = format!("{}{}", removal(&name), ruleset(&name, interface, port, rules));
        // First, or a table would be left where this fails.
        let changes = Notices::of_nftables()?;
        run(&rules)?;
        Ok(Table { name, rules, changes, mended: 0 })
    }

    /// Readable when somebody has changed what nftables do.
    pub(crate) fn changes(&self) -> &Notices {
        &self.changes
    }

    /// Puts it back if somebody has removed it or its rules, as `nft flush ruleset` and `nft flush table` do; whether that was so.
    pub(crate) fn mend(&mut self) -> io::Result<bool> {
        self.changes.forget()?;
        let listed =
            Command::new("nft").args(["--terse", "list", "table", "ip", &self.name]).output()?.stdout;
        let listed = String::from_utf8_lossy(&listed);
        // What leads from each chain to the next, and the end.
        if ["jump flood", "jump new", "dup to"].iter().all(|rule| listed.contains(rule)) {
            return Ok(false);
        }
        run(&self.rules)?;
        self.mended += 1;
        Ok(true)
    }

    /// How many datagrams it has sent again, and how many it dropped: duplicates (those that it sent again and the kernel handed back
    /// among them), own, limited, TTL 0.
    pub(crate) fn counts(&self) -> io::Result<[u64; 5]> {
        let output =
            Command::new("nft").args(["-j", "list", "counters", "table", "ip", &self.name]).output()?;
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(io::Error::other)?;
        let counters = listed["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
        let count = |name: &str| {
            let found = counters.iter().find(|one| one["counter"]["name"] == name);
            found.and_then(|one| one["counter"]["packets"].as_u64()).unwrap_or(0)
        };
        Ok(["relayed", "duplicate", "own", "limited", "expired"].map(count))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Err(error) = run(&removal(&self.name)) {
            tracing::warn!("cannot remove the nftables table {}: {error}", self.name);
        }
    }
}

/// Removes the tables of nodes that were killed, of whatever interface.
///
/// # Errors
/// If nft cannot be started or refuses.
pub fn remove_leftovers() -> io::Result<()> {
    leftovers()?.iter().try_for_each(|name| run(&removal(name)))
}

/// The tables of nodes, of those that run and of those that were killed.
///
/// # Errors
/// If nft cannot be started.
pub fn leftovers() -> io::Result<Vec<String>> {
    let output = Command::new("nft").args(["-j", "list", "tables", "ip"]).output()?;
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(io::Error::other)?;
    let tables = listed["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = tables.iter().filter_map(|one| one["table"]["name"].as_str());
    Ok(names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect())
}

const PREFIX: &str = "nawa-flood-";

/// Names of tables have fewer characters than those of interfaces.
fn name(interface: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    format!("{PREFIX}{}", interface.chars().map(plain).collect::<String>())
}

/// Works whether it is there or not.
fn removal(name: &str) -> String {
    format!("table ip {name} {{}}\ndelete table ip {name}\n")
}

fn run(script: &str) -> io::Result<()> {
    let mut nft = Command::new("nft");
    let nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut nft = nft.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot start nft: {error}; install nftables"))
    })?;
    if let Some(mut stdin) = nft.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    let output = nft.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("nft refuses: {}", said.lines().next().unwrap_or_default())))
}

/// Where fields lie behind the transport header's start, in bits, and how many they have.
struct Fields {
    id: &'static str,
    ttl: &'static str,
    /// Everything that tells one message from another.
    message: &'static str,
    /// How long a message is remembered: longer than its copies are under way, and not until SEQ comes again.
    remembered: &'static str,
    /// What is of this version.
    version: &'static str,
    len: &'static str,
}

fn fields(wire: Wire) -> Fields {
    match wire {
        Wire::Paper => Fields {
            id: "@th,64,8",
            ttl: "@th,80,8",
            message: "@th,64,8 . @th,72,8",
            remembered: "1s",
            version: "",
            len: "@th,88,16",
        },
        Wire::One => Fields {
            id: "@th,96,32",
            ttl: "@th,72,8",
            message: "@th,96,32 . @th,128,32 . @th,160,32",
            remembered: "10s",
            version: "@th,64,8 & 0xf0 == 0x10 @th,64,8 & 0x0f <= 2",
            len: "@th,80,16",
        },
    }
}

fn ruleset(name: &str, interface: &str, port: u16, rules: &Rules) -> String {
    let wire = rules.format.wire();
    let Fields { id, ttl, message, remembered, version, len } = fields(wire);
    let mut down = String::new();
    let mut up = String::new();
    for ttl in 2..=255 {
        // Writing to a `String` cannot fail.
        let _ = write!(down, "{ttl} : {}, ", ttl - 1);
        let _ = write!(up, "{} : {ttl}, ", ttl - 1);
    }
    // UDP's own length, and the LEN that goes with it.
    let header = UDP + wire.header_bytes();
    let lengths: Vec<_> = (0..=DATA_MAX).map(|data| format!("{} . {data}", header + data)).collect();
    let lengths = lengths.join(", ");
    let (own, limit) = (rules.id, rules.rate_limit.map_or(String::new(), |limit| limit_rule(id, limit)));
    let counters: String = ["relayed", "duplicate", "own", "limited", "expired"]
        .map(|counter| format!("counter {counter} {{}}\n"))
        .concat();
    format!(
        "table ip {name} {{\n{counters}\
         set heard {{ typeof {message}; flags dynamic,timeout; timeout {remembered}; size {ELEMENTS}; }}\n\
         set lengths {{ typeof udp length . {len}; elements = {{ {lengths} }} }}\n\
         set rates {{ typeof {id}; flags dynamic,timeout; timeout 10s; size 4096; }}\n\
         chain flood {{\n\
         {id} {own} counter name own drop\n\
         {ttl} 0 counter name expired drop\n\
         {message} @heard counter name duplicate drop\n\
         add @heard {{ {message} }} jump new\n\
         }}\n\
         chain new {{\n\
         {limit}\
         {ttl} 1 accept\n\
         counter name relayed\n\
         {ttl} set {ttl} map {{ {down} }}\n\
         dup to 255.255.255.255 device \"{interface}\"\n\
         {ttl} set {ttl} map {{ {up} }}\n\
         }}\n\
         chain prerouting {{\n\
         type filter hook prerouting priority -300; policy accept;\n\
         iifname \"{interface}\" ip daddr 255.255.255.255 udp dport {port} \
         {version} udp length . {len} @lengths jump flood\n\
         }}\n}}\n"
    )
}

fn limit_rule(id: &str, limit: RateLimit) -> String {
    let RateLimit { frames_per_s } = limit;
    let burst = (frames_per_s / 10).max(32);
    format!(
        "update @rates {{ {id} limit rate over {frames_per_s}/second burst {burst} packets }} counter name limited drop\n"
    )
}
