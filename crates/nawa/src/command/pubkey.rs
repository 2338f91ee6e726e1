//! `nawa pubkey`

use std::io::Read;

use tunnel::PrivateKey;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// A key is 44 characters and a line's end; nothing that long is one.
const LONGEST_INPUT: u64 = 4096;

/// Reads a private key from stdin and prints its public key.
pub fn run() -> Result<(), Failure> {
    let mut text = Zeroizing::new(String::with_capacity(LONGEST_INPUT as usize));
    std::io::stdin()
        .take(LONGEST_INPUT)
        .read_to_string(&mut text)
        .map_err(|error| Failure::bad_input(format!("cannot read a private key from stdin: {error}")))?;
    let key: PrivateKey = text.parse().map_err(|error| Failure::bad_input(format!("stdin: {error}")))?;
    super::print(&key.public().to_string())
}
