//! Processes that other processes start (MPI 5.0 §11.8).
//!
//! The root opens a port and asks the process manager for a job whose processes find it; these connect to it in their
//! `MPI_Init`, as any group does ([`super::connect`]). All members learn from the root what the process manager reports about
//! each process.

use std::time::Duration;

use rsd_proto::pmi::spawning;
use rsd_proto::pmi::v1::SpawnSegment;

use super::connect::{Role, connect_groups, words};
use super::{Guard, State, manager};
use crate::abi::CommHandle;
use crate::abi::constants::{MPI_COMM_WORLD, MPI_ERR_SPAWN, MPI_SUCCESS};
use crate::bootstrap::{BootstrapError, Spawned};
use crate::error::{MpiError, MpiResult};
use crate::object::agree::Circle;
use crate::transport::port::PortName;

/// One program to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The path or name of its file.
    pub command: Vec<u8>,
    /// Its arguments, without the program name.
    pub args: Vec<Vec<u8>>,
    /// The number of processes.
    pub count: u32,
    /// The info keys and values.
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The result for all members.
#[derive(Debug)]
pub struct Offspring {
    /// The intercommunicator with the spawned processes, or the error.
    pub comm: MpiResult<CommHandle>,
    /// `MPI_SUCCESS` or an error class for each requested process.
    pub codes: Codes,
}

/// What has become of the requested processes. A request that is refused may ask for any number of them.
#[derive(Debug)]
pub enum Codes {
    /// The same of all.
    All(i32, usize),
    /// Of each.
    Each(Vec<i32>),
}

impl Codes {
    /// The code of each process.
    pub fn iter(&self) -> impl Iterator<Item = i32> {
        let (all, each) = match self {
            Self::All(code, count) => ((*code, *count), &[][..]),
            Self::Each(codes) => ((0, 0), &codes[..]),
        };
        std::iter::repeat_n(all.0, all.1).chain(each.iter().copied())
    }
}

/// How long spawned processes wait for their parents, which wait for the launch of all of them, however long that takes. If the parents end or
/// give up, their port is closed, and the processes notice that at once.
const PARENTS_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// How long a spawned job may take to call `MPI_Init` by default.
const LIMIT: Duration = Duration::from_secs(300);

/// Starts programs. All members call it; only the root's `programs` and `limit` (for their `MPI_Init`) matter.
pub fn spawn(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    root: u32,
    programs: Option<MpiResult<Vec<Program>>>,
    limit: Option<Duration>,
) -> MpiResult<Offspring> {
    guard.comms.get(comm)?.must_be_usable()?;
    let circle = guard.comms.get_mut(comm)?.circle_of_all();
    // What is started waits for all members: so nothing is before all of them call.
    words(guard, &circle, &[0])?;
    let asked = programs.as_ref().and_then(|it| it.as_ref().ok());
    let asked: u64 = asked.into_iter().flatten().map(|program| u64::from(program.count)).sum();
    let begun = programs.map(|programs| programs.and_then(|programs| begin(guard, programs)));
    let (begun, fault) = match begun.transpose() {
        Ok(begun) => (begun, None),
        Err(error) => (None, Some(error)),
    };
    let offspring = meet(guard, comm, &circle, root, &Begun { job: begun.as_ref(), fault, asked }, limit);
    if let Some((port, _)) = &begun {
        guard.ports.close(port)?;
    }
    offspring
}

/// What the root knows about the job that it has started, if it could.
struct Begun<'a> {
    job: Option<&'a (PortName, Spawned)>,
    fault: Option<MpiError>,
    asked: u64,
}

/// All members learn what has become of the request, and connect to the spawned processes.
fn meet(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    circle: &Circle,
    root: u32,
    Begun { job: begun, fault, asked }: &Begun<'_>,
    limit: Option<Duration>,
) -> MpiResult<Offspring> {
    let codes = begun.as_ref().map_or(&[][..], |(_, spawned)| &spawned.codes);
    let some_failed = codes.iter().any(|code| *code != 0);
    let class = fault.as_ref().map_or(0, |error| error.class as u64);
    let received = words(guard, circle, &[class, *asked, u64::from(some_failed)])?;
    let asked = usize::try_from(received[1]).unwrap_or(0);

    if received[0] != 0 {
        let class = i32::try_from(received[0]).unwrap_or(MPI_ERR_SPAWN);
        let unknown = || MpiError::new(class, "the root failed to spawn: see its error message");
        let comm = Err(fault.clone().unwrap_or_else(unknown));
        return Ok(Offspring { comm, codes: Codes::All(MPI_ERR_SPAWN, asked) });
    }
    let mut codes = Codes::All(MPI_SUCCESS, asked);
    if received[2] != 0 {
        let mut own_codes = vec![0; asked];
        for (word, code) in own_codes.iter_mut().zip(begun.iter().flat_map(|(_, spawned)| &spawned.codes)) {
            *word = u64::from(*code != 0);
        }
        let of = |failed: u64| if failed == 0 { MPI_SUCCESS } else { MPI_ERR_SPAWN };
        codes = Codes::Each(words(guard, circle, &own_codes)?.into_iter().map(of).collect());
    }
    let port = begun.as_ref().map(|(port, _)| port.text());
    let job = begun.as_ref().map_or(&[][..], |(_, spawned)| &spawned.job);
    let role = Role::Expect { port: port.as_deref().unwrap_or_default().as_bytes(), job };
    let comm = connect_groups(guard, comm, circle.clone(), root, role, Some(limit.unwrap_or(LIMIT)));
    if comm.is_err() {
        codes = Codes::All(MPI_ERR_SPAWN, asked);
    }
    Ok(Offspring { comm, codes })
}

/// The root's part: starts the job, which will connect to this port.
fn begin(guard: &mut Guard<'_>, programs: Vec<Program>) -> MpiResult<(PortName, Spawned)> {
    // Without a process manager a port would be useless.
    manager(guard)?;
    let port = guard.open_port()?;
    let begun = ask(guard, programs, &port);
    if begun.is_err() {
        guard.ports.close(&port)?;
    }
    begun.map(|spawned| (port, spawned))
}

fn ask(state: &mut State, programs: Vec<Program>, port: &PortName) -> MpiResult<Spawned> {
    let segment = |(at, program): (usize, Program)| {
        let mut info = program.info;
        if at == 0 {
            // This library notices the deaths of the processes that it has spawned by itself.
            info.push((spawning::APART.into(), b"true".to_vec()));
        }
        SpawnSegment { nprocs: program.count, execname: program.command, args: program.args, info }
    };
    let segments = programs.into_iter().enumerate().map(segment).collect();
    match manager(state)?.spawn(segments, &port.text()) {
        Ok(Ok(spawned)) => Ok(spawned),
        Ok(Err(why)) => Err(MpiError::new(MPI_ERR_SPAWN, why)),
        Err(error) => Err(mpi_error(&error)),
    }
}

fn mpi_error(error: &BootstrapError) -> MpiError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    MpiError::new(MPI_ERR_SPAWN, format!("cannot spawn: failed to {error}{cause}"))
}

/// In `MPI_Init` of a spawned process: connects to its parents.
pub(super) fn join_parent(guard: &mut Guard<'_>) -> MpiResult {
    if std::env::var_os("PMI_SPAWNED").is_none_or(|value| value != "1") {
        return Ok(());
    }
    let Some(pmi) = guard.world.as_mut().and_then(|world| world.pmi.as_mut()) else { return Ok(()) };
    let Some(port) = pmi.parent_port().map_err(|error| mpi_error(&error))? else { return Ok(()) };
    let world = CommHandle(MPI_COMM_WORLD);
    let circle = guard.comms.get_mut(world)?.circle_of_all();
    let parent = connect_groups(guard, world, circle, 0, Role::Connect(&port), Some(PARENTS_LIMIT))?;
    guard.comms.get_mut(parent)?.name = b"MPI_COMM_PARENT".to_vec();
    guard.comms.parent = Some(parent);
    Ok(())
}
