//! macvtap: one end of a veth pair as a driver's queue, whose Ethernet frames a program reads and writes.
//!
//! What the other end sends stays charged to the socket that sent it until the program reads it. So a program that does
//! not read stops senders, as a device that is busy does: TCP by its small queues, a packet socket by its send buffer. A
//! TAP that was [made](Tap::create) takes all at once, and drops what its ring cannot hold.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::Tap;

impl Tap {
    /// Opens the macvtap interface `name` whose character device has this number, as `/sys/class/net/NAME/tapINDEX/dev`
    /// in its namespace says. The calling thread has to be in that namespace, and the interface's `txqueuelen` is how
    /// many frames may wait in it from now on. The interface stays when this value goes.
    ///
    /// Its device is made at `node`, which goes at once: the one that the kernel makes is named after the interface's
    /// index, and namespaces have the same ones. Fails where `node` is there or its file system takes no devices, without
    /// CAP_MKNOD, and where the number is of no macvtap.
    pub fn open_macvtap(name: &str, (major, minor): (u32, u32), node: &Path) -> io::Result<Self> {
        mknodat(CWD, node, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(major, minor))?;
        let opened = Tap::open(node, name);
        std::fs::remove_file(node)?;
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_there_is_left_alone() {
        let there = std::env::current_exe().unwrap();
        let error = Tap::open_macvtap("t0", (1, 3), &there).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(there.exists());
    }
}
