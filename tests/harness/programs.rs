//! The programs in `tests/programs`, compiled once and kept as long as neither they nor the compiler change.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::built;

/// Whose MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// Debian's MPICH, 4.0: a client of the old PMI dialect.
    Debian,
    /// The wheel's MPICH, 5.0.
    Wheel,
}

impl Mpi {
    /// A C program compiled against it.
    ///
    /// # Panics
    /// When the compiler is missing or does not like it.
    #[track_caller]
    pub fn program(self, source: &str) -> String {
        match self {
            Mpi::Debian => compile("mpicc.mpich".as_ref(), source),
            Mpi::Wheel => compile(&wheel("bin/mpicc"), source),
        }
    }
}

/// A C program without MPI.
#[track_caller]
pub fn plain(source: &str) -> String {
    compile("cc".as_ref(), source)
}

/// The Python that has mpi4py, and the path of a script for it.
#[track_caller]
pub fn python(script: &str) -> [String; 2] {
    [wheel("bin/python").display().to_string(), folder().join(script).display().to_string()]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

#[track_caller]
fn wheel(file: &str) -> PathBuf {
    let path = built::target().join("peers/mpich").join(file);
    assert!(path.exists(), "{} is not there: cargo xtask setup", path.display());
    path
}

#[track_caller]
fn compile(compiler: &Path, source: &str) -> String {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let path = folder().join(source);
    let text = fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let mut hasher = DefaultHasher::new();
    (&text, compiler).hash(&mut hasher);
    let stem = source.trim_end_matches(".c");
    let programs = built::target().join("test-programs");
    let program = programs.join(format!("{stem}-{:016x}", hasher.finish()));

    // A compiler that did not like the program has made this test fail, not the next one.
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !program.exists() {
        fs::create_dir_all(&programs).expect("the target directory is ours");
        let scratch = program.with_extension(std::process::id().to_string());
        let output = Command::new(compiler).args(["-O2", "-o"]).arg(&scratch).arg(&path).arg("-lm").output();
        let output =
            output.unwrap_or_else(|error| panic!("cannot run {}: {error}: cargo xtask setup", compiler.display()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&scratch, &program).expect("the target directory is ours");
    }
    program.display().to_string()
}
