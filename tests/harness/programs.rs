//! The programs in `tests/programs`. Each is compiled once and kept until its source or the compiler changes.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::built;

/// The MPI that a program is compiled for, or an interpreter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// Debian's MPICH 4.0, a client of the old PMI dialect.
    Debian,
    /// MPICH 5.0 from the wheel.
    Wheel,
    /// The same MPICH, through the standard ABI.
    WheelAbi,
    /// Intel MPI from the wheel. It has no compiler; MPICH has the same ABI, and [`Mpi::environment`] selects Intel's library.
    Intel,
    /// Debian's Open MPI 4.1, with the PMIx library 4.2 beside it.
    OpenMpiDebian,
    /// Open MPI 4.1 from the wheel, with PMIx 3.2 inside.
    OpenMpi4,
    /// Open MPI 5.0 from the wheel, with PMIx 5.0 inside.
    OpenMpi5,
    /// rsd's MPI library.
    Ours,
}

impl Mpi {
    /// Compiles a C program for this MPI; returns its path.
    ///
    /// # Panics
    /// If the compiler is missing or rejects the program.
    #[track_caller]
    pub fn program(self, source: &str) -> String {
        self.program_with(source, &[])
    }

    /// Compiles a C program for this MPI with further flags.
    ///
    /// # Panics
    /// If the compiler is missing or rejects the program.
    #[track_caller]
    pub fn program_with(self, source: &str, flags: &[&str]) -> String {
        let compiler = match self {
            Mpi::Debian => PathBuf::from("mpicc.mpich"),
            Mpi::OpenMpiDebian => PathBuf::from("mpicc.openmpi"),
            Mpi::Wheel | Mpi::Intel => wheel("bin/mpicc"),
            Mpi::WheelAbi => wheel("bin/mpicc_abi"),
            Mpi::OpenMpi4 => peer("openmpi4", "bin/mpicc"),
            Mpi::OpenMpi5 => peer("openmpi", "bin/mpicc"),
            Mpi::Ours => built::library().join("bin/mpicc"),
        };
        compile(&compiler, source, flags)
    }

    /// The Python that has mpi4py for this MPI, if there is one.
    #[track_caller]
    pub fn python(self) -> Option<PathBuf> {
        match self {
            Mpi::Debian | Mpi::OpenMpiDebian | Mpi::WheelAbi => None,
            Mpi::Wheel => Some(wheel("bin/python")),
            Mpi::Intel => Some(intel().0),
            Mpi::OpenMpi4 => Some(peer("openmpi4", "bin/python")),
            Mpi::OpenMpi5 => Some(peer("openmpi", "bin/python")),
            Mpi::Ours => Some(mpi4py_for_the_abi().0),
        }
    }

    /// What its programs need in their environment because of the place where it is installed.
    #[track_caller]
    pub fn environment(self) -> Option<(&'static str, PathBuf)> {
        (self == Mpi::Intel).then(|| ("LD_LIBRARY_PATH", intel().1))
    }

    /// The folder of the MPI library, for LD_LIBRARY_PATH. Only for libraries with the standard ABI.
    ///
    /// # Panics
    /// For libraries that do not have the standard ABI.
    #[track_caller]
    pub fn library_folder(self) -> PathBuf {
        match self {
            Mpi::Debian | Mpi::Intel | Mpi::OpenMpiDebian | Mpi::OpenMpi4 | Mpi::OpenMpi5 => {
                panic!("{self:?} does not have the standard ABI")
            }
            Mpi::Wheel | Mpi::WheelAbi => wheel("lib"),
            Mpi::Ours => built::library().join("lib"),
        }
    }
}

/// The library by which a program calls PMI itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pmi {
    /// Slurm's, as Debian has it; only PMI-2.
    Slurm,
    /// rsd's.
    Ours,
    /// rsd's, for a program that was compiled for Slurm's.
    OursWithSlurmsHeader,
}

impl Pmi {
    /// Compiles a C program for this library; returns its path.
    ///
    /// # Panics
    /// If the compiler is missing or rejects the program.
    #[track_caller]
    pub fn program(self, source: &str) -> String {
        let prefix = built::pmi_libraries();
        let link = if source.ends_with("pmi2.c") { "-lpmi2" } else { "-lpmi" };
        let (include, library) = (format!("-I{}/include", prefix.display()), format!("{}/lib", prefix.display()));
        let (from, at_run_time) = (format!("-L{library}"), format!("-Wl,-rpath,{library}"));
        match self {
            Pmi::Slurm => compile("cc".as_ref(), source, &[SLURMS_HEADERS, link]),
            Pmi::Ours => compile("cc".as_ref(), source, &[&include, &from, &at_run_time, link]),
            Pmi::OursWithSlurmsHeader => compile("cc".as_ref(), source, &[SLURMS_HEADERS, &from, &at_run_time, link]),
        }
    }

    /// The path of a library.
    ///
    /// # Panics
    /// If Debian's package is not installed.
    #[track_caller]
    pub fn library(self, name: &str) -> PathBuf {
        let folder = match self {
            Pmi::Slurm => {
                let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
                Path::new("/usr/lib").join(triplet)
            }
            Pmi::Ours | Pmi::OursWithSlurmsHeader => built::pmi_libraries().join("lib"),
        };
        let path = folder.join(name);
        assert!(path.exists(), "{} does not exist: run cargo xtask setup", path.display());
        path
    }
}

const SLURMS_HEADERS: &str = "-I/usr/include/slurm";

/// Compiles a C program without MPI.
#[track_caller]
pub fn plain(source: &str) -> String {
    compile("cc".as_ref(), source, &[])
}

/// Compiles a C program without MPI, with further flags.
#[track_caller]
pub fn plain_with(source: &str, flags: &[&str]) -> String {
    compile("cc".as_ref(), source, flags)
}

/// The flags that `pkg-config` names for a package.
///
/// # Panics
/// If the package is not installed.
#[track_caller]
pub fn pkg_config(package: &str) -> Vec<String> {
    let output = Command::new("pkg-config").args(["--cflags", "--libs", package]).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run pkg-config: {error}: run cargo xtask setup"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// The launcher of the wheel's MPICH.
#[track_caller]
pub fn hydra() -> PathBuf {
    wheel("bin/mpiexec.hydra")
}

/// The Python that has mpi4py and Intel MPI, and the folder of Intel MPI.
#[track_caller]
pub fn intel() -> (PathBuf, PathBuf) {
    (peer("impi", "bin/python"), peer("impi", "lib"))
}

/// The Python that has mpi4py for the standard ABI, and the folder of its tests.
#[track_caller]
pub fn mpi4py_for_the_abi() -> (PathBuf, PathBuf) {
    (peer("mpi4py", "bin/python"), peer("mpi4py-source", "test"))
}

/// The Python that has mpi4py, and the path of a script for it.
#[track_caller]
pub fn python(script: &str) -> [String; 2] {
    [wheel("bin/python").display().to_string(), self::script(script)]
}

/// The path of a script in `tests/programs`.
pub fn script(name: &str) -> String {
    folder().join(name).display().to_string()
}

/// A folder of the MPI library's package with its files for other languages: `python`, `include`.
pub fn client(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-lib").join(folder)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

#[track_caller]
fn wheel(file: &str) -> PathBuf {
    peer("mpich", file)
}

#[track_caller]
fn peer(name: &str, file: &str) -> PathBuf {
    let path = built::target().join("peers").join(name).join(file);
    assert!(path.exists(), "{} does not exist: run cargo xtask test", path.display());
    path
}

#[track_caller]
fn compile(compiler: &Path, source: &str, flags: &[&str]) -> String {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let path = folder().join(source);
    let text = fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let mut hasher = DefaultHasher::new();
    let mpi_h = compiler.parent().map(|bin| fs::read(bin.join("../include/mpi.h")).ok());
    let beside = path.parent().expect("a program is in a folder");
    let named = flags.iter().filter_map(|flag| flag.strip_prefix("-I")).map(Path::new);
    let headers: Vec<Vec<u8>> = std::iter::once(beside).chain(named).flat_map(headers_in).collect();
    (&text, compiler, flags, headers, mpi_h).hash(&mut hasher);
    let stem = source.trim_end_matches(".c").replace('/', "-");
    let programs = built::target().join("test-programs");
    let program = programs.join(format!("{stem}-{:016x}", hasher.finish()));

    // A program is renamed into place, so a failed compilation cannot affect later tests.
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !program.exists() {
        fs::create_dir_all(&programs).expect("the target directory is writable");
        let scratch = program.with_extension(std::process::id().to_string());
        let mut command = Command::new(compiler);
        let output = command.args(["-O2", "-pthread", "-o"]).args([&scratch, &path]).args(flags).arg("-lm").output();
        let output =
            output.unwrap_or_else(|error| panic!("cannot run {}: {error}: run cargo xtask setup", compiler.display()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&scratch, &program).expect("the target directory is writable");
    }
    program.display().to_string()
}

/// The contents of the headers in a folder, which programs may include.
fn headers_in(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut headers: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "h")).collect();
    headers.sort();
    headers.iter().filter_map(|path| fs::read(path).ok()).collect()
}
