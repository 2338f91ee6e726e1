//! The daemon's state as metrics: which member of it becomes which metric, with labels and base units. docs/metrics.md is for
//! people.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;

type Labels = Vec<(&'static str, String)>;

/// A member of an object of the state, and the metric that it becomes. The format adds the unit and, to a counter, `_total`.
struct Row {
    member: &'static str,
    name: &'static str,
    kind: Kind,
    /// The member is in milliseconds, and the metric in seconds.
    time: bool,
    help: &'static str,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Never falls while the daemon runs.
    Counter,
    Gauge,
}

const fn counter(member: &'static str, name: &'static str, help: &'static str) -> Row {
    Row { member, name, kind: Kind::Counter, time: false, help }
}

const fn gauge(member: &'static str, name: &'static str, help: &'static str) -> Row {
    Row { member, name, kind: Kind::Gauge, time: false, help }
}

const fn time(row: Row) -> Row {
    Row { time: true, ..row }
}

const STRAND: &[Row] = &[
    gauge("up", "nawa_strand_up", "1 if it runs again, of a strand that failed of late"),
    gauge("failures", "nawa_strand_failures", "How often it failed in a row"),
];

const PEER: &[Row] = &[
    gauge("up", "nawa_peer_up", "1 if there are keys and a path to send on"),
    gauge("queue_bytes", "nawa_peer_queue_bytes", "Inner packets waiting to be sent"),
    counter(
        "queue_dropped_packets",
        "nawa_peer_queue_dropped_packets",
        "Inner packets dropped to keep the queue short",
    ),
    counter(
        "queue_marked_packets",
        "nawa_peer_queue_marked_packets",
        "Inner packets marked for the same reason (ECN)",
    ),
    gauge("reorder_bytes", "nawa_peer_reorder_bytes", "Bytes waiting behind gaps"),
    gauge("unconfirmed_bytes", "nawa_peer_unconfirmed_bytes", "Bytes kept to be sent again"),
    counter("resent_packets", "nawa_peer_resent_packets", "Inner packets sent again on another path"),
    counter("given_up_packets", "nawa_peer_given_up_packets", "Inner packets that were never confirmed"),
];

const COPIES: &[Row] = &[
    counter("sent_bytes", "nawa_copies_sent_bytes", "Inner packets sent, without copies"),
    counter("extra_bytes", "nawa_copies_extra_bytes", "Copies sent over a second path"),
];

const PATH: &[Row] = &[
    time(gauge("rtt_ms", "nawa_path_rtt", "Smoothed round trip")),
    time(gauge(
        "rtt_min_ms",
        "nawa_path_rtt_min",
        "Least round trip of the last round, without this end's queue on the path",
    )),
    gauge("rate_bps", "nawa_path_rate_bits_per_second", "What the path delivers"),
    gauge("weight", "nawa_path_weight_ratio", "The paper's weight, a share of 1 among paths that are up"),
    gauge("backup", "nawa_path_backup", "1 if it is used only while no other works"),
    gauge("mtu", "nawa_path_mtu_bytes", "Largest outer packet that passes"),
    gauge("window_bytes", "nawa_path_window_bytes", "What may be in flight"),
    gauge("in_flight_bytes", "nawa_path_in_flight_bytes", "What is in flight"),
    counter("sent_packets", "nawa_path_sent_packets", "Packets sent"),
    counter("sent_bytes", "nawa_path_sent_bytes", "UDP payload sent"),
    gauge(
        "lost_packets",
        "nawa_path_lost_packets",
        "Packets lost so far; falls where a loss turns out to be none",
    ),
    counter("received_packets", "nawa_path_received_packets", "Packets received"),
    counter("received_bytes", "nawa_path_received_bytes", "UDP payload received"),
];

const RELAY: &[Row] = &[
    counter("forwarded_packets", "nawa_relay_forwarded_packets", "Datagrams forwarded"),
    counter("forwarded_bytes", "nawa_relay_forwarded_bytes", "Bytes of datagrams forwarded"),
];

const FLOOD: &[Row] = &[
    counter("sent_frames", "nawa_flood_sent_frames", "Frames of this node's messages"),
    counter("unsent_frames", "nawa_flood_unsent_frames", "Frames that could not be sent"),
    counter("new_frames", "nawa_flood_new_frames", "Frames heard for the first time"),
    counter("relayed_frames", "nawa_flood_relayed_frames", "Frames given to the interface to be relayed"),
    counter("suppressed_frames", "nawa_flood_suppressed_frames", "Frames left to neighbours"),
    counter(
        "undelivered_messages",
        "nawa_flood_undelivered_messages",
        "Messages that no receiver had room for",
    ),
    gauge("receivers", "nawa_flood_receivers", "Programs that receive"),
];

const CODING: &[Row] = &[
    counter("sent_frames", "nawa_coding_sent_frames", "Frames sent"),
    gauge("coding_ratio", "nawa_coding_ratio", "Share of the frames sent that are sums of two packets"),
    counter("relayed_packets", "nawa_coding_relayed_packets", "Packets relayed"),
    counter("held_packets", "nawa_coding_held_packets", "Packets held for a partner"),
    time(counter("held_time_ms", "nawa_coding_held", "Time for which packets were held for a partner")),
    counter("decoded_packets", "nawa_coding_decoded_packets", "Packets decoded"),
    counter(
        "missing_partner_frames",
        "nawa_coding_missing_partner_frames",
        "Sums whose other half was not overheard",
    ),
    counter(
        "wrong_partner_frames",
        "nawa_coding_wrong_partner_frames",
        "Sums whose other half was another packet",
    ),
    gauge(
        "left_out_neighbours",
        "nawa_coding_left_out_neighbours",
        "Neighbours for whom coding does not pay",
    ),
];

/// The text of OpenMetrics, and of Prometheus.
///
/// # Errors
/// None that the text's memory does not have.
pub fn render(state: &Value) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    rows(&mut registry, STRAND, &labelled(&Labels::new(), "strand", "strand", &state["failed"]));
    tunnel(&mut registry, &state["tunnel"]);
    let relay = &state["relay"];
    if relay.is_object() {
        rows(&mut registry, RELAY, &[(Labels::new(), relay)]);
        count(&mut registry, "nawa_relay_sessions", "Sessions", &relay["sessions"]);
        let all = [(Labels::new(), relay)];
        reasons(&mut registry, "nawa_relay_dropped_packets", "Datagrams dropped", &all, "dropped_packets");
    }
    if state["flight"].is_object() {
        let connections = &state["flight"]["connections"];
        count(&mut registry, "nawa_flight_connections", "TCP connections under fsat", connections);
    }
    if state["bicast"].is_object() {
        let associations = &state["bicast"]["associations"];
        count(&mut registry, "nawa_bicast_associations", "SCTP associations", associations);
        let sent = [
            gauge(
                "sent_bytes",
                "nawa_bicast_sent_bytes",
                "Bytes of SCTP packets of all associations, ended ones too, without copies",
            ),
            gauge(
                "extra_bytes",
                "nawa_bicast_extra_bytes",
                "Bytes of copies of all associations, ended ones too",
            ),
        ];
        rows(&mut registry, &sent, &[(Labels::new(), &state["bicast"])]);
    }
    let floods = labelled(&Labels::new(), "interface", "interface", &state["flood"]);
    rows(&mut registry, FLOOD, &floods);
    reasons(&mut registry, "nawa_flood_dropped_frames", "Frames dropped", &floods, "dropped_frames");
    rows(&mut registry, CODING, &labelled(&Labels::new(), "interface", "interface", &state["coding"]));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn tunnel(registry: &mut Registry, tunnel: &Value) {
    let peers = labelled(&Labels::new(), "peer", "name", &tunnel["peers"]);
    rows(registry, PEER, &peers);
    let copies: Vec<_> = peers.iter().map(|(labels, peer)| (labels.clone(), &peer["bicast"])).collect();
    rows(registry, COPIES, &copies);
    // Paths that the two ends list may have one name: the id tells them apart.
    let paths = peers.iter().flat_map(|(labels, peer)| labelled(labels, "path", "name", &peer["paths"]));
    let mut paths: Vec<(Labels, &Value)> = paths.collect();
    for (labels, path) in &mut paths {
        labels.push(("id", text(&path["id"])));
    }
    rows(registry, PATH, &paths);
    let up = Family::<Labels, Gauge>::default();
    registry.register("nawa_path_up", "1 if it carries packets both ways", up.clone());
    for (labels, path) in &paths {
        up.get_or_create(labels).set(i64::from(path["state"] == "up"));
    }
}

/// The elements of a list, with the labels of what holds it and one more.
fn labelled<'a>(
    outer: &Labels,
    label: &'static str,
    member: &str,
    list: &'a Value,
) -> Vec<(Labels, &'a Value)> {
    let elements = list.as_array().into_iter().flatten();
    elements.map(|one| ([outer.as_slice(), &[(label, text(&one[member]))]].concat(), one)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn rows(registry: &mut Registry, rows: &[Row], objects: &[(Labels, &Value)]) {
    for row in rows {
        let values = objects.iter().filter_map(|(labels, object)| {
            Some((labels, number(&object[row.member])? * if row.time { 1e-3 } else { 1.0 }))
        });
        register(registry, row, values);
    }
}

fn register<'a>(registry: &mut Registry, row: &Row, values: impl Iterator<Item = (&'a Labels, f64)>) {
    let Row { name, help, time, .. } = *row;
    match row.kind {
        Kind::Counter => {
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            for (labels, value) in values {
                family.get_or_create(labels).inc_by(value);
            }
            match time {
                true => registry.register_with_unit(name, help, Unit::Seconds, family),
                false => registry.register(name, help, family),
            }
        }
        Kind::Gauge => {
            let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
            for (labels, value) in values {
                family.get_or_create(labels).set(value);
            }
            match time {
                true => registry.register_with_unit(name, help, Unit::Seconds, family),
                false => registry.register(name, help, family),
            }
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(|yes| f64::from(u8::from(yes))))
}

fn count(registry: &mut Registry, name: &str, help: &str, list: &Value) {
    let gauge = Gauge::<i64>::default();
    gauge.set(list.as_array().map_or(0, |list| i64::try_from(list.len()).unwrap_or(i64::MAX)));
    registry.register(name, help, gauge);
}

/// Counts by their reasons.
fn reasons(registry: &mut Registry, name: &str, help: &str, objects: &[(Labels, &Value)], member: &str) {
    let family = Family::<Labels, Counter>::default();
    for (labels, object) in objects {
        for (reason, count) in object[member].as_object().into_iter().flatten() {
            let labels = [labels.as_slice(), &[("reason", reason.clone())]].concat();
            family.get_or_create(&labels).inc_by(count.as_u64().unwrap_or(0));
        }
    }
    registry.register(name, help, family);
}
