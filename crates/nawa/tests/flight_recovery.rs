//! The kernel's loss recovery under FS-AT: what is lost, marked or late costs no more than it has to.

mod common;

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::Duration;

use common::flight::{CONTROLS, Net, PORT, Sample, Stream, link, registered_or_skip, undisturbed};
use flight::kernel::Connection;
use flight::{Mode, State};
use lab::network::SERVER;
use link::{Bitrate, Capacity, LinkConfig, Queue, Trace};

const MIB: u64 = 1 << 20;

/// Packets that may be in flight beyond cwnd: the one that a tail loss probe sends (RFC 8985, 7.3).
const PROBE: u64 = 1;

/// What a full segment carries, bytes.
const MSS: u64 = 1448;

/// Bytes that stall: half of what is in flight on the link, so that all of them are at once.
const STALLED: u64 = 16 * MSS;

/// 3 MiB from one end to the other, with what `ss` said meanwhile.
fn transfer(net: &Net) -> Vec<Sample> {
    let (mut stream, mut samples) = (net.connect(), Vec::new());
    stream.transfer(3 * MIB, || samples.extend(net.samples()));
    stream.finish();
    samples
}

#[track_caller]
fn assert_within_cwnd(control: &str, samples: &[Sample]) {
    for pair in samples.windows(2) {
        // FS-AT (4) may take the window below what is in flight, which falls to it from then on: what was allowed just
        // before it did is at most what the sample before allowed, and a packet for each that arrived in between.
        let [before, sample] = [&pair[0], &pair[1]];
        let arrived = sample.number("delivered").saturating_sub(before.number("delivered"));
        let allowed = sample.cwnd().max(before.cwnd().max(before.in_flight()) + arrived);
        assert!(sample.in_flight() <= allowed + PROBE, "{control}: {}\n{}", before.line, sample.line);
    }
    // Samples may have missed what lies between two recoveries, of which each has its own ssthresh.
    let same =
        |one: &Sample, next: &Sample| one.recovers() == next.recovers() && one.ssthresh() == next.ssthresh();
    for recovery in samples.chunk_by(same) {
        let most = recovery[0].cwnd().max(recovery[0].ssthresh()).saturating_add(PROBE);
        // Where `fsat` has a window of its own, recovery does not hold that down: it may grow by what arrives, as ever.
        let own = |sample: &Sample| match control {
            "fsat" => sample.number("delivered") - recovery[0].number("delivered"),
            _ => 0,
        };
        let burst = recovery
            .iter()
            .find(|sample| sample.recovers() && sample.cwnd() > most.saturating_add(own(sample)));
        assert!(burst.is_none(), "{control}: more than {most} in recovery: {burst:?}");
    }
}

#[test]
fn what_is_lost_is_sent_again_without_a_timeout() {
    let Some(_on) = registered_or_skip("what_is_lost_is_sent_again_without_a_timeout") else { return };
    for (lost, packets) in [("300", 1), ("300-304", 5)] {
        undisturbed("timeouts", |control| {
            let net = Net::new(control, link());
            net.rules(&[&format!("data numgen inc mod 1000000 {lost} counter drop")]);
            let samples = transfer(&net);
            assert_eq!(net.counted(), [packets]);
            assert!(net.counter("RetransSegs") >= packets, "{control}, {lost}");
            assert_within_cwnd(control, &samples);
            net.counter("TCPTimeouts")
        });
    }
}

#[test]
fn a_lost_retransmission_is_sent_again() {
    let Some(_on) = registered_or_skip("a_lost_retransmission_is_sent_again") else { return };
    for control in CONTROLS {
        let net = Net::new(control, link());
        // So many that some of what is sent again is lost again.
        net.rules(&["data numgen inc mod 33 7 counter drop"]);
        assert_within_cwnd(control, &transfer(&net));
        assert!(net.counted()[0] > 50);
    }
}

#[test]
fn a_timeout_in_recovery_leaves_the_cut_of_the_window_from_before() {
    let Some(_on) = registered_or_skip("a_timeout_in_recovery_leaves_the_cut_of_the_window_from_before")
    else {
        return;
    };
    // So fast that what arrives of a round trip arrives in much less than one.
    let fast = LinkConfig { capacity: Capacity::Fixed(Bitrate::from_mbps(200.0)), ..link() };
    for control in CONTROLS {
        let net = Net::new(control, fast.clone());
        // The third round trip has 40 packets: 8 are lost, 20 arrive, and nothing does from then on.
        let drop = |which| format!("tcp dport {PORT} ip length > 100 numgen inc mod 1000000 {which} drop");
        net.rules(&["30-37", "50-999999"].map(drop).each_ref().map(String::as_str));
        let (mut stream, mut silent) = (net.connect(), true);
        stream.transfer(MIB, || {
            if silent && net.counter("TCPTimeouts") > 0 {
                net.forget_rules();
                silent = false;
            }
        });
        let after = net.wait_for("all is acknowledged", |sample| sample.number("unacked") == 0);
        assert!(!silent && after.ssthresh() >= 40 / 2, "{control}: {}", after.line);
        stream.finish();
    }
}

/// A link that carries nothing for 1.5 s after each restart, much longer than a timeout, and loses nothing.
fn stalling() -> LinkConfig {
    let rates = Trace::from_seconds_mbps("0 0\n1.5 20\n60 20").expect("a trace");
    LinkConfig { capacity: Capacity::Trace(rates.into()), queue: Queue::Packets(1000), ..link() }
}

/// What stalls is sent and arrives between two rests, in which nothing changes however late a busy machine looks.
#[test]
fn a_spurious_timeout_is_undone() {
    let Some(_on) = registered_or_skip("a_spurious_timeout_is_undone") else { return };
    // With timestamps Eifel detection (RFC 3522) sees that it was spurious, without them F-RTO (RFC 5682).
    for (timestamps, control) in ["1", "0"].into_iter().flat_map(|on| CONTROLS.map(|control| (on, control))) {
        let net = Net::new(control, stalling());
        net.sysctl("ipv4/tcp_timestamps", timestamps);
        net.sysctl("ipv4/tcp_slow_start_after_idle", "0");
        let mut stream = net.connect();
        stream.transfer(3 * MIB, || ());
        let before = Rest::of(&net, control);
        let mut after = before.clone();
        // Who is late for the stall tries again.
        for _ in 0..5 {
            net.network.restart_links();
            stream.transfer(STALLED, || ());
            after = Rest::of(&net, control);
            if after.timeouts > before.timeouts {
                break;
            }
        }
        stream.finish();
        let both = format!("{control}, timestamps {timestamps}: {before:?}\n{after:?}");
        let timeouts = after.timeouts - before.timeouts;
        assert!(timeouts > 0, "{both}");
        assert!(after.undone > before.undone, "{both}");
        assert!(timestamps == "1" || after.spurious > before.spurious, "{both}");
        assert!(after.sample.ssthresh() >= before.sample.ssthresh(), "{both}");
        assert!(after.allowed >= before.allowed / 2, "{both}");
        assert!(after.sample.resent() - before.sample.resent() <= timeouts + PROBE, "{both}");
    }
}

/// A connection of which all that was sent has arrived.
#[derive(Debug, Clone)]
struct Rest {
    sample: Sample,
    allowed: u64,
    timeouts: u64,
    undone: u64,
    spurious: u64,
}

impl Rest {
    #[track_caller]
    fn of(net: &Net, control: &str) -> Rest {
        let sample = net.wait_for("all is acknowledged", |sample| sample.number("unacked") == 0);
        let fsat = (control == "fsat").then(|| known(net, &sample));
        Rest {
            // `fsat` may look for rtt_min after a stall, with less in flight for an RTT, which is not what it keeps for later.
            allowed: fsat.map_or(sample.cwnd(), |fsat| fsat.space / sample.number("mss")),
            sample,
            timeouts: net.counter("TCPTimeouts"),
            undone: net.counter("TCPLossUndo"),
            spurious: net.counter("TCPSpuriousRTOs"),
        }
    }
}

/// What FS-AT knows of the sampled connection.
#[track_caller]
fn known(net: &Net, sample: &Sample) -> State {
    let port = sample.number("10.1.1.1");
    let here = |connection: &Connection| {
        connection.remote == (SERVER, PORT).into() && u64::from(connection.local.port()) == port
    };
    net.known().into_iter().find(here).expect("it runs under fsat").fsat
}

#[test]
fn a_mark_is_answered_as_a_loss_is() {
    let Some(_on) = registered_or_skip("a_mark_is_answered_as_a_loss_is") else { return };
    undisturbed("retransmissions", |control| {
        let net = Net::new(control, link());
        net.sysctl("ipv4/tcp_ecn", "1");
        let rules = [
            "data ip ecn ect0 numgen inc mod 1000000 150 counter ip ecn set ce",
            "data tcp flags & (syn | cwr) == cwr counter",
        ];
        net.rules(&rules);
        let samples = transfer(&net);
        assert_eq!(net.counted(), [1, 1], "{control}: one mark, one CWR");
        let (before, after): (Vec<&Sample>, Vec<&Sample>) =
            samples.iter().partition(|sample| sample.number("delivered_ce") == 0);
        let most = before.iter().map(|sample| sample.cwnd()).max().expect("a sample before the mark");
        let ssthresh = after.last().expect("a sample after the mark").ssthresh();
        assert!(ssthresh < most, "{control}: ssthresh is {ssthresh}, cwnd was {most}");
        let least = after.iter().map(|sample| sample.cwnd()).min();
        assert!(least < Some(most), "{control}: from {most} to {least:?}");
        net.counter("RetransSegs")
    });
}

#[test]
fn a_lost_tail_is_no_mark() {
    let Some(_on) = registered_or_skip("a_lost_tail_is_no_mark") else { return };
    let net = Net::new("fsat", link());
    net.sysctl("ipv4/tcp_ecn", "1");
    net.rules(&["data numgen inc mod 1000000 4 counter drop"]);
    let mut stream = net.connect();
    stream.transfer(5 * MSS, || ());
    assert_eq!((net.counted(), net.counter("TCPLossProbes")), (vec![1], 1), "a probe repairs it");
    // What is acknowledged beyond the probe tells that it did.
    stream.transfer(5 * MSS, || ());
    let after = net.wait_for("all is acknowledged", |sample| sample.number("unacked") == 0);
    assert_eq!(net.counter("TCPLossProbeRecovery"), 1, "{}", after.line);
    let known = known(&net, &after);
    assert_eq!((known.losses_radio, known.losses_congestion), (1, 0), "{known:?}");
    stream.finish();
}

/// An RTT by timestamps is one in whole milliseconds, and up to one too short.
#[test]
fn no_rtt_is_less_than_the_links() {
    let Some(_on) = registered_or_skip("no_rtt_is_less_than_the_links") else { return };
    for control in CONTROLS {
        let net = Net::new(control, LinkConfig { delay: Duration::from_micros(4600), ..link() });
        net.rules(&["data numgen inc mod 33 7 counter drop"]);
        let mut stream = net.connect();
        stream.transfer(3 * MIB, || ());
        let rtt_min = known(&net, &net.sample()).rtt_min;
        assert!(net.counted()[0] > 50);
        assert!(rtt_min >= Some(Duration::from_micros(9200)), "{control}: {rtt_min:?}");
        stream.finish();
    }
}

/// Own flows that together hold more than what is near rtt_min look for it again and again.
#[test]
fn a_slowdown_leaves_cwnd_what_it_is() {
    let Some(_on) = registered_or_skip("a_slowdown_leaves_cwnd_what_it_is") else { return };
    let net = Net::new("fsat", LinkConfig { queue: Queue::Packets(1000), ..link() });
    let mut streams: Vec<Stream> = (0..6).map(|_| net.connect()).collect();
    let ports: Vec<SocketAddr> =
        streams.iter().map(|stream| stream.near.local_addr().expect("an address")).collect();
    let (mut slow, mut cut) = (0, Vec::new());
    std::thread::scope(|scope| {
        let sending: Vec<_> =
            streams.iter_mut().map(|stream| scope.spawn(|| stream.transfer(2 * MIB, || ()))).collect();
        while sending.iter().any(|one| !one.is_finished()) {
            let less = |one: &Connection, bytes: u64| bytes + MSS < one.fsat.space;
            let slows = |one: &Connection| {
                ports.contains(&one.local) && one.fsat.mode == Mode::Own && less(one, one.window)
            };
            for one in net.known().into_iter().filter(slows) {
                slow += 1;
                cut.extend((one.cwnd <= one.window).then_some(one));
            }
        }
    });
    assert!(slow > 0, "no slowdown was seen");
    assert!(cut.is_empty(), "{} of {slow}: {:?}", cut.len(), cut[0]);
    streams.into_iter().for_each(Stream::finish);
}

#[test]
fn a_reset_ends_the_connection_and_no_other() {
    let Some(_on) = registered_or_skip("a_reset_ends_the_connection_and_no_other") else { return };
    for control in CONTROLS {
        let net = Net::new(control, link());
        let mut stream = net.connect();
        stream.transfer(MIB, || ());
        stream.send(100_000);
        net.wait_for("something in flight", |sample| sample.in_flight() > 0);
        rustix::net::sockopt::set_socket_linger(&stream.far, Some(Duration::ZERO)).expect("a socket");
        drop(stream.far);
        let end = stream.near.read(&mut [0]).expect_err("the connection was reset");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{control}");
        net.connect().transfer(MIB, || ());
    }
}
