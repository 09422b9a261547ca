//! The attributes that processes inherit (umask, nice value and limits), read from /proc. They are read from the shell that
//! submits a job, or from the rank that spawns one, and the job's steps adopt them.

use std::fs;

use crate::v1::{Inherited, Limit};

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Each limit by its name in limits.conf(5), and its name in /proc/PID/limits.
pub const LIMITS: [(&str, &str); 16] = [
    ("cpu", "Max cpu time"),
    ("fsize", "Max file size"),
    ("data", "Max data size"),
    ("stack", "Max stack size"),
    ("core", "Max core file size"),
    ("rss", "Max resident set"),
    ("nproc", "Max processes"),
    ("nofile", "Max open files"),
    ("memlock", "Max locked memory"),
    ("as", "Max address space"),
    ("locks", "Max file locks"),
    ("sigpending", "Max pending signals"),
    ("msgqueue", "Max msgqueue size"),
    ("nice", "Max nice priority"),
    ("rtprio", "Max realtime priority"),
    ("rttime", "Max realtime timeout"),
];

/// Returns the attributes of this process. Attributes that /proc does not show are omitted.
pub fn of_self() -> Inherited {
    of("self")
}

/// Returns the attributes of process `pid`.
pub fn of_process(pid: u32) -> Inherited {
    of(&pid.to_string())
}

fn of(process: &str) -> Inherited {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    Inherited { umask: umask(&read("status")), nice: nice(&read("stat")), limits: limits(&read("limits")) }
}

/// Parses `Umask: 0022`.
fn umask(status: &str) -> Option<u32> {
    let text = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(text.trim(), 8).ok()
}

/// Parses field 19. Field 2, the name of the program, is in parentheses and may contain any character.
fn nice(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(16)?.parse().ok()
}

/// Parses lines such as `Max open files            1024                 524288               files`.
fn limits(table: &str) -> Vec<Limit> {
    let limit = |(resource, title): &(&str, &str)| {
        let mut values = table.lines().find_map(|line| line.strip_prefix(title))?.split_ascii_whitespace();
        let mut value = || match values.next()? {
            "unlimited" => Some(UNLIMITED),
            number => number.parse().ok(),
        };
        Some(Limit { resource: (*resource).to_owned(), soft: value()?, hard: value()? })
    };
    LIMITS.iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_parsed() {
        assert_eq!(umask("Name:\tsh\nUmask:\t0027\nState:\tR\n"), Some(0o27));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 -5 1 0 99\n";
        assert_eq!(nice(stat), Some(-5));
        let table = "\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 524288               files
";
        let expected = [("cpu", UNLIMITED, UNLIMITED), ("nofile", 1024, 524_288)];
        let limits = limits(table);
        let read: Vec<_> = limits.iter().map(|limit| (&limit.resource[..], limit.soft, limit.hard)).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn this_process_has_all_limits() {
        let own = of_self();
        assert!(own.umask.is_some() && own.nice.is_some(), "{own:?}");
        assert_eq!(own.limits.len(), LIMITS.len());
    }
}
