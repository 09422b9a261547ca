//! Finds the file that a program's name means, by the rules of `execvp`, and explains why it cannot be executed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, eaccess};

use super::SpawnError;

/// The directories in which `execvp` searches if PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the file that `program` means, absolute if `wdir` is.
///
/// A name with a slash is a path, relative to `wdir`. Otherwise the entries of `path_env` are tried in turn; an empty one is
/// `wdir`, a relative one starts there. A file that cannot be executed is skipped, and named in the error if no other file is
/// found.
pub(crate) fn resolve(program: &OsStr, wdir: &Path, path_env: &OsStr) -> Result<PathBuf, ProgramError> {
    if program.as_bytes().contains(&b'/') {
        return match check(&wdir.join(program)) {
            Ok(()) => Ok(wdir.join(program)),
            Err(ProgramError::NotFound { .. }) => Err(not_found(program, Searched::Wdir(wdir.to_path_buf()))),
            Err(error) => Err(error),
        };
    }
    let path_env = if path_env.is_empty() { OsStr::new(DEFAULT_PATH) } else { path_env };
    let mut refused = None;
    for entry in path_env.as_bytes().split(|byte| *byte == b':').filter(|_| !program.is_empty()) {
        let file = wdir.join(OsStr::from_bytes(entry)).join(program);
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(ProgramError::NotFound { .. }) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let beside = !program.is_empty() && check(&wdir.join(program)).is_ok();
        not_found(program, Searched::Path { path: path_env.to_owned(), beside: beside.then(|| wdir.to_path_buf()) })
    }))
}

/// Checks that this file can be executed.
pub(super) fn check(file: &Path) -> Result<(), ProgramError> {
    let refuse = |why| Err(ProgramError::NotExecutable { path: file.to_path_buf(), why });
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return refuse(Obstacle::Permission),
        Err(_) => return Err(not_found(file.as_os_str(), Searched::Nowhere)),
    };
    if metadata.is_dir() {
        refuse(Obstacle::Directory)
    } else if !metadata.is_file() {
        refuse(Obstacle::Special)
    } else if metadata.permissions().mode() & 0o111 == 0 {
        refuse(Obstacle::NoExecuteBit)
    } else if eaccess(file, AccessFlags::X_OK).is_err() {
        refuse(Obstacle::Permission)
    } else {
        Ok(())
    }
}

/// Checks that a process could start in this directory.
pub(crate) fn check_wdir(wdir: &Path) -> Result<(), WdirError> {
    let path = || wdir.to_path_buf();
    match std::fs::metadata(wdir) {
        Ok(metadata) if !metadata.is_dir() => Err(WdirError::NotADirectory { path: path() }),
        Ok(_) if eaccess(wdir, AccessFlags::X_OK).is_ok() => Ok(()),
        Ok(_) => Err(WdirError::Permission { path: path() }),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(WdirError::Permission { path: path() }),
        Err(_) => Err(WdirError::Missing { path: path() }),
    }
}

/// Returns whether the file is an ELF binary.
pub(super) fn is_elf(file: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Returns the interpreter that must run this program.
pub(super) fn interpreter(file: &Path) -> Interpreter {
    let Some(line) = first_line(file) else { return Interpreter::Loader };
    let name = line.split(is_blank).find(|word| !word.is_empty()).unwrap_or_default();
    match name.strip_suffix(b"\r") {
        Some(name) => Interpreter::CarriageReturn(PathBuf::from(OsStr::from_bytes(name))),
        None => Interpreter::Named(PathBuf::from(OsStr::from_bytes(name))),
    }
}

/// Refuses a script that `env` cannot run, because its first line names `python3\r` or such: `env` would start and only then fail.
pub(crate) fn check_env_line(file: &Path, wdir: &Path, path_env: &OsStr) -> Result<(), SpawnError> {
    let Some(line) = first_line(file) else { return Ok(()) };
    let line = line.trim_ascii_start();
    let (name, argument) = line.split_at(line.iter().position(is_blank).unwrap_or(line.len()));
    // The kernel passes all of the rest as one argument. Options (`-S`) and assignments are left to `env`.
    let argument = OsStr::from_bytes(argument.trim_ascii_start());
    let Some(program) = argument.as_bytes().strip_suffix(b"\r") else { return Ok(()) };
    let by_env = Path::new(OsStr::from_bytes(name)).file_name() == Some(OsStr::new("env"));
    if !by_env || program.is_empty() || program.starts_with(b"-") || program.contains(&b'=') {
        return Ok(());
    }
    match resolve(argument, wdir, path_env) {
        Err(ProgramError::NotFound { .. }) => {
            let interpreter = Interpreter::CarriageReturn(PathBuf::from(OsStr::from_bytes(program)));
            Err(SpawnError::NoInterpreter { path: file.to_path_buf(), interpreter })
        }
        Ok(_) | Err(ProgramError::NotExecutable { .. }) => Ok(()),
    }
}

/// Returns the first line of a script after `#!`, as the kernel reads it: a carriage return before the line's end is part of it.
fn first_line(file: &Path) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::with_capacity(256, File::open(file).ok()?).take(256).read_until(b'\n', &mut line).ok()?;
    let line = line.strip_prefix(b"#!")?;
    Some(line.strip_suffix(b"\n").unwrap_or(line).to_vec())
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The interpreter that a program needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interpreter {
    /// The interpreter in a script's `#!` line.
    Named(PathBuf),
    /// The interpreter in a `#!` line that ends in `\r\n`: for the kernel, the `\r` is the last letter of its name.
    CarriageReturn(PathBuf),
    /// The loader of a dynamically linked binary.
    Loader,
}

impl Interpreter {
    /// Says which interpreter of `program` is missing, and how to fix that.
    pub(super) fn missing(&self, program: &Path) -> String {
        match self {
            Interpreter::Named(path) => format!("its interpreter {} is not on this node", path.display()),
            Interpreter::CarriageReturn(path) => format!(
                r"its first line ends in \r\n, so its interpreter is `{}\r`, which does not exist: remove the \r (sed -i 's/\r$//' {})",
                path.display(),
                program.display(),
            ),
            Interpreter::Loader => "the loader that it is linked for (see ldd) is not on this node".to_owned(),
        }
    }
}

fn not_found(program: &OsStr, searched: Searched) -> ProgramError {
    ProgramError::NotFound { program: program.to_owned(), searched }
}

/// Why no program was found by a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The file does not exist.
    #[error("program {}: not found{searched}", if program.is_empty() { "\"\"".into() } else { program.to_string_lossy() })]
    NotFound {
        /// The name as given.
        program: OsString,
        /// Where it was searched.
        searched: Searched,
    },
    /// The file exists, but cannot be executed.
    #[error("program {}: {}", path.display(), why.text(path))]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: Obstacle,
    },
}

/// Where a program was searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Searched {
    /// In this working directory, because the name has a slash.
    Wdir(PathBuf),
    /// In these directories, because the name has no slash.
    Path {
        /// PATH in the environment.
        path: OsString,
        /// The working directory, if the program is there: the user forgot `./`.
        beside: Option<PathBuf>,
    },
    /// Nowhere else: an absolute path was given.
    Nowhere,
}

impl std::fmt::Display for Searched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Searched::Wdir(wdir) => write!(f, " in {}", wdir.display()),
            Searched::Path { path, beside: None } => write!(f, " in PATH ({})", path.display()),
            Searched::Path { path, beside: Some(wdir) } => {
                write!(f, " in PATH ({}); {} has one: write it with ./", path.display(), wdir.display())
            }
            Searched::Nowhere => Ok(()),
        }
    }
}

/// Why a file cannot be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// No user may execute it.
    NoExecuteBit,
    /// This user may not execute it, or may not enter a directory on its path, or the file system is mounted noexec.
    Permission,
    /// It is a directory.
    Directory,
    /// It is a device, a socket or a pipe.
    Special,
}

impl Obstacle {
    fn text(self, path: &Path) -> String {
        match self {
            Obstacle::NoExecuteBit => format!("not executable (chmod +x {})", path.display()),
            Obstacle::Permission => "permission denied".to_owned(),
            Obstacle::Directory => "is a directory".to_owned(),
            Obstacle::Special => "is not a regular file".to_owned(),
        }
    }
}

/// Why a process cannot start in a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WdirError {
    /// It does not exist.
    #[error("working directory {}: not found", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// It is not a directory.
    #[error("working directory {}: is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// This user may not enter it.
    #[error("working directory {}: permission denied", path.display())]
    Permission {
        /// The directory.
        path: PathBuf,
    },
}
