//! Prepares this process to run without page faults.

use std::fs;

/// Maps all of the program's text now, while no launch waits. Otherwise the first execution of each page of code is a page fault.
/// A launch takes dozens of them, and in a virtual machine each costs as much as several system calls. The pages belong to the
/// file and are shared with the daemon. Kernels before 5.14 cannot do this, which costs only time.
pub(crate) fn map_own_text() {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let program = program.to_string_lossy();
    for (start, end) in maps.lines().filter(|line| line.ends_with(&*program)).filter_map(text_of) {
        // SAFETY: this reads pages that stay mapped while the program runs, and changes nothing in them.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_POPULATE_READ) };
    }
}

/// Parses `55d0c8a00000-55d0c8f00000 r-xp 00200000 08:01 131 /usr/bin/rsd`: returns the range if it is executable.
fn text_of(line: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let range = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    rest.starts_with("r-x").then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_mapped() {
        assert_eq!(text_of("1000-3000 r-xp 00200000 08:01 131 /usr/bin/rsd"), Some((0x1000, 0x3000)));
        assert_eq!(text_of("1000-3000 rw-p 00200000 08:01 131 /usr/bin/rsd"), None);
        assert_eq!(text_of(""), None);
    }

    #[test]
    fn our_own_text_is_resident_afterwards() {
        map_own_text();
        let maps = fs::read_to_string("/proc/self/smaps").expect("this process has maps");
        let program = std::env::current_exe().expect("this test program");
        let mut lines =
            maps.lines().skip_while(|line| !(line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy())));
        let mut kib = |key: &str| {
            let line = lines.find(|line| line.starts_with(key)).expect("every mapping has it");
            line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number")
        };
        assert_eq!(kib("Size:"), kib("Rss:"));
    }
}
