//! `nawa join`

use std::io::{BufRead, Read};
use std::path::PathBuf;

use clap::Args;
use device::poller::Signals;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::setup::cost_flags::Costs;
use crate::setup::exchange;
use crate::setup::file::{self, Made};
use crate::setup::invite::Invite;
use crate::setup::uplinks;

/// More than any invite has, bytes.
const LONGEST: u64 = 4096;

/// What to join.
#[derive(Args, Debug)]
pub struct Join {
    /// What `nawa invite` printed; `-` reads it from stdin, where other users of this host do not see it
    #[arg(value_name = "STRING")]
    invite: String,
    /// The file to write; the key is written beside it
    #[arg(long, value_name = "FILE", default_value = "/etc/nawa/nawa.toml")]
    file: PathBuf,
    #[command(flatten)]
    costs: Costs,
}

/// Enrols this end. Its files are kept only if the inviter has enrolled it.
pub fn run(join: &Join) -> Result<(), Failure> {
    let invite: Invite = text(&join.invite)?.parse().map_err(Failure::bad_input)?;
    let mut made = Made::begin(&join.file)?;
    let mut uplinks = uplinks::find(&invite.endpoints, "nawa0").map_err(Failure::failed)?;
    // The inviter does not wait for who thinks about an answer.
    join.costs.settle(&mut uplinks)?;
    let (called, terms, answered) = exchange::call(&invite, &made.key).map_err(Failure::failed)?;
    uplinks::lead_to(&mut uplinks, answered).map_err(Failure::failed)?;
    let peer = file::peer("hub", &invite.inviter, &terms.routes);
    let paths = file::paths(&uplinks, std::slice::from_ref(answered));
    // Who was interrupted from here on would not know whether it has joined, and could not join again. The inviter soon answers.
    Signals::new().map_err(|error| Failure::failed(format!("cannot hold signals back: {error}")))?;
    made.write(&(file::end(&terms.addresses, None, &[]) + &peer + &paths))?;
    called.finish().map_err(Failure::failed)?;
    made.keep();
    let names: Vec<_> = uplinks.into_iter().map(|uplink| uplink.interface).collect();
    let over = if names.is_empty() { "any route".to_owned() } else { names.join(", ") };
    let file = join.file.display();
    super::print(&format!("joined over {over}; {file} is written: start it with `nawa up {file}`"))
}

/// Of stdin as many lines as make an invite, which a terminal or a message may have broken: nobody has to end the input.
fn text(argument: &str) -> Result<Zeroizing<String>, Failure> {
    if argument != "-" {
        return Ok(Zeroizing::new(argument.to_owned()));
    }
    let mut text = Zeroizing::new(String::with_capacity(LONGEST as usize));
    let unread = |error| Failure::bad_input(format!("cannot read an invite from stdin: {error}"));
    for line in std::io::stdin().lock().take(LONGEST).lines() {
        text.push_str(&Zeroizing::new(line.map_err(unread)?));
        if text.parse::<Invite>().is_ok() {
            break;
        }
    }
    Ok(text)
}
