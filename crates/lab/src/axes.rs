//! What an experiment varies, as data: names and values, of which each size has some; and how a part of it is chosen.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::experiment::{Case, Experiment, Fields, Published, plain};
use crate::options::Size;

/// The sizes that measure some cells, and these: all combinations of the values of some axes, the last of which changes fastest.
///
/// An axis is NAME=VALUE,VALUE, as `nawa lab run` takes it. ONE:TWO=1:2,3:4 varies two fields together. A value that reads as a
/// number, as `true` or as `false` is one in a case's key.
#[derive(Clone, Copy, Debug)]
pub struct Grid(pub &'static [Size], pub &'static [&'static str]);

// Which sizes there are in a grid.
pub const ALL: &[Size] = &[Size::Quick, Size::Normal, Size::Paper];
pub const FULL: &[Size] = &[Size::Normal, Size::Paper];
pub const QUICK: &[Size] = &[Size::Quick];
pub const NORMAL: &[Size] = &[Size::Normal];
pub const PAPER: &[Size] = &[Size::Paper];

/// One combination: names and values, as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell(Vec<(&'static str, &'static str)>);

impl Cell {
    /// The value of a field; empty if the cell has none.
    pub fn text(&self, name: &str) -> &'static str {
        self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The same read as a `T`; the default if the cell has none.
    pub fn get<T: FromStr + Default>(&self, name: &str) -> Result<T> {
        let text = self.text(name);
        let bad = |_| Error::BadCell { field: name.to_owned(), value: text.to_owned() };
        if text.is_empty() { Ok(T::default()) } else { text.parse().map_err(bad) }
    }

    /// The value of a field by what `of` has it stand for.
    pub fn one_of<T: Clone>(&self, name: &str, of: &[(&str, T)]) -> Result<T> {
        let text = self.text(name);
        let found = of.iter().find(|(known, _)| *known == text).map(|(_, meaning)| meaning.clone());
        found.ok_or_else(|| Error::BadCell { field: name.to_owned(), value: text.to_owned() })
    }

    /// The fields of these names, separated by blanks, that the cell has, as a key has them.
    pub fn key(&self, names: &'static str) -> Fields<Value> {
        let has = |name: &&'static str| !self.text(name).is_empty();
        names.split(' ').filter(has).map(|name| (name, value(self.text(name)))).collect()
    }

    fn whole_key(&self) -> Fields<Value> {
        self.0.iter().map(|&(name, text)| (name, value(text))).collect()
    }

    /// The cell with one more field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.0.push((name, value));
        self
    }
}

fn value(text: &str) -> Value {
    let read = text.parse().map(Value::Bool).ok().or_else(|| text.parse::<u64>().ok().map(Value::from));
    let read = read.or_else(|| text.parse::<f64>().ok().map(Value::from));
    read.unwrap_or_else(|| text.into())
}

/// The cells that `size` has of `grids`, one grid after the other.
pub fn cells(grids: &[Grid], size: Size) -> Vec<Cell> {
    let wanted = grids.iter().filter(|Grid(sizes, _)| sizes.contains(&size));
    wanted.flat_map(|&Grid(_, axes)| combinations(axes)).collect()
}

/// The cases that `case` makes of them.
pub(crate) fn cases(grids: &[Grid], size: Size, case: impl Fn(&Cell) -> Result<Case>) -> Result<Vec<Case>> {
    cells(grids, size).iter().map(case).collect()
}

impl Published {
    /// What was published of the cell that is written so.
    pub(crate) fn of(cell: &'static str, metrics: &[(&'static str, f64)]) -> Self {
        let cell = combinations(&[cell]).swap_remove(0);
        Self { key: cell.whole_key(), metrics: metrics.to_vec() }
    }

    /// What was published of `metric` in each of some cells, in their order.
    pub(crate) fn row(cells: &'static str, metric: &'static str, values: &[f64]) -> Vec<Self> {
        let of =
            |(cell, &value): (Cell, &f64)| Self { key: cell.whole_key(), metrics: vec![(metric, value)] };
        combinations(&[cells]).into_iter().zip(values).map(of).collect()
    }
}

fn combinations(axes: &[&'static str]) -> Vec<Cell> {
    axes.iter().flat_map(|axes| axes.split_whitespace()).fold(vec![Cell::default()], |cells, axis| {
        let (names, values) = axis.split_once('=').unwrap_or((axis, ""));
        let extended = |cell: &Cell, value: &'static str| {
            let fields = names.split(':').zip(value.splitn(names.split(':').count(), ':'));
            fields.fold(cell.clone(), |cell, (name, word)| cell.with(name, word))
        };
        cells.iter().flat_map(|cell| values.split(',').map(|value| extended(cell, value))).collect()
    })
}

impl Experiment {
    /// Keeps the cases that have, for each of `words` ("KEY=VALUE,VALUE"), one of its values. An error, with what there is,
    /// where a word leaves none.
    pub fn keep(&mut self, words: &[String]) -> Result<()> {
        words.iter().try_for_each(|word| self.keep_one(word))
    }

    fn keep_one(&mut self, word: &str) -> Result<()> {
        let (key, values) = word.split_once('=').unwrap_or((word, ""));
        let known = |value: &str| self.cases.iter().any(|case| has(case, key, value));
        if let Some(unknown) = values.split(',').find(|value| !known(value)) {
            let reason = self.possible(key, unknown);
            return Err(Error::BadInput(format!("no case is left by `{word}`: {reason}")));
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

    const GRIDS: [Grid; 2] =
        [Grid(ALL, &["links=10+2,5ms paths:flows=1:2.0,3:true"]), Grid(FULL, &["links=x"])];

    #[test]
    fn the_last_axis_changes_fastest_and_sizes_have_their_grids() {
        let all = cells(&GRIDS, Size::Paper);
        let texts = |name: &str| all.iter().map(|cell| cell.text(name)).collect::<Vec<_>>().join(";");
        assert_eq!(texts("links"), "10+2;10+2;5ms;5ms;x");
        assert_eq!(texts("paths"), "1;3;1;3;");
        assert_eq!(cells(&GRIDS, Size::Quick).len(), 4);
    }

    #[test]
    fn values_are_numbers_where_they_read_as_such() {
        let cells = cells(&GRIDS, Size::Quick);
        let key = |cell: &Cell| serde_json::to_string(&cell.key("flows none links")).unwrap();
        assert_eq!(key(&cells[0]), r#"[["flows",2.0],["links","10+2"]]"#);
        assert_eq!(key(&cells[3]), r#"[["flows",true],["links","5ms"]]"#);
        assert_eq!((cells[0].get("paths").unwrap(), cells[0].get("none").unwrap()), (1u8, 0u8));
        assert!(cells[0].get::<u8>("links").unwrap_err().to_string().contains("`10+2`"));
        assert!(cells[0].one_of("paths", &[("2", ())]).is_err());
    }

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
