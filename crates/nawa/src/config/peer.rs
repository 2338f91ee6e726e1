//! `[[peer]]` and `[[peer.path]]`.

use std::ops::Range;

use toml::Spanned;
use tunnel::config::{Cost, Host, Local, MAX_PATHS, PathConfig, PeerConfig, Via};
use tunnel::{Bicast, PresharedKey, PublicKey};

use super::document;
use super::secret;
use super::source::{Source, unique};
use super::value::{self, HostPort};

/// A peer, and where its name stands.
pub struct Checked {
    /// Its meaning.
    pub value: PeerConfig,
    /// For complaints about the whole peer.
    pub span: Range<usize>,
    /// It has paths, right ones or wrong ones.
    pub lists_paths: bool,
}

/// Checks every peer by itself, then all of them together. Those without a usable name, key or route are left out.
pub fn all(source: &mut Source, written: Vec<document::Peer>, me: Option<&PublicKey>) -> Vec<Checked> {
    unique(source, written.iter().map(spanned_name), "another peer has this name; choose another name");
    let keys = written.iter().map(|peer| &peer.public_key);
    let keys = keys.filter_map(|text| Some((text.span(), text.get_ref().parse::<PublicKey>().ok()?)));
    unique(source, keys, "another peer has this key; a peer is listed once, with all its paths");
    unique_routes(source, &written);
    written.into_iter().filter_map(|peer| one(source, peer, me)).collect()
}

fn spanned_name(peer: &document::Peer) -> (Range<usize>, String) {
    (peer.name.span(), peer.name.get_ref().clone())
}

fn unique_routes(source: &mut Source, peers: &[document::Peer]) {
    let routes = peers.iter().flat_map(|peer| peer.routes.get_ref());
    let routes = routes.filter_map(|text| Some((text.span(), value::route(text.get_ref()).ok()?)));
    unique(source, routes, "this route is listed already; a prefix belongs to one peer");
}

fn one(source: &mut Source, written: document::Peer, me: Option<&PublicKey>) -> Option<Checked> {
    let span = written.name.span();
    let name = source.expect(span.clone(), value::label(written.name.get_ref()));
    let key = public_key(source, &written.public_key);
    if key.is_some() && key.as_ref() == me {
        source.complain(written.public_key.span(), "this is this node's own key; write the peer's");
    }
    let preshared_key = written.preshared_key_file.and_then(|file| preshared_key(source, &file));
    let routes = routes(source, written.routes);
    let keepalive =
        written.keepalive.and_then(|text| source.expect(text.span(), value::keepalive(text.get_ref())));
    let lists_paths = !written.paths.is_empty();
    let paths = paths(source, written.paths);
    let preshared_key = preshared_key.unwrap_or_default();
    let bicast = written.bicast.and_then(|text| source.expect(text.span(), bicast(text.get_ref())));
    let value = PeerConfig {
        name: name?,
        public_key: key?,
        preshared_key,
        routes,
        keepalive,
        resend: written.resend,
        bicast: bicast.unwrap_or_default(),
        paths,
    };
    Some(Checked { value, span, lists_paths })
}

fn bicast(text: &str) -> Result<Bicast, String> {
    match text {
        "off" => Ok(Bicast::Off),
        "selective" => Ok(Bicast::Selective),
        "adaptive" => Ok(Bicast::Adaptive),
        _ => {
            Err(format!("a peer's bicast cannot be \"{text}\"; write \"off\", \"selective\" or \"adaptive\""))
        }
    }
}

fn preshared_key(source: &mut Source, file: &Spanned<document::Name>) -> Option<PresharedKey> {
    let path = source.folder().join(file.get_ref());
    source.expect(file.span(), secret::read_shared(&path))
}

fn routes(source: &mut Source, written: Spanned<Vec<Spanned<String>>>) -> Vec<ipnet::IpNet> {
    if written.get_ref().is_empty() {
        source.complain(
            written.span(),
            "this peer has no route, so nothing reaches it; write its inner addresses",
        );
    }
    written
        .get_ref()
        .iter()
        .filter_map(|text| source.expect(text.span(), value::route(text.get_ref())))
        .collect()
}

fn paths(source: &mut Source, written: Vec<document::Path>) -> Vec<PathConfig> {
    let names = written.iter().map(|path| (path.name.span(), path.name.get_ref().clone()));
    unique(source, names, "another path of this peer has this name; choose another name");
    if let Some(extra) = written.get(MAX_PATHS) {
        source.complain(
            extra.name.span(),
            format!("a peer has at most {MAX_PATHS} paths; remove this and what follows"),
        );
    }
    written.into_iter().filter_map(|written| path(source, written)).collect()
}

fn path(source: &mut Source, written: document::Path) -> Option<PathConfig> {
    let name = source.expect(written.name.span(), value::label(written.name.get_ref()));
    let place = written.local.as_ref().map_or(written.remote.span(), Spanned::span);
    let local = match written.local {
        Some(text) => source.expect(text.span(), value::local(text.get_ref())),
        None => Some(Local::Any),
    };
    let remote = host(source, &written.remote);
    let prefer = written.prefer.and_then(|text| source.expect(text.span(), value::prefer(text.get_ref())));
    let prefer = prefer.unwrap_or_default();
    let monthly_cap =
        written.monthly_cap.and_then(|text| source.expect(text.span(), value::bytes(text.get_ref())));
    let via = match written.via {
        Some(written) => via(source, written).map(Some),
        None => Some(None),
    };
    let path = PathConfig {
        name: name?,
        local: local?,
        remote: remote?,
        via: via?,
        backup: written.backup,
        receive: written.receive,
        cost: Cost { metered: written.metered, prefer, monthly_cap, spent: false },
    };
    source.expect(place, fits(&path))?;
    Some(path)
}

/// Whether a path's local address, if it has one, is of the family of where it leads: the relay's or, of a direct one, the peer's.
///
/// # Errors
/// One sentence.
pub fn fits(path: &PathConfig) -> Result<(), String> {
    let to = path.via.as_ref().map_or(&path.remote, |via| &via.address);
    match (&path.local, to) {
        (Local::Address(local), Host::Address(to)) if local.is_ipv4() != to.is_ipv4() => Err(format!(
            "\"{}\" has no address of the same family as `local`; change one of the two",
            to.ip()
        )),
        _ => Ok(()),
    }
}

fn via(source: &mut Source, written: document::Via) -> Option<Via> {
    let public_key = public_key(source, &written.public_key);
    let (text, tls) = match (&written.address, &written.tls) {
        (Some(address), None) => (address, false),
        (None, Some(tls)) => (tls, true),
        _ => {
            let what = "a relay is reached by UDP or by TLS; write one of `address` and `tls`";
            source.complain(written.public_key.span(), what);
            return None;
        }
    };
    Some(Via { address: host(source, text)?, tls, public_key: public_key? })
}

fn host(source: &mut Source, text: &Spanned<String>) -> Option<Host> {
    source.expect(text.span(), text.get_ref().parse::<HostPort>()).map(Host::from)
}

/// Parses a public key.
pub fn public_key(source: &mut Source, text: &toml::Spanned<String>) -> Option<PublicKey> {
    source.expect(text.span(), text.get_ref().parse::<PublicKey>())
}
