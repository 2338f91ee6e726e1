//! Tables for people, and what stands in their cells.

use std::ops::Range;

use comfy_table::{CellAlignment, Table, presets::NOTHING};

/// What nobody has measured yet.
pub const UNKNOWN: &str = "–";

/// A table, each line ended and without blanks before that; `numbers`: the columns that hold numbers.
pub fn rows_under<const N: usize>(
    header: [&str; N],
    rows: Vec<[String; N]>,
    numbers: Range<usize>,
) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(header).add_rows(rows);
    for column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A number with so many decimals, or that it is unknown.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or(UNKNOWN.into(), |value| format!("{value:.decimals$}"))
}

/// Millions of bytes.
pub fn megabytes(bytes: u64) -> String {
    number(Some(bytes as f64 / 1e6), 1)
}

/// `None` of nothing.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}
