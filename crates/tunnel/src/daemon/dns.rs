//! Questions to resolvers and what they answer (RFC 1035), for the addresses of a host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, TYPE};

/// More addresses than anybody tries.
const MAX_ADDRESSES: usize = 16;

/// For a host's addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Chosen at random: who does not hear the question cannot answer it.
    pub id: u16,
    /// The host, without a dot at the end.
    pub name: String,
    /// Of IPv6.
    pub v6: bool,
}

/// What a resolver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The name has these addresses of the family, be it none.
    Addresses(Vec<IpAddr>),
    /// It does not fit into a datagram: it is to be asked for by TCP.
    Cut,
    /// The resolver fails, in a word.
    Failed(String),
}

impl Question {
    /// As a datagram; `None` if nothing can have that name.
    pub fn datagram(&self) -> Option<Vec<u8>> {
        let mut packet = Packet::new_query(self.id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(&self.name).ok()?;
        packet.questions.push(simple_dns::Question::new(name, self.kind(), CLASS::IN.into(), false));
        packet.build_bytes_vec().ok()
    }

    fn kind(&self) -> QTYPE {
        QTYPE::TYPE(if self.v6 { TYPE::AAAA } else { TYPE::A })
    }

    /// What `message`, from the resolver that was asked, says; `None` if it is no answer to this.
    pub fn reply(&self, message: &[u8]) -> Option<Reply> {
        let packet = Packet::parse(message).ok()?;
        let asked = |question: &simple_dns::Question<'_>| {
            question.qtype == self.kind() && is_same(&question.qname.to_string(), &self.name)
        };
        if packet.id() != self.id
            || !packet.has_flags(PacketFlag::RESPONSE)
            || !packet.questions.iter().all(asked)
        {
            return None;
        }
        Some(match packet.rcode() {
            // An error may come without the question.
            RCODE::NoError if packet.questions.is_empty() => return None,
            RCODE::NoError if packet.has_flags(PacketFlag::TRUNCATION) => Reply::Cut,
            RCODE::NoError => Reply::Addresses(self.addresses(&packet)),
            // Some servers say this of a name that has addresses of the other family alone (RFC 4074 §4.2).
            RCODE::NameError => Reply::Addresses(Vec::new()),
            RCODE::ServerFailure => Reply::Failed("SERVFAIL".into()),
            RCODE::Refused => Reply::Failed("REFUSED".into()),
            other => Reply::Failed(format!("{other:?}")),
        })
    }

    /// Those of the name, and of the one that it stands for: a resolver answers with nothing else.
    fn addresses(&self, packet: &Packet<'_>) -> Vec<IpAddr> {
        packet.answers.iter().filter_map(|record| self.address(&record.rdata)).take(MAX_ADDRESSES).collect()
    }

    fn address(&self, data: &RData<'_>) -> Option<IpAddr> {
        match data {
            RData::A(a) if !self.v6 => Some(Ipv4Addr::from(a.address).into()),
            RData::AAAA(aaaa) if self.v6 => Some(Ipv6Addr::from(aaaa.address).into()),
            _ => None,
        }
    }
}

/// Whether both are the same host's.
pub fn is_same(one: &str, other: &str) -> bool {
    let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::rdata::{A, AAAA, CNAME};
    use simple_dns::{ResourceRecord, header_buffer};

    fn question() -> Question {
        Question { id: 7, name: "Office.example".into(), v6: false }
    }

    /// The answer to it, with these records.
    fn answer<'a>(records: impl IntoIterator<Item = (&'a str, RData<'a>)>) -> Packet<'a> {
        let mut packet = Packet::new_reply(7);
        packet.questions.push(simple_dns::Question::new(
            Name::new_unchecked("office.example"),
            TYPE::A.into(),
            CLASS::IN.into(),
            false,
        ));
        let records = records.into_iter();
        packet.answers = records
            .map(|(name, data)| ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, 9, data))
            .collect();
        packet
    }

    fn read(packet: &Packet<'_>) -> Option<Reply> {
        question().reply(&packet.build_bytes_vec_compressed().expect("it fits"))
    }

    fn alias(name: &str) -> RData<'_> {
        RData::CNAME(CNAME(Name::new_unchecked(name)))
    }

    #[test]
    fn addresses_are_those_of_the_name_and_of_what_it_stands_for() {
        let a = |n: u8| RData::A(A { address: u32::from_be_bytes([192, 0, 2, n]) });
        let found = |packet| match read(&packet) {
            Some(Reply::Addresses(found)) => found,
            other => panic!("{other:?}"),
        };
        let ip = |n| IpAddr::from([192, 0, 2, n]);
        assert_eq!(found(answer([("office.example", a(1)), ("OFFICE.example", a(2))])), [ip(1), ip(2)]);
        let chain =
            [("b.example", a(3)), ("office.example", alias("a.example")), ("a.example", alias("b.example"))];
        assert_eq!(found(answer(chain)), [ip(3)]);
        let other = RData::AAAA(AAAA { address: 1 });
        assert!(found(answer([("office.example", other)])).is_empty());
        assert_eq!(found(answer((0..=255).map(|n| ("office.example", a(n))))).len(), MAX_ADDRESSES);
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_not_taken() {
        let bytes = |change: &dyn Fn(&mut Packet<'_>)| {
            let mut packet = answer([]);
            change(&mut packet);
            question().reply(&packet.build_bytes_vec().expect("it fits"))
        };
        assert_eq!(bytes(&|_| {}), Some(Reply::Addresses(vec![])));
        assert_eq!(bytes(&|packet| packet.set_id(8)), None);
        assert_eq!(bytes(&|packet| packet.remove_flags(PacketFlag::RESPONSE)), None);
        assert_eq!(bytes(&|packet| packet.questions[0].qtype = TYPE::AAAA.into()), None);
        assert_eq!(bytes(&|packet| packet.questions[0].qname = Name::new_unchecked("b.example")), None);
        assert_eq!(bytes(&|packet| packet.questions.clear()), None);
        assert_eq!(question().reply(&[]), None);
        assert_eq!(bytes(&|packet| packet.set_flags(PacketFlag::TRUNCATION)), Some(Reply::Cut));
        let none = bytes(&|packet| *packet.rcode_mut() = RCODE::NameError);
        assert_eq!(none, Some(Reply::Addresses(vec![])));
        let failed = bytes(&|packet| *packet.rcode_mut() = RCODE::ServerFailure);
        assert_eq!(failed, Some(Reply::Failed("SERVFAIL".into())));
    }

    #[test]
    fn a_question_is_one_that_resolvers_understand() {
        let bytes = question().datagram().expect("a name");
        assert_eq!(header_buffer::id(&bytes), Ok(7));
        assert_eq!(&bytes[12..], b"\x06Office\x07example\0\0\x01\0\x01");
        let long = Question { name: "a".repeat(64), ..question() };
        assert_eq!(long.datagram(), None);
    }
}
