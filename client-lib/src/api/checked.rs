//! The functions that stand in for those of [`api`](super) in a process that checks its program (`RSD_MPI_CHECK`; `runtime::check` has the
//! whole). Those that are not here are the same.

pub use super::*;

/// Collective operations.
pub mod coll {
    pub use crate::api::coll::checked::*;
}
