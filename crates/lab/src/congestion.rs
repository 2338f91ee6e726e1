//! The congestion control of a namespace's TCP, and what else routes say of it.
//!
//! A namespace may only take as its default what its kernel does not restrict: Reno, BBR and whatever the kernel was
//! built with as default. Any other is named by the routes instead (`congctl`), which is not restricted and holds for
//! the connections over them, MPTCP's subflows among them, at either end.

use std::io::ErrorKind;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::program::output;

/// Sets the congestion control of the connections that `host` makes or accepts from now on, over the routes that it has.
pub(crate) fn set(host: &Namespace, name: &str) -> Result<()> {
    match host.sysctl("ipv4/tcp_congestion_control", name) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            set_routes(host, "congctl", name)
        }
        other => other,
    }
}

/// Gives all routes of `host` to others the attribute `name` (as `congctl`, `initcwnd`) with `value`.
pub(crate) fn set_routes(host: &Namespace, name: &str, value: &str) -> Result<()> {
    let shown = output(host, "ip", &["-N", "-4", "route", "show", "table", "all"])?;
    let lines: Vec<String> = shown.lines().filter_map(|route| with_attribute(route, name, value)).collect();
    host.ip(&lines)
}

/// What `ip route show` says of a route's state at the moment, and `ip route replace` takes for an error.
const STATES: [&str; 2] = ["dead", "linkdown"];

/// The line of `ip -batch` that gives a route, as `ip route show` prints it, an attribute of one word; `None` for a
/// route to the host itself, over which nothing is measured.
fn with_attribute(route: &str, name: &str, value: &str) -> Option<String> {
    let to_itself =
        route.starts_with("local ") || route.starts_with("broadcast ") || route.contains(" table 255");
    let mut words: Vec<&str> = route.split_whitespace().filter(|word| !STATES.contains(word)).collect();
    if let Some(at) = words.iter().position(|&word| word == name) {
        words.drain(at..words.len().min(at + 2));
    }
    (!to_itself).then(|| format!("route replace {} {name} {value}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_to_others_have_the_attribute_once_and_no_state() {
        let with = |route: &str, name: &str, value: &str| {
            with_attribute(route, name, value).map(|line| line["route replace ".len()..].to_owned())
        };
        let route = "default via 10.1.1.2 dev p1 table 101";
        let named = format!("{route} congctl cubic");
        assert_eq!(with(&format!("{route} dead linkdown "), "congctl", "cubic"), Some(named.clone()));
        let again = with(&format!("{named} initcwnd 3 "), "congctl", "reno");
        assert_eq!(again, Some(format!("{route} initcwnd 3 congctl reno")));
        assert_eq!(with("local 10.0.0.2 dev lo table 255 proto 2 scope 254", "congctl", "cubic"), None);
        assert_eq!(with("broadcast 10.1.1.255 dev p1 table 255", "initcwnd", "3"), None);
    }
}
