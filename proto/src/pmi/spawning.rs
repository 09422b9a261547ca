//! What a spawner and a spawned process find besides what every process manager has: keys that only rsd's answers, and the
//! one by which MPICH hands its port to those that it spawns.

/// In every spawned job's store: where its spawner waits for them.
pub const PARENT_PORT_KEY: &str = "PARENT_ROOT_PORT_NAME";

/// Why the asking rank's last spawn was refused, as a sentence.
pub const ERROR_KEY: &str = "RSD_spawn_error";

/// Asked of the namespace of a spawned job: `running`, `done`, or `failed: ` and why.
pub const STATE_KEY: &str = "RSD_job_state";

/// The info key that says, with `true`, that the spawner's job goes on when the new one fails.
pub const APART: &str = "rsd_apart";
