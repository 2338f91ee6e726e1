//! What a terminal is able to do, as the environment says.

use std::env::var_os;
use std::ffi::OsString;

/// Whether it does what escape sequences say.
pub fn obeys() -> bool {
    is_smart(var_os("TERM"))
}

/// Whether it is to show colours.
pub fn has_colors() -> bool {
    obeys() && are_wanted(var_os("NO_COLOR"))
}

fn is_smart(term: Option<OsString>) -> bool {
    term.is_none_or(|term| term != "dumb")
}

/// <https://no-color.org>
fn are_wanted(no_color: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_no_colors_gets_none() {
        assert_eq!(
            [None, Some(""), Some("1")].map(|value| are_wanted(value.map(Into::into))),
            [true, true, false]
        );
        assert_eq!(
            [None, Some("xterm"), Some("dumb")].map(|term| is_smart(term.map(Into::into))),
            [true, true, false]
        );
    }
}
