//! A path whose way out changes.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;
use crate::wire::Direction;
use crate::wire::frame::{Piece, Report};

const S: Duration = Duration::from_secs(1);

fn way() -> Way {
    let local = LocalAddress { ip: Some([10, 0, 1, 2].into()), interface: Some(2), socket: 0 };
    Way { local, remote: ([203, 0, 113, 7], 51900).into(), relay: None, tls: None, rival: None }
}

/// Has the path lead there; the order sequences of what was under way.
fn lead(path: &mut Path, way: Option<Way>) -> Vec<u64> {
    path.set_way(way);
    let address = way.map(|way| match way.relay {
        None => Address::direct(way.remote, way.local),
        // Another destination is another session.
        Some(relay) => {
            let session = u64::from(way.remote.port());
            Address { via: Some((Direction::Up, session)), ..Address::direct(relay, way.local) }
        }
    });
    let mut out = Outcome::default();
    path.set_address(3 * S, address);
    path.follow(&mut out);
    out.lost
}

/// One that knows its links; packet 8 is under way.
fn measured(way: Way) -> Path {
    let mut path = Path::new(0, &[1; 32].into(), None);
    lead(&mut path, Some(way));
    path.sent.handle_sent(S, 1000, Content::Data(7, Piece::WHOLE));
    let report = Report { ranges: vec![0..=0], arrival: 1_010_000, ..Report::default() };
    path.sent.handle_report(2 * S, &report, &mut Outcome::default());
    path.handle_delay(2 * S, 7000, 5000);
    path.sent.handle_sent(2 * S, 1000, Content::Data(8, Piece::WHOLE));
    path
}

fn is_known(path: &Path) -> [bool; 3] {
    [path.delay.is_some(), path.least_delay.is_some(), path.sent.rtt().smoothed().is_some()]
}

#[test]
fn of_other_links_nothing_is_known() {
    let relayed = Way { relay: Some(([198, 51, 100, 1], 51901).into()), ..way() };
    let local = |ip, interface| LocalAddress { ip, interface, socket: 0 };
    let ip = way().local.ip;
    let other = ([203, 0, 113, 8], 51900 + 1).into();
    for (before, after) in [
        (way(), Way { local: local(ip, Some(3)), ..way() }),
        (way(), Way { local: local(Some([10, 0, 1, 3].into()), Some(2)), ..way() }),
        (way(), Way { remote: other, ..way() }),
        (way(), relayed),
        (relayed, Way { relay: Some(([198, 51, 100, 2], 51901).into()), ..relayed }),
        (relayed, Way { remote: other, ..relayed }),
        (relayed, Way { tls: Some(([198, 51, 100, 1], 443).into()), remote: other, ..relayed }),
    ] {
        let mut path = measured(before);
        assert_eq!(is_known(&path), [true; 3]);
        // It may have been away meanwhile.
        lead(&mut path, None);
        assert_eq!(lead(&mut path, Some(after)), [8], "{after:?}");
        assert_eq!(is_known(&path), [false; 3], "{after:?}");
        // What was under way arrived after all: it says nothing of the new ones.
        let report = Report { ranges: vec![0..=1], arrival: 3_010_000, ..Report::default() };
        let mut out = Outcome::default();
        path.sent.handle_report(4 * S, &report, &mut out);
        assert_eq!((is_known(&path), out.progress), ([false; 3], false), "{after:?}");
    }
}

#[test]
fn of_the_same_links_all_stays_known() {
    let local = LocalAddress { socket: 1, ..way().local };
    let port = ([203, 0, 113, 7], 4000).into();
    for after in [way(), Way { local, ..way() }, Way { remote: port, ..way() }] {
        let mut path = measured(way());
        for way in [None, Some(after), None, Some(way())] {
            assert_eq!(lead(&mut path, way), []);
            assert_eq!(is_known(&path), [true; 3], "{after:?}");
        }
    }
}

/// The peer is found elsewhere, and then has a way back to where it was.
#[test]
fn of_where_the_peer_is_found_nothing_is_known() {
    let mut path = measured(way());
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let from = Address { remote: ([192, 0, 2, 1], 9).into(), ..Address::direct(way().remote, way().local) };
    path.handle_arrival(3 * S, &from, 1000, true, &mut rng);
    let (_, token) = path.places.poll_challenge(3 * S).expect("a challenge");
    let mut out = Outcome::default();
    path.handle_response(3 * S, &from, token, &mut out);
    assert_eq!((out.lost, is_known(&path)), (vec![8], [false; 3]));
    path.handle_delay(4 * S, 7000, 5000);
    lead(&mut path, None);
    lead(&mut path, Some(way()));
    assert_eq!(is_known(&path), [false; 3]);
}
