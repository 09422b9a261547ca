//! The daemon's process, under the names that all Prometheus clients use.

use rsd_core::metrics::Family;

use crate::inventory::load;

/// Returns the metrics of this process, from `/proc/self`.
pub(super) fn families(started_ms: u64) -> Vec<Family> {
    let load = load::sample();
    let mut families = vec![
        Family::labelled(
            "rsd_build_info",
            "1; the daemon's version is a label.",
            vec![(vec![("version", rsd_proto::VERSION.to_owned())], 1.0)],
        ),
        Family::gauge(
            "process_start_time_seconds",
            "When the daemon was started, in seconds since 1970.",
            started_ms as f64 / 1000.0,
        ),
        Family::gauge("process_resident_memory_bytes", "Resident memory of the daemon.", load.daemon_rss_bytes as f64),
    ];
    if let Some(seconds) = cpu_seconds() {
        families.push(Family::counter("process_cpu_seconds_total", "Processor time of the daemon.", seconds));
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        // One of them is that of the directory.
        let open = entries.count().saturating_sub(1);
        families.push(Family::gauge("process_open_fds", "Open files of the daemon.", open as f64));
    }
    if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        families.push(Family::gauge("process_max_fds", "The daemon's limit on open files.", soft as f64));
    }
    families
}

fn cpu_seconds() -> Option<f64> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_files_and_processor_time() {
        let text = rsd_core::metrics::text(&families(1_500));
        assert!(text.contains("\nprocess_start_time_seconds 1.5\n"), "{text}");
        for name in
            ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_max_fds"]
        {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
            assert!(value.is_some_and(|value| value > 0.0), "{name} in {text}");
        }
    }
}
