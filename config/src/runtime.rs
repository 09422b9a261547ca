//! The runtime directory: where this user's DVMs are.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The error for an `RSD_RUNTIME_DIR` that is a relative path: programs in different directories would find different daemons.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("RSD_RUNTIME_DIR={}: not an absolute path; set an absolute path or unset the variable", path.display())]
pub struct RelativeRuntimeDir {
    /// The variable's value.
    pub path: PathBuf,
}

/// Returns the directory with one entry per daemon of this user: the first of
///
/// 1. `$RSD_RUNTIME_DIR`, which must be absolute;
/// 2. `/run/rsd`, for root, if `/run` is a directory of root: a service and a login shell of root use the same;
/// 3. `$XDG_RUNTIME_DIR/rsd`, if that variable is the absolute path of a directory;
/// 4. `/run/user/<uid>/rsd`, if `/run/user/<uid>` is a directory of this user, so that a shell without that variable (`ssh host
///    command`, cron, su) finds the same daemons as a login shell;
/// 5. `/tmp/rsd-<uid>`.
///
/// A logout may remove the directories of 3 and 4. Then these rules lead to another one, into which running daemons move their
/// sockets. `rsd_join.py` and `rsd_join.h` use the same rules. The caller checks whether the directory exists and who owns it.
pub fn runtime_dir(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, RelativeRuntimeDir> {
    choose(env, Path::new("/run"), own_uid())
}

/// Returns why `$XDG_RUNTIME_DIR` is not used, if it is set but ignored.
pub fn passed_over(env: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    passed_over_by(env, own_uid())
}

fn passed_over_by(env: impl Fn(&str) -> Option<OsString>, uid: u32) -> Option<String> {
    let own = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let xdg = own("XDG_RUNTIME_DIR").filter(|_| own("RSD_RUNTIME_DIR").is_none() && uid != 0)?;
    let why = match xdg.is_absolute() {
        false => "not an absolute path",
        true if !xdg.is_dir() => "not a directory",
        true => return None,
    };
    Some(format!("XDG_RUNTIME_DIR={}: {why}", xdg.display()))
}

fn choose(env: impl Fn(&str) -> Option<OsString>, run: &Path, uid: u32) -> Result<PathBuf, RelativeRuntimeDir> {
    let variable = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match variable("RSD_RUNTIME_DIR") {
        Some(path) if path.is_absolute() => return Ok(path),
        Some(path) => return Err(RelativeRuntimeDir { path }),
        None if uid == 0 && owner(run) == Some(uid) => return Ok(run.join("rsd")),
        None => {}
    }
    let xdg = variable("XDG_RUNTIME_DIR").filter(|path| path.is_absolute() && path.is_dir());
    let login = || Some(run.join("user").join(uid.to_string())).filter(|path| owner(path) == Some(uid));
    let below = xdg.or_else(login).map(|path| path.join("rsd"));
    Ok(below.unwrap_or_else(|| PathBuf::from(format!("/tmp/rsd-{uid}"))))
}

/// Returns the owner of a directory; None if it is not a directory.
fn owner(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().filter(|meta| meta.is_dir()).map(|meta| meta.uid())
}

/// Returns the effective user. Without /proc it returns an unused id, whose directory then fails the owner check.
pub(crate) fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |process| process.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn the_first_variable_that_names_a_directory_is_used() {
        let dir = |pairs: &[(&str, &str)]| choose(env(pairs), Path::new("/nonexistent"), 7);
        let temp = std::env::temp_dir();
        let xdg = temp.to_str().unwrap();
        assert_eq!(dir(&[("RSD_RUNTIME_DIR", "/a"), ("XDG_RUNTIME_DIR", xdg)]), Ok(PathBuf::from("/a")));
        assert_eq!(dir(&[("RSD_RUNTIME_DIR", ""), ("XDG_RUNTIME_DIR", xdg)]), Ok(temp.join("rsd")));
        for passed_over in ["", "a", ".", "/nonexistent/xdg"] {
            assert_eq!(dir(&[("XDG_RUNTIME_DIR", passed_over)]), Ok(PathBuf::from("/tmp/rsd-7")), "{passed_over}");
        }
    }

    #[test]
    fn a_shell_without_the_variable_uses_the_directory_of_a_login_shell() {
        let base = std::env::temp_dir().join(format!("rsd-run-user-{}", std::process::id()));
        let own = own_uid();
        std::fs::create_dir_all(base.join(format!("user/{own}"))).unwrap();
        std::fs::create_dir_all(base.join(format!("user/{}", own + 1))).unwrap();
        let expected = if own == 0 { "rsd".to_owned() } else { format!("user/{own}/rsd") };
        assert_eq!(choose(env(&[]), &base, own), Ok(base.join(expected)));
        let theirs = choose(env(&[]), &base, own + 1);
        assert_eq!(theirs, Ok(PathBuf::from(format!("/tmp/rsd-{}", own + 1))), "that directory is another user's");
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_relative_rsd_runtime_dir_is_refused_and_a_relative_xdg_runtime_dir_is_reported() {
        let error = runtime_dir(env(&[("RSD_RUNTIME_DIR", "run")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "RSD_RUNTIME_DIR=run: not an absolute path; set an absolute path or unset the variable"
        );
        let told = |value| passed_over_by(env(&[("XDG_RUNTIME_DIR", value)]), 7);
        assert_eq!(told("run").unwrap(), "XDG_RUNTIME_DIR=run: not an absolute path");
        assert_eq!(told("/nonexistent/xdg").unwrap(), "XDG_RUNTIME_DIR=/nonexistent/xdg: not a directory");
        assert_eq!((told("/"), told("")), (None, None));
        assert_eq!(passed_over_by(env(&[("XDG_RUNTIME_DIR", "run"), ("RSD_RUNTIME_DIR", "/a")]), 7), None);
        assert_eq!(passed_over_by(env(&[("XDG_RUNTIME_DIR", "run")]), 0), None, "root does not use it");
    }
}
