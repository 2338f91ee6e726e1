//! How far a sender trusts the path.

/// Linux's `icsk_ca_state`, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Open,
    Disorder,
    Reduced,
    Recovery,
    Loss,
}
