//! Checks whether `group exec` can execute the program, before it joins.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess};
use rsd_proto::transport::exit;

use crate::exit::Failure;

/// Fails as the execution would if `program` is not found or cannot be executed.
pub(super) fn check(program: &OsStr) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    find(program, &path).map_err(|why| {
        Failure::new(exit::NOT_STARTED, format!("cannot execute {}: {why}; did not join the group", program.display()))
    })
}

/// Searches by the rules of `execvp`.
fn find(program: &OsStr, path: &OsStr) -> Result<(), String> {
    let candidates: Vec<PathBuf> = match program.as_bytes().contains(&b'/') {
        true => vec![program.into()],
        false => std::env::split_paths(path).map(|dir| dir.join(program)).collect(),
    };
    let mut refused = None;
    for file in candidates {
        match executable(&file) {
            Ok(()) => return Ok(()),
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => refused = refused.or(Some(errno)),
        }
    }
    let missing = || match program.as_bytes().contains(&b'/') {
        true => Errno::ENOENT.desc().to_owned(),
        false => format!("not found in PATH ({})", path.display()),
    };
    Err(refused.map_or_else(missing, |errno| errno.desc().to_owned()))
}

fn executable(file: &Path) -> Result<(), Errno> {
    eaccess(file, AccessFlags::X_OK)?;
    if file.is_dir() { Err(Errno::EISDIR) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_the_kernel_and_the_shell_find_it() {
        let found = |program: &str| find(program.as_ref(), "/nonexistent:/bin".as_ref());
        assert_eq!((found("sh"), found("/bin/sh")), (Ok(()), Ok(())));
        assert_eq!(found("./nosuch"), Err("No such file or directory".to_owned()));
        assert_eq!(found("nosuch"), Err("not found in PATH (/nonexistent:/bin)".to_owned()));
        assert_eq!(found("/bin"), Err("Is a directory".to_owned()));
        assert_eq!(found("/proc/self/maps"), Err("Permission denied".to_owned()));
    }
}
