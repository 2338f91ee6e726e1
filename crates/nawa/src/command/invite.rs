//! `nawa invite`

use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use qrcode::{QrCode, render::unicode::Dense1x2};
use rand_core::{OsRng, TryRngCore};
use serde::Deserialize;
use serde_json::Value;
use tunnel::daemon::{Listen, listen_advice, listen_tcp};
use tunnel::{PresharedKey, PrivateKey, PublicKey};

use crate::config::{self, HostPort, Tunnel, value};
use crate::control::{Request, client::Daemon, peer};
use crate::failure::Failure;
use crate::setup::ask::List;
use crate::setup::exchange::{self, Terms};
use crate::setup::file;
use crate::setup::invite::{self, MAX_ENDPOINTS};

/// Addresses of a prefix that are tried before it counts as full.
const MAX_TRIED: usize = 65536;

/// Whom to invite, and how.
#[derive(Args, Debug)]
pub struct Invite {
    /// What to call the new end
    #[arg(value_parser = value::label)]
    name: String,
    /// This end's file; the new end is put behind what stands there
    #[arg(long, value_name = "FILE", default_value = "/etc/nawa/nawa.toml")]
    file: PathBuf,
    /// HOST:PORT by which the new end reaches this one [default: `endpoints` of the file]
    #[arg(long, value_name = "HOST:PORT,…")]
    endpoint: Option<List<HostPort>>,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = value::time)]
    valid: Duration,
    /// No QR code
    #[arg(long)]
    no_qr: bool,
}

/// Prints the invite and waits until somebody has joined.
pub fn run(args: &Invite) -> Result<(), Failure> {
    let settings = config::load(&args.file)?;
    let none =
        || Failure::bad_input(format!("{} has no [tunnel]; write one with `nawa init`", args.file.display()));
    let (me, tunnel) = settings.key.zip(settings.tunnel).ok_or_else(none)?;
    // Those that live edits have brought are not in the file.
    let live = live(&me)?;
    let named = |name: &String| *name == args.name;
    let peers = &tunnel.config.peers;
    if peers.iter().map(|peer| &peer.name).chain(live.iter().map(|peer| &peer.name)).any(named) {
        return Err(Failure::bad_input(format!(
            "there is a peer {} already; choose another name",
            args.name
        )));
    }
    let endpoints = args.endpoint.as_ref().map_or(&tunnel.endpoints, |given| &given.0);
    if endpoints.is_empty() || endpoints.len() > MAX_ENDPOINTS {
        return Err(Failure::bad_input(format!(
            "an invite says where this end is reached, at 1 to {MAX_ENDPOINTS} places: write them as `endpoints` into \
             [tunnel], or give --endpoint"
        )));
    }
    let terms = Terms { addresses: free(&tunnel, &live)?, routes: file::hosts(&tunnel.addresses) };
    let listener = listen(tunnel.listen)?;
    let secret = PresharedKey::generate(&mut OsRng.unwrap_err());
    let invite = invite::Invite { secret, inviter: me.public(), endpoints: endpoints.clone() };
    show(&invite.encode(), args)?;
    let mut joined = None;
    let enrol = |key| {
        joined = Some(key);
        let section = file::peer(&args.name, &key, &file::hosts(&terms.addresses));
        file::append(&args.file, &section).map_err(|failure| failure.why())
    };
    exchange::wait(listener, &me, &invite, &terms, args.valid, enrol).map_err(Failure::failed)?;
    let told = match joined {
        Some(key) => tell(&me, &args.name, key, &file::hosts(&terms.addresses))?,
        None => false,
    };
    let untold = "; no running tunnel has taken it up: reload the daemon, or start it with `nawa up`";
    let todo = if told { "" } else { untold };
    super::print(&format!("{} has joined{todo}", args.name))
}

/// The string alone goes to stdout.
fn show(invite: &str, args: &Invite) -> Result<(), Failure> {
    let mut text = String::new();
    if !args.no_qr {
        let code = QrCode::new(invite).map_err(|error| Failure::failed(format!("no QR code: {error}")))?;
        text = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
        text.push('\n');
    }
    // Where nobody reads, the string is enough.
    let _ = writeln!(
        std::io::stderr(),
        "{text}On the new end, run `nawa join` with the string below. It holds a one-time key: whoever has it can join \
         in place of {}, once, while this command waits ({} s at most).",
        args.name,
        args.valid.as_secs()
    );
    super::print(invite)
}

/// In each of the tunnel's prefixes the first address that is not this end's and no peer's.
fn free(tunnel: &Tunnel, live: &[Live]) -> Result<Vec<IpNet>, Failure> {
    let taken = |address: &IpNet| {
        let peers = tunnel.config.peers.iter().map(|peer| &peer.routes);
        let mut routes = peers.chain(live.iter().map(|peer| &peer.routes)).flatten();
        tunnel.addresses.iter().any(|own| own.addr() == address.addr())
            || routes.any(|route| route.prefix_len() > 0 && route.contains(address))
    };
    let in_prefix = |own: &IpNet| {
        let mut all =
            file::usable(own).take(MAX_TRIED).filter_map(|host| IpNet::new(host, own.prefix_len()).ok());
        let free = all.find(|address| !taken(&IpNet::from(address.addr())));
        free.ok_or_else(|| Failure::failed(format!("{own} has no free address; give [tunnel] a wider one")))
    };
    tunnel.addresses.iter().map(in_prefix).collect()
}

/// TCP's port of the number that the tunnel has by UDP.
fn listen(tunnel: Listen) -> Result<TcpListener, Failure> {
    if tunnel == Listen::Port(0) {
        let todo = "this end has no fixed port to be reached at; give [tunnel] a `listen`";
        return Err(Failure::bad_input(todo));
    }
    listen_tcp(tunnel).map_err(|error| {
        let todo = match error.kind() {
            ErrorKind::AddrInUse => "another `nawa invite`, [relay]'s `tls` or another server has that port",
            _ => listen_advice(&error),
        };
        Failure::failed(format!("{error}; {todo}"))
    })
}

/// A peer of the running daemon.
#[derive(Deserialize)]
struct Live {
    name: String,
    routes: Vec<IpNet>,
}

/// The peers of the running daemon, if one runs and has this key.
fn live(me: &PrivateKey) -> Result<Vec<Live>, Failure> {
    let state = ours(me)?.map_or(Value::Null, |(_, state)| state);
    Ok(serde_json::from_value(state["tunnel"]["peers"].clone()).unwrap_or_default())
}

/// The running daemon and its state, if it has this key: another one's file is another.
fn ours(me: &PrivateKey) -> Result<Option<(Daemon, Value)>, Failure> {
    let Some(mut daemon) = Daemon::find()? else { return Ok(None) };
    let state = daemon.ask(Request::Status)?;
    let same = state["tunnel"]["public_key"] == me.public().to_string();
    Ok(same.then_some((daemon, state)))
}

/// The running daemon takes the new peer up, and keeps what was changed while it runs. Without one, or while its tunnel waits to be
/// started again, which is false, the next reload or start does.
fn tell(me: &PrivateKey, name: &str, public_key: PublicKey, routes: &[IpNet]) -> Result<bool, Failure> {
    let Some((mut daemon, _)) = ours(me)? else { return Ok(false) };
    let add = peer::Add {
        name: name.to_owned(),
        public_key,
        routes: routes.to_vec(),
        keepalive: None,
        preshared_key_file: None,
    };
    daemon.ask(Request::PeerAdd(add)).map(|_| true).map_err(|failure| {
        let why = failure.why();
        Failure::failed(format!(
            "the file has the new end, but the daemon does not take it ({why}); restart it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_end_gets_what_is_free() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("nawa.toml");
        let mut made = file::Made::begin(&path).expect("a folder");
        let addresses = ["10.77.0.1/24", "fd77::1/64"].map(|text| text.parse().expect("an address"));
        let third = tunnel::PrivateKey::generate(&mut OsRng.unwrap_err()).public();
        let routes = ["10.77.0.2/31", "fd77::2/128", "0.0.0.0/0"].map(|text| text.parse().expect("a route"));
        made.write(&(file::end(&addresses, Some(1), &[]) + &file::peer("van", &third, &routes)))
            .expect("a good file");
        let tunnel = config::load(&path).expect("a good file").tunnel.expect("a tunnel");
        let free = |live: &[Live]| {
            let found = super::free(&tunnel, live).expect("room");
            found.iter().map(IpNet::to_string).collect::<Vec<_>>()
        };
        assert_eq!(free(&[]), ["10.77.0.4/24", "fd77::3/64"]);
        let boat = Live { name: "boat".into(), routes: vec!["10.77.0.4/32".parse().expect("a route")] };
        assert_eq!(free(&[boat]), ["10.77.0.5/24", "fd77::3/64"]);
    }
}
