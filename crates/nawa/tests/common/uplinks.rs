//! A van with two uplinks to an office elsewhere:
//!
//! ```text
//! van wan1 10.0.1.2, fd01::2 ── 10.0.1.1, fd01::1 wan1 ┐
//!                                                      core eth0 203.0.113.1, 2001:db8::1 ── 203.0.113.7, 2001:db8::7 office
//! van wan2 10.0.2.2, fd02::2 ── 10.0.2.1, fd02::1 wan2 ┘
//! ```
//!
//! The core forwards, and drops what comes by an uplink from another uplink's address, as providers do (BCP 38). The van has
//! no default route: a test gives it those that it is about.

use std::path::PathBuf;

use serde_json::Value;

use super::{Daemon, Namespace, Node, eventually, succeed};

/// The three hosts, and the keys of the van and the office.
pub struct Uplinks {
    pub van: Namespace,
    pub core: Namespace,
    pub office: Namespace,
    pub nodes: [Node; 2],
}

/// `[[peer.path]]` to the office; `more` are further lines.
pub fn path(name: &str, more: &str) -> String {
    format!("[[peer.path]]\nname = '{name}'\nremote = '203.0.113.7:51900'\n{more}\n")
}

impl Uplinks {
    pub fn new() -> Uplinks {
        let (van, core, office) = (Namespace::new(), Namespace::new(), Namespace::new());
        for wan in [1, 2] {
            let name = format!("wan{wan}");
            let (inside, outside) = (format!("10.0.{wan}.2/24"), format!("10.0.{wan}.1/24"));
            Namespace::connect((&van, &name, &inside), (&core, &name, &outside));
            van.ip(&format!("address add fd0{wan}::2/64 dev {name} nodad"));
            core.ip(&format!("address add fd0{wan}::1/64 dev {name} nodad"));
        }
        Namespace::connect((&core, "eth0", "203.0.113.1/24"), (&office, "eth0", "203.0.113.7/24"));
        core.ip("address add 2001:db8::1/64 dev eth0 nodad");
        office.ip("address add 2001:db8::7/64 dev eth0 nodad");
        office.ip("route add default via 203.0.113.1");
        office.ip("route add default via 2001:db8::1");
        shell(&core, "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
        nft(
            &core,
            "table inet isp { chain forward { type filter hook forward priority 0;\n\
             iifname wan1 ip saddr != 10.0.1.0/24 drop; iifname wan2 ip saddr != 10.0.2.0/24 drop\n\
             iifname wan1 ip6 saddr != fd01::/64 drop; iifname wan2 ip6 saddr != fd02::/64 drop\n}\n}",
        );
        Uplinks { van, core, office, nodes: [Node::new(), Node::new()] }
    }

    /// The van's file: `tunnel` and `peer` go into those sections, `paths` behind them.
    pub fn van_file(&self, tunnel: &str, routes: &str, paths: &str) -> PathBuf {
        let key = &self.nodes[1].public_key;
        self.nodes[0].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24', 'fd77::1/64']\n{tunnel}\n\
             [[peer]]\nname = 'office'\npublic-key = '{key}'\nroutes = [{routes}]\n{paths}"
        ))
    }

    /// The office's, which listens; `more` goes behind the peer's section.
    pub fn office_file(&self, more: &str) -> PathBuf {
        let key = &self.nodes[0].public_key;
        self.nodes[1].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.2/24', 'fd77::2/64']\nlisten = 51900\n\
             [[peer]]\nname = 'van'\npublic-key = '{key}'\nroutes = ['10.77.0.1/32', 'fd77::1/128']\n{more}"
        ))
    }

    /// Both daemons, the van's with these paths.
    pub fn start(&self, tunnel: &str, routes: &str, paths: &str) -> [Daemon; 2] {
        [
            Daemon::start(&self.office, &self.office_file("")),
            Daemon::start(&self.van, &self.van_file(tunnel, routes, paths)),
        ]
    }

    /// A path of the van's, as its status has it, once it is as `wanted`.
    #[track_caller]
    pub fn wait_for(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for_path(&self.van, name, what, wanted)
    }

    /// Waits until these paths of the van's are up.
    #[track_caller]
    pub fn wait_up(&self, names: &[&str]) {
        for name in names {
            self.wait_for(name, "up", |path| path["state"] == "up");
        }
    }

    /// Waits until a path of the van's says why it is not up.
    #[track_caller]
    pub fn wait_why(&self, name: &str, why: &str) {
        let says = |path: &Value| path["why"].as_str().is_some_and(|said| said.contains(why));
        self.wait_for(name, why, says);
    }

    /// A packet through the tunnel, to `to`, and back.
    #[track_caller]
    pub fn ping(&self, to: &str) {
        succeed(&mut self.van.command("ping", ["-c", "1", "-w", "30", to]));
    }
}

/// A path that a daemon knows, as its status has it, once it is as `wanted`.
#[track_caller]
pub fn wait_for_path(of: &Namespace, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let find = || {
        let status = of.status();
        let paths = status["tunnel"]["peers"].as_array()?.iter().flat_map(|p| p["paths"].as_array());
        let path = paths.flatten().find(|path| path["name"] == name)?.clone();
        wanted(&path).then_some(path)
    };
    eventually(&format!("{name}: {what}"), find)
}

/// A line of shell inside.
#[track_caller]
pub fn shell(of: &Namespace, line: &str) -> String {
    succeed(&mut of.command("sh", ["-c", line]))
}

/// Rules for nftables inside.
#[track_caller]
pub fn nft(of: &Namespace, rules: &str) {
    succeed(&mut of.command("nft", [rules]));
}

/// The files of the resolver in a namespace, as `ip netns exec` has them; gone when dropped.
pub struct Resolver(PathBuf);

impl Resolver {
    /// Knows the names in `hosts`; asks a server at 10.0.1.1 for others, and waits for it for so long.
    pub fn new(of: &Namespace, hosts: &str, seconds: u32) -> Resolver {
        let resolver = Resolver(std::path::Path::new("/etc/netns").join(of.name()));
        std::fs::create_dir_all(&resolver.0).expect("a folder below /etc/netns");
        let conf = format!("nameserver 10.0.1.1\noptions timeout:{seconds} attempts:1\n");
        std::fs::write(resolver.0.join("resolv.conf"), conf).expect("resolv.conf");
        resolver.write(hosts);
        resolver
    }

    /// Knows these names from now on.
    pub fn write(&self, hosts: &str) {
        std::fs::write(self.0.join("hosts"), format!("127.0.0.1 localhost\n{hosts}")).expect("hosts");
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
