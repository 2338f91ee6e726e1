//! The values of single keys: what may be written, and what it means.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tunnel::config::{Host, Local, MAX_PREFER, Mtu, Scheduler};
use tunnel::daemon::Listen;

/// IPv6's least; 9000 is what jumbo frames carry.
const MTU_RANGE: RangeInclusive<i64> = 1280..=9000;
/// Longer than any NAT keeps a mapping.
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(3600);
/// Of a host's name, and of a part of it, bytes (RFC 1035 §2.3.4).
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
/// IFNAMSIZ without its final zero.
const LONGEST_INTERFACE_NAME: usize = 15;

/// What a switch is that is on where nothing is written.
pub fn yes() -> bool {
    true
}

/// Whether two sockets that listen so would get in each other's way.
pub fn collide(one: Listen, other: Listen) -> bool {
    let port = |listen| match listen {
        Listen::Port(port) => port,
        Listen::Address(address) => address.port(),
    };
    let same_address = match (one, other) {
        (Listen::Address(one), Listen::Address(other)) => one.ip() == other.ip(),
        _ => true,
    };
    same_address && port(one) == port(other) && port(one) != 0
}

/// A port, or a string `ADDRESS:PORT`.
pub fn listen(value: &toml::Value) -> Result<Listen, String> {
    const WRITE: &str = "write a port from 1 to 65535, or \"ADDRESS:PORT\"";
    if let Some(number) = value.as_integer() {
        return match u16::try_from(number) {
            Ok(port) if port > 0 => Ok(Listen::Port(port)),
            _ => Err(format!("{number} is not a port; {WRITE}")),
        };
    }
    let text = value.as_str().unwrap_or_default();
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(Listen::Address(address)),
        _ => Err(format!("{value} is not where one can listen; {WRITE}")),
    }
}

/// Where metrics are asked for.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
    address.ok_or_else(|| {
        format!("\"{text}\" is not where one can listen; write \"ADDRESS:PORT\", as \"127.0.0.1:9477\"")
    })
}

/// `"auto"`, `"paper"` or `"paper-absolute"`.
pub fn scheduler(text: &str) -> Result<Scheduler, String> {
    match text {
        "auto" => Ok(Scheduler::Auto),
        "paper" => Ok(Scheduler::Paper),
        "paper-absolute" => Ok(Scheduler::PaperAbsolute),
        _ => {
            Err(format!("there is no scheduler \"{text}\"; write \"auto\", \"paper\" or \"paper-absolute\""))
        }
    }
}

/// `"auto"` or bytes.
pub fn mtu(value: &toml::Value) -> Result<Mtu, String> {
    let fixed = value.as_integer().filter(|bytes| MTU_RANGE.contains(bytes));
    match fixed.map(u16::try_from) {
        Some(Ok(bytes)) => Ok(Mtu::Fixed(bytes)),
        _ if value.as_str() == Some("auto") => Ok(Mtu::Auto),
        _ => Err(format!(
            "{value} is not an MTU; write \"auto\" or a number of bytes from {} to {}",
            MTU_RANGE.start(),
            MTU_RANGE.end()
        )),
    }
}

/// A whole number of this range, on a command line.
pub fn whole<N: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            format!(
                "\"{text}\" cannot stand here; write a whole number from {} to {}",
                range.start(),
                range.end()
            )
        })
    }
}

/// A name that a congestion control can have (TCP_CA_NAME_MAX, net/tcp.h).
pub fn congestion_control(name: &str) -> Result<String, String> {
    if (1..16).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(name.to_owned());
    }
    Err(format!("\"{name}\" cannot name a congestion control; write one that the kernel has, as \"cubic\""))
}

/// A name the kernel takes for an interface, and that can stand between quotes, as in what `nawa join` and nftables are to read.
pub fn interface(name: &str) -> Result<String, String> {
    let good = !name.is_empty()
        && name.len() <= LONGEST_INTERFACE_NAME
        && name.bytes().all(|b| b.is_ascii_graphic() && !b"/:%\"\\".contains(&b))
        && name != "."
        && name != "..";
    // The kernel's settings of interfaces (sysctl) have one for all and one for those to come.
    if ["all", "default"].contains(&name) {
        return Err(format!(
            "\"{name}\" cannot name an interface, for the kernel keeps that name; write another"
        ));
    }
    if good {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "\"{name}\" cannot name an interface; write 1 to {LONGEST_INTERFACE_NAME} letters, digits, `-`, `_` or `.`"
        ))
    }
}

/// What people read in status, logs and metrics.
pub fn label(name: &str) -> Result<String, String> {
    let good = (1..=32).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if good {
        Ok(name.to_owned())
    } else {
        Err(format!("\"{name}\" is not a name; write 1 to 32 letters, digits, `-`, `_` or `.`"))
    }
}

/// An interface address with its prefix length.
pub fn address(text: &str) -> Result<IpNet, String> {
    let address = text.parse().map_err(|_| {
        format!("\"{text}\" is not an address with a prefix length; write e.g. \"10.77.0.1/24\"")
    });
    address.and_then(usable)
}

/// An address that a host may have on this network.
pub fn usable(address: IpNet) -> Result<IpNet, String> {
    if let Some(what) = no_hosts(address.addr()) {
        return Err(format!("{address} is {what}, which no host can have; write e.g. \"10.77.0.1/24\""));
    }
    // A prefix of two addresses has neither (RFC 3021, RFC 6164).
    let narrow = address.max_prefix_len() - address.prefix_len() <= 1;
    let what = match address {
        _ if narrow => return Ok(address),
        IpNet::V4(net) if net.addr() == net.network() => "its network's own",
        IpNet::V4(net) if net.addr() == net.broadcast() => "its network's broadcast address",
        IpNet::V6(net) if net.addr() == net.network() => "its network's routers' (RFC 4291)",
        _ => return Ok(address),
    };
    Err(format!("{address} is {what}, which no host can have; write another of {}", address.trunc()))
}

/// What an address is that is no host's.
fn no_hosts(ip: IpAddr) -> Option<&'static str> {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    match ip {
        _ if ip.is_unspecified() => Some("no address"),
        _ if ip.is_multicast() => Some("a group's"),
        _ if broadcast => Some("everybody's"),
        _ if ip.is_loopback() => Some("this host's own, on every host"),
        _ => None,
    }
}

/// A prefix without host bits.
pub fn route(text: &str) -> Result<IpNet, String> {
    let route: IpNet =
        text.parse().map_err(|_| format!("\"{text}\" is not a prefix; write e.g. \"10.77.0.2/32\""))?;
    let host = route.prefix_len() == route.max_prefix_len();
    if let Some(what) = no_hosts(route.addr()).filter(|_| host) {
        return Err(format!("{route} is {what}, which no peer can have; write the peer's inner address"));
    }
    if route.addr() == route.network() {
        return Ok(route);
    }
    Err(format!(
        "\"{text}\" has bits set behind its prefix length; write \"{}\" for the network or \"{}/{}\" for the host",
        route.trunc(),
        route.addr(),
        route.max_prefix_len()
    ))
}

/// A host's address.
pub fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("\"{text}\" is no address; write one, as \"192.0.2.53\""))
}

/// An interface's name or one of this host's addresses.
pub fn local(text: &str) -> Result<Local, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Local::Address(address)),
        Err(_) => interface(text).map(Local::Interface),
    }
}

/// A whole number of bytes with one of the units kB, MB, GB, TB, as providers count: more than nothing.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a size; write a whole number and its unit, as \"30GB\"");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let power = ["kB", "MB", "GB", "TB"].iter().position(|known| *known == unit).ok_or_else(wrong)?;
    let number =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(1000u64.pow(power as u32 + 1)));
    number.filter(|number| *number > 0).ok_or_else(wrong)
}

/// Which paths come first: 0 to 15, the lowest.
pub fn prefer(value: &toml::Value) -> Result<u8, String> {
    let number = value.as_integer().and_then(|number| u8::try_from(number).ok());
    let wrong = || {
        format!("{value} is not a rank; write 0 for what comes first, up to {MAX_PREFER} for what comes last")
    };
    number.filter(|number| *number <= MAX_PREFER).ok_or_else(wrong)
}

/// A duration with its unit, more than nothing and at most an hour.
pub fn keepalive(value: &toml::Value) -> Result<Duration, String> {
    const WRITE: &str = "write a duration with its unit, as \"20s\"";
    let text = value.as_str().ok_or_else(|| format!("{value} has no unit; {WRITE}"))?;
    let duration = duration(text).ok_or_else(|| format!("\"{text}\" is not a duration; {WRITE}"))?;
    if duration.is_zero() || duration > LONGEST_KEEPALIVE {
        return Err(format!("\"{text}\" is out of range; write more than nothing and at most \"1h\""));
    }
    Ok(duration)
}

/// The time from one round of `nawa monitor` to the next: asking more often shows nothing new.
pub fn interval(text: &str) -> Result<Duration, String> {
    within(text, "interval", ["100ms", "1h"])
}

/// The longest wait before a relay.
pub fn jitter(text: &str) -> Result<Duration, String> {
    within(text, "jitter", ["0ms", "1s"])
}

/// How long a packet waits for a partner.
pub fn wait(text: &str) -> Result<Duration, String> {
    within(text, "wait", ["0ms", "1s"])
}

/// As a pause, and more than nothing.
pub fn time(text: &str) -> Result<Duration, String> {
    within(text, "time to wait", ["1ms", "1h"])
}

/// How long to wait.
pub fn pause(text: &str) -> Result<Duration, String> {
    within(text, "pause", ["0ms", "1h"])
}

/// With its unit, between these two.
fn within(text: &str, what: &str, [least, most]: [&str; 2]) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no {what}; write a duration from \"{least}\" to \"{most}\"");
    let bounds = duration(least)..=duration(most);
    duration(text).filter(|time| bounds.contains(&Some(*time))).ok_or_else(wrong)
}

/// A whole number with one of the units ms, s, min, h.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(milliseconds).map(Duration::from_millis)
}

/// A host, by name or address, and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// The UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// What the tunnel is told.
impl From<HostPort> for Host {
    fn from(HostPort { host, port }: HostPort) -> Self {
        match host.parse() {
            Ok(ip) => Host::Address(SocketAddr::new(ip, port)),
            Err(_) => Host::Name(host, port),
        }
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not HOST:PORT; write e.g. \"203.0.113.7:51900\" or \"[2001:db8::1]:51900\""
            )
        };
        let (host, port) = match text.parse::<SocketAddr>() {
            Ok(SocketAddr::V6(address)) if address.scope_id() > 0 => {
                (format!("{}%{}", address.ip(), address.scope_id()), address.port())
            }
            Ok(address) => (address.ip().to_string(), address.port()),
            Err(_) => {
                let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
                let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                (
                    inside.filter(|host| zoned(host)).unwrap_or(host).to_owned(),
                    port.parse().map_err(|_| wrong())?,
                )
            }
        };
        // `::ffff:203.0.113.7` is reached as what it stands for.
        let host = host.parse::<IpAddr>().map_or(host, |ip| ip.to_canonical().to_string());
        if let Some(what) = host.parse().ok().and_then(no_hosts).filter(|_| !is_loopback(&host)) {
            return Err(format!(
                "\"{text}\" leads nowhere: {host} is {what}; write the address by which it is reached"
            ));
        }
        let named = is_name(&host);
        let written = named || (text.starts_with('[') && (host.parse::<IpAddr>().is_ok() || zoned(&host)));
        let good = port > 0 && !host.is_empty() && written;
        if good { Ok(HostPort { host, port }) } else { Err(wrong()) }
    }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A name as the DNS has it (RFC 1035 §2.3.4), or an address of IPv4. What ends in a number is an address, or nothing.
fn is_name(host: &str) -> bool {
    let mut labels = host.strip_suffix('.').unwrap_or(host).split('.');
    let good = |label: &str| {
        (1..=LONGEST_LABEL).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    host.len() <= LONGEST_NAME
        && labels.clone().all(good)
        && (host.parse::<IpAddr>().is_ok() || !labels.next_back().is_some_and(number))
}

/// An address of IPv6 with the interface that it is a neighbour by: `fe80::1%eth0`.
fn zoned(host: &str) -> bool {
    let zone = |(ip, zone): (&str, &str)| ip.parse::<Ipv6Addr>().is_ok() && interface(zone).is_ok();
    host.split_once('%').is_some_and(zone)
}

impl TryFrom<String> for HostPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> Self {
        address.to_string()
    }
}

impl Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_known_unit() {
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("20s"), Some(Duration::from_secs(20)));
        assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Some(Duration::from_secs(3600)));
        for bad in
            ["", "20", "s", "-1s", "1.5s", "1 s", "1d", "99999999999999999999s", "18446744073709551615h"]
        {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_of_interfaces_can_be_quoted() {
        for good in ["eth0", "eth0.7@x", "br-1_a"] {
            assert_eq!(interface(good).as_deref(), Ok(good));
        }
        for bad in ["", "a\"b", "a\\b", "a b", "a/b", "a:b", "a%b", "sixteen-letters-", ".."] {
            assert!(interface(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_need_a_known_unit() {
        assert_eq!(
            (bytes("30GB"), bytes("1kB"), bytes("2TB")),
            (Ok(30_000_000_000), Ok(1000), Ok(2_000_000_000_000))
        );
        for bad in ["", "30", "GB", "0GB", "1.5GB", "30 GB", "30GiB", "99999999999TB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn inner_addresses_are_those_that_hosts_can_have() {
        for good in
            ["10.77.0.1/24", "10.77.0.0/31", "10.77.0.255/16", "10.77.0.1/32", "fd77::1/64", "fd77::/127"]
        {
            assert_eq!(address(good).map(|net| net.to_string()).as_deref(), Ok(good));
        }
        for bad in [
            "0.0.0.0/0",
            "::/0",
            "127.0.0.1/8",
            "::1/128",
            "224.0.0.5/24",
            "ff02::1/64",
            "255.255.255.255/32",
            "10.77.0.0/24",
            "10.77.0.255/24",
            "fd77::/64",
        ] {
            let why = address(bad).expect_err(bad);
            assert!(why.contains("which no host can have"), "{why}");
        }
        for bad in ["0.0.0.0/32", "127.0.0.1/32", "::1/128", "255.255.255.255/32", "ff02::1/128"] {
            assert!(route(bad).is_err(), "{bad}");
        }
        for good in ["0.0.0.0/0", "::/0", "10.77.0.0/24", "224.0.0.0/4", "10.77.0.2/32"] {
            assert!(route(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn hosts_need_a_port_and_ipv6_needs_brackets() {
        for good in [
            "203.0.113.7:51900",
            "[2001:db8::1]:51900",
            "relay.example:1",
            "[fe80::b%wan1]:9",
            "[fe80::b%2]:9",
        ] {
            assert_eq!(good.parse::<HostPort>().map(|host| host.to_string()).as_deref(), Ok(good));
        }
        let mapped = "[::ffff:203.0.113.7]:9".parse::<HostPort>().map(|host| host.to_string());
        assert_eq!(mapped.as_deref(), Ok("203.0.113.7:9"));
        let long = format!("{}.example:1", "a".repeat(64));
        let longer = format!("{}example:1", "a.".repeat(150));
        for bad in [
            long.as_str(),
            longer.as_str(),
            "0.0.0.0:51900",
            "[::]:51900",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "[ff02::1]:1",
            "[::ffff:224.0.0.1]:1",
            "300.1.2.3:1",
            "a..b:1",
            "",
            ":1",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "2001:db8::1:51900",
            "a b:1",
            "[host]:1",
            "[host%a]:1",
            "fe80::b%a:1",
        ] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_tunnel_looks_for_all_but_addresses() {
        let host = |text: &str| Host::from(text.parse::<HostPort>().expect("a host and a port"));
        assert_eq!(host("127.0.0.1:9"), Host::Address("127.0.0.1:9".parse().expect("an address")));
        assert_eq!(host("office.test:9"), Host::Name("office.test".into(), 9));
        assert_eq!(host("[fe80::b%wan1]:9"), Host::Name("fe80::b%wan1".into(), 9));
    }

    #[test]
    fn sockets_collide_on_the_same_port_of_the_same_address() {
        let address = |text: &str| Listen::Address(text.parse().expect("an address"));
        assert!(collide(Listen::Port(1), Listen::Port(1)));
        assert!(collide(Listen::Port(1), address("10.0.0.1:1")));
        assert!(!collide(address("10.0.0.2:1"), address("10.0.0.1:1")));
        assert!(!collide(Listen::Port(1), Listen::Port(2)));
        assert!(!collide(Listen::Port(0), Listen::Port(0)));
    }
}
