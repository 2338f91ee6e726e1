//! A part of an experiment, by the keys of its cases.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::experiment::{Case, Experiment, plain};

impl Experiment {
    /// Keeps the cases that have, for each of `words` ("KEY=VALUE,VALUE"), one of its values. An error, with what there is,
    /// where a word leaves none.
    pub fn keep(&mut self, words: &[String]) -> Result<(), Error> {
        words.iter().try_for_each(|word| self.keep_one(word))
    }

    fn keep_one(&mut self, word: &str) -> Result<(), Error> {
        let (key, values) = word.split_once('=').unwrap_or((word, ""));
        let known = |value: &str| self.cases.iter().any(|case| has(case, key, value));
        if let Some(unknown) = values.split(',').find(|value| !known(value)) {
            return Err(Error::NoCase { word: word.into(), reason: self.possible(key, unknown) });
        }
        self.cases.retain(|case| values.split(',').any(|value| has(case, key, value)));
        Ok(())
    }

    /// Why no case has `value` for `key`, and what there is.
    fn possible(&self, key: &str, value: &str) -> String {
        let list = |words: BTreeSet<String>| Vec::from_iter(words).join(", ");
        let values: BTreeSet<_> = self.cases.iter().filter_map(|case| text(case, key)).collect();
        if values.is_empty() {
            let keys = self.cases.iter().flat_map(|case| case.key.iter().map(|(name, _)| (*name).to_owned()));
            return format!("the keys are {}", list(keys.collect()));
        }
        format!("`{key}` cannot be \"{value}\", but {}", list(values))
    }
}

fn has(case: &Case, key: &str, value: &str) -> bool {
    text(case, key).is_some_and(|own| own == value)
}

fn text(case: &Case, key: &str) -> Option<String> {
    case.field(key).map(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::find;
    use crate::experiment::RunOptions;

    fn kept(words: &[&str]) -> Result<Experiment, String> {
        let mut experiment = find("tunnel", &RunOptions::default()).unwrap();
        let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
        experiment.keep(&words).map(|()| experiment).map_err(|error| error.to_string())
    }

    #[test]
    fn cases_with_the_values_named_are_kept() {
        let experiment = kept(&["paths=3,10", "system=nawa", "clocks=same", "back=all"]).unwrap();
        let paths: Vec<_> = experiment.cases.iter().map(|case| plain(&case.key[2].1)).collect();
        assert!(paths.iter().all(|paths| paths == "3" || paths == "10") && paths.len() >= 4, "{paths:?}");
        assert!(experiment.cases.iter().all(|case| case.key[0].1 == "nawa"));
    }

    #[test]
    fn a_word_that_matches_nothing_names_what_there_is() {
        let error = kept(&["system=nawa,nowa"]).unwrap_err();
        assert!(error.contains("system=nawa,nowa") && error.contains("nawa-paper"), "{error}");
        assert!(kept(&["sistem=nawa"]).unwrap_err().contains("the keys are back, clocks"));
        assert!(kept(&["nawa"]).is_err());
        assert!(kept(&["system=nawa", "system=mptcp"]).is_err(), "nothing is both");
    }
}
