//! What wakes the applications that wait for a message. Each gets a descriptor that is readable once the bell has rung,
//! and holds nothing: when the node ends, however it does, its bell is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bpf::xdp::{Attached, Mode};
use device::{Net, PacketSocket, Poller, Tap, Waker, netns};

use crate::driver::Driver;

/// The MTU of TAP and veth: the longest frame fits.
const MTU: u32 = 2400;
/// The frame by which a new bell is tried.
const KNOCK: [u8; 64] = [0; 64];
/// How long a try may take: the kernel may ring from another thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// What wakes.
pub(crate) enum Bell {
    /// The XDP program rings it. A frame that it sends into a TAP wakes whoever waits for one there, and if the TAP's queue is
    /// full, it is dropped and wakes all the same: nobody reads from it. TAP and rope are in a network namespace of their own,
    /// which nobody else sees, and which the open TAP holds.
    Driver(Tap, #[expect(dead_code, reason = "it rings as long as it lives")] Attached),
    /// The node does.
    Node(Waker),
}

impl Bell {
    /// For a node that puts messages onto the board itself.
    pub(crate) fn of_node() -> io::Result<Bell> {
        Ok(Bell::Node(Waker::new()?))
    }

    /// For the XDP program that is attached in this mode at the interface with this index; an error if this kernel does not ring it.
    pub(crate) fn of_driver(driver: &mut Driver, interface: u32, mode: Mode) -> io::Result<Bell> {
        driver.send_by(interface, mode).map_err(io::Error::other)?;
        netns::run_in_new(|| Bell::hang(driver, mode))?
    }

    fn hang(driver: &mut Driver, mode: Mode) -> io::Result<Bell> {
        let mut net = Net::open()?;
        let tap = Tap::create("bell")?;
        net.add_veth("rope", "end")?;
        let mut index = |name| Ok::<_, io::Error>(net.link(name)?.index);
        let (bell, rope, end) = (index("bell")?, index("rope")?, index("end")?);
        let attached = driver.hang_bell(bell, [rope, end], mode).map_err(io::Error::other)?;
        net.set_queue_length(bell, 1)?;
        // The rope last: switched on before its other end, it takes frames a little later.
        for device in [bell, end, rope] {
            net.set_mtu(device, MTU)?;
            net.set_up(device)?;
        }
        let (hand, bell) = (PacketSocket::open(rope, None)?, Bell::Driver(tap, attached));
        let mut watch = Poller::from(bell.watch()?);
        // The first fills the queue. What wakes from then on is no promise of the kernel's, so try it.
        for _ in 0..2 {
            hand.send(&KNOCK)?;
            if watch.wait(Some(PATIENCE))?.count() == 0 {
                return Err(io::Error::other("this kernel wakes nobody for a TAP whose queue is full"));
            }
        }
        Ok(bell)
    }

    /// For one application.
    pub(crate) fn watch(&self) -> io::Result<OwnedFd> {
        let poller = Poller::new()?;
        match self {
            Bell::Driver(tap, _) => poller.add_edge(tap, 0)?,
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
