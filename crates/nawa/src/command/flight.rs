//! `nawa flight`

use flight::kernel::default::{Holder, Restored};
use flight::kernel::{self, Scheme};

use super::status::cells::{number, rows_under};
use crate::cli::{FlightOff, FlightOn};
use crate::control::client::Daemon;
use crate::failure::Failure;
use crate::flight::{Line, State};

const HEADER: [&str; 11] = [
    "local",
    "remote",
    "control",
    "mode",
    "target kB",
    "space kB",
    "rcv_bytes kB",
    "cwnd kB",
    "rtt_min ms",
    "radio",
    "congestion",
];

/// Registers both until `off`.
pub fn on(on: &FlightOn) -> Result<(), Failure> {
    let schemes = Scheme::published(on.base.into()).map(|scheme| scheme.suffixed(&on.suffix));
    kernel::on(&schemes).map_err(Failure::failed)?;
    if on.default {
        kernel::default::take(kernel::FSAT, Holder::On).map_err(Failure::failed)?;
    }
    Ok(())
}

/// Takes that back.
pub fn off(off: &FlightOff) -> Result<(), Failure> {
    let lives = || Daemon::find().is_ok_and(|daemon| daemon.is_some());
    let stays = "fsat stays the default where a daemon with `default = true` runs";
    match kernel::off(&off.suffix, lives).map_err(Failure::failed)? {
        Restored { changed: true, kept: false } => Ok(()),
        Restored { changed: true, kept: true } => super::print(stays),
        Restored { changed: false, kept: true } => {
            Err(Failure::failed(format!("there is nothing else to switch off; {stays}")))
        }
        Restored { changed: false, kept: false } => Err(Failure::failed(
            "there is nothing to switch off; `nawa flight on` has not been used since the last `off`",
        )),
    }
}

/// Shows what is known.
pub fn show(json: bool) -> Result<(), Failure> {
    let state = State::read().map_err(Failure::failed)?;
    if json {
        return super::print_json(&state);
    }
    super::print(render(&state).trim_end())
}

fn render(state: &State) -> String {
    let registered = match state.registered.as_slice() {
        [] => "nothing; `nawa flight on` registers them".to_owned(),
        names => names.join(", "),
    };
    let mut text = format!("registered: {registered}\ndefault of this namespace: {}\n", state.default);
    text.push_str(&table(&state.connections));
    text
}

/// The connections as a table, each line ended; empty if there are none.
pub fn table(connections: &[Line]) -> String {
    if connections.is_empty() {
        return String::new();
    }
    let rows = connections.iter().map(row).collect();
    "\n".to_owned() + &rows_under(HEADER, rows, 4..11)
}

fn row(line: &Line) -> [String; 11] {
    let kilobytes = |bytes: Option<u64>| number(bytes.map(|bytes| bytes as f64 / 1e3), 1);
    [
        line.local.clone(),
        line.remote.clone(),
        line.congestion_control.clone(),
        line.mode.clone(),
        kilobytes(line.target_bytes),
        kilobytes(Some(line.space_bytes)),
        kilobytes(Some(line.rcv_bytes)),
        kilobytes(Some(line.cwnd_bytes)),
        number(line.rtt_min_us.map(|rtt| rtt as f64 / 1e3), 1),
        line.losses_radio.to_string(),
        line.losses_congestion.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Base;

    #[test]
    fn a_connection_is_a_row() {
        let connection = Line {
            local: "10.1.0.1:4000".into(),
            remote: "10.1.0.2:443".into(),
            congestion_control: "fsat".into(),
            base: Base::Cubic,
            mode: "own".into(),
            target_bytes: None,
            space_bytes: 45_600,
            rcv_bytes: 22_500,
            rtt_min_us: Some(180_250),
            cwnd_bytes: 96_000,
            window_bytes: 45_600,
            losses_radio: 3,
            losses_congestion: 1,
        };
        let state = State {
            schema: 1,
            registered: vec!["fsat".into(), "fsat_paper".into()],
            default: "cubic".into(),
            connections: vec![connection],
        };
        let expected = "\
registered: fsat, fsat_paper
default of this namespace: cubic

 local          remote        control  mode  target kB  space kB  rcv_bytes kB  cwnd kB  rtt_min ms  radio  congestion
 10.1.0.1:4000  10.1.0.2:443  fsat     own           –      45.6          22.5     96.0       180.2      3           1
";
        assert_eq!(render(&state), expected);
    }

    #[test]
    fn nothing_registered_says_what_to_do() {
        let state = State { schema: 1, registered: vec![], default: "bbr".into(), connections: vec![] };
        let expected =
            "registered: nothing; `nawa flight on` registers them\ndefault of this namespace: bbr\n";
        assert_eq!(render(&state), expected);
    }
}
