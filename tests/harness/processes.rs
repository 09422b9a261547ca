//! Facts about processes from `/proc`.

use std::fs;

/// Processes whose environment or command line contains `text`, with their command lines. Zombies have
/// neither.
pub fn mentioning(text: &str) -> Vec<(i32, String)> {
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = std::process::id();
    ids.filter(|&pid| pid.unsigned_abs() != own)
        .filter_map(|pid| {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let line = read("cmdline");
            let found = [&line, &read("environ")].into_iter().any(|bytes| contains(bytes, text.as_bytes()));
            found.then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}

/// A process's resident memory in bytes: current and peak.
pub fn memory_bytes(pid: i32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// The bytes of memory that only this process uses.
pub fn private_bytes(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kib.sum::<u64>() * 1024)
}

/// The number of files that a process has open.
pub fn open_files(pid: i32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// The parent of a process.
pub fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process exists and is not a zombie.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `PID (NAME) STATE …`; NAME may contain any characters.
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|state| state != "Z" && state != "X")
}

pub(crate) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
