//! What a host's facts mean, in the order in which things fail.

use std::time::Duration;

use super::{Finding, Level};

/// A bit of [`Facts::capabilities`].
const NET_ADMIN: u32 = 12;
/// Bits of /proc/PID/status's `CapEff` (linux/capability.h).
const CAPABILITIES: [(u32, &str, &str); 3] = [
    (NET_ADMIN, "CAP_NET_ADMIN", "no TUN interface, no routes"),
    (13, "CAP_NET_RAW", "no flooding, no coding, and ICMP's refusals are not heard"),
    (39, "CAP_BPF", "no relaying in the driver, no fsat, no copies for SCTP"),
];
/// Whoever reads less than this has a clock that was never set: this program is younger. Seconds since 1970; 2025-01-01.
const FIRST_DAY: Duration = Duration::from_secs(1_735_689_600);
/// The oldest kernel that Nawa is tried on.
const OLDEST: (u32, u32) = (6, 1);

/// An interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What drives it, if that is known.
    pub driver: Option<String>,
    /// Whether its driver runs XDP programs; `None` if this kernel does not say.
    pub xdp: Option<bool>,
    /// `rp_filter`: 0 off, 1 strict, 2 loose; the greater one of its own and of all.
    pub rp_filter: u8,
    /// A default route leads out by it.
    pub uplink: bool,
    /// Its addresses that another host on the link has as well (duplicate address detection).
    pub duplicates: Vec<String>,
}

/// What is seen of a host.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its release, as `uname -r`.
    pub kernel: String,
    /// `CapEff`.
    pub capabilities: u64,
    /// In a user namespace other than the host's.
    pub container: bool,
    /// The kernel's lockdown mode, if it has any.
    pub lockdown: Option<String>,
    /// The kernel describes its types.
    pub btf: bool,
    /// Whether congestion controls can be registered, or why not.
    pub struct_ops: Result<(), String>,
    /// Which offloads a TUN interface has (TCP, UDP), or why there can be none.
    pub tun: Result<(bool, bool), String>,
    /// The kernel cuts UDP trains.
    pub udp_trains: bool,
    /// Without loopback.
    pub interfaces: Vec<Interface>,
    /// Packets are forwarded, of IPv4 and IPv6.
    pub forwards: (bool, bool),
    /// Chains of nftables that drop what no rule of theirs accepts; `None` where `nft` cannot be asked.
    pub firewall: Option<Vec<String>>,
    /// Since 1970.
    pub clock: Duration,
}

/// What they mean.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = vec![kernel(&facts.kernel)];
    all.extend(capabilities(facts));
    all.extend(bpf(facts));
    all.push(tun(facts));
    all.extend(facts.interfaces.iter().map(xdp));
    all.push(trains(facts.udp_trains));
    all.push(rp_filter(&facts.interfaces));
    all.push(forwarding(facts.forwards));
    all.extend(facts.interfaces.iter().flat_map(duplicates));
    all.push(firewall(facts.firewall.as_deref()));
    all.push(clock(facts.clock));
    all
}

/// The first two numbers of a kernel's release.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    numbers.next().zip(numbers.next())
}

fn kernel(release: &str) -> Finding {
    match version(release) {
        Some(version) if version < OLDEST => Finding::new(
            Level::Warn,
            "kernel",
            format!("{release} is older than {}.{}", OLDEST.0, OLDEST.1),
            "nobody has tried Nawa on it",
            "use a newer kernel",
        ),
        _ => Finding::ok("kernel", release),
    }
}

fn has(facts: &Facts, bit: u32) -> bool {
    facts.capabilities & 1 << bit != 0
}

fn capabilities(facts: &Facts) -> Vec<Finding> {
    let missing = CAPABILITIES.iter().filter(|(bit, ..)| !has(facts, *bit));
    let mut all: Vec<_> = missing
        .map(|(bit, name, costs)| {
            Finding::new(
                // The tunnel works without the others.
                if *bit == NET_ADMIN { Level::Fail } else { Level::Warn },
                "capabilities",
                format!("{name} is missing"),
                *costs,
                "use sudo, or the systemd unit",
            )
        })
        .collect();
    if all.is_empty() {
        all.push(Finding::ok("capabilities", "all that the strands need"));
    }
    if facts.container {
        all.push(Finding::new(
            Level::Warn,
            "user namespace",
            "root here is not root of the host",
            "no BPF programs: no fsat, no relaying in the driver, no copies for SCTP",
            "use nawa on the host; the tunnel alone works here",
        ));
    }
    all
}

fn bpf(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    if facts.lockdown.as_deref() == Some("confidentiality") {
        all.push(Finding::new(
            Level::Warn,
            "lockdown",
            "confidentiality",
            "BPF programs may not read the kernel: no fsat",
            "boot with lockdown=integrity, or without",
        ));
    }
    all.push(if facts.btf {
        Finding::ok("types", "the kernel describes its own (BTF)")
    } else {
        Finding::new(
            Level::Warn,
            "types",
            "/sys/kernel/btf/vmlinux is not there",
            "no fsat, and no other BPF program that follows the kernel's types",
            "use a kernel with CONFIG_DEBUG_INFO_BTF",
        )
    });
    all.push(match &facts.struct_ops {
        Ok(()) => Finding::ok("congestion control", "fsat can be registered"),
        Err(why) => Finding::new(Level::Warn, "congestion control", why, "`nawa flight on` fails", ""),
    });
    all
}

fn tun(facts: &Facts) -> Finding {
    match &facts.tun {
        Ok((true, true)) => Finding::ok("tun", "with TCP and UDP offload"),
        Ok((tcp, _)) => Finding::new(
            Level::Note,
            "tun",
            if *tcp { "with TCP offload alone" } else { "without offload" },
            "more processor time for each packet",
            "UDP offload needs Linux 6.2",
        ),
        Err(why) => {
            let todo = match has(facts, NET_ADMIN) {
                true => "modprobe tun; see that /dev/net/tun is there",
                false => "that takes CAP_NET_ADMIN: use sudo, or the systemd unit",
            };
            Finding::new(Level::Fail, "tun", why, "no tunnel", todo)
        }
    }
}

fn xdp(interface: &Interface) -> Finding {
    let Interface { name, driver, xdp, .. } = interface;
    let driver = driver.as_ref().map_or(String::new(), |driver| format!(" ({driver})"));
    let check = format!("xdp {name}");
    match xdp {
        Some(true) => Finding::ok(check, format!("in the driver{driver}")),
        Some(false) => Finding::new(
            Level::Note,
            check,
            format!("the driver{driver} knows no XDP; programs run above it (generic)"),
            "a relay or a flood on it takes longer for each packet",
            "",
        ),
        None => Finding::new(Level::Note, check, "not known: the kernel says so since 6.3", "", ""),
    }
}

fn trains(udp_trains: bool) -> Finding {
    if udp_trains {
        return Finding::ok("udp offload", "the kernel cuts trains of datagrams");
    }
    let costs = "a system call's work for each datagram";
    Finding::new(
        Level::Note,
        "udp offload",
        "the kernel cuts no trains of datagrams",
        costs,
        "use Linux 4.18 or newer",
    )
}

fn rp_filter(interfaces: &[Interface]) -> Finding {
    let uplinks = interfaces.iter().filter(|one| one.uplink).count();
    let strict: Vec<_> =
        interfaces.iter().filter(|one| one.rp_filter == 1).map(|one| one.name.as_str()).collect();
    if strict.is_empty() || uplinks < 2 {
        return Finding::ok("rp_filter", "drops nothing that a path brings");
    }
    Finding::new(
        Level::Warn,
        "rp_filter",
        format!("strict on {}, with {uplinks} uplinks", strict.join(", ")),
        "what comes in by an uplink that is not the best way back is dropped: paths over it carry nothing in",
        "sysctl -w net.ipv4.conf.all.rp_filter=2",
    )
}

fn forwarding(forwards: (bool, bool)) -> Finding {
    let said = |on: bool| if on { "on" } else { "off" };
    let (v4, v6) = forwards;
    let what = format!("IPv4 {}, IPv6 {}", said(v4), said(v6));
    if v4 && v6 {
        return Finding::ok("forwarding", what);
    }
    Finding::new(
        Level::Note,
        "forwarding",
        what,
        "networks behind this host do not get through the tunnel, nor through a coding relay; the host itself does",
        "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1, where others are behind it",
    )
}

fn duplicates(interface: &Interface) -> Option<Finding> {
    if interface.duplicates.is_empty() {
        return None;
    }
    let (name, addresses) = (&interface.name, interface.duplicates.join(", "));
    Some(Finding::new(
        Level::Fail,
        "duplicate address",
        format!("another host on {name}'s link has {addresses} as well"),
        "the kernel does not use it; paths from it do not come up",
        format!("give one of the two another address: ip address del {addresses} dev {name}"),
    ))
}

fn firewall(chains: Option<&[String]>) -> Finding {
    match chains {
        None => Finding::new(Level::Note, "firewall", "cannot be asked (nft)", "", ""),
        Some([]) => Finding::ok("firewall", "no chain of nftables drops by default"),
        Some(chains) => Finding::new(
            Level::Note,
            "firewall",
            format!("drops what no rule accepts: {}", chains.join(", ")),
            "no path comes in where no rule accepts its UDP port, and none goes out that no rule lets out",
            "accept the UDP port of `listen`, and what is established",
        ),
    }
}

fn clock(clock: Duration) -> Finding {
    if clock >= FIRST_DAY {
        return Finding::ok("clock", "is set");
    }
    Finding::new(
        Level::Fail,
        "clock",
        format!("stands at {} s after 1970: it was never set", clock.as_secs()),
        "others take this node's floods for old ones and drop them; names over DNSSEC or TLS do not resolve. The tunnel needs no clock",
        "set it: timedatectl set-ntp true",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        let uplink = |name: &str| Interface {
            name: name.into(),
            driver: Some("veth".into()),
            xdp: Some(true),
            rp_filter: 0,
            uplink: true,
            duplicates: Vec::new(),
        };
        Facts {
            kernel: "6.12.57+deb13-amd64".into(),
            capabilities: u64::MAX,
            container: false,
            lockdown: Some("none".into()),
            btf: true,
            struct_ops: Ok(()),
            tun: Ok((true, true)),
            udp_trains: true,
            interfaces: vec![uplink("wan1"), uplink("wan2")],
            forwards: (true, true),
            firewall: Some(Vec::new()),
            clock: FIRST_DAY,
        }
    }

    /// The checks that are not well after `change`, with their levels.
    fn amiss(change: impl FnOnce(&mut Facts)) -> Vec<(String, Level)> {
        let mut facts = good();
        change(&mut facts);
        let bad = findings(&facts).into_iter().filter(|found| found.level > Level::Ok);
        bad.inspect(|found| assert!(!found.what.is_empty())).map(|found| (found.check, found.level)).collect()
    }

    fn one(check: &str, level: Level) -> Vec<(String, Level)> {
        vec![(check.to_owned(), level)]
    }

    #[test]
    fn a_good_host_has_nothing_amiss() {
        assert_eq!(amiss(|_| ()), []);
    }

    #[test]
    fn each_fault_is_found_alone() {
        use Level::{Fail, Note, Warn};
        assert_eq!(amiss(|facts| facts.kernel = "5.10.0-1".into()), one("kernel", Warn));
        assert_eq!(amiss(|facts| facts.capabilities &= !(1 << 12)), one("capabilities", Fail));
        for bit in [13, 39] {
            assert_eq!(amiss(|facts| facts.capabilities &= !(1 << bit)), one("capabilities", Warn));
        }
        assert_eq!(amiss(|facts| facts.container = true), one("user namespace", Warn));
        assert_eq!(amiss(|facts| facts.lockdown = Some("confidentiality".into())), one("lockdown", Warn));
        assert_eq!(amiss(|facts| facts.btf = false), one("types", Warn));
        assert_eq!(amiss(|facts| facts.struct_ops = Err("no".into())), one("congestion control", Warn));
        assert_eq!(amiss(|facts| facts.tun = Err("no".into())), one("tun", Fail));
        assert_eq!(amiss(|facts| facts.tun = Ok((true, false))), one("tun", Note));
        assert_eq!(amiss(|facts| facts.udp_trains = false), one("udp offload", Note));
        assert_eq!(amiss(|facts| facts.interfaces[1].xdp = Some(false)), one("xdp wan2", Note));
        assert_eq!(amiss(|facts| facts.interfaces[1].xdp = None), one("xdp wan2", Note));
        assert_eq!(amiss(|facts| facts.interfaces[1].rp_filter = 1), one("rp_filter", Warn));
        assert_eq!(amiss(|facts| facts.forwards.0 = false), one("forwarding", Note));
        let twice = |facts: &mut Facts| facts.interfaces[0].duplicates = vec!["fd01::2/64".into()];
        assert_eq!(amiss(twice), one("duplicate address", Fail));
        assert_eq!(
            amiss(|facts| facts.firewall = Some(vec!["inet filter input".into()])),
            one("firewall", Note)
        );
        assert_eq!(amiss(|facts| facts.clock = Duration::from_secs(60)), one("clock", Fail));
    }

    /// Loading a module gives nobody a capability.
    #[test]
    fn no_interface_is_made_without_the_right_to() {
        let todo = |capabilities| {
            let facts = Facts { capabilities, tun: Err("no".into()), ..good() };
            tun(&facts).todo
        };
        assert!(todo(u64::MAX).contains("modprobe tun"));
        assert!(!todo(!(1 << NET_ADMIN)).contains("modprobe"));
    }

    #[test]
    fn a_strict_filter_costs_nothing_with_one_uplink() {
        let change = |facts: &mut Facts| {
            facts.interfaces.iter_mut().for_each(|one| one.rp_filter = 1);
            facts.interfaces[0].uplink = false;
        };
        assert_eq!(amiss(change), []);
    }
}
