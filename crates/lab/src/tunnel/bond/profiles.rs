//! The links that are bonded.

use std::path::Path;
use std::time::Duration;

use link::Queue;
use link::notation::{self, BONDS};

use crate::error::{Error, Result};
use crate::network::PathSpec;
use crate::traces::{Recording, recordings};

/// Pairs of recordings by the beginnings of their names, as mahimahi's are called.
pub(super) const RECORDED: [(&str, [&str; 2]); 2] =
    [("att+verizon", ["ATT-LTE", "Verizon-LTE"]), ("att+tmobile", ["ATT-LTE", "TMobile-UMTS"])];

/// The links of a case, which is a name or the links as they are written, or why there are none: recordings are in the folder `traces`.
/// They are called as in a network, "link1" and so on; the way there is downwards.
pub(super) fn links(case: &str, traces: Option<&Path>) -> Result<Result<Vec<PathSpec>, String>> {
    if let Some((_, names)) = RECORDED.iter().find(|(name, _)| *name == case) {
        let found = traces.map(|folder| recorded(folder, *names)).transpose()?.flatten();
        let [one, two] = names;
        let why = || format!("it needs a folder (--traces) with the recordings {one}*.down and {two}*.down");
        return Ok(found.ok_or_else(why));
    }
    let written = BONDS.iter().find(|(name, _)| *name == case).map_or(case, |(_, links)| links);
    let path = |(number, (down, up))| PathSpec { name: format!("link{number}"), up, down };
    let links = notation::links(written).map_err(|error| Error::BadInput(error.to_string()))?;
    Ok(Ok((1..).zip(links).map(path).collect()))
}

/// One way, of a recorded link.
const RECORDED_DELAY: Duration = Duration::from_millis(20);

/// What a recorded link's drop-tail queue holds, in bytes.
const RECORDED_QUEUE: usize = 500_000;

/// The links of the recordings in `folder` whose names begin so; `None` where one is missing. A recording without a way
/// back has one that limits nothing.
fn recorded(folder: &Path, names: [&str; 2]) -> Result<Option<Vec<PathSpec>>> {
    let recordings = recordings(folder)?;
    let found = |name| recordings.iter().find(|one| one.name.starts_with(name) && !one.has_rates());
    let [Some(first), Some(second)] = names.map(found) else { return Ok(None) };
    let path = |(number, recording): (usize, &Recording)| {
        let (name, queue) = (format!("link{number}"), Queue::Bytes(RECORDED_QUEUE));
        Ok(PathSpec::of(name, recording.load()?, RECORDED_DELAY, queue))
    };
    [(1, first), (2, second)].into_iter().map(path).collect::<Result<_>>().map(Some)
}
