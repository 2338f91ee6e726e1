//! What was measured as a share of what the same repeat measured in another case.

use serde_json::Value;

use super::{Report, field};
use crate::experiment::{Fields, Ratio};
use crate::runner::Sample;

impl Report<'_> {
    /// Adds the experiment's ratios to the samples that have one.
    pub(crate) fn compare(&mut self) {
        for ratio in &self.experiment.ratios {
            for case in 0..self.samples.len() {
                self.add_ratio(ratio, case);
            }
        }
    }

    fn add_ratio(&mut self, ratio: &Ratio, case: usize) {
        let Some(of) = self.reference(ratio, case) else { return };
        for (index, repeat) in self.repeats[case].iter().enumerate() {
            let Some(other) = self.repeats[of].iter().position(|other| other == repeat) else { continue };
            let value = share(ratio.metric, &self.samples[case][index], &self.samples[of][other]);
            let metric = value.map(|value| (ratio.name.to_owned(), value));
            self.samples[case][index].metrics.extend(metric);
        }
    }

    /// The case that `case` is compared with.
    fn reference(&self, ratio: &Ratio, case: usize) -> Option<usize> {
        let cases = &self.experiment.cases;
        let (name, value) = ratio.of;
        let other_field = value.other_field();
        let own = &cases[case].key;
        field(own, name)?;
        let compared: Vec<&str> =
            [Some(name), other_field.map(|(other, _)| other)].into_iter().flatten().collect();
        let candidate = |other: &Fields<Value>| {
            field(other, name).is_some_and(|found| value.is(found))
                && other_field.is_none_or(|(name, at)| {
                    field(other, name).is_some_and(|found| found.as_f64() == Some(at))
                })
                && without(other, &compared).eq(without(own, &compared))
        };
        cases.iter().position(|other| candidate(&other.key)).filter(|&found| found != case)
    }
}

/// The key without the fields of these names.
fn without<'k>(key: &'k Fields<Value>, names: &'k [&str]) -> impl Iterator<Item = &'k (&'static str, Value)> {
    key.iter().filter(move |(known, _)| !names.contains(known))
}

fn share(metric: &str, sample: &Sample, of: &Sample) -> Option<f64> {
    let whole = *field(&of.metrics, metric).filter(|&&whole| whole > 0.0)?;
    field(&sample.metrics, metric).map(|part| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{RunOptions, find};

    fn report_of(
        name: &str,
        of: impl Fn(&Fields<Value>, usize) -> Option<f64>,
    ) -> Vec<(Fields<Value>, Vec<Sample>)> {
        let options = RunOptions::default();
        let experiment = find(name, &options).unwrap();
        let mut report = Report::new(&experiment, &options);
        for (index, case) in experiment.cases.iter().enumerate() {
            for repeat in 0..2 {
                let sample =
                    |goodput| Sample { metrics: vec![("goodput_mbps".into(), goodput)], ..Sample::default() };
                if let Some(goodput) = of(&case.key, repeat) {
                    report.add(index, repeat, sample(goodput));
                }
            }
        }
        report.compare();
        let keys = experiment.cases.iter().map(|case| case.key.clone());
        keys.zip(report.samples.iter().cloned()).collect()
    }

    #[test]
    fn repeats_are_paired_even_where_one_failed() {
        let results = report_of("flight-wired", |key, repeat| match field(key, "cc")?.as_str()? {
            "reno" => (repeat == 1).then_some(0.5),
            _ => Some(0.25 * (repeat + 1) as f64),
        });
        for (key, samples) in results {
            let ratios: Vec<_> =
                samples.iter().map(|sample| field(&sample.metrics, "goodput_of_reno").copied()).collect();
            let expected =
                if field(&key, "cc").unwrap() == "reno" { vec![None] } else { vec![None, Some(1.0)] };
            assert_eq!(ratios, expected, "{key:?}");
        }
    }
}
