//! The process sets of this process, as far as the process manager tells of them: asked for when a session first wants to know.

use rsd_proto::pmi::sets;

use super::State;
use crate::bootstrap::{BootstrapError, Pmi};
use crate::error::{MpiError, MpiResult};
use crate::object::session::Psets;

impl State {
    /// All of them. Costs a few questions to the process manager the first time.
    pub fn psets(&mut self) -> MpiResult<&Psets> {
        let Some(world) = &mut self.world else { return Err(MpiError::other("MPI is not initialised")) };
        let found = match (world.psets.take(), &mut world.pmi) {
            (Some(known), _) => known,
            (None, None) => Psets::new(None, None, &[]),
            (None, Some(pmi)) => {
                let nodes = world.nodes.iter().max().map_or(0, |last| *last as usize + 1);
                ask(pmi, nodes).map_err(|error| {
                    MpiError::other(format!("cannot ask the process manager for the process sets: failed to {error}"))
                })?
            }
        };
        Ok(world.psets.insert(found))
    }
}

fn ask(pmi: &mut Pmi, nodes: usize) -> Result<Psets, BootstrapError> {
    let job = text(pmi, sets::JOB_KEY)?;
    // Whoever does not know the job is another launcher, and knows none of the rest.
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

/// The value of a key; none if there is none, or it is no text.
fn text(pmi: &mut Pmi, key: &str) -> Result<Option<String>, BootstrapError> {
    Ok(pmi.get(key)?.and_then(|value| String::from_utf8(value).ok()))
}
