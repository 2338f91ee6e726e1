//! ECN over a tunnel (RFC 6040).

/// The ECN field: the two low bits of IPv4's TOS and IPv6's traffic class (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand ECN.
    NotEct = 0,
    /// ECN-capable transport, codepoint 1.
    Ect1 = 1,
    /// ECN-capable transport, codepoint 0.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The field in a TOS or traffic class byte.
    pub fn from_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// `tos` with this as its ECN field.
    pub fn in_tos(self, tos: u8) -> u8 {
        tos & !3 | self as u8
    }
}

/// The field of the forwarded inner packet, or `None` to drop it (RFC 6040 §4.2, figure 4). The outer field is a copy of the inner one
/// to begin with (§4.1, normal mode).
pub fn decapsulate(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => None,
        (Ecn::NotEct | Ecn::Ce, _) => Some(inner),
        (_, Ecn::Ce) => Some(Ecn::Ce),
        (_, Ecn::Ect1) => Some(Ecn::Ect1),
        (_, Ecn::NotEct | Ecn::Ect0) => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ecn::*, *};

    /// RFC 6040, figure 4: rows are the inner field, columns the outer one.
    #[test]
    fn figure_4() {
        let outer = [NotEct, Ect0, Ect1, Ce];
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce); 4]),
        ];
        for (inner, row) in table {
            for (outer, expected) in outer.into_iter().zip(row) {
                assert_eq!(decapsulate(inner, outer), expected, "{inner:?} in {outer:?}");
            }
        }
    }

    #[test]
    fn leaves_dscp_alone() {
        assert_eq!(Ce.in_tos(0b1011_1010), 0b1011_1011);
        assert_eq!(Ecn::from_tos(0b1011_1010), Ect0);
    }
}
