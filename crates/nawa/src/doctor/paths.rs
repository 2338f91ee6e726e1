//! What keeps a path from coming up, what that costs and what to do. That it does is known from the tunnel's own state, of a
//! daemon that runs or of a trial; what nobody but a host's other ports can tell is asked there.

use std::net::IpAddr;

use super::{Finding, Level};
use crate::command::status::view::Path;

/// What else is seen of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Where it leaves from and leads to.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// The host refuses another port: UDP passes, there and back. `None` if nothing was asked.
    pub udp_passes: Option<bool>,
    /// The host answers TCP, be it by a refusal. `None` if nothing was asked.
    pub tcp_passes: Option<bool>,
}

/// What that means.
pub fn findings(peer: &str, path: &Path, seen: &Seen) -> Vec<Finding> {
    let check = format!("path {} to {peer}", path.name);
    let state = match path.rtt_ms {
        Some(rtt) => format!("{}, {rtt:.1} ms, packets of {} bytes", path.state, path.mtu),
        None => path.state.clone(),
    };
    let said = path.why.as_ref().map_or(state.clone(), |why| format!("{}: {why}", path.state));
    let up = path.state == "up";
    let first = match path.cause.as_str() {
        "carries" => Finding::ok(check.clone(), state),
        "kept" | "helps" | "spent" | "tls" | "in-pieces" => Finding::ok(check.clone(), said),
        "no-answer" => no_answer(check.clone(), said, seen),
        cause => {
            let (level, costs) = if up { (Level::Warn, HALF) } else { (Level::Fail, WHOLE) };
            Finding::new(level, check.clone(), said, costs, advice(cause))
        }
    };
    [Some(first), nat(&check, seen)].into_iter().flatten().collect()
}

const WHOLE: &str = "the path is not used";
const HALF: &str = "the path carries in one direction";

/// What to do about a cause, as [`tunnel::why::Why::cause`] has it.
fn advice(cause: &str) -> &'static str {
    match cause {
        "no-interface" | "interface-down" => "connect it, or correct `local`",
        "no-address" => "give an interface the address, or correct `local`",
        "no-name" => {
            "correct the name in `remote`, or see why its server does not answer: it is asked beside the tunnel, by the path's \
             own uplink; another one is asked with `resolvers` in [tunnel]"
        }
        "no-route" => {
            "add a default route by that uplink, with a metric of its own or in the table that its rule asks"
        }
        "not-taken" => {
            "name the interface in `local`, or add a rule `ip -6 rule add from ADDRESS lookup TABLE`, and a default route by that uplink to the table"
        }
        "loop" => "name its uplink with `local`, or give the peer's address a route past the tunnel",
        "no-relay" => {
            "start the relay, write into `via` what `nawa pubkey` says of its key, and list this end's public key in its `allow`"
        }
        "no-tls" => {
            "start the relay with `tls` in its [relay], and see that nothing on the way stops TCP to that port"
        }
        "not-sent" => "this host's own firewall or routes forbid it: let UDP out to that port",
        "refused" => "the host is there and no daemon listens: start it there, or correct `remote`",
        "unreachable" => "the host is down, or its router knows no way to it: start it, or correct `remote`",
        "stranger" => {
            "another program answers, or the peer has another key: correct `public-key`, or the port"
        }
        "link-silent" => {
            "look at this link: is it connected, has it a way to the internet, does it pass UDP to that port"
        }
        "link-refuses" => "look at this link: a captive portal wants a login, or its firewall refuses UDP",
        "limited" => "wait: the peer answers more slowly while it is flooded with handshakes",
        "nothing-comes-in" => "sysctl -w net.ipv4.conf.all.rp_filter=2, and let UDP in by that interface",
        "too-small" => {
            "raise the link's MTU, or route IPv4 alone into the tunnel, or set a smaller `mtu`, or update the peer, which then takes a packet in pieces"
        }
        "black-hole" => {
            "let ICMP \"too big\" pass at the router that swallows larger packets, or route IPv4 alone into the tunnel"
        }
        "two-places" => "give one of the two hosts a key of its own: nawa keygen",
        "silent" | "not-proved" => "wait a few seconds, and ask `nawa path why PEER NAME`",
        _ => "ask `nawa path why PEER NAME`",
    }
}

/// Silence has several causes; what the host does on other ports tells them apart.
fn no_answer(check: String, said: String, seen: &Seen) -> Finding {
    let (because, todo) = match (seen.udp_passes, seen.tcp_passes) {
        (Some(true), _) => (
            "; UDP passes to that host, and the port listens or is filtered: the keys do not fit, or a firewall drops that port",
            "compare `public-key` here with `nawa pubkey` there, and the other way round; the log there names the key that it was asked with",
        ),
        (_, Some(true)) => (
            "; that host answers TCP, and nothing comes back by UDP: UDP is blocked on the way, or by its firewall",
            "let UDP pass to that port, in and out; try another port or uplink; or go by TLS to a relay: via = { tls = \"HOST:443\", … }",
        ),
        (Some(false), Some(false)) => (
            "; nothing comes back from that host at all: it is down, or cut off, or a firewall drops everything",
            "see that it is on, and that its firewall lets that port in",
        ),
        _ => {
            ("", "see that it is on, that its firewall lets that port in, and that both ends' keys are right")
        }
    };
    Finding::new(Level::Fail, check, format!("{said}{because}"), WHOLE, todo)
}

/// From a private address to a public one: something in between translates.
fn nat(check: &str, seen: &Seen) -> Option<Finding> {
    let (from, to) = seen.ends?;
    let kind = private(from).filter(|_| private(to).is_none())?;
    let check = check.replacen("path", "nat", 1);
    let costs = "nobody can call this end; its mapping is kept by a packet each 25 s. Whether it differs by destination is \
                 not known: the other end follows it in either case";
    Some(Finding::new(Level::Note, check, format!("{from} is {kind}, {to} is not"), costs, ""))
}

fn private(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) if ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64 => {
            Some("a provider's (RFC 6598)")
        }
        IpAddr::V4(ip) if ip.is_private() || ip.is_link_local() => Some("private"),
        IpAddr::V6(ip) if ip.segments()[0] & 0xfe00 == 0xfc00 => Some("private"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(state: &str, cause: &str, seen: Seen) -> Vec<Finding> {
        let path = serde_json::json!({
            "id": 0, "name": "lte", "state": state, "cause": cause, "why": (cause != "carries").then_some("so it is"),
            "mtu": 1500, "rtt_ms": (state == "up").then_some(41.26), "backup": false, "relayed": false, "weight": 1.0,
            "sent_packets": 0, "sent_bytes": 0, "lost_packets": 0, "received_bytes": 0,
        });
        findings("office", &serde_json::from_value(path).expect("a path"), &seen)
    }

    #[test]
    fn a_path_that_is_up_is_well() {
        let all = found("up", "carries", Seen::default());
        assert_eq!(all, [Finding::ok("path lte to office", "up, 41.3 ms, packets of 1500 bytes")]);
        assert_eq!(found("up", "kept", Seen::default())[0].level, Level::Ok);
        assert_eq!(found("up", "nothing-comes-in", Seen::default())[0].level, Level::Warn);
    }

    #[test]
    fn every_cause_has_its_own_advice() {
        let causes = [
            "no-interface",
            "no-address",
            "no-name",
            "no-route",
            "not-taken",
            "loop",
            "no-relay",
            "no-tls",
            "not-sent",
            "refused",
            "unreachable",
            "stranger",
            "limited",
            "link-silent",
            "link-refuses",
            "too-small",
            "black-hole",
            "two-places",
            "nothing-comes-in",
        ];
        let mut said: Vec<_> =
            causes.iter().map(|cause| found("down", cause, Seen::default()).remove(0).todo).collect();
        said.sort();
        said.dedup();
        assert_eq!(said.len(), causes.len());
        assert!(said.iter().all(|todo| !todo.contains("path why")), "{said:?}");
    }

    #[test]
    fn silence_is_told_apart_by_other_ports() {
        let says = |udp_passes, tcp_passes| {
            found("checking", "no-answer", Seen { udp_passes, tcp_passes, ends: None }).remove(0).what
        };
        assert!(says(Some(true), Some(true)).contains("the keys do not fit"));
        assert!(says(Some(false), Some(true)).contains("UDP is blocked"));
        assert!(says(Some(false), Some(false)).contains("it is down, or cut off"));
        assert!(!says(None, None).contains(';'));
    }

    #[test]
    fn a_nat_is_seen_by_the_addresses() {
        let ends = |from: &str, to: &str| {
            let ends = Some((from.parse().expect("an address"), to.parse().expect("an address")));
            found("up", "carries", Seen { ends, ..Seen::default() }).len() == 2
        };
        assert!(
            ends("192.168.1.2", "203.0.113.7")
                && ends("100.64.3.4", "203.0.113.7")
                && ends("fd01::2", "2001:db8::7")
        );
        assert!(!ends("10.0.0.1", "10.0.0.2") && !ends("198.51.100.2", "203.0.113.7"));
    }
}
