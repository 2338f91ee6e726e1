//! The configuration in force, changed as `nawa path` and `nawa peer` ask.

use tunnel::config::{Bicast, Config, Cost, Local, PathConfig, PeerConfig, Via};
use tunnel::{PresharedKey, PublicKey};

use super::peer::fits;
use super::secret;
use super::value::{self, HostPort};
use crate::control::path::{Add, Del, Set};
use crate::control::peer;

/// Adds a path behind the peer's others.
///
/// # Errors
/// One sentence; `config` is as it was.
pub fn add(config: &mut Config, add: &Add) -> Result<(), String> {
    let peer = peer(config, &add.peer)?;
    let monthly_cap = add.monthly_cap.as_deref().map(value::bytes).transpose()?;
    let path = PathConfig {
        name: value::label(&add.name)?,
        local: local(add.local.as_deref())?.unwrap_or_default(),
        remote: add.remote.clone().into(),
        via: via(add.via.as_ref(), add.via_key.as_ref(), add.via_tls)?,
        backup: add.backup,
        receive: add.receive,
        cost: Cost { metered: add.metered, prefer: rank(add.prefer)?, monthly_cap, spent: false },
    };
    fits(&path)?;
    peer.paths.push(path);
    Ok(())
}

/// Removes a path.
///
/// # Errors
/// One sentence if it is not there.
pub fn del(config: &mut Config, del: &Del) -> Result<(), String> {
    let peer = peer(config, &del.peer)?;
    let at = position(peer, &del.name)?;
    peer.paths.remove(at);
    Ok(())
}

/// Changes what `set` gives of a path.
///
/// # Errors
/// One sentence; `config` is as it was.
pub fn set(config: &mut Config, set: &Set) -> Result<(), String> {
    let peer = peer(config, &set.peer)?;
    let at = position(peer, &set.name)?;
    let mut path = peer.paths[at].clone();
    if let Some(remote) = &set.remote {
        path.remote = remote.clone().into();
    }
    if let Some(local) = local(set.local.as_deref())?.or(set.no_local.then_some(Local::Any)) {
        path.local = local;
    }
    if let Some(via) = via(set.via.as_ref(), set.via_key.as_ref(), set.via_tls)? {
        path.via = Some(via);
    }
    if set.no_via {
        path.via = None;
    }
    path.backup = set.backup.unwrap_or(path.backup);
    path.receive = set.receive.unwrap_or(path.receive);
    path.cost.metered = set.metered.unwrap_or(path.cost.metered);
    path.cost.prefer = rank(set.prefer.unwrap_or(path.cost.prefer))?;
    if let Some(cap) = &set.monthly_cap {
        // Whether it is spent is found when it is counted next.
        path.cost.monthly_cap = Some(value::bytes(cap)?);
    }
    if set.no_monthly_cap {
        (path.cost.monthly_cap, path.cost.spent) = (None, false);
    }
    fits(&path)?;
    peer.paths[at] = path;
    Ok(())
}

/// Adds a peer behind the others.
///
/// # Errors
/// One sentence; `config` is as it was. What contradicts the others is found when it is taken up.
pub fn add_peer(config: &mut Config, add: &peer::Add) -> Result<(), String> {
    let routes =
        add.routes.iter().map(|net| value::route(&net.to_string())).collect::<Result<Vec<_>, _>>()?;
    if routes.is_empty() {
        return Err("this peer has no route, so nothing reaches it; give its inner addresses".into());
    }
    let keepalive = add.keepalive.as_deref().map(|text| value::keepalive(&text.into())).transpose()?;
    let preshared_key = add.preshared_key_file.as_deref().map(preshared_key).transpose()?;
    config.peers.push(PeerConfig {
        name: value::label(&add.name)?,
        public_key: add.public_key,
        preshared_key: preshared_key.unwrap_or_default(),
        routes,
        keepalive,
        resend: true,
        bicast: Bicast::Off,
        paths: Vec::new(),
    });
    Ok(())
}

/// Removes a peer.
///
/// # Errors
/// One sentence if it is not there.
pub fn del_peer(config: &mut Config, del: &peer::Del) -> Result<(), String> {
    peer(config, &del.name)?;
    config.peers.retain(|peer| peer.name != del.name);
    Ok(())
}

/// The daemon reads it, and may see less than whoever names it, who has the secret already.
fn preshared_key(file: &std::path::Path) -> Result<PresharedKey, String> {
    let hidden = "its systemd unit hides /home, /root and /tmp, so put the file into /etc/nawa";
    std::fs::metadata(file)
        .map_err(|error| format!("the daemon does not see {}: {error}; {hidden}", file.display()))?;
    secret::read_shared(file)
}

fn rank(number: u8) -> Result<u8, String> {
    value::prefer(&i64::from(number).into())
}

fn peer<'a>(config: &'a mut Config, name: &str) -> Result<&'a mut PeerConfig, String> {
    let names: Vec<_> = config.peers.iter().map(|peer| peer.name.clone()).collect();
    let missing = || format!("there is no peer {name}; the peers are: {}", list(&names));
    config.peers.iter_mut().find(|peer| peer.name == name).ok_or_else(missing)
}

fn position(peer: &PeerConfig, name: &str) -> Result<usize, String> {
    let names = || peer.paths.iter().map(|path| path.name.clone()).collect::<Vec<_>>();
    let missing = || {
        let names = list(&names());
        format!("peer {} has no path {name} that is listed here; those are: {names}", peer.name)
    };
    peer.paths.iter().position(|path| path.name == name).ok_or_else(missing)
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn local(text: Option<&str>) -> Result<Option<Local>, String> {
    text.map(value::local).transpose()
}

fn via(address: Option<&HostPort>, key: Option<&PublicKey>, tls: bool) -> Result<Option<Via>, String> {
    match (address, key) {
        (Some(address), Some(key)) => {
            Ok(Some(Via { address: address.clone().into(), tls, public_key: *key }))
        }
        (None, None) if !tls => Ok(None),
        _ => Err("a relay needs its address and its public key; give both `via` and `via-key`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let peer = PeerConfig {
            name: "office".into(),
            public_key: [7; 32].into(),
            preshared_key: PresharedKey::default(),
            routes: Vec::new(),
            keepalive: None,
            resend: true,
            bicast: Bicast::Off,
            paths: Vec::new(),
        };
        Config { peers: vec![peer], ..Config::default() }
    }

    fn read<T: serde::de::DeserializeOwned>(json: serde_json::Value) -> T {
        serde_json::from_value(json).expect("a request")
    }

    #[test]
    fn a_path_comes_changes_and_goes() {
        let mut config = config();
        let new = serde_json::json!({"peer": "office", "name": "lte", "remote": "192.0.2.1:9"});
        add(&mut config, &read(new)).expect("it is new");
        let path = |config: &Config| config.peers[0].paths[0].clone();
        assert_eq!(
            (path(&config).local, path(&config).backup, path(&config).receive),
            (Local::Any, false, true)
        );
        let key = PublicKey::from([9; 32]);
        let change = serde_json::json!({
            "peer": "office", "name": "lte", "local": "wwan0", "backup": true,
            "via": "192.0.2.2:8", "via-key": key.to_string(),
        });
        set(&mut config, &read(change)).expect("it is there");
        assert_eq!(path(&config).local, Local::Interface("wwan0".into()));
        assert_eq!(path(&config).remote.address(), "192.0.2.1:9".parse().ok());
        assert!(path(&config).backup && path(&config).via.is_some_and(|via| via.public_key == key));
        let back = serde_json::json!({"peer": "office", "name": "lte", "no-via": true, "no-local": true});
        set(&mut config, &read(back)).expect("it is there");
        assert_eq!((path(&config).local, path(&config).via), (Local::Any, None));
        del(&mut config, &Del { peer: "office".into(), name: "lte".into() }).expect("it is there");
        assert_eq!(config.peers[0].paths, []);
    }

    #[test]
    fn what_is_refused_says_what_there_is() {
        let mut config = config();
        let gone = |peer: &str| Del { peer: peer.into(), name: "lte".into() };
        let refused = del(&mut config, &gone("home")).expect_err("no such peer");
        assert_eq!(refused, "there is no peer home; the peers are: office");
        let refused = del(&mut config, &gone("office")).expect_err("no such path");
        assert_eq!(refused, "peer office has no path lte that is listed here; those are: none");
        let half =
            serde_json::json!({"peer": "office", "name": "a", "remote": "192.0.2.1:9", "via": "192.0.2.2:8"});
        assert!(add(&mut config, &read(half)).is_err());
        let mixed =
            serde_json::json!({"peer": "office", "name": "a", "remote": "192.0.2.1:9", "local": "::1"});
        assert!(add(&mut config, &read(mixed)).is_err());
        let last = serde_json::json!({"peer": "office", "name": "a", "remote": "192.0.2.1:9", "prefer": 16});
        assert!(add(&mut config, &read(last)).is_err_and(|why| why.starts_with("16 is not a rank")));
        assert_eq!(config.peers[0].paths, []);
    }

    /// A new one would take the place of the secret that both ends share.
    #[test]
    fn a_secret_that_the_daemon_does_not_see_is_not_made_anew() {
        let mut config = config();
        let new = serde_json::json!({
            "name": "home", "public-key": PublicKey::from([9; 32]).to_string(), "routes": ["10.88.0.0/16"],
            "preshared-key-file": "/none/office.psk",
        });
        let refused = add_peer(&mut config, &read(new)).expect_err("no such file");
        assert!(refused.starts_with("the daemon does not see /none/office.psk: "), "{refused}");
        assert!(refused.ends_with("so put the file into /etc/nawa"), "{refused}");
        assert!(!refused.contains("keygen"), "{refused}");
        assert_eq!(config.peers.len(), 1);
    }

    #[test]
    fn a_path_comes_with_its_cap() {
        let mut config = config();
        let new = serde_json::json!({"peer": "office", "name": "lte", "remote": "192.0.2.1:9", "monthly-cap": "30GB"});
        add(&mut config, &read(new)).expect("it is new");
        assert_eq!(config.peers[0].paths[0].cost.monthly_cap, Some(30_000_000_000));
    }
}
