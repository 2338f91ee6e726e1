//! A destination's consent.

use super::*;

#[test]
fn a_destination_gets_only_challenges_until_it_consents() {
    let mut net = Net::new();
    let client = net.waiting(1, home(), office());
    let (session, token) = net.challenge_to(office());
    assert_eq!(client.session(), None);
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
    assert_eq!(net.down(office(), session), Action::Drop(DropReason::NotOpen));
    net.give(office(), &wire::echo(session, token));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
}

#[test]
fn an_echo_needs_the_token_and_the_destinations_address() {
    let mut net = Net::new();
    net.waiting(1, home(), office());
    let (session, token) = net.challenge_to(office());
    let wrong = std::array::from_fn(|i| token[i] ^ 1);
    assert_eq!(net.give(office(), &wire::echo(session, wrong)), Action::Drop(DropReason::Token));
    let right = wire::echo(session, token);
    assert_eq!(net.give(home(), &right), Action::Drop(DropReason::WrongSource));
    let other = wire::echo(session ^ 1, token);
    assert_eq!(net.give(office(), &other), Action::Drop(DropReason::UnknownSession));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
}

#[test]
fn a_token_is_good_for_one_session_only() {
    let mut net = Net::new();
    net.waiting(1, home(), office());
    net.waiting(2, away(), office());
    let (first, token) = net.challenge_to(office());
    let (second, _) = net.challenge_to(office());
    assert_ne!(first, second);
    assert_eq!(net.give(office(), &wire::echo(second, token)), Action::Drop(DropReason::Token));
}

#[test]
fn challenges_end_and_never_exceed_what_the_client_sent() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let mut given = 0;
    for _ in 0..4 {
        client.refresh(net.now);
        let third = net.third(&mut client, home());
        net.give(home(), &third);
        given += INITIATION_LEN + REGISTERED_LEN;
        assert!(net.sent[&office()] <= given);
        net.pass(Duration::from_secs(60));
        assert!(net.sent[&office()] <= given);
        while client.poll_transmit(net.now).is_some_and(|message| message.len() != INITIATION_LEN) {}
        client = net.client(1, office());
    }
    let sent = net.sent[&office()];
    assert_eq!(sent, 4 * CHALLENGE_INTERVALS.len() * CHALLENGE_LEN);
    net.pass(IDLE);
    assert_eq!(net.sent[&office()], sent);
}

#[test]
fn a_challenge_is_paid_for_by_the_client() {
    let entry = Entry::new(Duration::ZERO, home(), office(), CHALLENGE_LEN + 1);
    assert!(entry.spend(CHALLENGE_LEN));
    assert!(!entry.spend(CHALLENGE_LEN));
    entry.add_credit(CHALLENGE_LEN - 1);
    assert!(entry.spend(CHALLENGE_LEN));
}

#[test]
fn a_destination_that_has_registered_needs_no_challenge() {
    let mut net = Net::new();
    net.open(1, home(), office());
    net.mail.clear();
    let mut client = net.client(2, home());
    let third = net.third(&mut client, away());
    let answer = net.reply(away(), &third);
    assert!(client.handle_message(net.now, &answer));
    assert!(net.mail.is_empty());
    let session = client.session().unwrap();
    assert_eq!(net.up(away(), session), Action::Forward { to: home() });
    assert_eq!(net.down(home(), session), Action::Forward { to: away() });
}

#[test]
fn a_destination_that_registers_consents_to_those_who_wait() {
    let mut net = Net::new();
    let mut first = net.waiting(1, home(), away());
    net.mail.clear();
    net.waiting(2, away(), office());
    let answer = net.mail_to(home()).expect("an answer to who has waited");
    assert!(first.handle_message(net.now, &answer));
    assert_eq!(net.up(home(), first.session().unwrap()), Action::Forward { to: away() });
}

#[test]
fn a_challenge_that_is_lost_is_repeated() {
    let mut net = Net::new();
    net.waiting(1, home(), office());
    net.mail.clear();
    net.pass(CHALLENGE_INTERVALS[0]);
    let (session, token) = net.challenge_to(office());
    assert_eq!(net.give(office(), &wire::echo(session, token)), Action::Taken);
    net.pass(Duration::from_secs(60));
    assert_eq!(net.sent[&office()], 2 * CHALLENGE_LEN);
}

/// A relay that many clients ask for challenges to the office's host, each for `each` ports a minute: how many it gets.
fn challenges_to_a_silent_host(clients: u16, each: u16, minutes: u16) -> usize {
    let mut net = Net::with(Limits { sessions_per_key: 1000, pending_per_key: 1000, ..Limits::default() });
    net.relay.set_allow((0..clients).map(|client| key(client.into()).public()));
    let mut port = 0;
    for _ in 0..minutes {
        for n in 0..clients * each {
            port += 1;
            let destination = SocketAddr::new(office().ip(), port);
            net.waiting((n % clients).into(), SocketAddr::new(home().ip(), port), destination);
        }
        net.pass(Duration::from_secs(60));
    }
    assert!(net.mail.iter().all(|(_, message)| message.len() == CHALLENGE_LEN));
    net.mail.iter().filter(|(to, _)| to.ip() == office().ip()).count()
}

#[test]
fn a_host_that_does_not_answer_gets_few_challenges_for_a_client_and_in_all() {
    let most = CHALLENGE_BURST as usize + 4 * 10;
    let of_one = challenges_to_a_silent_host(1, 20, 10);
    assert!(of_one <= most, "{of_one}");
    // However many ask for it.
    let in_all = challenges_to_a_silent_host(10, 5, 10);
    assert!(in_all <= CHALLENGE_CLIENTS as usize * most, "{in_all}");
}

#[test]
fn a_client_keeps_a_host_from_no_other_client() {
    let mut net = Net::new();
    for port in 1..=20 {
        net.waiting(1, SocketAddr::new(home().ip(), port), SocketAddr::new(office().ip(), port));
    }
    net.mail.clear();
    net.waiting(2, away(), office());
    net.challenge_to(office());
}

#[test]
fn consent_ends_when_the_destination_is_not_heard() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    net.mail.clear();
    for second in 1..IDLE.as_secs() {
        net.pass(Duration::from_secs(1));
        assert_eq!(net.up(home(), session), Action::Forward { to: office() }, "after {second} s");
    }
    net.pass(Duration::from_secs(1));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
    let (id, token) = net.challenge_to(office());
    net.give(office(), &wire::echo(id, token));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
}

#[test]
fn registering_again_does_not_renew_a_silent_destinations_consent() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    let session = client.session().unwrap();
    for _ in 0..2 {
        net.pass(IDLE / 2);
        client.refresh(net.now);
        let third = net.third(&mut client, home());
        if let Action::Reply(answer) = net.give(home(), &third) {
            assert!(client.handle_message(net.now, &answer));
        }
    }
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
}
