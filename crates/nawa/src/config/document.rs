//! The file as written: its sections and keys, with the place of each value. [`super::check`] gives them meaning.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::source::Source;
use super::value::yes;

const SECTIONS: &str = "the sections are [node], [tunnel], [[peer]], [[peer.path]], [relay], [flight], [bicast], [[coding]], \
                        [[flood]] and [metrics]";

/// Every section that could be read.
#[derive(Debug, Default)]
pub struct Document {
    /// The names of the sections that stand there, be they wrong.
    pub present: BTreeSet<String>,
    /// `[node]`
    pub node: Option<Node>,
    /// `[tunnel]`
    pub tunnel: Option<Tunnel>,
    /// `[[peer]]`, in the file's order
    pub peers: Vec<Peer>,
    /// `[relay]`
    pub relay: Option<Relay>,
    /// `[flight]`
    pub flight: Option<Flight>,
    /// `[[flood]]`, in the file's order
    pub floods: Vec<Flood>,
    /// `[[coding]]`, in the file's order
    pub codings: Vec<Coding>,
    /// `[bicast]`
    pub bicast: Option<Bicast>,
    /// `[metrics]`
    pub metrics: Option<Metrics>,
}

/// The name of a file or folder, as written.
#[derive(Debug, Deserialize)]
#[serde(try_from = "PathBuf")]
pub struct Name(PathBuf);

impl TryFrom<PathBuf> for Name {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Name, &'static str> {
        if path.as_os_str().is_empty() {
            return Err("this names no file or folder; write its name, or leave the key out where it may be");
        }
        Ok(Name(path))
    }
}

impl AsRef<std::path::Path> for Name {
    fn as_ref(&self) -> &std::path::Path {
        &self.0
    }
}

/// `[node]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Node {
    /// File of the base64 private key, mode 0600.
    pub key_file: Spanned<Name>,
    /// Folder of what is counted over restarts.
    pub state_dir: Option<Name>,
}

/// `[tunnel]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tunnel {
    /// Name of the TUN interface to make.
    pub interface: Spanned<String>,
    /// Its addresses with prefix lengths.
    pub addresses: Spanned<Vec<Spanned<String>>>,
    /// UDP port or `"ADDRESS:PORT"`.
    pub listen: Option<Spanned<toml::Value>>,
    /// `HOST:PORT`s by which others reach this end, for invites.
    #[serde(default)]
    pub endpoints: Vec<Spanned<String>>,
    /// `"auto"`, `"paper"` or `"paper-absolute"`.
    pub scheduler: Option<Spanned<String>>,
    /// `"auto"` or a number of bytes.
    pub mtu: Option<Spanned<toml::Value>>,
    /// Mark on the outer packets.
    #[serde(default)]
    pub fwmark: u32,
    /// Outer packets have the inner ones' DSCP.
    #[serde(default = "yes")]
    pub copy_dscp: bool,
    /// Outer packets have the inner ones' ECN, and pass congestion marks on.
    #[serde(default = "yes")]
    pub copy_ecn: bool,
    /// Packets of a default route go beside the tunnel while it is down.
    #[serde(default)]
    pub fail_open: bool,
    /// Name of a TCP congestion control.
    pub congestion_control: Option<Spanned<String>>,
    /// Addresses of servers that are asked for the names in `remote`.
    #[serde(default)]
    pub resolvers: Vec<Spanned<String>>,
}

/// `[[peer]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Peer {
    /// What status calls it.
    pub name: Spanned<String>,
    /// Base64.
    pub public_key: Spanned<String>,
    /// File of a base64 key of 32 bytes, mode 0600.
    pub preshared_key_file: Option<Spanned<Name>>,
    /// Inner prefixes that belong to the peer.
    pub routes: Spanned<Vec<Spanned<String>>>,
    /// Duration with a unit.
    pub keepalive: Option<Spanned<toml::Value>>,
    /// What a path lost is sent again over another.
    #[serde(default = "yes")]
    pub resend: bool,
    /// `"off"`, `"selective"` or `"adaptive"`.
    pub bicast: Option<Spanned<String>>,
    /// `[[peer.path]]`, read on its own so that one wrong path hides no other.
    #[serde(skip)]
    pub paths: Vec<Path>,
}

/// `[[peer.path]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Path {
    /// What status calls it.
    pub name: Spanned<String>,
    /// Interface or address to leave by.
    pub local: Option<Spanned<String>>,
    /// `HOST:PORT` of the peer.
    pub remote: Spanned<String>,
    /// The relay in between.
    pub via: Option<Via>,
    /// Carries data only while no other path does.
    #[serde(default)]
    pub backup: bool,
    /// The peer sends on it beside other paths.
    #[serde(default = "yes")]
    pub receive: bool,
    /// Paid for by the byte.
    #[serde(default)]
    pub metered: bool,
    /// 0 to 15.
    pub prefer: Option<Spanned<toml::Value>>,
    /// Bytes with their unit.
    pub monthly_cap: Option<Spanned<String>>,
}

/// `via = { … }` of a path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Via {
    /// `HOST:PORT` of the relay, by UDP.
    pub address: Option<Spanned<String>>,
    /// `HOST:PORT` of the relay, by TLS.
    pub tls: Option<Spanned<String>>,
    /// Base64.
    pub public_key: Spanned<String>,
}

/// `[relay]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Relay {
    /// UDP port or `"ADDRESS:PORT"`.
    pub listen: Spanned<toml::Value>,
    /// TCP port or `"ADDRESS:PORT"`, for clients by TLS.
    pub tls: Option<Spanned<toml::Value>>,
    /// Base64 public keys that may relay here.
    pub allow: Spanned<Vec<Spanned<String>>>,
    /// `"auto"` or `"userspace"`.
    pub mode: Option<Spanned<String>>,
}

/// `[flight]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flight {
    /// `fsat` as this namespace's default.
    #[serde(default)]
    pub default: bool,
    /// `"cubic"` or `"reno"`.
    pub base: Option<Spanned<String>>,
}

/// `[[flood]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flood {
    /// The interface, which somebody else makes.
    pub interface: Spanned<String>,
    /// The node's ID.
    pub id: Spanned<u32>,
    /// 0 or 1.
    pub wire: Option<Spanned<u8>>,
    /// `"driver"`, `"kernel"` or `"application"`.
    pub mode: Option<Spanned<String>>,
    /// File of a base64 key of 32 bytes, mode 0600.
    pub key_file: Option<Spanned<Name>>,
    /// Of messages that name none.
    pub ttl: Option<Spanned<u8>>,
    /// UDP port of the modes `kernel` and `application`.
    pub port: Option<Spanned<u16>>,
    /// Frames per second of each source.
    pub rate_limit: Option<Spanned<u32>>,
    /// Whether relays wait and keep still where they are not needed.
    pub suppress: Option<Spanned<bool>>,
    /// Duration with a unit.
    pub jitter: Option<Spanned<String>>,
    /// Copies.
    pub threshold: Option<Spanned<u32>>,
    /// Copies.
    pub enough: Option<Spanned<u32>>,
    /// Times.
    pub repeats: Option<Spanned<u32>>,
    /// Whether to spend a processor on looking for frames.
    #[serde(default)]
    pub busy_poll: bool,
}

/// `[[coding]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Coding {
    /// The slave, which somebody else makes.
    pub interface: Spanned<String>,
    /// Name of the master to make.
    pub master: Spanned<String>,
    /// The master's addresses with prefix lengths.
    pub addresses: Spanned<Vec<Spanned<String>>>,
    /// A monitor interface of the slave's radio, which somebody else makes.
    pub monitor: Option<Spanned<String>>,
    /// `"off"`, `"piggy"`, `"delayed"`, `"controlled"` or `"any"`.
    pub mode: Option<Spanned<String>>,
    /// Duration with a unit.
    pub wait: Option<Spanned<String>>,
    /// Whether later ACKs take the place of earlier ones.
    #[serde(default)]
    pub thin_acks: bool,
}

/// `[bicast]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bicast {
    /// Between which packets are copied.
    pub interfaces: Spanned<Vec<Spanned<String>>>,
    /// Those of them that are paid for by the byte.
    pub metered: Option<Vec<Spanned<String>>>,
    /// `"selective"`, `"off"`, `"full"` or `"adaptive"`.
    pub mode: Option<Spanned<String>>,
    /// Percent of the bytes sent.
    pub budget: Option<Spanned<toml::Value>>,
    /// Of SCTP in UDP.
    pub udp_port: Option<Spanned<toml::Value>>,
    /// Also what is forwarded.
    pub forwarding: Option<bool>,
}

/// `[metrics]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metrics {
    /// `"ADDRESS:PORT"`.
    pub listen: Spanned<String>,
}

/// Reads every section it can, and complains about the rest. `None` if the text is not TOML at all.
pub fn read(source: &mut Source) -> Option<Document> {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    errors.iter().for_each(|error| source.complain_of_toml(error));
    if !errors.is_empty() {
        return None;
    }
    let mut document = Document::default();
    for (key, value) in root.into_inner() {
        section(source, &mut document, key, value);
    }
    Some(document)
}

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;
type Value<'i> = Spanned<DeValue<'i>>;

fn section(source: &mut Source, document: &mut Document, key: Key, value: Value) {
    document.present.insert(key.get_ref().to_string());
    match key.get_ref().as_ref() {
        "node" => document.node = only(source, "node", value),
        "tunnel" => document.tunnel = only(source, "tunnel", value),
        "relay" => document.relay = only(source, "relay", value),
        "flight" => document.flight = only(source, "flight", value),
        "bicast" => document.bicast = only(source, "bicast", value),
        "metrics" => document.metrics = only(source, "metrics", value),
        "peer" => {
            document.peers =
                tables(source, "peer", value).into_iter().filter_map(|v| peer(source, v)).collect()
        }
        "flood" => document.floods = all(source, "flood", value),
        "coding" => document.codings = all(source, "coding", value),
        other => source.complain(key.span(), format!("unknown section or key `{other}`; {SECTIONS}")),
    }
}

/// Deserialises a section that stands once.
fn only<T: DeserializeOwned>(source: &mut Source, name: &str, value: Value) -> Option<T> {
    if let DeValue::Array(_) = value.get_ref() {
        source.complain(value.span(), format!("`{name}` is no list; write [{name}], once"));
        return None;
    }
    table(source, value)
}

/// Deserialises one table.
fn table<T: DeserializeOwned>(source: &mut Source, value: Value) -> Option<T> {
    let whole = value.span();
    if !matches!(value.get_ref(), DeValue::Table(_)) {
        source.complain(
            whole,
            "this is no section; write its name in brackets in a line of its own, and its keys below",
        );
        return None;
    }
    match T::deserialize(ValueDeserializer::from(value)) {
        Ok(value) => Some(value),
        Err(error) if error.span().is_some() => {
            source.complain_of_toml(&error);
            None
        }
        Err(error) => {
            source.complain(whole, error.message());
            None
        }
    }
}

/// Deserialises those that can be.
fn all<T: DeserializeOwned>(source: &mut Source, name: &str, value: Value) -> Vec<T> {
    tables(source, name, value).into_iter().filter_map(|one| table(source, one)).collect()
}

/// The elements of an array of tables.
fn tables<'i>(source: &mut Source, name: &str, value: Value<'i>) -> Vec<Value<'i>> {
    let span = value.span();
    match value.into_inner() {
        DeValue::Array(elements) => elements.into_iter().collect(),
        _ => {
            source.complain(span, format!("`{name}` is a list; write [[{name}]]"));
            Vec::new()
        }
    }
}

fn peer(source: &mut Source, mut value: Value) -> Option<Peer> {
    let paths = match value.get_mut() {
        DeValue::Table(keys) => keys.remove("path"),
        _ => None,
    };
    let paths = paths.map_or_else(Vec::new, |paths| all(source, "peer.path", paths));
    let peer: Peer = table(source, value)?;
    Some(Peer { paths, ..peer })
}
