//! What a file asks of a host that the host does not have.

use ipnet::IpNet;

use super::{Finding, Level};

/// What is seen of what a file names.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The interfaces that its strands need, each with the section, and whether it is there.
    pub needed: Vec<(String, String, bool)>,
    /// The tunnel's interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Inner prefixes of each peer.
    pub routes: Vec<(String, IpNet)>,
    /// The networks of other interfaces, each with its name.
    pub networks: Vec<(String, IpNet)>,
}

/// What that means.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for (section, name, _) in facts.needed.iter().filter(|(.., there)| !there) {
        let what = format!("there is no interface {name}");
        let costs = match section.as_str() {
            "[bicast]" => "the strand waits for it",
            _ => "a daemon does not start without it, and one that runs waits for it",
        };
        all.push(Finding::new(Level::Fail, section, what, costs, "connect it, or correct its name"));
    }
    for address in &facts.addresses {
        all.extend(own_address_elsewhere(facts, *address));
        all.extend(own_address_at_peer(facts, *address));
    }
    all.extend([false, true].into_iter().filter_map(|v6| default_without_address(facts, v6)));
    all
}

/// What a daemon that was killed has left.
pub fn leftovers(left: &[String]) -> Vec<Finding> {
    let finding = |left: &String| {
        let todo = "`nawa down` removes it, and so does the next start";
        Finding::new(Level::Warn, "leftover", left, "it may be in the way", todo)
    };
    left.iter().map(finding).collect()
}

/// Whether a hub passes on what its peers send beyond it: whether it forwards IPv4, and puts its own address on that; `drops` are the
/// chains that forwarded packets of no rule end in.
pub fn hub(forwards: bool, masquerades: Option<bool>, drops: &[String]) -> Finding {
    let chains = drops.join(", ");
    let dropped = format!("forwards IPv4, but for what no rule accepts: {chains} drops that");
    let (what, todo) = match (forwards, masquerades) {
        (true, Some(true)) if drops.is_empty() => {
            return Finding::ok("hub", "forwards IPv4, and puts its own address on what leaves");
        }
        (true, Some(true)) => {
            (dropped.as_str(), "accept there what comes in by the tunnel's interface, and what leaves by it")
        }
        (false, _) => ("does not forward IPv4", "sysctl -w net.ipv4.ip_forward=1"),
        (true, Some(false)) => (
            "forwards IPv4, and no rule of nftables puts its own address on what leaves (masquerade)",
            "add one, for peers whose default route leads here: docs/tunnel.md, \"Hosts\"",
        ),
        (true, None) => (
            "forwards IPv4; whether it puts its own address on what leaves cannot be asked (nft)",
            "install nftables",
        ),
    };
    let costs =
        "what peers send through this hub to the internet gets no answer; what is for the hub itself does";
    Finding::new(Level::Note, "hub", what, costs, todo)
}

/// The tunnel's network is also that of an uplink.
fn own_address_elsewhere(facts: &Facts, address: IpNet) -> Option<Finding> {
    let overlaps = |net: &IpNet| net.contains(&address.trunc()) || address.trunc().contains(&net.trunc());
    let (name, net) = facts.networks.iter().find(|(_, net)| overlaps(net))?;
    let what = if net.addr() == address.addr() {
        format!("{} is an address of {name} as well", address.addr())
    } else {
        format!("{} of {} overlaps with {} of {name}", address.trunc(), facts.interface, net.trunc())
    };
    let costs = "what should go into one of them goes into the other";
    Some(Finding::new(
        Level::Fail,
        "duplicate address",
        what,
        costs,
        "choose another network for the tunnel, at both ends",
    ))
}

/// Both ends have one address: each takes what is for the other for its own.
fn own_address_at_peer(facts: &Facts, address: IpNet) -> Option<Finding> {
    let own = IpNet::from(address.addr());
    let (peer, _) = facts.routes.iter().find(|(_, route)| *route == own)?;
    let what = format!("{} is this end's own, and {peer}'s route as well", address.addr());
    let costs = "nothing reaches that peer at it";
    Some(Finding::new(Level::Fail, "duplicate address", what, costs, "give each end an address of its own"))
}

/// What goes by the default route leaves from an address of another interface.
fn default_without_address(facts: &Facts, v6: bool) -> Option<Finding> {
    let leads = |(_, route): &&(String, IpNet)| route.prefix_len() == 0 && route.addr().is_ipv6() == v6;
    let (peer, route) = facts.routes.iter().find(leads)?;
    if facts.addresses.iter().any(|address| address.addr().is_ipv6() == v6) {
        return None;
    }
    let (family, interface) = (if v6 { "IPv6" } else { "IPv4" }, &facts.interface);
    let what = format!("all {family} goes to {peer}, and {interface} has no address of it");
    let costs =
        "it has another interface's address, which the other end does not take: programs wait for answers";
    let todo = format!(
        "give `[tunnel]` an {family} address that is routed here at the other end, or leave \"{route}\" out"
    );
    Some(Finding::new(Level::Warn, "default route", what, costs, todo))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let net = |text: &str| text.parse().expect("a network");
        Facts {
            needed: vec![("[[flood]]".into(), "wlan0".into(), true)],
            interface: "nawa0".into(),
            addresses: vec![net("10.77.0.1/24"), net("fd77::1/64")],
            routes: vec![("office".into(), net("10.77.0.2/32"))],
            networks: vec![("wan1".into(), net("10.0.1.2/24"))],
        }
    }

    #[test]
    fn a_file_that_fits_has_nothing_amiss() {
        assert_eq!(findings(&facts()), []);
    }

    #[test]
    fn addresses_that_two_have_are_named() {
        let says = |change: fn(&mut Facts)| {
            let mut facts = facts();
            change(&mut facts);
            let found = findings(&facts);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].what.clone()
        };
        assert_eq!(
            says(|facts| facts.networks[0].1 = "10.77.0.1/16".parse().expect("a network")),
            "10.77.0.1 is an address of wan1 as well"
        );
        assert_eq!(
            says(|facts| facts.networks[0].1 = "10.77.0.9/25".parse().expect("a network")),
            "10.77.0.0/24 of nawa0 overlaps with 10.77.0.0/25 of wan1"
        );
        assert_eq!(
            says(|facts| facts.routes[0].1 = "10.77.0.1/32".parse().expect("a network")),
            "10.77.0.1 is this end's own, and office's route as well"
        );
        assert_eq!(says(|facts| facts.needed[0].2 = false), "there is no interface wlan0");
        assert_eq!(
            says(|facts| {
                facts.addresses.pop();
                facts.routes.push(("office".into(), "::/0".parse().expect("a network")));
            }),
            "all IPv6 goes to office, and nawa0 has no address of it"
        );
    }

    #[test]
    fn leftovers_and_hubs_are_told_what_to_do() {
        let left = leftovers(&["table inet nawa-flood".into()]);
        assert_eq!((left[0].level, left[0].what.as_str()), (Level::Warn, "table inet nawa-flood"));
        assert_eq!(hub(true, Some(true), &[]).level, Level::Ok);
        let docker = ["ip filter FORWARD".to_owned()];
        for (forwards, masquerades, drops) in [
            (false, Some(true), &[][..]),
            (true, Some(false), &[]),
            (true, None, &[]),
            (true, Some(true), &docker),
        ] {
            let found = hub(forwards, masquerades, drops);
            assert!(found.level == Level::Note && !found.todo.is_empty(), "{found:?}");
        }
    }
}
