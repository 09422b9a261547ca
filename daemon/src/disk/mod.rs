//! The files of a daemon: its [state directory](state_dir) with the [launches](step_files) of running jobs, one [log per job](job_log)
//! and the [journal] of a head; and the [directory of its sockets](runtime_dir).

mod claim;
pub(crate) mod job_log;
pub(crate) mod journal;
pub(crate) mod runtime_dir;
pub(crate) mod state_dir;
pub(crate) mod step_files;
