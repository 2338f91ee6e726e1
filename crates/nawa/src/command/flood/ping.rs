//! `nawa flood ping`

use std::time::Duration;

use device::monotonic;
use flood::{Client, Kind, Message};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::{connect, failure};
use crate::cli::FloodPing;
use crate::command::{print, print_json};
use crate::failure::Failure;

/// Bytes of the ID before what an echo request carries.
const ID: usize = 4;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    interface: String,
    id: u32,
    size_bytes: u16,
    sent: u32,
    received: u64,
    lost_percent: f64,
    /// The answer's TTL when it came, of the last one.
    ttl: Option<u8>,
    /// Absent if nothing was received.
    #[serde(flatten)]
    rtt: Option<Rtt>,
}

/// Round trips.
#[derive(Debug, Serialize)]
struct Rtt {
    rtt_min_us: f64,
    rtt_mean_us: f64,
    rtt_p50_us: f64,
    rtt_p90_us: f64,
    rtt_p99_us: f64,
    rtt_max_us: f64,
}

/// Pings, and what was heard of them.
struct Pinger<'a> {
    ping: &'a FloodPing,
    client: Client,
    /// Which of all pings on this machine are these.
    nonce: u64,
    ns: Histogram<u64>,
    ttl: Option<u8>,
}

/// Pings; fails if no answer came at all.
pub fn run(ping: &FloodPing) -> Result<(), Failure> {
    let mut client = connect(&ping.interface)?;
    if ping.id == client.node().id {
        let what =
            format!("{} is this node's own ID, and a node does not hear itself; write another's", ping.id);
        return Err(Failure::bad_input(what));
    }
    if client.node().wire == 0 && ping.id > u8::MAX.into() {
        return Err(Failure::bad_input("wire version 0 has IDs of 8 bits; write 0 to 255"));
    }
    if usize::from(ping.size) > client.node().data_max_bytes {
        let most = client.node().data_max_bytes;
        return Err(Failure::bad_input(format!(
            "at most {most} bytes go into a frame here; write a lesser --size"
        )));
    }
    client.set_busy_polling(ping.busy_poll);
    client.listen().map_err(failure)?;
    let nonce = u64::from(std::process::id()) << 32 | u64::from(monotonic().subsec_nanos());
    let ns = Histogram::new(3).map_err(Failure::failed)?;
    let mut pinger = Pinger { ping, client, nonce, ns, ttl: None };
    for number in 0..ping.count {
        pinger.one(number)?;
    }
    let report = pinger.report();
    if ping.json { print_json(&report) } else { print(&as_text(&report)) }?;
    if report.received > 0 {
        Ok(())
    } else {
        Err(Failure::failed(format!("node {} does not answer", ping.id)))
    }
}

impl Pinger<'_> {
    fn one(&mut self, number: u32) -> Result<(), Failure> {
        let data = self.data(number);
        let sent = monotonic();
        if self.client.node().wire == 0 {
            self.client.send(self.ping.ttl, &data).map_err(failure)?;
        } else {
            self.client.request_echo(self.ping.id, self.ping.ttl, &data[ID..]).map_err(failure)?;
        }
        if let Some((message, rtt)) = self.answer(&data, sent)? {
            self.ttl = Some(message.header.ttl);
            // A time is within the histogram's range, which grows.
            let _ = self.ns.record(rtt.as_nanos() as u64);
            if !self.ping.json {
                let us = rtt.as_nanos() as f64 / 1e3;
                let Message { header, .. } = message;
                print(&format!("{}: ping {number}, TTL {}, {us:.1} us", self.ping.id, header.ttl))?;
            }
        } else if !self.ping.json {
            print(&format!("{}: ping {number}, no answer", self.ping.id))?;
        }
        if number + 1 < self.ping.count {
            self.pause(sent + self.ping.interval)?;
        }
        Ok(())
    }

    /// The ID that is to answer, who asks, which ping this is, and zeroes up to the size.
    fn data(&self, number: u32) -> Vec<u8> {
        let mut data = self.ping.id.to_be_bytes().to_vec();
        data.extend(self.nonce.to_be_bytes());
        data.extend(number.to_be_bytes());
        data.resize(self.ping.size.into(), 0);
        data
    }

    fn answer(&self, data: &[u8], sent: Duration) -> Result<Option<(Message, Duration)>, Failure> {
        let kind = if self.client.node().wire == 0 { Kind::Data } else { Kind::EchoReply };
        loop {
            let rest = (sent + self.ping.timeout).saturating_sub(monotonic());
            let Some(message) = self.client.recv(Some(rest)).map_err(failure)? else { return Ok(None) };
            let from = (message.header.id, message.header.kind);
            if from == (self.ping.id, kind) && message.data == data {
                return Ok(Some((message, monotonic() - sent)));
            }
        }
    }

    /// Until `until`; what comes meanwhile is too late.
    fn pause(&self, until: Duration) -> Result<(), Failure> {
        loop {
            let rest = until.saturating_sub(monotonic());
            if rest.is_zero() || self.client.recv(Some(rest)).map_err(failure)?.is_none() {
                return Ok(());
            }
        }
    }

    fn report(&self) -> Report {
        let (sent, received) = (self.ping.count, self.ns.len());
        let us = |ns: u64| ns as f64 / 1e3;
        let rtt = (received > 0).then(|| Rtt {
            rtt_min_us: us(self.ns.min()),
            rtt_mean_us: self.ns.mean() / 1e3,
            rtt_p50_us: us(self.ns.value_at_quantile(0.5)),
            rtt_p90_us: us(self.ns.value_at_quantile(0.9)),
            rtt_p99_us: us(self.ns.value_at_quantile(0.99)),
            rtt_max_us: us(self.ns.max()),
        });
        Report {
            schema: 1,
            interface: self.ping.interface.clone(),
            id: self.ping.id,
            size_bytes: self.ping.size,
            sent,
            received,
            lost_percent: 100.0 * (1.0 - received as f64 / f64::from(sent)),
            ttl: self.ttl,
            rtt,
        }
    }
}

fn as_text(report: &Report) -> String {
    let Report { sent, received, lost_percent, .. } = report;
    let counts = format!("{sent} sent, {received} answered, {lost_percent:.1} % lost");
    let Some(Rtt { rtt_min_us, rtt_mean_us, rtt_p50_us, rtt_p90_us, rtt_p99_us, rtt_max_us }) = &report.rtt
    else {
        return counts;
    };
    format!(
        "{counts}\nround trip in us: min {rtt_min_us:.1}, mean {rtt_mean_us:.1}, median {rtt_p50_us:.1}, \
         90 % {rtt_p90_us:.1}, 99 % {rtt_p99_us:.1}, max {rtt_max_us:.1}"
    )
}
