//! What an uplink costs.

use std::fmt;
use std::str::FromStr;

use tunnel::config::MAX_PREFER;

use crate::config::value;

/// What one uplink costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub(super) backup: bool,
    pub(super) metered: bool,
    prefer: u8,
    /// As the file has it.
    monthly_cap: Option<String>,
}

impl Cost {
    pub(super) fn set_prefer(&mut self, text: &str) -> Result<(), String> {
        let wrong = || format!("\"{text}\" is no rank; write 0 for what comes first, up to {MAX_PREFER}");
        self.prefer = text.parse().ok().filter(|rank| *rank <= MAX_PREFER).ok_or_else(wrong)?;
        Ok(())
    }

    pub(super) fn set_cap(&mut self, text: &str) -> Result<(), String> {
        value::bytes(text)?;
        self.monthly_cap = Some(text.to_owned());
        Ok(())
    }
}

/// Words with commas or spaces between them: `free`, `metered`, `backup`, `prefer=N`, a size.
impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cost = Cost::default();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None if word == "free" => {}
                None if word == "metered" => cost.metered = true,
                None if word == "backup" => cost.backup = true,
                Some(("prefer", rank)) => cost.set_prefer(rank)?,
                _ => cost.set_cap(word).map_err(|_| {
                    format!("\"{word}\" is no cost; write free, metered, backup, prefer=N or a size a month as 30GB")
                })?,
            }
        }
        Ok(cost)
    }
}

/// The lines of a `[[peer.path]]`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.backup {
            writeln!(f, "backup = true")?;
        }
        if self.metered {
            writeln!(f, "metered = true")?;
        }
        if self.prefer > 0 {
            writeln!(f, "prefer = {}", self.prefer)?;
        }
        self.monthly_cap.iter().try_for_each(|cap| writeln!(f, "monthly-cap = \"{cap}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_read_and_written() {
        let cost: Cost = "metered, prefer=2 30GB".parse().expect("a cost");
        assert_eq!(cost.to_string(), "metered = true\nprefer = 2\nmonthly-cap = \"30GB\"\n");
        assert_eq!("backup".parse::<Cost>().expect("a cost").to_string(), "backup = true\n");
        assert_eq!("free".parse(), Ok(Cost::default()));
        for bad in ["cheap", "prefer=16", "prefer", "30", "metered 0GB"] {
            assert!(bad.parse::<Cost>().is_err(), "{bad}");
        }
    }
}
