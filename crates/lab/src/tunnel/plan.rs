//! What is measured at which size.

use crate::experiment::Size;
use crate::system::{Back, Clocks, find_rival};

use super::variant::Transport::{Tcp, Udp};
use super::variant::{Links, RIVALS, Row};

/// MPTCP's first subflow and the additional ones that the kernel takes.
const MPTCP_PATHS_MAX: usize = 9;

pub(super) fn rows(size: Size) -> Vec<Row> {
    let mut rows = vec![row(&["cubic", "mptcp", "nawa"], &[Links::Uneven]), slow(size)];
    rows.extend(match size {
        Size::Quick => quick(),
        Size::Normal => normal(),
        Size::Paper => paper(),
    });
    rows.push(row(&["cubic", "nawa"], &[Links::Unshaped]));
    rows.push(Row { systems: installed_rivals(), ..row(&[], &[Links::Unshaped]) });
    rows.push(Row { transports: vec![Udp], ..row(&["plain", "nawa"], &[Links::Unshaped]) });
    rows
}

/// TCP with clocks that agree, all paths both ways.
fn row(systems: &[&'static str], links: &[Links]) -> Row {
    Row {
        systems: systems.to_vec(),
        links: links.to_vec(),
        transports: vec![Tcp],
        clocks: vec![Clocks::Same],
        back: Back::All,
    }
}

fn slow(size: Size) -> Row {
    let systems: &[_] = match size {
        Size::Quick => &["cubic", "nawa"],
        _ => &["cubic", "mptcp", "nawa", "nawa-paper"],
    };
    row(systems, &[Links::Slow])
}

/// The figures that the project promises, and one of each system.
fn quick() -> Vec<Row> {
    let ends = [1, 10].map(Links::Equal);
    let apart = vec![Clocks::Offset];
    vec![
        row(&["mptcp"], &[Links::Equal(MPTCP_PATHS_MAX)]),
        row(&["nawa", "nawa-paper"], &ends),
        Row { clocks: apart.clone(), transports: vec![Tcp, Udp], ..row(&["nawa"], &ends) },
        Row { clocks: apart, ..row(&["nawa-paper-absolute"], &ends[1..]) },
        Row {
            clocks: vec![Clocks::Behind],
            transports: vec![Udp],
            ..row(&["nawa-paper-absolute"], &ends[1..])
        },
    ]
}

fn normal() -> Vec<Row> {
    let some = [1, 3, 10].map(Links::Equal);
    let both = vec![Tcp, Udp];
    let near = vec![Clocks::Same, Clocks::Offset];
    let mut rows = vec![
        row(&["mptcp"], &[1, 3, MPTCP_PATHS_MAX].map(Links::Equal)),
        Row { transports: both.clone(), clocks: Clocks::ALL.to_vec(), ..row(&["nawa"], &some) },
        Row { transports: both.clone(), clocks: near.clone(), ..row(&["nawa-paper"], &some) },
        Row {
            transports: both.clone(),
            clocks: vec![Clocks::Offset],
            ..row(&["nawa-paper-absolute"], &some)
        },
    ];
    rows.extend(without_tunnel());
    rows.push(Row { back: Back::One, transports: both.clone(), ..row(&["nawa", "nawa-paper"], &some) });
    let apart = vec![Clocks::Offset, Clocks::Behind];
    let systems = ["nawa", "nawa-paper-absolute"];
    rows.push(Row { back: Back::One, transports: both, clocks: apart, ..row(&systems, &some) });
    rows
}

/// One to ten paths, every system with every clock; a single path back with the clocks that the paper had.
fn paper() -> Vec<Row> {
    let all: Vec<Links> = (1..=10).map(Links::Equal).collect();
    let both = vec![Tcp, Udp];
    let systems = ["nawa", "nawa-paper", "nawa-paper-absolute"];
    let near = vec![Clocks::Same, Clocks::Offset, Clocks::Behind];
    let mut rows = vec![
        row(&["mptcp"], &all[..MPTCP_PATHS_MAX]),
        Row { transports: both.clone(), clocks: Clocks::ALL.to_vec(), ..row(&systems, &all) },
        Row { transports: both, clocks: near, back: Back::One, ..row(&systems, &all) },
    ];
    rows.extend(without_tunnel());
    rows
}

/// One link by itself.
fn without_tunnel() -> [Row; 2] {
    let one = [Links::Equal(1)];
    [row(&["cubic"], &one), Row { transports: vec![Udp], ..row(&["plain"], &one) }]
}

fn installed_rivals() -> Vec<&'static str> {
    RIVALS.iter().filter(|(_, program)| find_rival(program).is_some()).map(|(name, _)| *name).collect()
}
