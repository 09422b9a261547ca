//! The programs under test, as built by cargo beside this test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::prefix;

/// Cargo's target directory.
pub fn target() -> PathBuf {
    binaries().parent().expect("cargo builds into a folder of its target directory").to_owned()
}

/// The folder with the programs of this program's profile.
fn binaries() -> PathBuf {
    let me = std::env::current_exe().expect("a program knows its own path");
    // target/debug/deps/system-0123 or target/debug/demo-hosts
    let folder = me.parent().expect("a program is in a folder");
    if folder.ends_with("deps") { folder.join("..").canonicalize().expect("it exists") } else { folder.to_owned() }
}

/// `rsd`.
pub fn rsd() -> &'static Path {
    static RSD: OnceLock<PathBuf> = OnceLock::new();
    RSD.get_or_init(|| fresh("rsd"))
}

/// `rsctl`.
pub fn rsctl() -> &'static Path {
    static RSCTL: OnceLock<PathBuf> = OnceLock::new();
    RSCTL.get_or_init(|| fresh("rsctl"))
}

/// The example `fence` of the MPI library: measures fences of the library's PMI client.
pub fn fence() -> &'static Path {
    static FENCE: OnceLock<PathBuf> = OnceLock::new();
    FENCE.get_or_init(|| fresh("examples/fence"))
}

/// The MPI library under a prefix, as it is installed; its compilers are `bin/mpicc` and `bin/mpicxx`.
pub fn library() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let library = fresh(prefix::MPI.built);
        let built = library.parent().expect("a library is in a folder");
        prefix::stage(built).unwrap_or_else(|error| panic!("cannot write below {}: {error}", built.display()))
    })
}

/// The same prefix, with the PMI libraries.
pub fn pmi_libraries() -> &'static Path {
    for library in prefix::LIBRARIES {
        fresh(library.built);
    }
    library()
}

/// Finds a program and checks that it is as new as its sources: cargo builds it for its own package's tests, not for these.
fn fresh(name: &str) -> PathBuf {
    const HOW: &str = "run first: cargo build --workspace --lib --bins --examples (cargo xtask test does)";
    let path = binaries().join(name);
    let Some(built) = modified(&path) else { panic!("{} does not exist: {HOW}", path.display()) };
    // The format of make: `PROGRAM: SOURCE SOURCE …`.
    let sources = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let newer = sources.split_whitespace().skip(1).find(|source| modified(source.as_ref()) > Some(built));
    if let Some(source) = newer {
        panic!("{} is older than {source}: {HOW}", path.display());
    }
    path
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}
