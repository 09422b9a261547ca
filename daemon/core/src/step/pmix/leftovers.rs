//! Files and directories that ranks want removed after their end. Open MPI registers the files of its shared memory, and leaves them
//! behind when it has registered them, also when it ends well.

use rsd_proto::pmix::{Info, Proc, Status, keys, rank};

use super::{Effect, Local, Step};

/// The most entries of one step.
const MOST: usize = 1 << 16;

/// A file or directory to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its path, which is absolute.
    pub path: Vec<u8>,
    /// What to remove there.
    pub what: Removed,
}

/// What to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// A file.
    File,
    /// A directory, if it is empty.
    EmptyDirectory,
    /// What is in a directory, but not the directory.
    Content,
    /// A directory and what is in it.
    Tree,
}

impl Step {
    /// Notes what a rank wants removed: after its own end if it names itself, and otherwise after the end of all ranks here.
    pub(super) fn on_cleanup(&mut self, local: Local, targets: &[Proc], infos: &[Info]) -> Status {
        let of = targets.iter().any(|target| target.rank != rank::WILDCARD).then_some(local);
        let directory =
            match (Info::is_set(infos, keys::CLEANUP_RECURSIVE), Info::is_set(infos, keys::CLEANUP_LEAVE_TOP)) {
                (false, _) => Removed::EmptyDirectory,
                (true, true) => Removed::Content,
                (true, false) => Removed::Tree,
            };
        for info in infos {
            let what = match &info.key[..] {
                keys::REGISTER_CLEANUP => Removed::File,
                keys::REGISTER_CLEANUP_DIR => directory,
                _ => continue,
            };
            for path in info.value.as_text().unwrap_or_default().split(|byte| *byte == b',') {
                if !path.starts_with(b"/") || path.iter().all(|byte| *byte == b'/') {
                    return Status::BAD_PARAM;
                }
                if self.pmix.leftovers.len() >= MOST {
                    return Status::OUT_OF_RESOURCE;
                }
                self.pmix.leftovers.push((of, Removal { path: path.to_vec(), what }));
            }
        }
        Status::SUCCESS
    }

    /// Lets the process remove what a rank that has ended wanted removed, and after the last one the rest.
    pub(super) fn remove_leftovers(&mut self, local: Local, out: &mut Vec<Effect>) {
        let all_over = self.ranks.iter().all(|rank| rank.phase.is_over());
        let (due, rest): (Vec<_>, _) = std::mem::take(&mut self.pmix.leftovers)
            .into_iter()
            .partition(|(of, _)| *of == Some(local) || of.is_none() && all_over);
        self.pmix.leftovers = rest;
        if !due.is_empty() {
            out.push(Effect::Remove(due.into_iter().map(|(_, removal)| removal).collect()));
        }
    }
}
