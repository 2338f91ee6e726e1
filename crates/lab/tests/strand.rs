//! A strand that the lab does not have, from end to end: what it takes to add one.

mod common;

use std::time::Duration;

use common::{alone, left_in, report};
use lab::experiment::{Case, Experiment};
use lab::workload::{Need, Prepared, Site, Workload};
use lab::{Error, RunOptions};

/// Multiplies instead of measuring.
#[derive(Debug)]
struct MadeUp {
    factor: f64,
    needs: Option<&'static str>,
}

impl Workload for MadeUp {
    fn needs(&self) -> Vec<Need> {
        self.needs.map(Need::CongestionControl).into_iter().collect()
    }

    fn prepare<'a>(&'a self, _: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        Ok(Box::new(|| Ok(vec![("product", self.factor * 2.0)].into())))
    }
}

#[test]
fn a_strand_of_its_own_is_prepared_measured_and_reported() {
    let Some(_alone) = alone("a_strand_of_its_own_is_prepared_measured_and_reported") else { return };
    let case = |factor: f64, needs| {
        let workload = MadeUp { factor, needs };
        Case { key: vec![("factor", factor.into())], workload, estimate: Duration::from_millis(1) }.erase()
    };
    let cases = vec![case(2.0, None), case(3.0, None), case(4.0, Some("nawa_test_none"))];
    let experiment = Experiment { name: "made-up", cases, repeats: 3, ..Experiment::default() };
    let json = report(&experiment, RunOptions::default());
    let results = json["results"].as_array().unwrap();
    let products: Vec<_> = results.iter().map(|result| result["metrics"]["product"].as_f64()).collect();
    assert_eq!(products, [Some(4.0), Some(6.0)]);
    assert!(json["notes"][0].as_str().unwrap().starts_with("nawa_test_none: not measured"));
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}
