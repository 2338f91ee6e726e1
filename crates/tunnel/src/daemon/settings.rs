//! What a tunnel is told, and why it does not start.

use std::io;
use std::net::SocketAddr;

use ipnet::IpNet;

use crate::config::Config;
use crate::keys::PrivateKey;

/// Where a socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// This port on every local address, IPv4 and, where the host has it, IPv6; 0 takes any that is free, in each.
    Port(u16),
    /// This address only.
    Address(SocketAddr),
}

/// What [`start`] makes and runs.
#[derive(Debug)]
pub struct Settings {
    /// The TUN interface to make; at most 15 bytes.
    pub interface: String,
    /// Its addresses, each with its prefix.
    pub addresses: Vec<IpNet>,
    /// Where peers reach this end.
    pub listen: Listen,
    /// Mark of the outer packets (SO_MARK); 0: none.
    pub fwmark: u32,
    /// What the core is told.
    pub tunnel: Config,
    /// Who this end is.
    pub key: PrivateKey,
}

/// Why the tunnel does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The interface's name is taken.
    #[error("interface `{0}` exists already and is another's; choose a name that is free")]
    InterfaceExists(String),
    /// The TUN interface cannot be made.
    #[error("{0}; {advice}", advice = tun_advice(.0))]
    Tun(io::Error),
    /// The interface cannot be given its addresses.
    #[error(
        "{0}; see that the tunnel's addresses and interface name are right and that IPv6 is not switched off"
    )]
    Interface(io::Error),
    /// A peer's route is there already, to somewhere else.
    #[error("{0}; {advice}", advice = route_advice(.0))]
    Route(io::Error),
    /// The UDP port is taken, or the address is not local.
    #[error("{0}; {advice}", advice = listen_advice(.0))]
    Listen(io::Error),
    /// Descriptors, memory or randomness have run out.
    #[error("cannot start the tunnel's thread: {0}; see the limits on open files and memory")]
    Resources(#[from] io::Error),
}

const FILES: &str = "see the limits on open files";

fn tun_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => FILES,
        _ => "this needs root (CAP_NET_ADMIN) and /dev/net/tun",
    }
}

fn route_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "delete that route, or give the peer narrower routes",
        io::ErrorKind::NotFound => {
            "write one that `sysctl net.ipv4.tcp_available_congestion_control` lists, or load its module"
        }
        _ => "see that the peer's routes are right and that IPv6 is not switched off",
    }
}

/// What is to be done where nobody can listen.
pub fn listen_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "listen on another port, or stop the program that has this one",
        io::ErrorKind::AddrNotAvailable => "listen on an address that this host has",
        io::ErrorKind::QuotaExceeded => FILES,
        _ => "listen on another port or address",
    }
}
