//! What was measured as a share of what the same repeat measured in other cases.

use serde_json::Value;

use super::{Report, field};
use crate::experiment::{Fields, Ratio, plain};

impl Report<'_> {
    /// Adds the experiment's ratios to the samples that have one.
    pub(crate) fn compare(&mut self) {
        for case in 0..self.samples.len() {
            for ratio in &self.experiment.ratios {
                self.add_ratio(case, ratio);
            }
        }
    }

    fn add_ratio(&mut self, case: usize, ratio: &Ratio) {
        let group = self.group(ratio, case);
        let repeats: Vec<usize> = self.samples[case].keys().copied().collect();
        for repeat in repeats {
            let whole = self.whole(ratio, &group, repeat);
            let Some(sample) = self.samples[case].get_mut(&repeat) else { continue };
            let Some((part, whole)) = field(&sample.metrics, ratio.metric).copied().zip(whole) else {
                continue;
            };
            // Nothing is as much as nothing. What is more than nothing is any number of times as much.
            let share = if part == whole { 1.0 } else { part / whole };
            if share.is_finite() {
                sample.add([(ratio.name, share)]);
            } else {
                let Ratio { metric, name, .. } = ratio;
                let text = format!("in a run what it is compared with has a {metric} of 0, and it no {name}");
                self.note(case, &text);
            }
        }
    }

    /// `None` unless all of `group`, and there are any, were measured in `repeat`.
    fn whole(&self, ratio: &Ratio, group: &[usize], repeat: usize) -> Option<f64> {
        let value = |&case: &usize| field(&self.samples[case].get(&repeat)?.metrics, ratio.metric).copied();
        let values = group.iter().map(value).collect::<Option<Vec<f64>>>()?;
        let of: fn(f64, f64) -> f64 = if ratio.greatest { f64::max } else { |one, other| one + other };
        values.into_iter().reduce(of)
    }

    fn group(&self, ratio: &Ratio, case: usize) -> Vec<usize> {
        let (cases, own) = (&self.experiment.cases, &self.experiment.cases[case].key);
        let several = ratio.of.iter().any(|(_, value)| value.ends_with('*'));
        let names: Vec<&str> =
            ratio.of.iter().map(|(name, _)| *name).chain(ratio.over.iter().copied()).collect();
        let has = |key: &Fields<Value>, &(name, value): &(&str, &str)| {
            let found = field(key, name).map(plain);
            found.is_some_and(|found| {
                value.strip_suffix('*').map_or(found == value, |head| found.starts_with(head))
            })
        };
        let is_in = |&other: &usize| {
            let key = &cases[other].key;
            (several || other != case)
                && ratio.of.iter().all(|of| has(key, of))
                && without(key, &names).eq(without(own, &names))
        };
        // What lacks the field is compared with nothing.
        let compared = ratio.of.first().is_some_and(|(name, _)| field(own, name).is_some());
        (0..cases.len()).filter(|other| compared && is_in(other)).collect()
    }
}

fn without<'k>(key: &'k Fields<Value>, names: &'k [&str]) -> impl Iterator<Item = &'k (&'static str, Value)> {
    key.iter().filter(move |(known, _)| !names.contains(known))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::{self, find};
    use crate::experiment::{RunOptions, Size};
    use crate::report::tests::report_of;

    #[test]
    fn what_cases_are_compared_with_is_measured() {
        for (name, _) in catalog::list() {
            // With `--quick` not every ratio has both of its cases.
            for size in [Size::Normal, Size::Paper] {
                let options = RunOptions { size, ..RunOptions::default() };
                let experiment = find(name, &options).unwrap();
                let report = Report::new(&experiment, &options);
                let cases = || 0..experiment.cases.len();
                for ratio in &experiment.ratios {
                    let compared = cases().any(|case| !report.group(ratio, case).is_empty());
                    assert!(compared, "{name} {size:?}: {}", ratio.name);
                }
            }
        }
    }

    #[test]
    fn of_nothing_nothing_is_the_same_and_more_has_no_ratio_but_a_note() {
        let mut report = report_of("field");
        for (case, losses) in [(0, [0.0, 0.2, 0.1, 0.3]), (1, [0.0, 0.1, 0.0, 0.0])] {
            for (repeat, loss) in losses.into_iter().enumerate() {
                report.add(case, repeat, vec![("call_loss_ratio", loss)].into());
            }
        }
        report.compare();
        let nawa = &report.results()[0].json();
        assert_eq!(nawa["metrics"]["call_loss_of_stock"], 1.5, "the median of 1 and 2");
        assert_eq!(nawa["samples_of"], json!({ "call_loss_of_stock": 2 }));
        let notes = report.json()["notes"].to_string();
        assert!(
            notes.contains("has a call_loss_ratio of 0, and it no call_loss_of_stock (2 runs)"),
            "{notes}"
        );
    }

    #[test]
    fn a_bond_is_compared_with_its_links_and_rivals_of_the_same_repeat() {
        let options = RunOptions::default();
        let mut experiment = find("bond", &options).unwrap();
        experiment.keep(&["case=three", "flows=1", "direction=down"].map(str::to_owned)).unwrap();
        let mut report = Report::new(&experiment, &options);
        for (index, case) in experiment.cases.iter().enumerate() {
            let bbr = field(&case.key, "cc").unwrap() == "bbr";
            let goodput = match field(&case.key, "system").unwrap().as_str().unwrap() {
                "nawa" => 20.0,
                "mptcp" => 16.0,
                _ => 5.0,
            };
            for repeat in 0..2 {
                // One link of the first repeat has failed, so that its only sample is paired with others' second.
                if (repeat, index) != (0, 0) {
                    let goodput = goodput * if bbr { 2.0 } else { 1.0 };
                    report.add(index, repeat, vec![("goodput_mbps", goodput)].into());
                }
            }
        }
        report.compare();
        let nawa = experiment.cases.iter().position(|case| {
            field(&case.key, "system").unwrap() == "nawa" && field(&case.key, "cc").unwrap() == "cubic"
        });
        let of =
            |repeat: usize, name: &str| field(&report.samples[nawa.unwrap()][&repeat].metrics, name).copied();
        let names = ["of_best_link", "of_sum", "of_mptcp", "of_best_link_any_cc", "of_mptcp_any_cc"];
        assert_eq!(names.map(|name| of(1, name)), [4.0, 20.0 / 15.0, 1.25, 2.0, 0.625].map(Some));
        assert_eq!(names.map(|name| of(0, name)), [None, None, Some(1.25), None, Some(0.625)]);
    }
}
