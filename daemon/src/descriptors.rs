//! The limit on open files of daemons and steps (`RLIMIT_NOFILE`).
//!
//! The usual soft limit of 1,024 is for programs that use `select`. A daemon raises its own to the hard limit, because clients,
//! members and steps have a connection each. A step raises its own only for ranks that need it, because its ranks then need the
//! former limit set for them, which costs each of them one more exec.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The files that a step has open for each rank: two pipes for output, the PMI socket, and a PMIx connection.
const FILES_PER_RANK: u64 = 4;
/// The files of a step without ranks.
const FILES_OF_STEP: u64 = 64;

/// The daemon's soft limit before [`raise`].
static BEFORE: OnceLock<u64> = OnceLock::new();

/// Raises a daemon's limit to its hard limit.
pub(crate) fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok()
    {
        let _ = BEFORE.set(soft); // a daemon calls this once
    }
}

/// Returns the limit for the daemon's steps, if it differs from the daemon's own.
pub(crate) fn of_steps() -> Option<u64> {
    BEFORE.get().copied()
}

/// Sets a step's own limit to that which the daemon had first.
pub(crate) fn lower(soft: u64) {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // After a failure the limit is higher than necessary.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
}

/// The limit of a step that is about to start ranks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// It was raised from this soft limit; ranks must not inherit it.
    Raised {
        from: u64,
    },
    /// A sentence: the hard limit is too low.
    TooLow(String),
}

/// Raises a step's limit if `ranks` ranks with `more` files each, besides their pipes, need that.
pub(crate) fn make_room(ranks: u64, more: u64) -> Room {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Room::Enough };
    let needed = FILES_OF_STEP + (FILES_PER_RANK + more) * ranks;
    if needed > hard {
        return Room::TooLow(format!(
            "{ranks} ranks need {needed} open files in rsd's step process, and the limit here is {hard}: raise it where rsd starts \
             (ulimit -n, or LimitNOFILE= of its service)"
        ));
    }
    match soft < needed && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        true => Room::Raised { from: soft },
        false => Room::Enough,
    }
}
