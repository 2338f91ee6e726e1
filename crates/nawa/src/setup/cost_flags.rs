//! Flags that say what uplinks cost; where none does, who sits at a terminal is asked.

use std::io::{self, IsTerminal};
use std::str::FromStr;

use clap::Args;

use super::ask::{List, ask};
use super::cost::Cost;
use super::uplinks::Uplink;
use crate::failure::Failure;

/// What uplinks cost. Where no flag says it, a person at a terminal is asked, and a script is not.
#[derive(Args, Debug, Default)]
pub struct Costs {
    /// Uplinks that carry data only while no other does
    #[arg(long, value_name = "DEV,…")]
    backup: Option<List<String>>,
    /// Uplinks that are paid for by the byte: no copies go over them, and few probes
    #[arg(long, value_name = "DEV,…")]
    metered: Option<List<String>>,
    /// Uplinks to use only where those with lower numbers are full, 0 to 15
    #[arg(long, value_name = "DEV=N,…")]
    prefer: Option<List<Of>>,
    /// What uplinks may carry in a month, both ways, as wwan0=30GB; then they are backups
    #[arg(long, value_name = "DEV=SIZE,…")]
    monthly_cap: Option<List<Of>>,
}

/// `DEV=VALUE`.
#[derive(Clone, Debug)]
struct Of(String, String);

impl FromStr for Of {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("\"{text}\" is not DEV=VALUE"))?;
        Ok(Of(name.to_owned(), value.to_owned()))
    }
}

impl Costs {
    /// Gives each of `uplinks` its cost.
    ///
    /// # Errors
    /// Bad input: a flag names another uplink or no cost, or nobody answers.
    pub fn settle(&self, uplinks: &mut [Uplink]) -> Result<(), Failure> {
        if self.are_given() {
            return self.apply(uplinks).map_err(Failure::bad_input);
        }
        if !io::stdin().is_terminal() {
            return Ok(());
        }
        for uplink in uplinks {
            let question = format!(
                "What does {} cost? free; metered: by the byte; backup: only when nothing else works; prefer=N: only when \
                 those with less are full; a size a month, as 30GB; more than one with commas between them",
                uplink.interface
            );
            uplink.cost =
                ask(None, "--metered, --backup, --prefer or --monthly-cap", &question, Some("free"))?;
        }
        Ok(())
    }

    fn are_given(&self) -> bool {
        let Costs { backup, metered, prefer, monthly_cap } = self;
        backup.is_some() || metered.is_some() || prefer.is_some() || monthly_cap.is_some()
    }

    fn apply(&self, uplinks: &mut [Uplink]) -> Result<(), String> {
        if let Some(List(names)) = &self.backup {
            names.iter().try_for_each(|name| find(uplinks, name).map(|cost| cost.backup = true))?;
        }
        if let Some(List(names)) = &self.metered {
            names.iter().try_for_each(|name| find(uplinks, name).map(|cost| cost.metered = true))?;
        }
        if let Some(List(ranks)) = &self.prefer {
            ranks.iter().try_for_each(|Of(name, rank)| find(uplinks, name)?.set_prefer(rank))?;
        }
        if let Some(List(caps)) = &self.monthly_cap {
            caps.iter().try_for_each(|Of(name, cap)| find(uplinks, name)?.set_cap(cap))?;
        }
        Ok(())
    }
}

fn find<'a>(uplinks: &'a mut [Uplink], name: &str) -> Result<&'a mut Cost, String> {
    let names: Vec<_> = uplinks.iter().map(|uplink| uplink.interface.clone()).collect();
    let found = uplinks.iter_mut().find(|uplink| uplink.interface == name).map(|uplink| &mut uplink.cost);
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    found.ok_or_else(|| format!("there is no uplink {name}; those used are: {there}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_uplinks_that_are_there() {
        let remote: crate::config::HostPort = "203.0.113.7:51900".parse().expect("a remote");
        let uplink =
            |name: &str| Uplink { interface: name.into(), remote: remote.clone(), cost: Cost::default() };
        let mut uplinks = [uplink("eth0"), uplink("wwan0")];
        let costs = Costs {
            backup: Some("wwan0".parse().expect("a list")),
            monthly_cap: Some("wwan0=5GB".parse().expect("a list")),
            ..Costs::default()
        };
        costs.settle(&mut uplinks).expect("they are there");
        assert_eq!(uplinks[0].cost, Cost::default());
        assert_eq!(uplinks[1].cost.to_string(), "backup = true\nmonthly-cap = \"5GB\"\n");
        for wrong in ["sat0=1", "eth0=16", "eth0"] {
            let Ok(prefer) = wrong.parse() else { continue };
            let costs = Costs { prefer: Some(prefer), ..Costs::default() };
            assert!(costs.settle(&mut uplinks).is_err(), "{wrong}");
        }
    }
}
