//! Input and output on Linux, without logic of the protocols: [`Tun`] and [`UdpSocket`] move packets in batches,
//! [`Outgoing`] makes sockets that leave a certain way, [`PacketSocket`] and [`BroadcastSocket`] move what is for everybody on an interface's network, [`PromiscuousSocket`] and
//! [`Tap`] all that an interface hears and sends, [`net`] sets up interfaces, [`Changes`] tells what became of them,
//! [`poller`] waits, [`worker`] is a thread that is asked; [`macvtap`], [`raw`], [`netns`], [`tcp`] and [`process`] are what the lab needs.
//!
//! All unsafe code and all `libc` of the workspace is here.

mod addresses;
pub mod broadcast;
mod changes;
mod explained;
pub mod genetlink;
mod interface_request;
pub mod macvtap;
pub mod net;
mod netlink;
pub mod netns;
pub mod nl80211;
mod notices;
pub mod outgoing;
pub mod packet_socket;
pub mod poller;
pub mod process;
pub mod promiscuous;
pub mod raw;
pub mod shared_memory;
mod socket_option;
pub mod steering;
pub mod tap;
pub mod tcp;
mod tun;
pub mod udp;
pub mod unreachable;
mod virtio;
pub mod worker;

/// Asked for as a socket's buffers, in bytes, of which the kernel's limit may cut some off: 20 ms at 1.6 Gbit/s, and what mac80211's own
/// queue holds.
const BUFFER: i32 = 4 << 20;

pub use addresses::{addresses, holders, interfaces, networks};
pub use broadcast::BroadcastSocket;
pub use changes::{Changes, News};
pub use explained::explained;
pub use genetlink::GenericNetlink;
pub use net::Net;
pub use notices::Notices;
pub use outgoing::Outgoing;
pub use packet_socket::PacketSocket;
pub use poller::{Poller, Signals, Waker, boottime, monotonic, realtime};
pub use promiscuous::PromiscuousSocket;
pub use shared_memory::{ReadOnly, Shared};
pub use tap::Tap;
pub use tun::Tun;
pub use udp::UdpSocket;
