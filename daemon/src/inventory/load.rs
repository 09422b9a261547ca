//! The present load of this node, which `rsctl nodes` shows beside the inventory.
//!
//! A sample costs three small reads of `/proc`; nothing is kept between samples and no process list is walked.

use sysinfo::{MemoryRefreshKind, System};

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    /// Processes that ran or waited to run, averaged over the last minute.
    pub(crate) load1: f64,
    /// Memory of the machine that is not available to new processes.
    pub(crate) memory_used_bytes: u64,
    /// Resident memory of this process.
    pub(crate) daemon_rss_bytes: u64,
}

/// Takes a sample now.
pub(crate) fn sample() -> Load {
    Load {
        load1: System::load_average().map_or(0.0, |average| average.one),
        memory_used_bytes: memory().used_bytes,
        daemon_rss_bytes: rss_bytes(),
    }
}

/// The memory of the machine; zeros if the system does not report it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) total_bytes: u64,
    pub(crate) used_bytes: u64,
}

pub(crate) fn memory() -> Memory {
    let Ok(mut system) = System::new() else { return Memory::default() };
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    Memory { total_bytes: system.total_memory(), used_bytes: system.used_memory() }
}

/// Read from `statm` instead of sysinfo, whose process part raises this process's limit of open files, which ranks inherit.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    pages * page.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_this_process_is_plausible() {
        let load = sample();
        assert!(load.load1 >= 0.0);
        assert!(load.daemon_rss_bytes > 1 << 16, "{load:?}");
        assert!(load.memory_used_bytes >= load.daemon_rss_bytes / 2, "{load:?}");
    }
}
