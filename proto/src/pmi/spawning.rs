//! Keys for spawners and spawned processes beyond those that every process manager has: keys that only rsd's server answers, and
//! the key by which MPICH passes its port to the processes that it spawns.

/// The key, in the KVS of every spawned job, of the port at which its spawner waits for it.
pub const PARENT_PORT_KEY: &str = "PARENT_ROOT_PORT_NAME";

/// The key of the reason why the asking rank's last spawn was refused, as a sentence.
pub const ERROR_KEY: &str = "RSD_spawn_error";

/// The key, requested from the namespace of a spawned job, of its state: `running`, `done`, or `failed: ` and the reason.
pub const STATE_KEY: &str = "RSD_job_state";

/// The info key that, if `true`, lets the spawner's job continue when the spawned job fails.
pub const APART: &str = "rsd_apart";
