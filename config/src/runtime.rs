//! Where this user's DVMs are.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The directory with one entry per daemon of this user: `$RSD_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/rsd`, else
/// `/tmp/rsd-<uid>`. Relative paths in the environment are passed over. Whether it exists and whose it is is not checked here.
pub fn runtime_dir(env: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let variable = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    variable("RSD_RUNTIME_DIR")
        .or_else(|| variable("XDG_RUNTIME_DIR").map(|dir| dir.join("rsd")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/rsd-{}", own_uid())))
}

/// The effective user. Without /proc it is an id that nobody has, whose directory then fails its owner check.
fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |process| process.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_names_a_directory_counts() {
        let dir = |pairs: &[(&str, &str)]| {
            runtime_dir(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        assert_eq!(dir(&[("RSD_RUNTIME_DIR", "/a"), ("XDG_RUNTIME_DIR", "/b")]), PathBuf::from("/a"));
        assert_eq!(dir(&[("RSD_RUNTIME_DIR", ""), ("XDG_RUNTIME_DIR", "/b")]), PathBuf::from("/b/rsd"));
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(dir(&[("RSD_RUNTIME_DIR", "a"), ("XDG_RUNTIME_DIR", "")]), PathBuf::from(format!("/tmp/rsd-{own}")));
    }
}
