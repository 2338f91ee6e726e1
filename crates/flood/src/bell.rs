//! What wakes the applications that wait for a message. Each gets a descriptor that is readable once the bell has rung,
//! and holds nothing: when the node ends, however it does, its bell is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use device::{Net, Poller, Tap, Waker};

use crate::driver::Driver;

/// Of the device in the driver's hands, so that it takes the longest frame.
const MTU: u32 = 2400;
/// What it is rung with where no frame does.
const KNOCK: [u8; 64] = [0; 64];

/// What wakes.
pub(crate) enum Bell {
    /// The XDP program rings it. A frame that it sends into a TAP wakes whoever waits for one there, and if the TAP's queue is
    /// full, it is dropped and wakes all the same: nobody reads from it.
    Driver(Tap),
    /// The node does.
    Node(Waker),
}

impl Bell {
    /// For a node that puts messages onto the board itself.
    pub(crate) fn of_node() -> io::Result<Bell> {
        Ok(Bell::Node(Waker::new()?))
    }

    /// For the XDP program at the interface with this index; an error if this kernel does not ring it.
    pub(crate) fn of_driver(driver: &Driver, interface: u32) -> io::Result<Bell> {
        let (tap, mut net) = (name(interface), Net::open()?);
        let (tap, index) = (Tap::create(&tap)?, net.link(&tap)?.index);
        tap.hide()?;
        net.set_mtu(index, MTU)?;
        net.set_queue_length(index, 1)?;
        net.set_up(index)?;
        driver.hang_bell(index, interface).map_err(io::Error::other)?;
        let bell = Bell::Driver(tap);
        let mut watch = Poller::from(bell.watch()?);
        // The first fills the queue. What wakes from then on is no promise of the kernel's, so try it.
        for _ in 0..2 {
            driver.ring(&KNOCK, index).map_err(io::Error::other)?;
            if watch.wait(Some(Duration::ZERO))?.count() == 0 {
                return Err(io::Error::other("this kernel wakes nobody for a TAP whose queue is full"));
            }
        }
        Ok(bell)
    }

    /// For one application.
    pub(crate) fn watch(&self) -> io::Result<OwnedFd> {
        let poller = Poller::new()?;
        match self {
            Bell::Driver(tap) => poller.add_edge(tap, 0)?,
            Bell::Node(waker) => poller.add_edge(waker, 0)?,
        }
        Ok(poller.into())
    }

    /// Wakes, where the node has to.
    pub(crate) fn ring(&self) {
        if let Bell::Node(waker) = self {
            waker.wake();
        }
    }
}

/// Of the TAP: one for each interface that floods.
fn name(interface: u32) -> String {
    format!("nawabell{interface}")
}
