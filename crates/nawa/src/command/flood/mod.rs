//! `nawa flood send` and `recv`

pub mod ping;

use std::io::BufRead;

use flood::{Client, ClientError, Message};
use serde_json::json;

use crate::cli::{FloodRecv, FloodSend};
use crate::control::client::Daemon;
use crate::failure::{Failure, Status};

/// Sends a message, or each line of stdin.
pub fn send(send: &FloodSend) -> Result<(), Failure> {
    let client = connect(&send.interface)?;
    if let Some(message) = &send.message {
        return client.send(send.ttl, message.as_bytes()).map_err(failure);
    }
    // Bytes: a message need not be text.
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
        client.send(send.ttl, &line).map_err(failure)?;
    }
    Ok(())
}

/// Prints what comes.
pub fn recv(recv: &FloodRecv) -> Result<(), Failure> {
    let mut client = connect(&recv.interface)?;
    client.set_busy_polling(recv.busy_poll);
    client.listen().map_err(failure)?;
    let mut received = 0;
    while recv.count.is_none_or(|count| received < count) {
        let message = client.recv_data(recv.timeout).map_err(failure)?;
        let message = message.ok_or_else(|| Failure::failed("no message has come in time"))?;
        if recv.echo {
            client.send(0, &message.data).map_err(failure)?;
        }
        super::print(&if recv.json { as_json(&message) } else { as_text(&message) })?;
        received += 1;
    }
    Ok(())
}

fn connect(interface: &str) -> Result<Client, Failure> {
    Client::connect(interface).map_err(failure)
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::NoNode(interface) if matches!(Daemon::find(), Ok(Some(_))) => Failure::failed(format!(
            "the daemon has no flood node on `{interface}` now; `nawa status` says whether one waits for its interface, or write a \
             [[flood]] section and reload (SIGHUP)"
        )),
        ClientError::NoNode(_) => Failure::new(Status::NoDaemon, error),
        ClientError::TooLong(..) => Failure::bad_input(error),
        _ => Failure::failed(error),
    }
}

fn as_json(message: &Message) -> String {
    let Message { header, dropped, data } = message;
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "schema": 1, "id": header.id, "epoch": header.epoch, "seq": header.seq, "ttl": header.ttl,
        "data_bytes": data.len(), "data": hex, "dropped_messages": dropped,
    })
    .to_string()
}

/// Nothing in a message can act on the terminal.
fn as_text(message: &Message) -> String {
    format!("{}: {}", message.header.id, message.data.escape_ascii())
}

#[cfg(test)]
mod tests {
    use flood::Header;

    use super::*;

    #[test]
    fn a_message_is_a_line_whatever_is_in_it() {
        let header = Header { id: 7, epoch: 1, seq: 2, ttl: 3, ..Header::default() };
        let message = Message { header, dropped: 4, data: b"a\n\x1b[2J\xff".to_vec() };
        assert_eq!(as_text(&message), "7: a\\n\\x1b[2J\\xff");
        let value: serde_json::Value = serde_json::from_str(&as_json(&message)).expect("JSON");
        assert_eq!((&value["data"], &value["data_bytes"]), (&json!("610a1b5b324aff"), &json!(7)));
    }
}
