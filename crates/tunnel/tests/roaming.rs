//! Addresses that change under load, on either end, one at a time and all at once.

mod sim;

use std::net::SocketAddr;
use std::time::Duration;

use sim::{Net, Options, plain, stranger};
use tunnel::Scheduler;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A download over the tunnel: end 1 always has something to send, end 0 acknowledges every second packet.
struct Download {
    net: Net,
    sent: u64,
    acknowledged: usize,
    /// The longest time between two packets at end 0 so far, and when the last came.
    stall: Duration,
    last: (usize, Duration),
}

impl Download {
    /// Two seconds of it, over paths of 10 ms and more.
    fn new(wires: u32) -> Download {
        let links = (0..wires).map(|i| plain(10.0, (i + 1) * 10 * MS)).map(|l| (l.clone(), l)).collect();
        let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links);
        net.pass(S);
        let last = (0, net.now);
        let mut download = Download { net, sent: 0, acknowledged: 0, stall: Duration::ZERO, last };
        download.pass(2 * S);
        download.stall = Duration::ZERO;
        download
    }

    fn pass(&mut self, time: Duration) {
        let until = self.net.now + time;
        let (sent, acknowledged, stall, last) =
            (&mut self.sent, &mut self.acknowledged, &mut self.stall, &mut self.last);
        self.net.run(until, |net| {
            let received = net.received[0].len();
            if received > last.0 {
                *stall = (*stall).max(net.now.saturating_sub(last.1));
                *last = (received, net.now);
            }
            while net.ends[1].peers()[0].queue_bytes() < 32_000 {
                net.send(1, *sent, 1200);
                *sent += 1;
            }
            while *acknowledged + 2 <= received {
                *acknowledged += 2;
                net.send(0, *acknowledged as u64, 60);
            }
        });
        self.stall = self.stall.max(self.net.now.saturating_sub(self.last.1));
    }

    /// The longest stall in the five seconds after `change`; every path has to be in use at the end.
    fn stall(mut self, change: impl FnOnce(&mut Net)) -> Duration {
        change(&mut self.net);
        self.pass(5 * S);
        let before: Vec<u64> = self.net.peer(0).paths.iter().map(|p| p.received_bytes).collect();
        self.pass(S);
        for (path, before) in self.net.peer(0).paths.iter().zip(before) {
            // A path of 10 Mbit/s carries 1.25 MB a second.
            assert!(path.received_bytes - before > 600_000, "{}: used again", path.name);
        }
        assert!(self.net.numbers(0).windows(2).all(|w| w[0] < w[1]), "once and in order");
        self.stall
    }
}

fn rebind(net: &mut Net, wires: impl Iterator<Item = usize>) {
    wires.for_each(|wire| net.seen_at[wire] = SocketAddr::new(net.seen_at[wire].ip(), 2000 + wire as u16));
}

fn readdress(net: &mut Net, wires: impl Iterator<Item = usize>) {
    wires.for_each(|wire| net.seen_at[wire] = stranger(7 + wire as u32));
}

/// Virtual time: not timings but arithmetic, with room.
fn assert_stalls(wires: u32, longest: Duration, change: impl Fn(&mut Net)) {
    let stall = Download::new(wires).stall(change);
    assert!(stall < longest, "{stall:?} over {wires} paths");
}

#[test]
fn one_uplink_is_rebound_by_a_nat() {
    assert_stalls(3, 500 * MS, |net| rebind(net, 0..1));
}

#[test]
fn all_uplinks_are_rebound_at_once() {
    assert_stalls(3, 500 * MS, |net| rebind(net, 0..3));
    assert_stalls(1, 500 * MS, |net| rebind(net, 0..1));
}

#[test]
fn one_uplink_gets_another_address() {
    assert_stalls(3, 500 * MS, |net| readdress(net, 0..1));
}

#[test]
fn all_uplinks_get_other_addresses_at_once() {
    assert_stalls(3, 500 * MS, |net| readdress(net, 0..3));
    assert_stalls(1, 500 * MS, |net| readdress(net, 0..1));
}

#[test]
fn all_uplinks_come_back_with_other_addresses() {
    for wires in [1, 3] {
        for gone in [50 * MS, 200 * MS, 500 * MS] {
            let mut download = Download::new(wires);
            (0..wires as usize).for_each(|wire| download.net.set_up(wire, false));
            readdress(&mut download.net, 0..wires as usize);
            download.pass(gone);
            let stall = download.stall(|net| (0..wires as usize).for_each(|wire| net.set_up(wire, true)));
            assert!(stall < gone + S, "{stall:?} over {wires} paths that were gone for {gone:?}");
        }
    }
}

#[test]
fn the_server_gets_another_address() {
    for wires in [1, 3] {
        assert_stalls(wires, 500 * MS, |net| net.server = stranger(99));
    }
}

#[test]
fn the_server_moves_and_comes_back() {
    let mut download = Download::new(2);
    let home = std::mem::replace(&mut download.net.server, stranger(99));
    download.pass(5 * S);
    assert_eq!(download.net.peer(0).paths[0].remote, Some(stranger(99)));
    download.net.server = home;
    download.pass(5 * S);
    assert_eq!(download.net.peer(0).paths[0].remote, Some(home));
    assert!(download.stall < S, "{:?}", download.stall);
}

/// The session ends while the peer is where it was never configured to be; it returns home unheard.
#[test]
fn a_server_that_came_home_unheard_is_found() {
    let mut download = Download::new(1);
    let home = std::mem::replace(&mut download.net.server, stranger(99));
    download.pass(2 * S);
    download.net.server = home;
    download.net.set_up(0, false);
    download.pass(200 * S);
    download.net.set_up(0, true);
    download.pass(10 * S);
    assert_eq!(download.net.peer(0).paths[0].remote, Some(home));
    let before = download.net.received[0].len();
    download.pass(S);
    assert!(download.net.received[0].len() > before);
}
