//! Programs of the host that do something and end: above all iproute2's `ip`, and lines for it that make the ends of links, whose
//! neighbours are static: no ARP is lost. And how the lab's namespaces are called.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::error::{Doing, Error, Result};

/// What every namespace of the lab begins with. Nothing else is ever touched.
pub(crate) const PREFIX: &str = "nawalab-";

/// Where iproute2 keeps namespaces.
pub(crate) const FOLDER: &str = "/run/netns";

/// Runs `ip` with `input` on its standard input.
pub(crate) fn ip(arguments: &[&str], input: &str) -> Result<()> {
    let name = format!("ip {}", arguments.join(" "));
    match complete(&name, Command::new("ip").args(arguments), input) {
        Err(Error::Program { reason, .. }) => Err(Error::program(&name, explain(&reason, input))),
        said => said.map(drop),
    }
}

/// `ip -batch` names the line that failed by number only: adds the line itself.
fn explain(said: &str, input: &str) -> String {
    let number = said.rsplit("-:").next().and_then(|tail| tail.trim().parse::<usize>().ok());
    match number.and_then(|n| input.lines().nth(n.checked_sub(1)?)) {
        Some(line) => format!("{said} (at `{line}`)"),
        None => said.into(),
    }
}

/// Runs `command`, called `name`, with `input` on its standard input; its standard output. What it said on standard error is the
/// reason of a failure.
pub(crate) fn complete(name: &str, command: &mut Command, input: &str) -> Result<String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().doing(|| format!("start `{name}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it has ended already, its status says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().doing(|| format!("wait for `{name}`"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(Error::program(name, if said.is_empty() { output.status.to_string() } else { said.join("; ") }))
}

/// The MAC address of an interface: it has the last three bytes of its address.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [_, a, b, c] = address.octets();
    format!("02:00:00:{a:02x}:{b:02x}:{c:02x}")
}

/// Brings `device` up with the address `own` in a network of 24 bits, in which it knows `peer`.
pub(crate) fn end(device: &str, own: Ipv4Addr, peer: Ipv4Addr) -> Vec<String> {
    let up = format!("link set {device} address {} up", mac(own));
    vec![up, format!("addr add {own}/24 dev {device}"), neighbour(device, peer, &mac(peer))]
}

pub(crate) fn neighbour(device: &str, address: Ipv4Addr, mac: &str) -> String {
    format!("neigh replace {address} lladdr {mac} dev {device} nud permanent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_batch_names_its_line() {
        let said = "RTNETLINK answers: File exists; Command failed -:2";
        let explained = explain(said, "link set lo up\naddr add 10.0.0.1/8 dev lo\n");
        assert!(explained.ends_with("(at `addr add 10.0.0.1/8 dev lo`)"), "{explained}");
    }
}
