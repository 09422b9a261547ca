//! Finds what a DVM must not leave behind.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes;

/// Sockets that are bound below `dir`, as the kernel lists them.
pub(crate) fn sockets(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let dir = format!("{}/", dir.display());
    let paths = table.lines().filter_map(|line| line.split_whitespace().nth(7));
    paths.filter(|path| path.starts_with(&dir)).map(str::to_owned).collect()
}

/// Shared-memory segments of MPICH for jobs with these PMI names.
pub(crate) fn segments(namespaces: &[String]) -> Vec<String> {
    let prefixes: Vec<String> =
        namespaces.iter().map(|name| format!("mpich_shm_{:x}_", fnv1a(name.as_bytes()))).collect();
    let there = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = there.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect()
}

/// Kills all processes that mention `dir`. Only tests use such paths.
pub(crate) fn kill_all(dir: &str) {
    for (pid, _) in processes::mentioning(dir) {
        // The process may have exited in the meantime.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The hash in the names of MPICH's segments.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }
}
