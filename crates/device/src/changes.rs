//! News of interfaces, addresses and routes, as the kernel tells them (rtnetlink multicast, RFC 3549 §2.1).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::net::{ROUTE_HEADER, number};
use crate::netlink::{Reply, address, attributes, replies};

/// What is listened to, a bit for each group.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE) as u32
    | 1 << (libc::RTNLGRP_IPV4_RULE - 1)
    | 1 << (libc::RTNLGRP_IPV6_RULE - 1)
    | 1 << (libc::RTNLGRP_IPV4_NETCONF - 1);
/// The longest that one receive returns, in bytes.
const NEWS: usize = 32 << 10;

/// What has changed since it was last asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// An interface came, went, or went up or down.
    pub links: bool,
    /// Indices of those that came or changed.
    pub changed: BTreeSet<u32>,
    /// Indices of the interfaces that went. One that has such an index now is another.
    pub removed: BTreeSet<u32>,
    /// Indices of the interfaces whose addresses, or the routes by which, changed.
    pub interfaces: BTreeSet<u32>,
    /// Rules of policy routing changed, the sysctls of an interface that have to do with it, or routes that name no interface: those with
    /// several next hops, or to nowhere.
    pub rules: bool,
    /// Prefixes to which routes came, or from which they went. One may take the place of another that led by another
    /// interface, or stand before it.
    pub prefixes: BTreeSet<(IpAddr, u8)>,
    /// There was more than the kernel kept: anything may have changed.
    pub overrun: bool,
}

/// A subscription, in the network namespace that the thread was in when it was made.
#[derive(Debug)]
pub struct Changes(OwnedFd);

impl Changes {
    /// Fails only where descriptors or memory have run out, or where a sandbox forbids it.
    pub fn subscribe() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(socket))
    }

    /// All that is new; nothing new is not an error.
    ///
    /// # Errors
    /// The subscription has ended, and it stays readable: drop it.
    pub fn take(&self) -> io::Result<News> {
        let (mut news, mut buffer) = (News::default(), vec![0; NEWS]);
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => replies(&buffer[..length]).for_each(|reply| news.add(&reply)),
                Err(Errno::NOBUFS) => news.overrun = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(news),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl News {
    fn add(&mut self, message: &Reply<'_>) {
        match message.kind {
            libc::RTM_NEWLINK => {
                self.links = true;
                self.changed.extend(link_index(message.body));
            }
            libc::RTM_DELLINK => {
                self.links = true;
                self.removed.extend(link_index(message.body));
            }
            libc::RTM_NEWADDR | libc::RTM_DELADDR => self.interfaces.extend(address_index(message.body)),
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                self.prefixes.extend(route_prefix(message.body));
                match route_index(message.body) {
                    Some(index) => drop(self.interfaces.insert(index)),
                    None => self.rules = true,
                }
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE | libc::RTM_NEWNETCONF => self.rules = true,
            _ => {}
        }
    }
}

/// The interface of a `struct ifinfomsg`: family 1, padding 1, type 2, index 4; a bridge (of its own family) tells of ports
/// that join and leave it, too.
fn link_index(body: &[u8]) -> Option<u32> {
    number(body.get(4..8).filter(|_| body[0] == libc::AF_UNSPEC as u8)?)
}

/// The interface of a `struct ifaddrmsg`: family 1, prefix 1, flags 1, scope 1, index 4.
fn address_index(body: &[u8]) -> Option<u32> {
    number(body.get(4..8)?)
}

/// The interface that a route leaves by; one with several next hops names none here.
fn route_index(body: &[u8]) -> Option<u32> {
    let mut found = attributes(body.get(ROUTE_HEADER..)?);
    number(found.find(|(kind, _)| *kind == libc::RTA_OIF)?.1)
}

/// The prefix of a route, `struct rtmsg`: family 1, length of the prefix 1; that of a default route is not said.
fn route_prefix(body: &[u8]) -> Option<(IpAddr, u8)> {
    let to = attributes(body.get(ROUTE_HEADER..)?).find(|(kind, _)| *kind == libc::RTA_DST);
    let any = || match i32::from(body[0]) {
        libc::AF_INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        libc::AF_INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    };
    Some((to.map_or_else(any, |(_, data)| address(data))?, body[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Message;

    fn news(messages: &[Vec<u8>]) -> News {
        let mut news = News::default();
        messages.iter().for_each(|bytes| replies(bytes).for_each(|reply| news.add(&reply)));
        news
    }

    #[test]
    fn messages_name_their_interfaces() {
        let index = |n: u32| n.to_ne_bytes();
        let link = Message::new(libc::RTM_NEWLINK).fixed(&[0; 16]).finish(0, 0);
        let gone = |family| {
            let header = [[family, 0, 0, 0], index(5), [0; 4], [0; 4]];
            Message::new(libc::RTM_DELLINK).fixed(header.as_flattened()).finish(0, 0)
        };
        let address = Message::new(libc::RTM_DELADDR).fixed(&[2, 24, 0, 0]).fixed(&index(7)).finish(0, 0);
        let route = Message::new(libc::RTM_NEWROUTE).fixed(&[0; 12]).number(libc::RTA_OIF, 9).finish(0, 0);
        assert_eq!(news(&[]), News::default());
        assert_eq!(news(&[link]), News { links: true, changed: [0].into(), ..News::default() });
        assert_eq!(news(&[gone(libc::AF_UNSPEC as u8)]).removed, BTreeSet::from([5]));
        let left = news(&[gone(libc::AF_BRIDGE as u8)]);
        assert_eq!(left, News { links: true, ..News::default() }, "a port has left a bridge");
        assert_eq!(news(&[address, route]).interfaces, BTreeSet::from([7, 9]));
    }

    #[test]
    fn a_route_that_names_no_interface_is_news() {
        for kind in [libc::RTM_NEWROUTE, libc::RTM_DELROUTE] {
            let several = Message::new(kind).fixed(&[0; 12]).attribute(libc::RTA_MULTIPATH, &[0; 16]);
            let nowhere = Message::new(kind).fixed(&[0; 12]);
            for message in [several, nowhere] {
                assert_eq!(news(&[message.finish(0, 0)]), News { rules: true, ..News::default() });
            }
        }
    }

    #[test]
    fn routes_name_their_prefixes() {
        let route = |kind, family: libc::c_int, length, to: Option<&str>| {
            let head = [family as u8, length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let message = Message::new(kind).fixed(&head);
            let to = to.map(|to| to.parse().unwrap());
            to.map_or(Message::new(kind).fixed(&head), |to| message.address(libc::RTA_DST, to)).finish(0, 0)
        };
        let came = route(libc::RTM_NEWROUTE, libc::AF_INET, 16, Some("10.99.0.0"));
        let went = route(libc::RTM_DELROUTE, libc::AF_INET6, 64, Some("fd99::"));
        let default = route(libc::RTM_NEWROUTE, libc::AF_INET6, 0, None);
        let named = [("10.99.0.0", 16), ("fd99::", 64), ("::", 0)];
        let named = named.map(|(to, length)| (to.parse::<IpAddr>().unwrap(), length));
        assert_eq!(news(&[came, went, default]).prefixes, BTreeSet::from(named));
    }

    #[test]
    fn what_is_cut_off_names_none() {
        for length in [0, 4] {
            let message = Message::new(libc::RTM_NEWADDR).fixed(&vec![1; length]).finish(0, 0);
            assert_eq!(news(&[message]), News::default());
        }
        for length in [0, 7] {
            let message = Message::new(libc::RTM_DELLINK).fixed(&vec![0; length]).finish(0, 0);
            assert_eq!(news(&[message]).removed, BTreeSet::new());
        }
    }
}
