//! What an end is told while it runs: which paths to list, and how the other end is to use them.

mod sim;

use std::time::Duration;

use sim::Net;

const MS: Duration = Duration::from_millis(1);

/// Packets from `end`, a millisecond apart.
fn send(net: &mut Net, end: usize, numbers: std::ops::Range<u64>) {
    for number in numbers {
        net.send(end, number, 1000);
        net.pass(MS);
    }
}

/// Bytes that `end` has sent on each of its paths.
fn sent_bytes(net: &Net, end: usize) -> Vec<u64> {
    net.peer(end).paths.iter().map(|path| path.sent_bytes).collect()
}

#[test]
fn on_a_path_not_for_receiving_the_peer_sends_only_for_want_of_another() {
    let mut net = Net::quick(2, 10 * MS, |end, config| {
        if end == 0 {
            config.peers[0].paths[1].receive = false;
        }
    });
    net.pass(1000 * MS);
    assert_eq!(net.peer(0).paths.iter().map(|path| path.backup).collect::<Vec<_>>(), [false, false]);
    assert_eq!(net.peer(1).paths.iter().map(|path| path.backup).collect::<Vec<_>>(), [false, true]);

    let before = sent_bytes(&net, 1);
    send(&mut net, 1, 0..500);
    let sent: Vec<u64> =
        sent_bytes(&net, 1).iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(sent[0] > 500_000 && sent[1] < 50_000, "{sent:?}");
    let before = sent_bytes(&net, 0);
    send(&mut net, 0, 0..500);
    let sent: Vec<u64> =
        sent_bytes(&net, 0).iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(sent.iter().all(|bytes| *bytes > 100_000), "this end uses both: {sent:?}");

    net.set_up(0, false);
    net.pass(2000 * MS);
    let before = sent_bytes(&net, 1);
    send(&mut net, 1, 500..1000);
    net.pass(1000 * MS);
    assert!(sent_bytes(&net, 1)[1] - before[1] > 500_000, "what else there is, is used");
    assert_eq!(net.numbers(0).len(), 1000);
}
