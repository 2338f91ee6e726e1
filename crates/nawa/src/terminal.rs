//! What a terminal is able to do, as the environment says.

/// A variable of the environment that is set to something.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether it does what escape sequences say.
pub fn obeys(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("TERM").is_none_or(|term| term != "dumb")
}

/// Whether it is to show colours (no-color.org).
pub fn has_colors(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("NO_COLOR").is_none() && obeys(variable)
}
