//! The process sets that the process manager reports, requested when a session first needs them.

use rsd_proto::pmi::sets;

use super::State;
use crate::bootstrap::{BootstrapError, Pmi};
use crate::error::{MpiError, MpiResult};
use crate::object::session::Psets;

impl State {
    /// All process sets. The first call costs a few requests to the process manager.
    pub fn psets(&mut self) -> MpiResult<&Psets> {
        let Some(world) = &mut self.world else { return Err(MpiError::other("MPI is not initialized")) };
        let found = match (world.psets.take(), &mut world.pmi) {
            (Some(known), _) => known,
            (None, None) => Psets::new(None, None, &[]),
            (None, Some(pmi)) => {
                let nodes = world.nodes.iter().max().map_or(0, |last| *last as usize + 1);
                ask(pmi, nodes).map_err(|error| {
                    MpiError::other(format!("cannot get the process sets from the process manager: failed to {error}"))
                })?
            }
        };
        Ok(world.psets.insert(found))
    }
}

fn ask(pmi: &mut Pmi, nodes: usize) -> Result<Psets, BootstrapError> {
    let job = text(pmi, sets::JOB_KEY)?;
    // A process manager that does not report the job is not rsd's, and reports none of the rest.
    if job.is_none() {
        return Ok(Psets::new(None, None, &[]));
    }
    let group = text(pmi, sets::GROUP_KEY)?;
    let mut names: Vec<String> = Vec::new();
    while names.len() < nodes
        && let Some(list) = text(pmi, &sets::nodes_key(names.len()))?
    {
        names.extend(list.split(',').map(str::to_owned));
    }
    names.truncate(nodes);
    Ok(Psets::new(job.as_deref(), group.as_deref(), &names))
}

/// The value of a key; `None` if there is none, or it is not valid UTF-8.
fn text(pmi: &mut Pmi, key: &str) -> Result<Option<String>, BootstrapError> {
    Ok(pmi.get(key)?.and_then(|value| String::from_utf8(value).ok()))
}
