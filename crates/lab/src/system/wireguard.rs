//! User-space WireGuard (boringtun, wireguard-go), set up over its UAPI socket as `wg set` does.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cleanup::{SOCKET_PREFIX, SOCKETS};
use crate::clock;
use crate::error::{Doing, Error};
use crate::namespace::Namespace;
use crate::network::{Network, SERVER};
use crate::ping;
use crate::program::Process;

use super::keys::KeyPair;
use super::ready::{Means, Ready};

const INNER_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const INNER_SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const START_LIMIT: Duration = Duration::from_secs(10);

/// WireGuard's MTU over links of 1500 bytes.
const MTU: u32 = 1420;

/// Where a rival's binary is: in the folder that `NAWA_RIVALS` names, or else in `target/rivals/bin`.
pub fn find(program: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("NAWA_RIVALS").map_or_else(|| "target/rivals/bin".into(), PathBuf::from);
    let path = std::path::absolute(folder.join(program)).ok()?;
    path.is_file().then_some(path)
}

struct End<'a> {
    host: &'a Namespace,
    interface: String,
    address: Ipv4Addr,
    keys: &'a KeyPair,
    peer: &'a KeyPair,
    peer_address: Ipv4Addr,
    endpoint: Option<IpAddr>,
}

pub(super) fn start(program: &str, network: &Network, means: &Means) -> Result<Ready, Error> {
    let binary =
        find(program).ok_or_else(|| Error::program(program, "it is not installed: run `make rivals`"))?;
    let (client, server) = (KeyPair::generate(means.nawa)?, KeyPair::generate(means.nawa)?);
    // The sockets' folder is shared by all namespaces: the interfaces' names have to differ.
    let interface = |end| format!("{SOCKET_PREFIX}{}{end}", std::process::id());
    let end = |host, letter, own, other, endpoint| {
        let [(address, keys), (peer_address, peer)] = [own, other];
        End { host, interface: interface(letter), address, keys, peer, peer_address, endpoint }
    };
    let (near, far) = ((INNER_CLIENT, &client), (INNER_SERVER, &server));
    let ends =
        [end(&network.server, 'b', far, near, None), end(&network.client, 'a', near, far, Some(SERVER))];
    let processes = ends.iter().map(|end| end.start(&binary)).collect::<Result<_, _>>()?;
    ping::await_answer(&network.client, None, INNER_SERVER.into(), START_LIMIT)?;
    Ok(Ready::tunnel(INNER_SERVER.into(), processes))
}

impl End<'_> {
    fn start(&self, binary: &Path) -> Result<Process, Error> {
        let Self { host, interface, address, .. } = self;
        let mut arguments = vec!["--foreground", interface];
        if binary.ends_with("boringtun-cli") {
            // It would change to the user who called sudo.
            arguments.push("--disable-drop-privileges");
        }
        let mut process = Process::start(host, binary, &arguments)?;
        self.configure(&mut process)?;
        host.ip(&[
            format!("addr add {address}/24 dev {interface}"),
            format!("link set {interface} mtu {MTU} up"),
        ])?;
        Ok(process)
    }

    fn configure(&self, process: &mut Process) -> Result<(), Error> {
        let socket = format!("{SOCKETS}/{}.sock", self.interface);
        let connect = || match UnixStream::connect(&socket) {
            Ok(stream) => Some(Ok(stream)),
            Err(_) => process.check().err().map(Err),
        };
        let mut stream = clock::within(START_LIMIT, format!("no program listened at {socket}"), connect)??;
        let answer = ask(&mut stream, &self.settings()?).doing(|| format!("talk to {socket}"))?;
        if answer.contains("errno=0") { Ok(()) } else { Err(Error::program(&self.interface, answer.trim())) }
    }

    /// The set operation of WireGuard's cross-platform user-space protocol.
    fn settings(&self) -> Result<String, Error> {
        let (private, public) = (hexadecimal(&self.keys.private)?, hexadecimal(&self.peer.public)?);
        let endpoint =
            self.endpoint.map_or_else(String::new, |address| format!("endpoint={address}:51820\n"));
        Ok(format!(
            "set=1\nprivate_key={private}\nlisten_port=51820\npublic_key={public}\n{endpoint}allowed_ip={}/32\n\n",
            self.peer_address
        ))
    }
}

fn ask(stream: &mut UnixStream, request: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(START_LIMIT))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn hexadecimal(base64: &str) -> Result<String, Error> {
    let bytes = STANDARD.decode(base64).map_err(|error| Error::program("nawa keygen", error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_hexadecimal() {
        assert_eq!(hexadecimal("AAH/").unwrap(), "0001ff");
        assert!(hexadecimal("?").is_err());
    }
}
