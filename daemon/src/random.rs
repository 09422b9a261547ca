//! Random bytes from the kernel.

use std::io::Read;

/// Returns bytes that no other process can guess.
pub(crate) fn random<const LEN: usize>() -> std::io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
