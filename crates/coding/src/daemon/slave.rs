//! The slave interface: heard as a whole, in promiscuous mode, and kept from this host's IP.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use bpf::tc::{self, Attached, Direction};
use device::{Net, PromiscuousSocket};
use libbpf_rs::{ObjectBuilder, PrintLevel};

use crate::ethernet::Mac;
use crate::header;

const OBJECT: &[u8] = bpf::object!("slave.bpf.o");
const PROGRAM: &str = "coding_slave";
/// What every host can reassemble (RFC 1122 §3.3.2) has to fit behind the NC header.
const LEAST_MTU: u32 = 576 + header::CODED as u32;

/// What of the slave the layer and the master depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Unique in its namespace.
    pub index: u32,
    /// Its address.
    pub mac: Mac,
    /// What it carries behind an Ethernet header, in bytes.
    pub mtu: u32,
}

/// Why an interface cannot be a slave, now or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is none of that name.
    #[error("there is no interface `{0}`; make it first, or name another as `interface`")]
    Absent(String),
    /// It has no Ethernet address.
    #[error("`{0}` carries no Ethernet frames; name another as `interface`")]
    NotEthernet(String),
    /// There is no room for the header.
    #[error("the MTU of `{0}` is {1} bytes, and {LEAST_MTU} are needed; raise it")]
    Small(String, u32),
    /// IP would run beside the master.
    #[error(
        "`{0}` has the address {1}, and IP belongs on the master; take it off with `ip address flush dev {0}`, and write it \
         as `addresses`"
    )]
    Addressed(String, IpAddr),
    /// It carries nothing at present.
    #[error("`{0}` is down, or has no carrier; `ip link set {0} up`")]
    Down(String),
}

/// The slave at work; when dropped, the interface is as it was.
pub struct Slave {
    /// What it was opened by.
    pub facts: Facts,
    /// Its frames.
    pub socket: PromiscuousSocket,
    _silence: Attached,
}

/// Looks at the interface `name`.
///
/// # Errors
/// Why it cannot be used; [`Unusable::Down`] only if nothing else is wrong.
pub fn look(name: &str) -> Result<Facts, Unusable> {
    let link = Net::open().and_then(|mut net| net.link(name));
    let link = link.map_err(|_| Unusable::Absent(name.to_owned()))?;
    let mac = link.mac.filter(|_| link.ethernet).map(Mac);
    let mac = mac.ok_or_else(|| Unusable::NotEthernet(name.to_owned()))?;
    if link.mtu < LEAST_MTU {
        return Err(Unusable::Small(name.to_owned(), link.mtu));
    }
    let mut addresses = device::addresses(name).unwrap_or_default().into_iter();
    if let Some(address) = addresses.find(|address| !comes_by_itself(address)) {
        return Err(Unusable::Addressed(name.to_owned(), address));
    }
    if !link.running {
        return Err(Unusable::Down(name.to_owned()));
    }
    Ok(Facts { index: link.index, mac, mtu: link.mtu })
}

/// Link-local addresses, which kernels and other programs give without being asked, do no harm.
fn comes_by_itself(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

impl Slave {
    /// Takes the interface over.
    pub fn open(facts: Facts) -> io::Result<Self> {
        // First of all, so that IP never has a packet twice.
        let silence = silence(facts.index).map_err(io::Error::other)?;
        let socket = PromiscuousSocket::open(facts.index, facts.mtu)?;
        Ok(Self { facts, socket, _silence: silence })
    }
}

/// Keeps IP off the interface with this index.
fn silence(interface: u32) -> Result<Attached, bpf::Error> {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, line| tracing::debug!("{}", line.trim_end()))));
    let refused = |error| bpf::Error::Refused { program: PROGRAM.into(), error };
    let object =
        ObjectBuilder::default().open_memory(OBJECT).and_then(|open| open.load()).map_err(refused)?;
    let program = object.progs().find(|one| one.name() == PROGRAM);
    let program = program.ok_or_else(|| bpf::Error::NoProgram(PROGRAM.into()))?;
    tc::attach(program.as_fd(), interface, Direction::Ingress)
}

/// Takes off what a crash left on the interface with index `interface`, on kernels before 6.6. True if there was anything.
pub fn remove_left(interface: u32) -> bool {
    tc::remove_left(interface, PROGRAM)
}
