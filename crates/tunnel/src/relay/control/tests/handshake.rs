//! What a replayed, forged, late or misplaced message may not do.

use super::*;

#[test]
fn a_replayed_initiation_moves_nothing() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let first = client.poll_transmit(net.now).unwrap();
    let response = net.reply(home(), &first);
    for source in [home(), away()] {
        assert_eq!(net.give(source, &first), Action::Drop(DropReason::Replayed));
    }
    assert!(client.handle_message(net.now, &response));
    let third = client.poll_transmit(net.now).unwrap();
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.give(away(), &first), Action::Drop(DropReason::Replayed));
    assert_eq!(net.relay.sessions.values().next().unwrap().client, home());
}

/// However many have been recorded.
#[test]
fn replayed_and_older_initiations_get_no_answer_and_evict_no_handshake() {
    let mut net = Net::new();
    let made = |net: &mut Net, counter| initiation(net, 1, RegisterPayload { counter, ..to_office(0) }).1;
    let withheld = made(&mut net, 1);
    let recorded: Vec<_> = (2..302).map(|counter| made(&mut net, counter)).collect();
    // That there are many is no matter here.
    net.relay.clients.entry(key(1).public()).or_default().gauge = LoadGauge::new(1000, 1000);
    for message in &recorded {
        net.reply(home(), message);
    }
    net.pass(PENDING_LIFETIME);
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    for message in recorded.iter().chain([&withheld]) {
        assert_eq!(net.give(away(), message), Action::Drop(DropReason::Replayed));
        net.pass(Duration::from_millis(10));
    }
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.relay.sessions.values().next().unwrap().client, home());
}

#[test]
fn another_clients_name_does_not_help() {
    let mut net = Net::new();
    // One who is not allowed, and one who is, knock in the name of client 1.
    let stranger = knock(&mut net, 3, 1, Prologue::Relay, to_office(0)).1;
    assert_eq!(net.give(home(), &stranger), Action::Drop(DropReason::NotAllowed));
    let other = knock(&mut net, 1, 2, Prologue::Relay, to_office(0)).1;
    assert_eq!(net.give(home(), &other), Action::Drop(DropReason::Handshake));
    assert_eq!(net.sizes(), [0; 7]);
}

#[test]
fn a_replayed_third_message_moves_nothing() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    net.give(home(), &third);
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::WrongSource));
    assert_eq!(net.give(home(), &third), Action::Drop(DropReason::Replayed));
    let before = net.sizes();
    client.refresh(net.now);
    net.pass(IDLE + PENDING_LIFETIME);
    assert_eq!(net.give(home(), &third), Action::Drop(DropReason::UnknownHandshake));
    assert_ne!(net.sizes(), before);
    assert_eq!(net.sizes(), [0; 7]);
}

#[test]
fn a_third_message_counts_only_from_where_the_first_came() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::WrongSource));
    assert!(net.relay.table().is_empty());
    assert_eq!(net.give(home(), &third), Action::Taken);
}

#[test]
fn a_forged_third_message_spoils_nothing() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    for at in 8..REGISTERED_LEN {
        let mut forged = third.clone();
        forged[at] ^= 1;
        assert_eq!(net.give(home(), &forged), Action::Drop(DropReason::Confirmation), "byte {at}");
    }
    let mut unknown = third.clone();
    unknown[4] ^= 1;
    assert_eq!(net.give(home(), &unknown), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.give(home(), &third), Action::Taken);
    let mut forged = third;
    forged[15] = 9;
    assert_eq!(net.give(home(), &forged), Action::Drop(DropReason::Confirmation));
}

#[test]
fn a_third_message_with_the_last_counter_there_is_counts_for_nothing() {
    let mut net = Net::new();
    let (mut initiator, message) = initiation(&mut net, 1, to_office(0));
    let response = net.reply(home(), &message);
    let finished = initiator.finish(&response).unwrap();
    let id = SessionPayload::decode(&finished.payload).session;
    let third = |counter| registration::registered(&finished.keys, finished.remote_index, counter, id);
    assert_eq!(net.give(home(), &third(u64::MAX)), Action::Drop(DropReason::Confirmation));
    assert!(net.relay.table().is_empty());
    assert_eq!(net.give(home(), &third(0)), Action::Taken);
    assert_eq!(net.give(home(), &third(u64::MAX)), Action::Drop(DropReason::Confirmation));
}

#[test]
fn a_third_message_that_comes_too_late_is_unknown() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    net.pass(PENDING_LIFETIME);
    assert_eq!(net.give(home(), &third), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.sizes(), [0; 7]);
}

#[test]
fn a_client_that_moves_keeps_its_open_session() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    let session = client.session().unwrap();
    net.pass(Duration::from_secs(5));
    client.refresh(net.now);
    let third = net.third(&mut client, away());
    assert_eq!(net.up(away(), session), Action::Drop(DropReason::WrongSource));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
    let answer = net.reply(away(), &third);
    assert!(client.handle_message(net.now, &answer));
    assert_eq!(client.session(), Some(session));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::WrongSource));
    assert_eq!(net.up(away(), session), Action::Forward { to: office() });
    assert_eq!(net.down(office(), session), Action::Forward { to: away() });
}

/// Somebody holds the third message of an older handshake back.
#[test]
fn an_older_handshake_does_not_move_a_session_back() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    net.pass(Duration::from_secs(5));
    client.refresh(net.now);
    let held_back = net.third(&mut client, home());
    net.pass(Duration::from_secs(5));
    while client.poll_transmit(net.now).is_some() {}
    let mut moved = net.client(1, office());
    let (mut initiator, message) = initiation(&mut net, 1, to_office(client.session().unwrap()));
    let response = net.reply(away(), &message);
    let finished = initiator.finish(&response).unwrap();
    let id = SessionPayload::decode(&finished.payload).session;
    assert_eq!(Some(id), client.session());
    let third = registration::registered(&finished.keys, finished.remote_index, 0, id);
    net.reply(away(), &third);
    assert_eq!(net.give(home(), &held_back), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.up(away(), id), Action::Forward { to: office() });
    assert!(moved.poll_transmit(net.now).is_some());
}

#[test]
fn a_new_destination_has_to_consent_again() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let elsewhere = RegisterPayload { destination: address("203.0.113.8:1"), ..to_office(session) };
    let (mut initiator, message) = initiation(&mut net, 1, elsewhere);
    let response = net.reply(home(), &message);
    let finished = initiator.finish(&response).unwrap();
    assert_eq!(SessionPayload::decode(&finished.payload).session, session);
    let third = registration::registered(&finished.keys, finished.remote_index, 0, session);
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
    assert_eq!(net.down(office(), session), Action::Drop(DropReason::WrongSource));
}

#[test]
fn a_session_belongs_to_the_key_that_made_it() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let (mut initiator, message) = initiation(&mut net, 2, to_office(session));
    let response = net.reply(away(), &message);
    let finished = initiator.finish(&response).unwrap();
    assert_ne!(SessionPayload::decode(&finished.payload).session, session);
    let third = registration::registered(&finished.keys, finished.remote_index, 0, session);
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::Confirmation));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
}

#[test]
fn a_client_that_starts_anew_gets_its_session_again() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let mut again = net.client(1, office());
    let third = net.third(&mut again, home());
    let answer = net.reply(home(), &third);
    assert!(again.handle_message(net.now, &answer));
    assert_eq!(again.session(), Some(session));
    assert_eq!(net.relay.table().len(), 1);
}

#[test]
fn a_repeated_third_message_is_answered_again() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    assert_eq!(net.give(home(), &third), Action::Taken);
    let (session, token) = net.challenge_to(office());
    net.give(office(), &wire::echo(session, token));
    net.mail.clear();
    net.now = client.poll_timeout().unwrap();
    let again = client.poll_transmit(net.now).unwrap();
    assert_eq!(again.len(), REGISTERED_LEN);
    let answer = net.reply(home(), &again);
    assert!(client.handle_message(net.now, &answer));
    assert_eq!(client.session(), Some(session));
}
