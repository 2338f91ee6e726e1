//! Tells systemd what state the daemon is in, sd_notify(3), when it was started by a unit with `Type=notify`.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The daemon forwards traffic.
pub fn ready() {
    tell("READY=1\n");
}

/// The daemon reads its file again; [`ready`] follows, whatever comes of it.
pub fn reloading() {
    let now = device::monotonic().as_micros();
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}\n"));
}

/// The daemon is on its way out.
pub fn stopping() {
    tell("STOPPING=1\n");
}

fn tell(state: &str) {
    let Ok(address) = std::env::var("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&address, state) {
        tracing::warn!(%error, address, "cannot notify systemd");
    }
}

/// A leading `@` means an abstract socket, as systemd writes it.
fn send(address: &str, state: &str) -> io::Result<()> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
