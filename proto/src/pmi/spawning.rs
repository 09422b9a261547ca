//! Keys for spawners and spawned processes beyond those that every process manager has: keys that only rsd's server answers, and the
//! key by which MPICH passes its port to the processes that it spawns.

/// In the KVS of every spawned job: where its spawner waits for it.
pub const PARENT_PORT_KEY: &str = "PARENT_ROOT_PORT_NAME";

/// Why the last spawn of the asking rank was refused, as a sentence.
pub const ERROR_KEY: &str = "RSD_spawn_error";

/// Requested from the namespace of a spawned job: `running`, `done`, or `failed: ` and the reason.
pub const STATE_KEY: &str = "RSD_job_state";

/// The info key that, if `true`, lets the spawner's job continue when the spawned job fails.
pub const APART: &str = "rsd_apart";
