//! How commands reach the daemon: the abstract unix socket `@nawa`. Abstract names belong to the network namespace, so
//! there is at most one daemon in each, and holding the name is the lock. One JSON object per line, each way:
//!
//! | request | answer |
//! |---|---|
//! | `{"command":"status"}` | the state, as `nawa status --json` prints it |
//! | `{"command":"stop"}` | `{"stopping":true}`; the connection closes when the daemon is gone |
//! | `{"command":"path-add","peer":"office","name":"lte","remote":"203.0.113.7:51900"}` | `{"changed":true}` |
//! | `{"command":"path-set","peer":"office","name":"lte","backup":true}` | `{"changed":true}` |
//! | `{"command":"path-del","peer":"office","name":"lte"}` | `{"changed":true}` |
//! | `{"command":"peer-add","name":"home","public-key":"…","routes":["10.77.0.3/32"]}` | `{"changed":true}` |
//! | `{"command":"peer-del","name":"home"}` | `{"changed":true}` |
//! | `{"command":"capture","peer":"office","inner":true,"outer":true}` | `{"capturing":"nawa0"}`, then packets: [`capture`] |
//! | anything else, or not root | `{"error":"one sentence"}` |
//!
//! What else may be given is in [`path`] and [`peer`]; an answer comes when the change is in force.

pub mod capture;
pub mod client;
pub mod path;
pub mod peer;
pub mod server;

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The name behind the zero byte.
const NAME: &str = "nawa";
/// The longest request line, bytes: a peer with some thousand routes. A longer one is refused.
const LONGEST_REQUEST: u64 = 65536;
/// Who takes nothing of an answer for so long is dropped: what shows packets by the page holds its reader up while somebody looks at
/// one, and a reader that is stopped would keep its thread, and its capture, for ever.
pub const STALLED: Duration = Duration::from_secs(600);
/// The uid that may hold and use the socket.
const ROOT: u32 = 0;

/// What a command asks of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// The whole state.
    Status,
    /// Stop cleanly.
    Stop,
    /// Add a path.
    PathAdd(path::Add),
    /// Remove a path.
    PathDel(path::Del),
    /// Change a path.
    PathSet(path::Set),
    /// Add a peer.
    PeerAdd(peer::Add),
    /// Remove a peer.
    PeerDel(peer::Del),
    /// Capture packets.
    Capture(capture::Wanted),
}

fn address() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_scripts_send() {
        let parse = |text: &str| serde_json::from_str::<Request>(text).ok();
        assert_eq!(parse(r#"{"command":"status"}"#), Some(Request::Status));
        assert_eq!(parse(r#"{"command":"stop"}"#), Some(Request::Stop));
        let del = path::Del { peer: "office".into(), name: "lte".into() };
        assert_eq!(
            parse(r#"{"command":"path-del","peer":"office","name":"lte"}"#),
            Some(Request::PathDel(del))
        );
        let add = r#"{"command":"path-add","peer":"office","name":"lte","remote":"192.0.2.1:9"}"#;
        let Some(Request::PathAdd(add)) = parse(add) else { panic!("not understood: {add}") };
        assert_eq!((add.local, add.backup, add.receive), (None, false, true));
        for bad in [
            "",
            "{}",
            "status",
            r#"{"command":"reboot"}"#,
            r#"{"command":"path-del","peer":"office"}"#,
            r#"{"command":"path-add","peer":"office","name":"lte","remote":"nowhere"}"#,
            r#"{"command":"path-set","peer":"office","name":"lte","colour":"red"}"#,
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
