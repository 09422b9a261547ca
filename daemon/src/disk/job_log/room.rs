//! The room that all logs may take on their file system. When it is full, the logs of ended jobs are deleted, the oldest first.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::statvfs::statvfs;
use rsd_config::settings::Space;

/// One of so many parts of the file system stays free, but no more than so much.
const FREE_PART: u64 = 20;
const FREE_BYTES_MAX: u64 = 1 << 30;

/// What the logs have and may have.
#[derive(Debug)]
pub(super) struct Room {
    dir: PathBuf,
    most: Space,
    taken_bytes: AtomicU64,
}

/// A file system: its size, and what of it is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) bytes: u64,
    pub(super) free_bytes: u64,
}

impl Room {
    pub(super) fn new(dir: PathBuf, most: Space) -> Room {
        Room { dir, most, taken_bytes: AtomicU64::new(0) }
    }

    pub(super) fn take(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: u64) {
        // Only the writer gives back, after it or the start has taken.
        self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there is room for so many bytes more. What cannot be measured is no limit.
    pub(super) fn has(&self, bytes: u64) -> bool {
        disk(&self.dir).is_none_or(|disk| fits(disk, self.most, self.taken_bytes.load(Ordering::Relaxed), bytes))
    }
}

fn disk(dir: &Path) -> Option<Disk> {
    let stat = statvfs(dir).ok()?;
    let bytes_of = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    Some(Disk { bytes: bytes_of(stat.blocks()), free_bytes: bytes_of(stat.blocks_available()) })
}

fn fits(disk: Disk, most: Space, taken_bytes: u64, more: u64) -> bool {
    let most = match most {
        Space::Bytes(bytes) => bytes,
        Space::Percent(percent) => disk.bytes / 100 * u64::from(percent),
    };
    taken_bytes + more <= most && disk.free_bytes.saturating_sub(more) >= (disk.bytes / FREE_PART).min(FREE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_take_their_part_and_leave_some_free() {
        let disk = Disk { bytes: 1000, free_bytes: 500 };
        for (most, taken, more, expected) in [
            (Space::Percent(10), 0, 100, true),
            (Space::Percent(10), 1, 100, false),
            (Space::Bytes(700), 200, 450, true),
            (Space::Bytes(700), 200, 451, false),
            (Space::Bytes(200), 200, 1, false),
        ] {
            assert_eq!(fits(disk, most, taken, more), expected, "{most:?} {taken} {more}");
        }
    }
}
