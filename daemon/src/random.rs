//! Random bytes from the kernel.

use ring::rand::{SecureRandom, SystemRandom};

/// Returns bytes that no other process can guess. (By one system call, where reading `/dev/urandom` takes three.)
pub(crate) fn random<const LEN: usize>() -> std::io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| std::io::Error::other("the kernel returns none"))?;
    Ok(bytes)
}
