//! Bounds, idleness and load.

use super::*;
use crate::relay::SessionStatus;

#[test]
fn sessions_per_key_are_limited() {
    let mut net = Net::with(Limits { sessions_per_key: 2, ..Limits::default() });
    let places = [1, 2, 3].map(|port| SocketAddr::new(home().ip(), port));
    net.waiting(1, places[0], office());
    let mut late = net.client(1, office());
    let third = net.third(&mut late, places[2]);
    net.waiting(1, places[1], office());
    assert_eq!(net.give(places[2], &third), Action::Drop(DropReason::SessionLimit));
    let initiation = net.client(1, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(places[2], &initiation), Action::Drop(DropReason::SessionLimit));
    net.waiting(2, places[2], office());
    assert_eq!(net.relay.table().len(), 3);
}

/// As by a client whose connections by TLS break one after the other.
#[test]
fn the_session_of_a_key_that_is_silent_longest_makes_room_for_another() {
    let mut net = Net::with(Limits { sessions_per_key: 2, ..Limits::default() });
    let places = [1, 2, 3].map(|port| SocketAddr::new(home().ip(), port));
    let other = net.open(2, away(), office()).session().unwrap();
    let [first, second] = [0, 1].map(|n| net.open(1, places[n], office()).session().unwrap());
    net.pass(SILENT);
    assert_eq!(net.up(places[0], first), Action::Forward { to: office() });
    let sizes = net.sizes();
    let mut late = net.client(1, office());
    net.third(&mut late, places[2]);
    assert_eq!(net.up(places[1], second), Action::Forward { to: office() }, "nothing is proved yet");
    net.pass(SILENT);
    assert_eq!(net.up(places[0], first), Action::Forward { to: office() });
    net.open(1, places[2], office());
    assert_eq!(net.up(places[1], second), Action::Drop(DropReason::UnknownSession));
    assert_eq!(net.up(places[0], first), Action::Forward { to: office() });
    assert_eq!(net.up(away(), other), Action::Forward { to: office() });
    assert_eq!(net.sizes(), sizes);
}

#[test]
fn sessions_in_all_are_limited() {
    let mut net = Net::with(Limits { sessions: 1, ..Limits::default() });
    net.waiting(1, home(), office());
    let initiation = net.client(2, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(away(), &initiation), Action::Drop(DropReason::SessionLimit));
}

#[test]
fn pending_handshakes_are_limited_per_key_and_in_all() {
    let mut net = Net::with(Limits { pending_per_key: 2, pending: 3, ..Limits::default() });
    let mut clients = [0; 3].map(|_| net.client(1, office()));
    let thirds: Vec<_> = clients.iter_mut().map(|client| net.third(client, home())).collect();
    assert_eq!(net.relay.pending.len(), 2);
    assert_eq!(net.give(home(), &thirds[0]), Action::Drop(DropReason::UnknownHandshake));
    let first = net.client(2, office()).poll_transmit(net.now).unwrap();
    net.reply(away(), &first);
    let second = net.client(2, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(away(), &second), Action::Drop(DropReason::PendingLimit));
    assert_eq!(net.give(home(), &thirds[2]), Action::Taken);
}

#[test]
fn an_idle_session_is_forgotten_with_all_that_belongs_to_it() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    net.pass(IDLE - Duration::from_secs(1));
    assert_eq!(net.down(office(), session), Action::Forward { to: home() });
    net.pass(Duration::from_secs(1));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::UnknownSession));
    assert_eq!(net.sizes(), [0; 7]);
    assert!(net.relay.clients[&key(1).public()].sessions.is_empty());
}

#[test]
fn a_client_that_sends_keeps_its_session() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    for _ in 0..5 {
        net.pass(IDLE - Duration::from_secs(1));
        assert_eq!(net.up(home(), session), Action::Forward { to: office() });
        assert_eq!(net.down(office(), session), Action::Forward { to: home() });
    }
}

#[test]
fn refreshing_often_leaves_nothing_behind() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    let before = net.sizes();
    for _ in 0..50 {
        net.pass(Duration::from_secs(1));
        client.refresh(net.now);
        let third = net.third(&mut client, home());
        let answer = net.reply(home(), &third);
        assert!(client.handle_message(net.now, &answer));
    }
    assert_eq!(net.sizes(), before);
}

#[test]
fn under_load_only_who_receives_at_its_address_gets_through() {
    let mut net = Net::new();
    let flood = initiation(&mut net, 1, to_office(0)).1;
    net.reply(away(), &flood);
    net.relay.gauge = LoadGauge::new(0, 0);
    let mut client = net.client(1, office());
    let first = client.poll_transmit(net.now).unwrap();
    let cookie = net.reply(home(), &first);
    assert!(client.handle_message(net.now, &cookie));
    let next = client.poll_timeout().unwrap();
    let second = client.poll_transmit(next).unwrap();
    assert_eq!(net.reply(away(), &second).len(), wire::COOKIE_REPLY_LEN);
    let response = net.reply(home(), &second);
    assert!(client.handle_message(next, &response));
}

/// As many copies of client 1's initiations as anybody has recorded, from wherever he says: how many responses and cookie
/// replies there are. They are more than are remembered.
fn flood_with_copies(net: &mut Net) -> [usize; 2] {
    let recorded: Vec<_> =
        (0..200).map(|_| net.client(1, office()).poll_transmit(net.now).unwrap()).collect();
    let mut answers = [0; 2];
    for n in 0..20_000u32 {
        let victim = SocketAddr::from((n.to_be_bytes(), 7));
        match net.give(victim, &recorded[n as usize % recorded.len()]) {
            Action::Reply(reply) => answers[usize::from(reply.len() == wire::COOKIE_REPLY_LEN)] += 1,
            other => assert!(matches!(other, Action::Drop(_)), "{other:?}"),
        }
    }
    assert!(answers[0] <= recorded.len(), "responses: {}", answers[0]);
    answers
}

#[test]
fn copies_of_a_clients_initiations_get_few_cookies_and_one_answer_each() {
    let mut net = Net::new();
    let cookies = flood_with_copies(&mut net)[1];
    assert!(cookies <= COOKIES_PER_SECOND as usize, "cookies: {cookies}");
    assert!(net.relay.table().is_empty() && net.mail.is_empty());
    assert!(net.relay.pending.len() <= Limits::default().pending_per_key);
}

#[test]
fn copies_of_one_clients_initiations_keep_no_other_client_out() {
    let mut net = Net::new();
    flood_with_copies(&mut net);
    let mut other = net.client(2, office());
    let third = net.third(&mut other, away());
    assert_eq!(net.give(away(), &third), Action::Taken, "in the same instant");
}

#[test]
fn a_client_gets_a_cookie_where_it_has_a_session_amid_copies_of_its_initiations() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    net.pass(Duration::from_secs(5));
    flood_with_copies(&mut net);
    client.refresh(net.now);
    let first = client.poll_transmit(net.now).unwrap();
    let elsewhere = SocketAddr::new(home().ip(), 7);
    assert_eq!(net.give(elsewhere, &first), Action::Drop(DropReason::Load));
    let cookie = net.reply(home(), &first);
    assert!(client.handle_message(net.now, &cookie));
    net.now = client.poll_timeout().unwrap();
    flood_with_copies(&mut net);
    let third = net.third(&mut client, home());
    let answer = net.reply(home(), &third);
    assert!(client.handle_message(net.now, &answer));
}

/// However long ago the genuine one came.
#[test]
fn a_copy_that_was_refused_once_counts_as_no_handshake() {
    let mut net = Net::new();
    let made = |net: &mut Net, counter| initiation(net, 1, RegisterPayload { counter, ..to_office(0) }).1;
    let old = made(&mut net, 1);
    let newer = made(&mut net, 2);
    net.reply(home(), &newer);
    net.relay.gauge = LoadGauge::new(0, 1);
    for _ in 0..100 {
        assert_eq!(net.give(away(), &old), Action::Drop(DropReason::Replayed));
    }
}

#[test]
fn a_host_with_a_cookie_may_do_few_handshakes() {
    let mut net = Net::new();
    net.relay.gauge = LoadGauge::new(0, 0);
    let mut clients: Vec<_> = (0..50).map(|_| net.client(1, office())).collect();
    let mut answered = 0;
    for client in &mut clients {
        let first = client.poll_transmit(net.now).unwrap();
        let cookie = net.reply(home(), &first);
        assert!(client.handle_message(net.now, &cookie));
        net.pass(Duration::from_millis(100));
    }
    for client in &mut clients {
        let due = client.poll_timeout().unwrap();
        let second = client.poll_transmit(due).unwrap();
        match net.give(home(), &second) {
            Action::Reply(response) if response.len() == wire::RESPONSE_LEN => answered += 1,
            other => assert_eq!(other, Action::Drop(DropReason::Load)),
        }
    }
    assert_eq!(answered, HANDSHAKE_BURST);
}

#[test]
fn who_is_no_longer_allowed_loses_all() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let kept = net.open(2, away(), office()).session().unwrap();
    let mut late = net.client(1, office());
    let third = net.third(&mut late, away());
    net.relay.set_allow([key(2).public()]);
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::UnknownSession));
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.up(away(), kept), Action::Forward { to: office() });
    net.pass(IDLE);
    assert_eq!(net.sizes(), [0; 7]);
}

#[test]
fn the_status_shows_sessions_and_counts() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    net.up(home(), session);
    net.up(away(), session);
    net.pass(Duration::from_secs(2));
    let status = net.relay.status(net.now);
    let expected = SessionStatus {
        tls: false,
        client_key: key(1).public(),
        client: home(),
        destination: office(),
        open: true,
        idle_s: 2.0,
    };
    assert_eq!(status.sessions, [expected]);
    assert_eq!((status.forwarded_packets, status.pending_handshakes), (1, 0));
    assert_eq!(status.dropped_packets, [(DropReason::WrongSource, 1)].into());
}
