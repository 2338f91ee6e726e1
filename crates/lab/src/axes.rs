//! What an experiment varies, as data: names and values, of which each size has some.

use std::str::FromStr;

use serde_json::Value;

use crate::error::Error;
use crate::experiment::{Case, Fields, Published};
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
    pub fn get<T: FromStr + Default>(&self, name: &str) -> Result<T, Error> {
        let text = self.text(name);
        let bad = |_| Error::BadCell { field: name.to_owned(), value: text.to_owned() };
        if text.is_empty() { Ok(T::default()) } else { text.parse().map_err(bad) }
    }

    /// The value of a field by what `of` has it stand for.
    pub fn one_of<T: Clone>(&self, name: &str, of: &[(&str, T)]) -> Result<T, Error> {
        let text = self.text(name);
        let found = of.iter().find(|(known, _)| *known == text).map(|(_, meaning)| meaning.clone());
        found.ok_or_else(|| Error::BadCell { field: name.to_owned(), value: text.to_owned() })
    }

    /// All fields of the cell, in order.
    fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }

    /// The fields of these names that the cell has, as a key has them.
    pub fn key(&self, names: &[&'static str]) -> Fields<Value> {
        let has = |&&name: &&&'static str| !self.text(name).is_empty();
        names.iter().filter(has).map(|&name| (name, value(self.text(name)))).collect()
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
pub(crate) fn cases(
    grids: &[Grid],
    size: Size,
    case: impl Fn(&Cell) -> Result<Case, Error>,
) -> Result<Vec<Case>, Error> {
    cells(grids, size).iter().map(case).collect()
}

impl Published {
    /// What was published of the cell that is written so.
    pub(crate) fn of(cell: &'static str, metrics: &[(&'static str, f64)]) -> Self {
        let cell = combinations(&[cell]).swap_remove(0);
        Self { key: cell.key(&cell.names()), metrics: metrics.to_vec() }
    }

    /// What was published of `metric` in each of some cells, in their order.
    pub(crate) fn row(cells: &'static str, metric: &'static str, values: &[f64]) -> Vec<Self> {
        let of = |(cell, &value): (Cell, &f64)| Self {
            key: cell.key(&cell.names()),
            metrics: vec![(metric, value)],
        };
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let key = |cell: &Cell| serde_json::to_string(&cell.key(&["flows", "none", "links"])).unwrap();
        assert_eq!(key(&cells[0]), r#"[["flows",2.0],["links","10+2"]]"#);
        assert_eq!(key(&cells[3]), r#"[["flows",true],["links","5ms"]]"#);
        assert_eq!((cells[0].get("paths").unwrap(), cells[0].get("none").unwrap()), (1u8, 0u8));
        assert!(cells[0].get::<u8>("links").unwrap_err().to_string().contains("`10+2`"));
        assert!(cells[0].one_of("paths", &[("2", ())]).is_err());
    }
}
