//! Of `bicast` in the state, what people want to see.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::cells::{megabytes, number, percent, rows_under};

const HEADER: [&str; 8] =
    ["ports", "sent MB", "extra %", "resent", "requests", "first", "not copied", "peer (ms)"];

/// `crate::bicast::state`.
#[derive(Deserialize)]
pub struct Bicast {
    mode: String,
    idle_because: Option<String>,
    interfaces: Vec<Interface>,
    sent_bytes: u64,
    extra_bytes: u64,
    associations: Vec<Association>,
}

#[derive(Deserialize)]
struct Interface {
    name: String,
    state: String,
}

#[derive(Deserialize)]
struct Association {
    local_port: u16,
    remote_port: u16,
    remote_addresses: Vec<Remote>,
    sent_bytes: u64,
    extra_bytes: u64,
    duplicated_packets: BTreeMap<String, u64>,
    not_duplicated_packets: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Remote {
    address: String,
    usable: bool,
    /// Copies do not arrive in time.
    late: bool,
    rtt_us: u64,
}

/// Lines of text, each ended.
pub fn render(bicast: &Bicast) -> String {
    let interfaces: Vec<_> =
        bicast.interfaces.iter().map(|one| format!("{} {}", one.name, one.state)).collect();
    let idle = bicast.idle_because.as_ref().map_or(String::new(), |why| format!(", copies nothing: {why}"));
    let mut text = format!(
        "bicast: mode {}, {}, {} MB sent and {} MB of copies{idle}\n",
        bicast.mode,
        interfaces.join(", "),
        megabytes(bicast.sent_bytes),
        megabytes(bicast.extra_bytes),
    );
    if !bicast.associations.is_empty() {
        let rows = bicast.associations.iter().map(row).collect();
        text.push_str(&rows_under(HEADER, rows, 1..7));
    }
    text
}

fn row(one: &Association) -> [String; 8] {
    let copies = |reason: &str| one.duplicated_packets.get(reason).copied().unwrap_or(0).to_string();
    let remote = |remote: &Remote| {
        let rtt = number(Some(remote.rtt_us as f64 / 1e3).filter(|_| remote.usable), 0);
        let late = if remote.late { ", copies late" } else { "" };
        format!("{} ({rtt}{late})", remote.address)
    };
    let not_copied = one.not_duplicated_packets.iter().filter(|(_, count)| **count > 0);
    let not_copied: Vec<_> = not_copied.map(|(why, count)| format!("{count} {why}")).collect();
    [
        format!("{} > {}", one.local_port, one.remote_port),
        megabytes(one.sent_bytes),
        number(percent(one.extra_bytes, one.sent_bytes), 1),
        copies("retransmission"),
        copies("request"),
        copies("rest"),
        if not_copied.is_empty() { "0".to_owned() } else { not_copied.join(" ") },
        one.remote_addresses.iter().map(remote).collect::<Vec<_>>().join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_association_between_two_paths() {
        let state = json!({
            "mode": "selective", "idle_because": null, "sent_bytes": 12_000_000, "extra_bytes": 600_000,
            "interfaces": [{"name": "wlan0", "state": "used"}, {"name": "wlan1", "state": "used"}],
            "associations": [{
                "local_port": 5000, "remote_port": 6000, "sent_bytes": 2_000_000, "extra_bytes": 100_000,
                "remote_addresses": [{"address": "192.0.2.1", "usable": true, "late": false, "rtt_us": 12_300},
                                     {"address": "192.0.2.2", "usable": false, "late": true, "rtt_us": 0}],
                "duplicated_packets": {"retransmission": 60, "request": 9, "rest": 0},
                "not_duplicated_packets": {"no-path": 2, "budget": 0, "too-long": 1},
            }],
        });
        let expected = "\
bicast: mode selective, wlan0 used, wlan1 used, 12.0 MB sent and 0.6 MB of copies
 ports        sent MB  extra %  resent  requests  first            not copied  peer (ms)
 5000 > 6000      2.0      5.0      60         9      0  2 no-path 1 too-long  192.0.2.1 (12), 192.0.2.2 (–, copies late)
";
        assert_eq!(render(&serde_json::from_value(state).expect("what the daemon shows")), expected);
    }

    #[test]
    fn why_nothing_is_copied_is_said() {
        let state = json!({
            "mode": "off", "idle_because": "the mode is off", "sent_bytes": 0, "extra_bytes": 0,
            "interfaces": [], "associations": [],
        });
        let text = render(&serde_json::from_value(state).expect("what the daemon shows"));
        assert!(text.ends_with("copies nothing: the mode is off\n"), "{text}");
    }
}
