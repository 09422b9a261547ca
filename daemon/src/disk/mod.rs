//! The files of a daemon: its [state directory](state_dir), one [log per job](job_log), and the [records](kept) that a restarted
//! head needs.

mod claim;
pub(crate) mod job_log;
pub(crate) mod kept;
pub(crate) mod state_dir;
