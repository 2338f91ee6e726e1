//! Round trips by `nawa flood ping`.

use serde_json::Value;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::program::json;
use crate::system::Means;

/// What `nawa flood ping` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pings {
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
    /// Not answered.
    pub(super) lost: u64,
}

/// `count` pings of 100 bytes, one after another, from a node over its `interface` to node `to`.
pub(super) fn ping(
    from: &Namespace,
    interface: &str,
    to: usize,
    count: u32,
    means: &Means,
) -> Result<Pings, Error> {
    let (id, count) = ((to + 1).to_string(), count.to_string());
    let words =
        ["flood", "ping", interface, &id, "--count", &count, "--interval", "0ms", "--size", "100", "--json"];
    let said = json(from, means.nawa, &words)?;
    read(&said).ok_or_else(|| Error::program("nawa flood ping", format!("it says {said}")))
}

fn read(report: &Value) -> Option<Pings> {
    let number = |name: &str| report[name].as_f64();
    Some(Pings {
        mean_us: number("rtt_mean_us")?,
        p99_us: number("rtt_p99_us")?,
        lost: report["sent"].as_u64()?.checked_sub(report["received"].as_u64()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_says_is_read() {
        let said = r#"{"schema": 1, "sent": 10, "received": 9, "rtt_mean_us": 60.5, "rtt_p99_us": 99.0}"#;
        let pings = read(&serde_json::from_str(said).unwrap());
        assert_eq!(pings, Some(Pings { mean_us: 60.5, p99_us: 99.0, lost: 1 }));
        assert_eq!(read(&Value::Null), None);
    }
}
