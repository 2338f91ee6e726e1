//! `nawa doctor`: what this host can run, and what keeps a file's paths from coming up. Facts are gathered ([`gather`]), and
//! what they mean is found out from them alone: of the host ([`host`]), of a file's strands ([`strands`]) and of its paths
//! ([`paths`]). The paths' own words are the tunnel's ([`tunnel::why`]).

pub mod gather;
pub mod host;
pub mod paths;
pub mod strands;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// It costs something.
    Warn,
    /// Something does not work.
    Fail,
}

/// What was found of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word or two; stable.
    pub check: String,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// What that costs; empty if nothing.
    pub costs: String,
    /// What to do; empty if nothing.
    pub todo: String,
}

impl Finding {
    /// All is well.
    pub fn ok(check: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, what, "", "")
    }

    /// Something is to be said.
    pub fn new(
        level: Level,
        check: impl Into<String>,
        what: impl Into<String>,
        costs: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { check: check.into(), level, what: what.into(), costs: costs.into(), todo: todo.into() }
    }
}

/// Lines for people: each finding, and of those that are not well what they cost and what to do.
pub fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, level, what, costs, todo } in findings {
        let level = match level {
            Level::Ok => "ok  ",
            Level::Note => "note",
            Level::Warn => "WARN",
            Level::Fail => "FAIL",
        };
        text += &format!("{level}  {check}: {what}\n");
        for (word, said) in [("costs", costs), ("do", todo)].iter().filter(|(_, said)| !said.is_empty()) {
            text += &format!("      {word:>5}: {said}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_it_costs_and_what_to_do() {
        let bad = Finding::new(Level::Fail, "tun", "no /dev/net/tun", "no tunnel", "modprobe tun");
        let text = render(&[Finding::ok("kernel", "6.18"), bad]);
        let expected = "ok    kernel: 6.18\nFAIL  tun: no /dev/net/tun\n      costs: no tunnel\n         do: modprobe tun\n";
        assert_eq!(text, expected);
    }
}
