//! What this process is: a rank of a job, or alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rsd_bootstrap::border::Code;
use rsd_bootstrap::{Env, Limits, Pmi};
use rsd_proto::pmi::mapping;
use rsd_proto::pmi::v1::{KEYLEN_MAX, Spawn, VALLEN_MAX};

/// The name of the KVS of a process without a launcher.
const ALONE: &[u8] = b"singleton";

/// Before init and after finalize, there is none.
static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// A process that has called init.
pub(crate) enum Process {
    Rank(Box<Pmi>),
    /// It has no launcher: it is rank 0 of 1 and keeps its own values.
    Alone(HashMap<Vec<u8>, Vec<u8>>),
}

fn lock() -> MutexGuard<'static, Option<Process>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Initialises; returns whether the process was spawned. A second init changes nothing.
pub(crate) fn init() -> Result<bool, Code> {
    let mut process = lock();
    if process.is_none() {
        *process = Some(match Pmi::from_env(&Env::of_process(), Limits::default())? {
            Some(pmi) => Process::Rank(Box::new(pmi)),
            None => Process::Alone(HashMap::new()),
        });
    }
    Ok(std::env::var_os("PMI_SPAWNED").is_some_and(|spawned| spawned == "1"))
}

pub(crate) fn is_initialised() -> bool {
    lock().is_some()
}

pub(crate) fn finalize() -> Result<(), Code> {
    match lock().take().ok_or(Code::NotInitialised)? {
        Process::Rank(pmi) => Ok(pmi.finalize()?),
        Process::Alone(_) => Ok(()),
    }
}

/// Requests the end of the job. Returns only if nothing ends this process.
pub(crate) fn abort(exit_code: i32, message: &str) -> Result<(), Code> {
    if let Some(Process::Rank(pmi)) = lock().take() {
        pmi.abort(exit_code, message)?;
    }
    std::process::exit(exit_code);
}

/// Runs `run` with the process.
pub(crate) fn with<T>(run: impl FnOnce(&mut Process) -> Result<T, Code>) -> Result<T, Code> {
    run(lock().as_mut().ok_or(Code::NotInitialised)?)
}

impl Process {
    pub(crate) fn rank(&self) -> u32 {
        match self {
            Process::Rank(pmi) => pmi.rank(),
            Process::Alone(_) => 0,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        match self {
            Process::Rank(pmi) => pmi.size(),
            Process::Alone(_) => 1,
        }
    }

    /// None: unknown.
    pub(crate) fn universe_size(&mut self) -> Result<Option<i32>, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.universe_size()?),
            Process::Alone(_) => Ok(None),
        }
    }

    /// None: unknown.
    pub(crate) fn appnum(&self) -> Option<u32> {
        match self {
            Process::Rank(pmi) => pmi.appnum(),
            Process::Alone(_) => Some(0),
        }
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        match self {
            Process::Rank(pmi) => pmi.kvsname().to_vec(),
            Process::Alone(_) => ALONE.to_vec(),
        }
    }

    /// The longest key and the longest value, without an end byte.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        match self {
            Process::Rank(pmi) => pmi.lengths(),
            Process::Alone(_) => (KEYLEN_MAX - 1, VALLEN_MAX - 1),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Code> {
        let (key_max, value_max) = self.lengths();
        if key.len() > key_max {
            return Err(Code::InvalidKeyLength);
        }
        if value.len() > value_max {
            return Err(Code::InvalidValueLength);
        }
        let breaks = |text: &[u8], bad: &[u8]| text.is_empty() || text.iter().any(|byte| bad.contains(byte));
        if breaks(key, b" \n") {
            return Err(Code::InvalidKey);
        }
        if breaks(value, b"\n") {
            return Err(Code::InvalidValue);
        }
        match self {
            Process::Rank(pmi) => Ok(pmi.put_bytes(key, value)?),
            Process::Alone(values) => {
                values.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    pub(crate) fn get(&mut self, kvsname: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.get_bytes(kvsname, key)?),
            Process::Alone(values) => Ok(values.get(key).cloned()),
        }
    }

    pub(crate) fn barrier(&mut self) -> Result<(), Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi.fence()?),
            Process::Alone(_) => Ok(()),
        }
    }

    /// Returns the ranks of this process's node, in order.
    pub(crate) fn clique(&mut self) -> Result<Vec<u32>, Code> {
        let (rank, size) = (self.rank(), self.size());
        if size == 1 {
            return Ok(vec![0]);
        }
        let told = self.get(&self.name(), mapping::KEY.as_bytes())?.ok_or(Code::Fail)?;
        let text = str::from_utf8(&told).map_err(|_| Code::Fail)?;
        let blocks = mapping::parse(text, size).map_err(|_| Code::Fail)?;
        let nodes = mapping::expand(&blocks, size).map_err(|_| Code::Fail)?;
        let own = nodes.get(rank as usize).copied();
        Ok((0..size).filter(|rank| nodes.get(*rank as usize).copied() == own).collect())
    }

    pub(crate) fn publish(&mut self, name: &[u8], port: &[u8]) -> Result<(), Code> {
        self.manager()?.publish(name, port)?.then_some(()).ok_or(Code::Fail)
    }

    pub(crate) fn lookup(&mut self, name: &[u8]) -> Result<Vec<u8>, Code> {
        self.manager()?.lookup(name)?.ok_or(Code::Fail)
    }

    pub(crate) fn unpublish(&mut self, name: &[u8]) -> Result<(), Code> {
        self.manager()?.unpublish(name)?.then_some(()).ok_or(Code::Fail)
    }

    /// Returns one code for each process.
    pub(crate) fn spawn(&mut self, spawn: Spawn) -> Result<Vec<i32>, Code> {
        Ok(self.manager()?.spawn_job(spawn)?)
    }

    fn manager(&mut self) -> Result<&mut Pmi, Code> {
        match self {
            Process::Rank(pmi) => Ok(pmi),
            Process::Alone(_) => Err(Code::Fail),
        }
    }
}

/// Keys and values as a job's first entries.
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;
