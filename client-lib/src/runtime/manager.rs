//! The process manager's services beyond startup: names, spawning, the size of the universe.
//!
//! A process with a launcher has a process manager from the start. One without a launcher is a world of one and stays so until it
//! needs more: then the rsd daemon on its node accepts it as a job of its own, as long as the library is open.

use rsd_proto::join::Join;

use super::State;
use crate::bootstrap::join::{self, JoinError};
use crate::bootstrap::{Env, Limits, Pmi};
use crate::error::{MpiError, MpiResult};
use crate::settings::Singleton;

/// The process manager. A process without one gets one now, if a daemon runs; otherwise the error says what to do.
pub fn manager(state: &mut State) -> MpiResult<&mut Pmi> {
    let world = state.world.as_mut().ok_or_else(|| MpiError::other("MPI is not initialized"))?;
    let pmi = match world.pmi.take() {
        Some(pmi) => pmi,
        None => adopted(world.settings.singleton)?,
    };
    Ok(world.pmi.insert(pmi))
}

fn adopted(singleton: Singleton) -> MpiResult<Pmi> {
    const NEEDS: &str = "this needs a process manager, and the process was started without one";
    if singleton == Singleton::Alone {
        return Err(MpiError::other(format!("{NEEDS} (RSD_MPI_SINGLETON=alone asks no daemon for one)")));
    }
    let env = join::alone().map_err(|error| MpiError::other(format!("{NEEDS}: failed to {error}")))?;
    match Pmi::from_env(&env, Limits::default()) {
        Ok(Some(pmi)) => Ok(pmi),
        Ok(None) => Err(MpiError::other(NEEDS)),
        Err(error) => Err(MpiError::other(error.describe("communicate with the daemon on this node"))),
    }
}

/// A place in the group that the user names, or in that of `env`, if it is already a place in this group. Also returns
/// whether it is new.
pub(super) fn into_group(wanted: &Join, exports: bool, env: Env) -> MpiResult<(Env, bool)> {
    let name = wanted.group.as_deref().unwrap_or_default();
    if env.fd.is_some() || env.port.is_some() {
        return match std::env::var("RSD_GROUP").is_ok_and(|group| group == name) {
            true => Ok((env, false)),
            false => Err(MpiError::other(format!(
                "RSD_JOIN={name} asks for a place in a group, but a launcher has given this process one already ({} is set): \
                 unset RSD_JOIN, or PMI_FD and PMI_PORT if they are left over from another program",
                if env.fd.is_some() { "PMI_FD" } else { "PMI_PORT" }
            ))),
        };
    }
    if exports {
        return Err(MpiError::other(format!(
            "RSD_JOIN_EXPORT is not for MPI_Init, which would have to change the environment while other threads may read it: start \
             the program by rsctl group exec {name} --export …, or join by rsd_join.h or rsd_join.py before MPI_Init; or unset it"
        )));
    }
    let refused = |error: JoinError| MpiError::other(format!("cannot join group {name} (RSD_JOIN): failed to {error}"));
    join::into_group(wanted.clone()).map(|env| (env, true)).map_err(refused)
}
