//! Why a path does not carry what it should, in words for status and logs.

use std::net::IpAddr;

/// What keeps a path from being used, or from being used both ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The interface that it is to leave by is not there.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// That interface carries nothing.
    #[error("{0} is down")]
    InterfaceDown(String),
    /// No interface has the address that it is to leave from.
    #[error("no interface has the address {0}")]
    NoAddress(IpAddr),
    /// The routing tables know no way; `by` is empty, or says by what.
    #[error("no route{by} to {to}")]
    NoRoute {
        /// As `" by wan2"`.
        by: String,
        /// The peer's address, or the relay's.
        to: IpAddr,
    },
    /// Its packets would come back as packets for the tunnel.
    #[error(
        "its packets to {to} would go into {interface} itself; name its uplink with `local`, or route {to} past {interface}"
    )]
    Loop {
        /// The peer's address, or the relay's.
        to: IpAddr,
        /// The tunnel's own interface.
        interface: String,
    },
}
