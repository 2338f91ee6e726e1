//! `nawa keygen`

use rand_core::{OsRng, TryRngCore};
use tunnel::PrivateKey;

use crate::failure::Failure;

/// Prints a new private key.
pub fn run() -> Result<(), Failure> {
    let key = PrivateKey::generate(&mut OsRng.unwrap_err());
    super::print(&key.to_base64())
}
