//! Opens and closes the library: which process this is, and how it finds the others.
//!
//! Startup needs only PMI-1, so it works under any launcher that speaks it. Ranks that all run on one node exchange nothing:
//! the names of their sockets follow from the job's name and the rank. Ranks on several nodes exchange nothing either if rsd has
//! started them: it has made their listening sockets, knows the job's secret, and reports where a peer listens at first
//! contact. Under other launchers they publish their addresses with one put and one fence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rsd_proto::pmi::{listening, losses, mapping};

use super::lookups::{Lookups, Source};
use super::spread::Spread;
use super::{Guard, State, World, check, manager};
use crate::abi::constants::MPI_THREAD_SINGLE;
use crate::bootstrap::{BootstrapError, Env, Limits, Pmi};
use crate::device;
use crate::engine::{Engine, Peer};
use crate::error::{MpiError, MpiResult};
use crate::object::comm::Communicator;
use crate::object::group::Group;
use crate::object::names::Names;
use crate::settings::{Settings, Singleton};
use crate::transport::name::ProcessName;
use crate::transport::{Neighbourhood, Prepared, Routes, needs_connections};

/// The contexts of the predefined communicators; each takes two.
const WORLD_CONTEXT: u32 = 0;
const SELF_CONTEXT: u32 = 2;
/// The context of groups whose members have no communicator yet.
pub const GROUPS_CONTEXT: u32 = 4;
/// The first context of communicators made later.
pub const FIRST_CONTEXT: u32 = 6;

/// A rank that only dials out waits so long for the others' systems to accept its connections. This includes one repetition of a
/// lost packet; a connection that takes longer is made during later calls.
const REACH: Duration = Duration::from_secs(2);

/// Opens the library: finds out which process this is, and creates the transports to the others.
pub(super) fn open(state: &mut State) -> MpiResult {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    // What a tool has written counts instead; an empty value is the default.
    let written = state.tools.written();
    let variables = variables.filter(|(name, _)| !written.contains_key(name.as_str()));
    let by_tools = written.iter().filter(|(_, value)| !value.is_empty());
    let by_tools = by_tools.map(|(name, value)| ((*name).to_owned(), value.clone()));
    let settings = Settings::from_variables(variables.chain(by_tools).collect::<Vec<_>>())?;
    device::enable(settings.cuda);
    let (env, is_new) = match &settings.join {
        Some(join) => manager::into_group(join, settings.join_exports, Env::of_process())?,
        None => (Env::of_process(), false),
    };
    // Each epoch of a group is a new job; a launcher's job stays the same.
    let opened = if is_new { 0 } else { state.opened };
    let mut pmi = match Pmi::from_env(&env, Limits::default()) {
        Ok(None) => alone(&settings)?,
        Ok(Some(pmi)) => Some(pmi),
        Err(error) => return Err(not_joined(&error, opened > 0)),
    };
    let (rank, size) = pmi.as_ref().map_or((0, 1), |pmi| (pmi.rank(), pmi.size()));
    let appnum = appnum(pmi.as_ref());
    let nodes = match &mut pmi {
        Some(pmi) if size > 1 => nodes(pmi)?,
        Some(_) | None => vec![0; size as usize],
    };
    if opened > 0 && needs_connections(&nodes, rank, &settings) {
        let left = pmi.map_or(Ok(()), Pmi::finalize);
        return Err(left.err().map_or_else(over_tcp, |error| not_joined(&error, true)));
    }
    let job = job(pmi.as_ref(), opened)?;
    // The variable may be left over from an outer job; a group's members come from different ones.
    let is_crowded = env.crowded && settings.join.is_none() && pmi.as_ref().is_some_and(|pmi| is_rsds(&env, pmi));
    let (routes, source) = routes(&settings, &env, pmi.as_mut(), &job, &nodes, rank)?;
    state.lookups = Lookups::new(source);
    let is_here = |node: &&u32| **node == nodes[rank as usize];
    let here = nodes.iter().filter(is_here).count();
    let oversubscribed = here > cores();
    state.waiting.choose(settings.spin, oversubscribed);
    if is_crowded {
        state.waiting.expect_sharing();
    }
    state.waiting.count_cores();
    state.waiting.number = (here == 1 && size > 1 && opened == 0).then_some(rank as usize);
    if oversubscribed && opened == 0 {
        state.waiting.spread = Spread::new(nodes[..rank as usize].iter().filter(is_here).count()).map(Box::new);
    }
    state.engine = Engine::new(Peer(rank), routes);
    state.engine.set_foreign(Peer(size));
    if settings.check {
        check::begin(state);
    }
    open_predefined(state, rank, size);
    state.comms.names = Names::new(&job, size);
    state.opened += 1;
    state.world = Some(World {
        rank,
        size,
        nodes,
        is_crowded,
        appnum,
        thread_level: MPI_THREAD_SINGLE,
        main_thread: std::thread::current().id(),
        pmi,
        settings,
        psets: None,
    });
    Ok(())
}

/// In a job with ranks that cannot be dialled from other machines: these dial all ranks on other nodes now. If all ranks take part
/// (`together`), each returns when the connections to it have arrived, so it can tell a rank that cannot reach it from one that has
/// not begun yet. Cost: 2 (N-1) messages between N nodes for the fence, and what [`Routes::is_reaching`] says.
pub(super) fn reach_out(state: &mut Guard<'_>, together: bool) -> MpiResult {
    if !state.engine.transport().has_dial_out() {
        return Ok(());
    }
    let until = Instant::now() + REACH;
    state.wait_or(
        |state| (!state.engine.transport_mut().is_reaching()).then_some(()),
        |_| (Instant::now() >= until).then_some(()),
    );
    match state.world.as_mut().and_then(|world| world.pmi.as_mut()) {
        Some(pmi) if together => {
            let failed = |error: BootstrapError| MpiError::other(error.describe("wait for ranks that only dial out"));
            pmi.fence().map_err(failed)
        }
        Some(_) | None => Ok(()),
    }
}

/// Closes the library: says farewell to the peers and leaves the job. Of the user's objects only those remain that
/// belong to no communicator: datatypes, operations, keys, error handlers, infos.
pub(super) fn close(state: &mut Guard<'_>) -> MpiResult {
    state.wait(|state| {
        let is_settled = state.engine.transport().is_settled() && state.farewells.meetings.is_empty();
        (state.engine.quiet() && is_settled).then_some(())
    });
    let connected = state.engine.transport().connected();
    state.engine.say_bye(&connected);
    state.wait(|state| (state.engine.quiet() && state.engine.byes_missing() == 0).then_some(()));
    state.wait(|state| state.engine.transport_mut().is_flushed().then_some(()));
    let mut left = Ok(());
    if let Some(mut world) = state.world.take() {
        if world.settings.tell_transports {
            for line in state.engine.transport().describe(world.rank) {
                eprintln!("{line}");
            }
        }
        if let Some(pmi) = world.pmi.take() {
            left = pmi.finalize().map_err(|error| MpiError::other(error.describe("leave the job")));
        }
    }
    state.forget_all();
    left
}

/// The index of this process's program in the job; 0 if it is unknown. A separate function, because otherwise the
/// compiler reads the number before it checks whether there is a process manager, and memcheck complains.
#[inline(never)]
fn appnum(pmi: Option<&Pmi>) -> u32 {
    pmi.and_then(Pmi::appnum).unwrap_or(0)
}

/// Opens the contexts that every process has.
fn open_predefined(state: &mut State, rank: u32, size: u32) {
    let all_peers: Arc<[Peer]> = (0..size).map(Peer).collect();
    for context in [WORLD_CONTEXT, GROUPS_CONTEXT] {
        state.engine.open(context, Arc::clone(&all_peers));
    }
    state.engine.open_collective(WORLD_CONTEXT + 1, Arc::clone(&all_peers));
    state.engine.open_own(GROUPS_CONTEXT + 1, Arc::clone(&all_peers));
    for context in [SELF_CONTEXT, SELF_CONTEXT + 1] {
        state.engine.open(context, Arc::from([Peer(rank)]));
    }
    state.comms.all_peers = all_peers;
}

/// `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
pub(super) fn add_predefined(state: &mut State) {
    let (me, handler) = (state.me(), state.initial_errhandler);
    let world = Arc::new(Group::new(Arc::clone(&state.comms.all_peers), me));
    let own = Arc::new(Group::new(vec![me], me));
    state.comms.world = Some(Communicator::new(WORLD_CONTEXT, world, handler, "MPI_COMM_WORLD"));
    state.comms.own = Some(Communicator::new(SELF_CONTEXT, own, handler, "MPI_COMM_SELF"));
}

/// The job's name; a process without a process manager is a job of its own, with a random name. After the library has
/// been closed the job gets another name, so that a process that has not closed it yet is not met again.
fn job(pmi: Option<&Pmi>, opened: u32) -> MpiResult<Vec<u8>> {
    let mut name = match pmi {
        Some(pmi) => pmi.kvsname().to_vec(),
        None => fresh_secret()?.into_bytes(),
    };
    if opened > 0 {
        name.extend_from_slice(format!("#{opened}").as_bytes());
    }
    Ok(name)
}

/// `nodes[rank]`, from the launcher's mapping; without one, ranks are on one node if their machines have the same name
/// for this boot.
fn nodes(pmi: &mut Pmi) -> MpiResult<Vec<u32>> {
    let failed = |error: BootstrapError| MpiError::other(error.describe("ask the process manager where the ranks are"));
    let size = pmi.size();
    let text = match pmi.get(mapping::AT_ONCE_KEY).map_err(failed)? {
        Some(text) => Some(text),
        None => pmi.get(mapping::KEY).map_err(failed)?,
    };
    if let Some(text) = text
        && let Ok(text) = str::from_utf8(&text)
        && let Ok(nodes) = mapping::parse(text, size).and_then(|blocks| mapping::expand(&blocks, size))
    {
        return Ok(nodes);
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mine = format!("{}/{}", boot.trim(), nix::unistd::gethostname().unwrap_or_default().to_string_lossy());
    pmi.put(&format!("rsd-node-{}", pmi.rank()), &mine).map_err(failed)?;
    pmi.fence().map_err(failed)?;
    let mut known = Vec::new();
    let mut nodes = Vec::with_capacity(size as usize);
    for rank in 0..size {
        let name = pmi.get(&format!("rsd-node-{rank}")).map_err(failed)?;
        let name = name.ok_or_else(|| MpiError::other(format!("rank {rank} has not published its node")))?;
        let node = known.iter().position(|it| *it == name).unwrap_or_else(|| {
            known.push(name);
            known.len() - 1
        });
        nodes.push(node as u32);
    }
    Ok(nodes)
}

/// Creates the transports to the others; also returns where the addresses of processes on other nodes come from.
fn routes(
    settings: &Settings,
    env: &Env,
    pmi: Option<&mut Pmi>,
    job: &[u8],
    nodes: &[u32],
    rank: u32,
) -> MpiResult<(Routes, Source)> {
    let advertised = env.address.as_ref().and_then(|text| text.parse().ok());
    let Some(pmi) = pmi.filter(|_| nodes.len() > 1) else { return Ok((Routes::alone(advertised), Source::default())) };
    if is_rsds(env, pmi) {
        // The answer does not matter: an earlier version of rsd does not know the key.
        pmi.get(losses::KEY).map_err(|error| MpiError::other(error.describe("ask to be told about lost processes")))?;
    }
    let (prepared, dial_out) = match needs_connections(nodes, rank, settings) {
        true => {
            let prepared = prepared(settings, env, pmi)?;
            // Other launchers tell no address. If the variable is left over from an outer job of rsd, they do not know the key.
            let may_be = if prepared.is_some() { env.dial_out } else { env.address.is_some() };
            (prepared, if may_be { dial_out(pmi)? } else { Vec::new() })
        }
        false => (None, Vec::new()),
    };
    let source = if prepared.is_some() { Source::Launcher } else { Source::Ranks };
    let name = ProcessName::new(job, rank);
    let opened = Routes::new(Neighbourhood { name, nodes, settings, advertised, dial_out, prepared });
    let opened = opened.and_then(|routes| routes.wake_by(pmi.fd()).map(|()| routes));
    let mut routes = opened
        .map_err(|error| MpiError::other(format!("cannot set up communication with the other processes: {error}")))?;
    if let (Source::Ranks, Some(address)) = (source, routes.address()) {
        routes.set_secret(exchange(pmi, &address)?);
    }
    Ok((routes, source))
}

/// Whether rsd has started this process: the variable may be left over from an outer job of rsd.
fn is_rsds(env: &Env, pmi: &Pmi) -> bool {
    env.namespace.as_ref().is_some_and(|name| name.as_bytes() == pmi.kvsname())
}

/// Returns the sockets and secret that rsd has prepared, if it has started this process in a job of several nodes; the job's
/// other processes then have the same.
fn prepared(settings: &Settings, env: &Env, pmi: &mut Pmi) -> MpiResult<Option<Prepared>> {
    if !is_rsds(env, pmi) {
        return Ok(None);
    }
    let failed = |error: BootstrapError| MpiError::other(error.describe("listen for processes on other nodes"));
    let Some(secret) = pmi.get(listening::SECRET_KEY).map_err(failed)? else { return Ok(None) };
    if let Some(interface) = &settings.interface {
        return Err(MpiError::other(format!(
            "RSD_MPI_INTERFACE={interface} was set after the job had been submitted, and rsd has made its sockets by then: use \
             rsctl run -x RSD_MPI_INTERFACE={interface}"
        )));
    }
    let secret =
        listening::secret(&secret).ok_or_else(|| MpiError::other("the launcher's secret for the job is invalid"))?;
    Ok(Some(Prepared { secret, listener: env.take_listener().map_err(failed)? }))
}

/// Returns inclusive ranges of the ranks that ranks on other machines cannot dial. Cost: one request to this node's part of rsd; in
/// jobs with such ranks one more for each 32 ranges.
fn dial_out(pmi: &mut Pmi) -> MpiResult<Vec<(u32, u32)>> {
    let failed = |error: BootstrapError| MpiError::other(error.describe("ask which ranks only dial out"));
    let mut ranks: Vec<(u32, u32)> = Vec::new();
    let mut next = Some(0);
    while let Some(first) = next
        && let Some(text) = pmi.get(&listening::dial_out_key(first)).map_err(failed)?
    {
        let more = losses::parse(&text).filter(|more| more.iter().all(|range| range.0 >= first));
        ranks
            .extend(more.ok_or_else(|| MpiError::other("the launcher's list of ranks that only dial out is invalid"))?);
        next = ranks.iter().map(|range| range.1).max().and_then(|last| last.checked_add(1));
    }
    Ok(ranks)
}

/// Publishes this process's listening address and, from rank 0, the secret. One fence.
fn exchange(pmi: &mut Pmi, address: &str) -> MpiResult<[u8; 32]> {
    let failed = |error: BootstrapError| MpiError::other(error.describe("exchange addresses over the process manager"));
    pmi.put(&Source::Ranks.key(pmi.rank()), address).map_err(failed)?;
    if pmi.rank() == 0 {
        pmi.put("rsd-secret", &fresh_secret()?).map_err(failed)?;
    }
    pmi.fence().map_err(failed)?;
    let secret = pmi.get("rsd-secret").map_err(failed)?;
    secret
        .as_deref()
        .and_then(listening::secret)
        .ok_or_else(|| MpiError::other("rank 0 has not published a valid secret for the job"))
}

/// 32 random bytes as 64 hexadecimal digits.
fn fresh_secret() -> MpiResult<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| MpiError::other(format!("cannot get random bytes: {error}")))?;
    Ok(listening::digits(&bytes))
}

/// Without a process manager: a world of one, unless the environment shows a launcher of several processes.
fn alone(settings: &Settings) -> MpiResult<Option<Pmi>> {
    if settings.singleton != Singleton::Refuse {
        return Ok(None);
    }
    let number = |variable: &str| std::env::var(variable).ok()?.parse().ok();
    mark_of_several(number).map_or(Ok(None), |mark| Err(MpiError::other(mark)))
}

/// Returns why this process cannot be a world of one: its environment announces several processes, but their launcher does not
/// speak PMI-1 with them. `number` returns the value of a variable.
fn mark_of_several(number: impl Fn(&str) -> Option<u32>) -> Option<String> {
    const REMOVED: &str =
        "a launcher whose variables PMI_FD or PMI_PORT were removed (by env -i, sudo or a container, say)";
    const SIZES: [(&str, &str); 5] = [
        ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun, which speaks PMIx"),
        ("SLURM_STEP_NUM_TASKS", "srun without PMI (try srun --mpi=pmi2, or rsctl inside the allocation)"),
        ("PMI_SIZE", REMOVED),
        ("RSD_SIZE", REMOVED),
        ("MPI_LOCALNRANKS", REMOVED),
    ];
    // These do not identify rank 0 as one of several; the other ranks suffice to end the job.
    const RANKS: [(&str, &str); 2] =
        [("PMI_RANK", REMOVED), ("PMIX_RANK", "a launcher that speaks PMIx alone (prterun, srun --mpi=pmix)")];
    // PMIx has no higher ranks, but special values for none.
    const RANK_MAX: u32 = i32::MAX as u32;
    let size = SIZES.iter().find_map(|(variable, launcher)| {
        let size = number(variable).filter(|size| *size > 1)?;
        Some((format!("{variable}={size} indicates {size} processes"), launcher))
    });
    let rank = || {
        RANKS.iter().find_map(|(variable, launcher)| {
            let rank = number(variable).filter(|rank| (1..=RANK_MAX).contains(rank))?;
            Some((format!("{variable}={rank} indicates several processes"), launcher))
        })
    };
    let (mark, launcher) = size.or_else(rank)?;
    Some(format!(
        "{mark}, but there is no PMI-1 process manager to join: this looks like {launcher}. Start the program with rsctl run or \
         mpiexec.hydra; or set RSD_MPI_SINGLETON=allow to run as a world of one"
    ))
}

fn not_joined(error: &BootstrapError, again: bool) -> MpiError {
    let joining = error.describe("join the job");
    MpiError::other(match again {
        true => format!(
            "{joining}. It was left when MPI_Finalize or MPI_Session_finalize ended the last use of MPI, and not every launcher takes \
             a process in again: keep a session until the end, or start the program with rsctl run"
        ),
        false => format!(
            "{joining}. If these variables are left over from another launcher, unset PMI_FD, PMI_RANK, PMI_SIZE, PMI_PORT and \
             PMI_ID"
        ),
    })
}

#[cold]
fn over_tcp() -> MpiError {
    MpiError::other(
        "the job was left when MPI_Finalize or MPI_Session_finalize ended the last use of MPI, and processes that connect over TCP join it \
         once: keep a session until the end",
    )
}

/// Cores that processes of this node can run on.
fn cores() -> usize {
    std::fs::read_to_string("/sys/devices/system/cpu/online").ok().as_deref().and_then(count_list).unwrap_or(1)
}

/// The number of numbers in a list like `0-3,8`.
fn count_list(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        Some(count + last.checked_sub(first)? + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_from_the_kernels_list() {
        assert_eq!(count_list("0\n"), Some(1));
        assert_eq!(count_list("0-3,8,10-11\n"), Some(7));
        assert_eq!(count_list("3-1"), None);
        assert_eq!(count_list(""), None);
        assert!(cores() >= 1);
    }

    #[test]
    fn a_process_recognizes_by_its_launchers_variables_that_it_is_one_of_several() {
        let marked = |set: &[(&str, u32)]| {
            mark_of_several(|variable| set.iter().find(|(name, _)| *name == variable).map(|(_, value)| *value))
        };
        for (set, mark, launcher) in [
            (
                &[("PMI_RANK", 1), ("PMI_SIZE", 4)][..],
                "PMI_SIZE=4 indicates 4 processes, but",
                "PMI_FD or PMI_PORT were removed",
            ),
            (&[("PMI_RANK", 1)], "PMI_RANK=1 indicates several processes, but", "PMI_FD or PMI_PORT were removed"),
            (&[("RSD_SIZE", 2), ("MPI_LOCALNRANKS", 1)], "RSD_SIZE=2 indicates 2 processes, but", "were removed"),
            (&[("PMIX_RANK", 3)], "PMIX_RANK=3 indicates several processes, but", "PMIx alone"),
            (&[("PMIX_RANK", 0), ("OMPI_COMM_WORLD_SIZE", 2)], "OMPI_COMM_WORLD_SIZE=2", "Open MPI's mpirun"),
            (&[("PMIX_RANK", 1), ("SLURM_STEP_NUM_TASKS", 8)], "SLURM_STEP_NUM_TASKS=8", "srun --mpi=pmi2"),
        ] {
            let text = marked(set).unwrap();
            assert!(
                text.starts_with(mark) && text.contains(launcher) && text.contains("RSD_MPI_SINGLETON=allow"),
                "{text}"
            );
        }
        // A single process is always rank 0 of 1, and PMIx's value for no rank does not count.
        for set in [&[("PMI_RANK", 0), ("PMI_SIZE", 1)][..], &[("PMIX_RANK", 0)], &[("PMIX_RANK", u32::MAX)], &[]] {
            assert_eq!(marked(set), None, "{set:?}");
        }
    }

    #[test]
    fn no_two_secrets_are_alike() {
        let (one, other) = (fresh_secret().unwrap(), fresh_secret().unwrap());
        assert_ne!(one, other);
        assert!(listening::secret(one.as_bytes()).is_some());
    }
}
