//! X25519 key pairs, made by the `nawa` under test as a user makes them.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::command::complete;
use crate::error::{Doing, Error};

/// Somebody who has a key.
pub(crate) struct Identity {
    /// In names of files.
    pub(crate) name: String,
    /// The private key, which only the file's owner may read.
    pub(crate) key_file: PathBuf,
    /// In base64.
    pub(crate) public_key: String,
}

impl Identity {
    /// With a new key in `folder`.
    pub(crate) fn generate(nawa: &Path, folder: &Path, name: impl Into<String>) -> Result<Self, Error> {
        let (private, name) = (run(nawa, "keygen", "")?, name.into());
        let path = folder.join(format!("{name}.key"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(private.as_bytes()));
        written.doing(|| format!("write {}", path.display()))?;
        Ok(Self { name, key_file: path, public_key: run(nawa, "pubkey", &private)?.trim().into() })
    }
}

/// The public key of the private key in `file`.
pub(super) fn public_key(nawa: &Path, file: &Path) -> Result<[u8; 32], Error> {
    let private = std::fs::read_to_string(file).doing(|| format!("read {}", file.display()))?;
    let public = STANDARD.decode(run(nawa, "pubkey", &private)?.trim()).ok();
    public
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| Error::program("nawa pubkey", "it printed no key"))
}

/// What `nawa COMMAND` prints when it reads `input`.
fn run(nawa: &Path, command: &str, input: &str) -> Result<String, Error> {
    complete(&format!("nawa {command}"), Command::new(nawa).arg(command), input)
}
