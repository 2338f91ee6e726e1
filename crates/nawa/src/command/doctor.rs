//! `nawa doctor`

use serde_json::{Value, json};

use crate::cli::Doctor;
use crate::config::{self, Settings};
use crate::control::{Request, client::Daemon};
use crate::doctor::{Finding, Level, gather, host, paths, render, strands};
use crate::failure::Failure;

/// Says what this host can run, what the file asks that it lacks, and what keeps the paths from coming up.
///
/// # Errors
/// Failed if something does not work.
pub fn run(doctor: &Doctor) -> Result<(), Failure> {
    let mut all = host::findings(&gather::host());
    let daemon = Daemon::find()?.map(|mut daemon| daemon.ask(Request::Status)).transpose()?;
    let settings = doctor.file.as_deref().map(config::load);
    let tunnel = match (settings, daemon) {
        (Some(Err(failure)), _) => {
            let bad = |line| {
                Finding::new(
                    Level::Fail,
                    "file",
                    line,
                    "nothing of it runs",
                    "correct it; `nawa check` reads it",
                )
            };
            all.extend(failure.lines.into_iter().map(bad));
            Value::Null
        }
        (Some(Ok(settings)), daemon) => {
            all.extend(strands::findings(&gather::strands(&settings, daemon.is_some())));
            match daemon {
                Some(state) => state["tunnel"].clone(),
                None => try_out(settings, &mut all),
            }
        }
        (None, daemon) => daemon.map_or(Value::Null, |state| state["tunnel"].clone()),
    };
    all.extend(of_tunnel(&tunnel));
    show(doctor.json, &all)
}

/// The paths of a file that nobody runs.
fn try_out(settings: Settings, all: &mut Vec<Finding>) -> Value {
    if settings.tunnel.is_none() {
        return Value::Null;
    }
    gather::trial(settings).unwrap_or_else(|failure| {
        let what = failure.lines.join("; ");
        let what = what.trim_start_matches("nawa: ");
        all.push(Finding::new(Level::Fail, "tunnel", what, "no tunnel; its paths cannot be tried", ""));
        Value::Null
    })
}

/// What a tunnel's state says of its peers and paths.
fn of_tunnel(tunnel: &Value) -> Vec<Finding> {
    let mut all = Vec::new();
    for peer in tunnel["peers"].as_array().into_iter().flatten() {
        if let (Some(name), Some(why)) = (peer["name"].as_str(), peer["why"].as_str()) {
            all.push(Finding::new(
                Level::Fail,
                format!("peer {name}"),
                why,
                "the tunnel to it breaks off again and again",
                "",
            ));
        }
    }
    if let Some(why) = tunnel["refused"]["why"].as_str() {
        let ago = tunnel["refused"]["ago_s"].as_f64().unwrap_or_default();
        let todo = "compare both ends' `public-key` with what `nawa pubkey` says at the other";
        all.push(Finding::new(
            Level::Warn,
            "strangers",
            format!("{why} ({ago:.0} s ago)"),
            "whoever that is gets no answer",
            todo,
        ));
    }
    let found = gather::paths(tunnel);
    all.extend(found.iter().flat_map(|(peer, path, seen)| paths::findings(peer, path, seen)));
    all
}

fn show(json: bool, all: &[Finding]) -> Result<(), Failure> {
    if json {
        super::print(
            &json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "findings": all}).to_string(),
        )?;
    } else {
        super::print(render(all).trim_end())?;
    }
    match all.iter().filter(|found| found.level == Level::Fail).count() {
        0 => Ok(()),
        1 => Err(Failure::failed("one thing does not work")),
        count => Err(Failure::failed(format!("{count} things do not work"))),
    }
}
