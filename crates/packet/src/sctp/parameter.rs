//! Parameters of chunks (RFC 9260 §3.2.1): addresses of an end, and how ASCONF changes them (RFC 5061 §4.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::SctpError;
use super::tlv::take;

/// RFC 9260 §3.3.2.1.1 and §3.3.2.1.2.
const IPV4: u16 = 5;
const IPV6: u16 = 6;
/// RFC 5061 §4.2.1 and §4.2.2.
const ADD: u16 = 0xc001;
const DELETE: u16 = 0xc002;

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// Its type.
    pub kind: u16,
    /// What follows the four bytes of its header, without padding.
    pub value: &'a [u8],
}

impl Parameter<'_> {
    /// The address that it is; `None` if it is something else.
    ///
    /// # Errors
    /// [`SctpError::Address`] if it has another length than addresses have.
    pub fn address(&self) -> Result<Option<IpAddr>, SctpError> {
        let wrong = SctpError::Address { kind: self.kind, length: self.value.len() };
        let v4 = || <[u8; 4]>::try_from(self.value).map(|b| Ipv4Addr::from(b).into());
        let v6 = || <[u8; 16]>::try_from(self.value).map(|b| Ipv6Addr::from(b).into());
        match self.kind {
            IPV4 => v4().map(Some).map_err(|_| wrong),
            IPV6 => v6().map(Some).map_err(|_| wrong),
            _ => Ok(None),
        }
    }
}

/// The parameters of a chunk; ends behind an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<Parameter<'a>, SctpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = take(&mut self.rest)?;
        Some(taken.map(|(kind, value)| Parameter { kind: u16::from_be_bytes(kind), value }))
    }
}

/// The addresses among `parameters`, up to the first thing that cannot be: those of an INIT's sender beside the one
/// that its packet came from.
pub fn addresses(parameters: Parameters<'_>) -> impl Iterator<Item = IpAddr> {
    parameters.map_while(|parameter| parameter.and_then(|one| one.address()).ok()).flatten()
}

/// What an ASCONF asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The sender has one more.
    Add(IpAddr),
    /// The sender has one less.
    Delete(IpAddr),
}

/// The changes among an ASCONF's parameters, up to the first thing that cannot be. 0.0.0.0 and :: stand for the
/// address that the packet came from.
pub fn changes(parameters: Parameters<'_>) -> impl Iterator<Item = Change> {
    parameters.map_while(|parameter| change(parameter.ok()?).ok()).flatten()
}

/// A parameter of ASCONF holds a number of four bytes, then an address parameter.
fn change(parameter: Parameter<'_>) -> Result<Option<Change>, SctpError> {
    let make = match parameter.kind {
        ADD => Change::Add,
        DELETE => Change::Delete,
        _ => return Ok(None),
    };
    let mut inner = Parameters::new(parameter.value.get(4..).unwrap_or_default());
    let address = inner.next().transpose()?.map(|one| one.address()).transpose()?;
    Ok(address.flatten().map(make))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [u8; 32] = [
        0, 5, 0, 8, 192, 0, 2, 1, // IPv4
        0, 12, 0, 4, // something else
        0, 6, 0, 20, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn reads_addresses() {
        let read: Vec<_> = addresses(Parameters::new(&ADDRESSES)).collect();
        assert_eq!(read, [ip("192.0.2.1"), ip("2001:db8::1")]);
        let cut: Vec<_> = addresses(Parameters::new(&ADDRESSES[..31])).collect();
        assert_eq!(cut, [ip("192.0.2.1")]);
    }

    #[test]
    fn an_address_has_its_familys_length() {
        let wrong = Parameter { kind: IPV4, value: &[1, 2, 3] };
        assert_eq!(wrong.address(), Err(SctpError::Address { kind: IPV4, length: 3 }));
        assert_eq!(Parameter { kind: 7, value: &[] }.address(), Ok(None));
    }

    #[test]
    fn reads_what_asconf_changes() {
        let mut bytes = vec![0, 5, 0, 8, 192, 0, 2, 1];
        for (kind, last) in [(ADD, 2), (0xc004, 3), (DELETE, 4)] {
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 16, 0, 0, 0, 1, 0, 5, 0, 8, 192, 0, 2, last]);
        }
        let read: Vec<_> = changes(Parameters::new(&bytes)).collect();
        assert_eq!(read, [Change::Add(ip("192.0.2.2")), Change::Delete(ip("192.0.2.4"))]);
        let cut: Vec<_> = changes(Parameters::new(&[0xc0, 1, 0, 8, 0, 0, 0, 1])).collect();
        assert_eq!(cut, [], "no address in it");
    }
}
