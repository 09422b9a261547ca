//! What `/proc` tells of processes.

use std::fs;

/// Processes in whose environment or command line `text` stands, with their command lines. Those that have ended and only
/// wait to be reaped have neither.
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

/// Bytes of a process in memory: now, and at most until now.
pub fn memory_bytes(pid: i32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// Bytes that a process shares with nobody.
pub fn private_bytes(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kib.sum::<u64>() * 1024)
}

/// How many files a process has open.
pub fn open_files(pid: i32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// Whether a process is there and not a zombie.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `PID (NAME) STATE …`, where NAME may have any characters.
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|state| state != "Z" && state != "X")
}

pub(crate) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
