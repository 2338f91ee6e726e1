//! A hub, which is `nawa run`, and many peers, which are the tunnel's core with addresses of their own.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use device::poller::boottime;
use rand_core::{OsRng, TryRngCore};
use tunnel::endpoint::Endpoint;
use tunnel::{Bicast, Config, Local, PathConfig, PeerConfig, PresharedKey, PrivateKey};

use super::{Daemon, Namespace, Node, eventually, output, stdout, succeed};

/// Where the hub is.
pub const HUB: ([u8; 4], u16) = ([10, 5, 0, 1], 51900);

/// Where a peer is.
pub fn place(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 5, 1 + (peer / 250) as u8, 1 + (peer % 250) as u8)
}

/// Where both are by IPv6, in a test that gives them these addresses.
pub const HUB_V6: (Ipv6Addr, u16) = (Ipv6Addr::new(0xfd05, 0, 0, 0, 0, 0, 0, 1), 51900);
pub fn place_v6(peer: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd05, 0, 0, 0, 0, 0, 1, 1 + peer as u16)
}

/// Its address in the tunnel.
pub fn inner(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1 + (peer / 250) as u8, 1 + (peer % 250) as u8)
}

/// A hub with so many peers, and their cores.
pub struct Net {
    pub hub: Namespace,
    pub peers: Namespace,
    pub keys: Vec<PrivateKey>,
    pub node: Node,
}

impl Net {
    /// So many.
    pub fn new(count: usize) -> Net {
        let (hub, peers, node) = (Namespace::new(), Namespace::new(), Node::new());
        Namespace::connect((&hub, "eth0", "10.5.0.1/16"), (&peers, "eth0", "10.5.0.2/16"));
        let add = |peer| format!("address add {}/16 dev eth0\n", place(peer));
        let batch: String = (0..count).map(add).collect();
        let file = node.key().with_file_name("batch");
        std::fs::write(&file, batch).expect("a file");
        succeed(&mut peers.command("ip", ["-batch", file.to_str().expect("UTF-8")]));
        let keys = (0..count).map(|_| PrivateKey::generate(&mut OsRng.unwrap_err())).collect();
        Net { hub, peers, keys, node }
    }

    /// Starts the hub.
    pub fn start(&self) -> Daemon {
        let peer = |(at, key): (usize, &PrivateKey)| {
            let (key, inner) = (key.public(), inner(at));
            format!(
                "[[peer]]\nname = 'peer{at}'\npublic-key = '{key}'\nroutes = ['{inner}/32']\nkeepalive = '20s'\n"
            )
        };
        let peers: String = self.keys.iter().enumerate().map(peer).collect();
        let file = self.node.write(&format!(
            "[metrics]\nlisten = '127.0.0.1:9477'\n[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/16']\n\
             listen = 51900\n{peers}"
        ));
        Daemon::start(&self.hub, &file)
    }

    /// The core of a peer.
    pub fn end(&self, at: usize) -> Endpoint {
        self.end_to(at, HUB.into())
    }

    /// The same, which looks for the hub there.
    pub fn end_to(&self, at: usize, place: SocketAddr) -> Endpoint {
        let hub = self.node.public_key.parse().expect("the hub's key");
        let path = PathConfig {
            name: "path".into(),
            local: Local::Any,
            remote: place.into(),
            via: None,
            backup: false,
            receive: true,
            cost: Default::default(),
        };
        let peer = PeerConfig {
            name: "hub".into(),
            public_key: hub,
            preshared_key: PresharedKey::default(),
            routes: vec!["10.77.0.1/32".parse().expect("a route")],
            keepalive: Some(Duration::from_secs(20)),
            resend: true,
            bicast: Bicast::Off,
            paths: vec![path],
        };
        let config = Config { peers: vec![peer], ..Config::default() };
        let mut end = Endpoint::new(config, self.keys[at].clone(), &mut OsRng.unwrap_err());
        end.set_local(boottime(), 0, 0, Some(Default::default()));
        end
    }

    /// The hub's state. On a machine that is busy with other things a thread that carries a load may not answer in time.
    pub fn state(&self) -> serde_json::Value {
        eventually("the hub answers", || {
            let said = output(&mut self.hub.nawa(["status", "--json"]));
            said.status.success().then(|| serde_json::from_str(&stdout(&said)).expect("one JSON object"))
        })
    }

    /// How many peers are up.
    pub fn up(&self) -> usize {
        let state = self.state();
        let peers = state["tunnel"]["peers"].as_array().expect("peers");
        let is_up = |peer: &&serde_json::Value| peer["up"] == true && peer["paths"][0]["state"] == "up";
        peers.iter().filter(is_up).count()
    }
}
