//! Views of IP packets, checked once and never copied, and the rewrites a tunnel needs.
//!
//! Begin with [`Ip::parse`]. No function here panics on any bytes. [`gso`] and [`gro`] are the two directions of
//! segmentation offload: what a TUN with a virtio header hands out and takes.

pub mod checksum;
pub mod dot11;
pub mod ecn;
mod flow;
pub mod gro;
pub mod gso;
mod icmp;
pub mod ip;
pub mod sctp;
pub mod tcp;
#[cfg(test)]
mod testing;

pub use dot11::{DataFrame, Dot11Error};
pub use ecn::Ecn;
pub use flow::{FlowName, flow_hash, reverse_flow_hash};
pub use icmp::{packet_too_big, unreachable};
pub use ip::{Ip, set_ecn};
pub use sctp::Sctp;
pub use tcp::{Tcp, clamp_mss, is_pure_ack, says_all_of, set_window};

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Fewer bytes than a header needs.
    #[error("packet is cut off: {have} bytes, its headers need {need}")]
    Short {
        /// Bytes that the headers need.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Neither IPv4 nor IPv6.
    #[error("packet has IP version {0}, not 4 or 6")]
    Version(u8),
    /// The length in the header is not that of the slice.
    #[error("packet's length field says {header} bytes, {slice} arrived")]
    Length {
        /// Bytes according to the header.
        header: usize,
        /// Bytes there are.
        slice: usize,
    },
    /// A header length below the least or beyond the packet, in bytes.
    #[error("packet has a header length of {0} bytes, which cannot be")]
    HeaderLength(usize),
    /// More IPv6 extension headers than are walked.
    #[error("packet has more than {0} IPv6 extension headers")]
    Extensions(usize),
    /// A super-packet whose kind of segmentation does not fit its content.
    #[error("packet to be segmented is protocol {0}, or a fragment, or has no segment size")]
    Segmentation(u8),
}
