//! Paths: the checkout, and what is built and installed under cargo's target directory.

use std::path::{Path, PathBuf};

/// The checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this package is two folders below the root")
}

/// Cargo's target directory, where this program was built.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe()?;
    let target =
        me.ancestors().nth(2).ok_or_else(|| anyhow::anyhow!("{} is not in a target directory", me.display()))?;
    Ok(target.to_owned())
}

/// The programs of the profile that tests and demo use.
pub(crate) fn binaries() -> anyhow::Result<PathBuf> {
    Ok(target()?.join("debug"))
}

/// The private Python environment with the wheels of `peer`.
pub(crate) fn peer(peer: &str) -> anyhow::Result<PathBuf> {
    Ok(target()?.join("peers").join(peer))
}
