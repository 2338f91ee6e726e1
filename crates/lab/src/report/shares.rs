//! What was measured as a share of what a group of cases measured in the same repeat.

use super::{Report, field};
use crate::experiment::{Share, Whole};

impl Report<'_> {
    pub(super) fn add_shares(&mut self) {
        for share in &self.experiment.shares {
            for case in 0..self.samples.len() {
                self.add_share(share, case);
            }
        }
    }

    fn add_share(&mut self, share: &Share, case: usize) {
        let group = self.group(share, case);
        for index in 0..self.samples[case].len() {
            let whole = self.whole(share, &group, self.repeats[case][index]).filter(|&whole| whole > 0.0);
            let sample = &mut self.samples[case][index];
            let part = field(&sample.metrics, share.metric).copied();
            let value = part.zip(whole).map(|(part, whole)| (share.name.to_owned(), part / whole));
            sample.metrics.extend(value);
        }
    }

    /// The cases that `case` is compared with.
    fn group(&self, share: &Share, case: usize) -> Vec<usize> {
        let cases = &self.experiment.cases;
        let rest = |case: usize| {
            cases[case].key.iter().filter(|(name, _)| *name != "system" && !share.over.contains(name))
        };
        let in_group = |&other: &usize| {
            let system = field(&cases[other].key, "system").and_then(|system| system.as_str());
            system.is_some_and(|system| system.starts_with(share.systems)) && rest(other).eq(rest(case))
        };
        (0..cases.len()).filter(in_group).collect()
    }

    /// `None` unless all of `group` were measured in `repeat`.
    fn whole(&self, share: &Share, group: &[usize], repeat: usize) -> Option<f64> {
        let value = |&case: &usize| {
            let index = self.repeats[case].iter().position(|&other| other == repeat)?;
            field(&self.samples[case][index].metrics, share.metric).copied()
        };
        let values: Vec<f64> = group.iter().map(value).collect::<Option<_>>()?;
        match share.of {
            Whole::Greatest => values.into_iter().reduce(f64::max),
            Whole::Sum => Some(values.into_iter().sum()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::find;
    use crate::experiment::RunOptions;
    use crate::report::{Report, field};
    use crate::workload::Sample;

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
                // One link of the second repeat has failed.
                if (repeat, index) != (1, 0) {
                    let goodput = goodput * if bbr { 2.0 } else { 1.0 };
                    let metrics = vec![("goodput_mbps".to_owned(), goodput)];
                    report.add(index, repeat, Sample { metrics, ..Sample::default() });
                }
            }
        }
        report.compare();
        let nawa = experiment.cases.iter().position(|case| {
            field(&case.key, "system").unwrap() == "nawa" && field(&case.key, "cc").unwrap() == "cubic"
        });
        let of =
            |repeat: usize, name: &str| field(&report.samples[nawa.unwrap()][repeat].metrics, name).copied();
        let names = ["of_best_link", "of_sum", "of_mptcp", "of_best_link_any_cc", "of_mptcp_any_cc"];
        assert_eq!(names.map(|name| of(0, name)), [4.0, 20.0 / 15.0, 1.25, 2.0, 0.625].map(Some));
        assert_eq!(names.map(|name| of(1, name)), [None, None, Some(1.25), None, Some(0.625)]);
    }
}
