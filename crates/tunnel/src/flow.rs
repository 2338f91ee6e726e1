//! What is done for inner flows at the sender: their queue, the window that a TCP sender is told, copies of what
//! controls retransmission, and inner packets kept until they are known to have arrived.

pub mod copies;
pub mod queue;
pub mod tcp_tail;
pub mod unconfirmed;
pub mod watched;
pub mod window;
