//! Datagrams that nobody who may has sent: nothing changes but counters, and nothing is answered.

use super::*;

/// A relay, and a registration up to its third message, which the relay has not got yet.
fn asked() -> (Net, [Vec<u8>; 3]) {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let first = client.poll_transmit(net.now).unwrap();
    let response = net.reply(home(), &first);
    assert!(client.handle_message(net.now, &response));
    let third = client.poll_transmit(net.now).unwrap();
    (net, [first, response, third])
}

/// A relay with a session, and each datagram that made it, with its source.
fn recorded() -> (Net, Vec<(SocketAddr, Vec<u8>)>) {
    let (mut net, [first, _, third]) = asked();
    assert_eq!(net.give(home(), &third), Action::Taken);
    let (session, token) = net.challenge_to(office());
    let echo = wire::echo(session, token).to_vec();
    net.give(office(), &echo);
    net.mail.clear();
    net.sent.clear();
    let all = vec![(home(), first), (home(), third), (office(), echo)];
    (net, all)
}

/// What must not change.
fn state(net: &Net) -> String {
    let mut status = net.relay.status(net.now);
    status.dropped_packets.clear();
    format!("{status:?} {:?}", net.sizes())
}

/// Gives `datagram` from where it belongs and from elsewhere: each time it is dropped and counted.
#[track_caller]
fn assert_refused(net: &mut Net, source: SocketAddr, datagram: &[u8]) {
    let before = state(net);
    let dropped = |net: &Net| net.relay.status(net.now).dropped_packets.values().sum::<u64>();
    for source in [source, away()] {
        let count = dropped(net);
        let action = net.give(source, datagram);
        assert!(matches!(action, Action::Drop(_)), "{action:?}");
        assert_eq!(dropped(net), count + 1);
    }
    assert_eq!(state(net), before);
    assert!(net.mail.is_empty() && net.sent.is_empty(), "nothing is sent");
}

#[test]
fn a_datagram_cut_or_lengthened_to_any_length_changes_nothing() {
    let (mut net, all) = recorded();
    for (source, datagram) in all {
        for length in 0..datagram.len() {
            assert_refused(&mut net, source, &datagram[..length]);
        }
        for more in [1, 2, 16, 100, 9000, 65_000] {
            assert_refused(&mut net, source, &[&datagram[..], &vec![0; more]].concat());
        }
    }
}

#[test]
fn a_datagram_with_any_bit_flipped_changes_nothing() {
    let (mut net, all) = recorded();
    for (source, datagram) in all {
        for bit in 0..8 * datagram.len() {
            let mut flipped = datagram.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Data is the ends' own matter, and they authenticate it.
            if matches!(Message::parse(&flipped), Ok(Message::Relayed { .. })) {
                continue;
            }
            assert_refused(&mut net, source, &flipped);
        }
    }
}

#[test]
fn what_the_relay_sent_is_worth_nothing_to_it() {
    let (mut net, [_, response, third]) = asked();
    net.give(home(), &third);
    let challenge = net.mail_to(office()).unwrap();
    let Ok(Message::Challenge { session, token }) = Message::parse(&challenge) else { panic!("a challenge") };
    net.give(office(), &wire::echo(session, token));
    let answer = net.mail_to(home()).unwrap();
    net.sent.clear();
    for reflected in [response, challenge, answer] {
        assert_refused(&mut net, home(), &reflected);
    }
}

#[test]
fn a_flood_by_strangers_is_not_answered_and_lets_clients_in() {
    let (mut net, _) = recorded();
    let before = state(&net);
    let stranger = net.client(3, office()).poll_transmit(net.now).unwrap();
    let mut stamped = stranger.clone();
    crate::handshake::cookie::CookieJar::new(&net.relay_key).stamp(net.now, &mut stamped);
    for n in 0..50_000u32 {
        let mut message = if n % 2 == 0 { stranger.clone() } else { stamped.clone() };
        net.rng.fill_bytes(&mut message[40..100]);
        let source = SocketAddr::from((n.to_be_bytes(), 7));
        assert!(matches!(net.give(source, &message), Action::Drop(_)));
    }
    assert_eq!(state(&net), before);
    let mut client = net.client(2, home());
    let third = net.third(&mut client, away());
    let answer = net.reply(away(), &third);
    assert!(client.handle_message(net.now, &answer), "in the same instant");
}
