//! What this process is: a rank of a job, or alone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rsd_bootstrap::border::Code;
use rsd_bootstrap::{Env, Limits, Pmi2};
use rsd_proto::pmi::v1::Spawn;
use rsd_proto::pmi::v2::{KEYLEN_MAX, VALLEN_MAX};

/// The name of the job of a process without a launcher.
const ALONE: &[u8] = b"singleton";

/// Before init and after finalize, there is none.
static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// A process that has called init.
pub(crate) enum Process {
    Rank(Box<Pmi2>),
    /// It has no launcher: it is rank 0 of 1 and keeps its own values.
    Alone {
        kvs: HashMap<Vec<u8>, Vec<u8>>,
        on_node: HashMap<Vec<u8>, Vec<u8>>,
    },
}

/// A process's place.
pub(crate) struct Place {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// None: unknown.
    pub(crate) appnum: Option<u32>,
    pub(crate) is_spawned: bool,
}

fn lock() -> MutexGuard<'static, Option<Process>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Initialises. A second init changes nothing.
pub(crate) fn init() -> Result<Place, Code> {
    let mut process = lock();
    if process.is_none() {
        *process = Some(match Pmi2::from_env(&Env::of_process(), Limits::default())? {
            Some(pmi) => Process::Rank(Box::new(pmi)),
            None => Process::Alone { kvs: HashMap::new(), on_node: HashMap::new() },
        });
    }
    process.as_ref().map(Process::place).ok_or(Code::NotInitialised)
}

pub(crate) fn is_initialised() -> bool {
    lock().is_some()
}

pub(crate) fn finalize() -> Result<(), Code> {
    match lock().take().ok_or(Code::NotInitialised)? {
        Process::Rank(pmi) => Ok(pmi.finalize()?),
        Process::Alone { .. } => Ok(()),
    }
}

/// Requests the end of the job, and exits.
pub(crate) fn abort(exit_code: i32, message: &[u8]) -> ! {
    if let Some(Process::Rank(mut pmi)) = lock().take()
        && let Err(error) = pmi.abort(exit_code, message)
    {
        eprintln!("rsd: {}", error.describe("abort the job"));
    }
    std::process::exit(exit_code);
}

/// Runs `run` with the process.
pub(crate) fn with<T>(run: impl FnOnce(&mut Process) -> Result<T, Code>) -> Result<T, Code> {
    run(lock().as_mut().ok_or(Code::NotInitialised)?)
}

impl Process {
    pub(crate) fn place(&self) -> Place {
        match self {
            Process::Rank(pmi) => {
                Place { rank: pmi.rank(), size: pmi.size(), appnum: Some(pmi.appnum()), is_spawned: pmi.is_spawned() }
            }
            Process::Alone { .. } => Place { rank: 0, size: 1, appnum: None, is_spawned: false },
        }
    }

    pub(crate) fn job_id(&mut self) -> Result<Vec<u8>, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.job_id()?),
            Process::Alone { .. } => Ok(ALONE.to_vec()),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Code> {
        check(key, value)?;
        match self {
            Process::Rank(pmi) => Ok(pmi.put(key, value)?),
            Process::Alone { kvs, .. } => {
                kvs.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    pub(crate) fn fence(&mut self) -> Result<(), Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.fence()?),
            Process::Alone { .. } => Ok(()),
        }
    }

    pub(crate) fn get(&mut self, jobid: Option<&[u8]>, key: &[u8]) -> Result<Option<Vec<u8>>, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.get(jobid, key)?),
            Process::Alone { kvs, .. } => Ok(kvs.get(key).cloned()),
        }
    }

    pub(crate) fn put_on_node(&mut self, key: &[u8], value: &[u8]) -> Result<(), Code> {
        check(key, value)?;
        match self {
            Process::Rank(pmi) => Ok(pmi.put_on_node(key, value)?),
            Process::Alone { on_node, .. } => {
                on_node.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    /// A process that is alone never waits: no other process could store the value.
    pub(crate) fn get_on_node(&mut self, key: &[u8], wait: bool) -> Result<Option<Vec<u8>>, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.get_on_node(key, wait)?),
            Process::Alone { on_node, .. } => Ok(on_node.get(key).cloned()),
        }
    }

    pub(crate) fn job_attribute(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.job_attribute(key)?),
            Process::Alone { .. } => Ok(None),
        }
    }

    /// Returns rank and size of the ring, and the values of the left and of the right neighbour.
    pub(crate) fn ring(&mut self, value: &[u8]) -> Result<(u32, u32, Vec<u8>, Vec<u8>), Code> {
        check(b"ring", value)?;
        match self {
            Process::Rank(pmi) => {
                let (rank, left, right) = pmi.ring(value)?;
                Ok((rank, pmi.size(), left, right))
            }
            Process::Alone { .. } => Ok((0, 1, value.to_vec(), value.to_vec())),
        }
    }

    pub(crate) fn publish(&mut self, name: &[u8], port: &[u8]) -> Result<(), Code> {
        Ok(self.manager()?.publish(name, port)?)
    }

    pub(crate) fn lookup(&mut self, name: &[u8]) -> Result<Vec<u8>, Code> {
        self.manager()?.lookup(name)?.ok_or(Code::Fail)
    }

    pub(crate) fn unpublish(&mut self, name: &[u8]) -> Result<(), Code> {
        Ok(self.manager()?.unpublish(name)?)
    }

    /// Returns the new job's name, and one code for each of its processes.
    pub(crate) fn spawn(&mut self, spawn: Spawn) -> Result<(Vec<u8>, Vec<i32>), Code> {
        Ok(self.manager()?.spawn(spawn)?)
    }

    pub(crate) fn connect_job(&mut self, jobid: &[u8]) -> Result<(), Code> {
        Ok(self.manager()?.connect_job(jobid)?)
    }

    pub(crate) fn disconnect_job(&mut self, jobid: &[u8]) -> Result<(), Code> {
        Ok(self.manager()?.disconnect_job(jobid)?)
    }

    fn manager(&mut self) -> Result<&mut Pmi2, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi),
            Process::Alone { .. } => Err(Code::Fail),
        }
    }
}

/// Checks the limits that are compiled into every client.
fn check(key: &[u8], value: &[u8]) -> Result<(), Code> {
    if key.is_empty() || key.len() >= KEYLEN_MAX {
        return Err(Code::InvalidKeyLength);
    }
    if value.len() < VALLEN_MAX { Ok(()) } else { Err(Code::InvalidValueLength) }
}
