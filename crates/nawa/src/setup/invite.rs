//! An invite as a string: `nawa1-` and, in base64url, the one-time secret, the inviter's public key and where it is reached.

use std::fmt;
use std::str::FromStr;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use tunnel::{PresharedKey, PublicKey};
use zeroize::Zeroizing;

use crate::config::HostPort;

/// What stands before the rest; the last byte of that is a `;`, so that a string cut short is none.
const PREFIX: &str = "nawa1-";
/// More than any invite has, in characters.
const LONGEST: usize = 2048;
/// Places that an invite names at most.
pub const MAX_ENDPOINTS: usize = 8;

/// What the one who joins has to know. It holds no key of any node but a public one.
#[derive(Clone, Debug)]
pub struct Invite {
    /// Good for one enrolment, while the inviter waits.
    pub secret: PresharedKey,
    /// The inviter.
    pub inviter: PublicKey,
    /// Where the inviter is reached, by UDP and, for the enrolment, by TCP; 1 to [`MAX_ENDPOINTS`].
    pub endpoints: Vec<HostPort>,
}

impl Invite {
    /// The string.
    pub fn encode(&self) -> Zeroizing<String> {
        let endpoints: Vec<_> = self.endpoints.iter().map(HostPort::to_string).collect();
        let bytes = Zeroizing::new(
            [self.secret.as_bytes(), &self.inviter.as_bytes()[..], endpoints.join(",").as_bytes(), b";"]
                .concat(),
        );
        Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&*bytes)))
    }
}

/// Why a string is no invite.
#[derive(Debug, PartialEq, Eq)]
pub struct NoInvite;

impl fmt::Display for NoInvite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no invite; copy all that `nawa invite` prints, which begins with {PREFIX}")
    }
}

impl FromStr for Invite {
    type Err = NoInvite;

    fn from_str(text: &str) -> Result<Self, NoInvite> {
        // A terminal or a message may have broken it into lines.
        let mut whole = Zeroizing::new(String::with_capacity(text.len()));
        whole.extend(text.split_whitespace());
        let text = &*whole;
        let body = text.strip_prefix(PREFIX).filter(|_| text.len() <= LONGEST).ok_or(NoInvite)?;
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(body).map_err(|_| NoInvite)?);
        let (secret, rest) = bytes.split_first_chunk::<32>().ok_or(NoInvite)?;
        let (inviter, endpoints) = rest.split_first_chunk::<32>().ok_or(NoInvite)?;
        let endpoints =
            std::str::from_utf8(endpoints).ok().and_then(|all| all.strip_suffix(';')).ok_or(NoInvite)?;
        let endpoints: Vec<_> =
            endpoints.split(',').map(|one| one.parse().map_err(|_| NoInvite)).collect::<Result<_, _>>()?;
        if endpoints.len() > MAX_ENDPOINTS {
            return Err(NoInvite);
        }
        Ok(Invite { secret: (*secret).into(), inviter: (*inviter).into(), endpoints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_and_back() {
        let endpoints = ["203.0.113.7:51900", "[2001:db8::7]:51900", "hub.example:51900"];
        let invite = Invite {
            secret: [1; 32].into(),
            inviter: [2; 32].into(),
            endpoints: endpoints.map(|one| one.parse().expect("a place")).to_vec(),
        };
        let text = invite.encode();
        let broken = format!(" {}\n  {}\r\n{}\n", &text[..40], &text[40..80], &text[80..]);
        assert_eq!(broken.parse::<Invite>().expect("an invite").inviter, invite.inviter);
        let read: Invite = text.parse().expect("an invite");
        assert_eq!((read.secret.as_bytes(), read.inviter), (&[1; 32], [2; 32].into()));
        assert_eq!(read.endpoints, invite.endpoints);
        for bad in ["", "nawa1-", "nawa2-AAAA", &text[..80], &text[..text.len() - 3], &format!("{}!", *text)]
        {
            assert!(bad.parse::<Invite>().is_err(), "{bad}");
        }
    }
}
