//! Where daemons keep their state: what must outlive a login session and a restart of the machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::runtime::own_uid;

/// Why a daemon has no place for its state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoStateDir {
    /// `RSD_STATE_DIR` is a relative path: daemons started in different directories would have different states.
    #[error("RSD_STATE_DIR={}: not an absolute path; set an absolute path or unset the variable", path.display())]
    Relative {
        /// The variable's value.
        path: PathBuf,
    },
    /// Neither `RSD_STATE_DIR`, `XDG_STATE_HOME` nor `HOME` is an absolute path.
    #[error("no home directory: HOME is not an absolute path")]
    Homeless,
}

/// Returns the state directory of this user's daemon of this name, below the first of
///
/// 1. `$RSD_STATE_DIR`, which must be absolute;
/// 2. `/var/lib/rsd`, for root;
/// 3. `$XDG_STATE_HOME/rsd`, if that variable is an absolute path;
/// 4. `$HOME/.local/state/rsd`.
///
/// Home directories are often shared by the machines of a cluster, so the directory's name is `NAME@HOST`. `/var/lib` is the machine's
/// own, and there it is `NAME`. The name of the host is used, and not `/etc/machine-id`, because machines that start from one image
/// have the same id. A machine that gets another host name starts with an empty state.
///
/// The caller creates the directory and checks who owns it.
pub fn state_dir(env: impl Fn(&str) -> Option<OsString>, name: &str) -> Result<PathBuf, NoStateDir> {
    choose(env, name, own_uid(), &host())
}

/// Returns the name of a daemon's state directory in a directory that several machines may share.
pub fn state_dir_name(name: &str) -> OsString {
    with_host(name, &host())
}

fn choose(env: impl Fn(&str) -> Option<OsString>, name: &str, uid: u32, host: &OsStr) -> Result<PathBuf, NoStateDir> {
    let variable = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let entry = with_host(name, host);
    match variable("RSD_STATE_DIR") {
        Some(path) if path.is_absolute() => return Ok(path.join(entry)),
        Some(path) => return Err(NoStateDir::Relative { path }),
        None if uid == 0 => return Ok(Path::new("/var/lib/rsd").join(name)),
        None => {}
    }
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    let base = absolute("XDG_STATE_HOME").or_else(home).ok_or(NoStateDir::Homeless)?;
    Ok(base.join("rsd").join(entry))
}

fn with_host(name: &str, host: &OsStr) -> OsString {
    let mut entry = OsString::from(name);
    entry.push("@");
    entry.push(host);
    entry
}

/// Returns the name of this host, as it may stand in a path.
fn host() -> OsString {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: Vec<u8> = name.trim_ascii().iter().map(|byte| if *byte == b'/' { b'_' } else { *byte }).collect();
    if name.is_empty() { "localhost".into() } else { OsString::from_vec(name) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn chosen(pairs: &[(&str, &str)], uid: u32) -> Result<String, NoStateDir> {
        let env = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        choose(env, "n0", uid, OsStr::new("node7")).map(|path| path.display().to_string())
    }

    #[test]
    fn the_state_is_in_the_home_directory_under_the_names_of_daemon_and_host() {
        let home = ("HOME", "/home/alice");
        assert_eq!(chosen(&[home], 7).unwrap(), "/home/alice/.local/state/rsd/n0@node7");
        assert_eq!(chosen(&[home, ("XDG_STATE_HOME", "/scratch")], 7).unwrap(), "/scratch/rsd/n0@node7");
        assert_eq!(chosen(&[home, ("XDG_STATE_HOME", "scratch")], 7).unwrap(), "/home/alice/.local/state/rsd/n0@node7");
        assert_eq!(chosen(&[home, ("RSD_STATE_DIR", "/a")], 7).unwrap(), "/a/n0@node7");
        assert_eq!(chosen(&[home], 0).unwrap(), "/var/lib/rsd/n0", "of root");
        assert_eq!(chosen(&[home, ("RSD_STATE_DIR", "/a")], 0).unwrap(), "/a/n0@node7");
    }

    #[test]
    fn a_user_without_a_home_and_a_relative_directory_are_refused() {
        for pairs in [&[][..], &[("HOME", "")], &[("HOME", "home")]] {
            assert_eq!(chosen(pairs, 7), Err(NoStateDir::Homeless));
        }
        let error = chosen(&[("RSD_STATE_DIR", "a")], 7).unwrap_err().to_string();
        assert_eq!(error, "RSD_STATE_DIR=a: not an absolute path; set an absolute path or unset the variable");
    }

    #[test]
    fn the_name_of_the_host_is_one_component_of_a_path() {
        let host = host();
        assert!(!host.is_empty() && !host.as_bytes().contains(&b'/') && !host.as_bytes().contains(&b'\n'), "{host:?}");
    }
}
