//! `RSD_MPI_CHECK=1`, a mode for developers of programs: finds receives of other datatypes than were sent, collective calls that do not
//! match, and objects that are left at `MPI_Finalize`.
//!
//! A process that does not check pays nothing for it: [`call`](super::call) tests one word either way, and only in a process that checks
//! does it come here ([`around`]). The parts are:
//!
//! - Datatypes: the memory of a message keeps its datatype ([`track`]), and messages carry a digest of it (`engine::signed`).
//! - Collective calls: `api::checked` has the functions that stand in for those of `api`; each tells the next member what it calls
//!   (`object::check`), and so does [`State::circle_of_all`] where something is made.
//! - Leaks: [`around`] notes which function made each object, and [`Guard::report_leaks`] lists what is left.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use super::errors::{self, Scope};
use super::{Guard, Mode, RUNTIME, Runtime, State};
use crate::abi::CommHandle;
use crate::abi::constants::MPI_SUCCESS;
use crate::abi::handle::Handle;
use crate::datatype::track;
use crate::error::MpiResult;
use crate::object::agree::Circle;
use crate::object::check::{Kind, Next, Ring};
use crate::transport::name::number_of;

/// Begins to check, before the first context is opened.
pub(super) fn begin(state: &mut State) {
    track();
    state.engine.set_checked();
}

/// Runs the body of a call of a process that checks; `visits` if any thread may call the function.
#[cold]
#[inline(never)]
pub(super) fn around(
    name: &'static str,
    scope: Scope,
    visits: bool,
    body: &mut dyn FnMut(&'static Runtime) -> MpiResult,
) -> c_int {
    let lock = || if visits { RUNTIME.visit() } else { RUNTIME.lock() };
    let (next, before) = {
        let mut guard = lock();
        guard.check.calling = Some(name);
        (next(&guard), guard.check.started())
    };
    let result = errors::caught(|| body(&RUNTIME));
    let result = match Mode::now() {
        Mode::Checked => {
            let mut guard = lock();
            note(&mut guard, &next, name);
            if result.is_err() && guard.check.started() > before {
                guard.wait_for_comparisons();
            }
            let State { check, engine, .. } = &mut *guard;
            // That the calls do not match explains other errors.
            check.poll(engine).and(result)
        }
        Mode::Closed | Mode::Open => result,
    };
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => errors::fail(&RUNTIME, name, scope, error),
    }
}

fn next(state: &State) -> Next {
    kinds(state).iter().map(|(_, objects)| objects.next()).collect()
}

fn note(state: &mut State, next: &Next, name: &'static str) {
    let mut check = std::mem::take(&mut state.check);
    check.note(&kinds(state), next, name);
    state.check = check;
}

/// The objects that a program must free.
fn kinds(state: &State) -> [Kind<'_>; 9] {
    [
        ("request", &state.requests),
        ("probed message", &state.messages),
        ("communicator", &state.comms.made),
        ("window", state.windows.made()),
        ("group", state.groups.made()),
        ("datatype", state.types.made()),
        ("operation", state.ops.made()),
        ("info object", state.infos.made()),
        ("error handler", state.errhandlers.made()),
    ]
}

impl State {
    /// As [`Communicator::circle_of_all`](crate::object::comm::Communicator::circle_of_all), for a function that makes something together
    /// with all members: in a process that checks, they compare what they make.
    pub fn circle_of_all(&mut self, comm: CommHandle) -> MpiResult<Circle> {
        let Self { check, engine, comms, .. } = self;
        let communicator = comms.get_mut(comm)?;
        if let Some(name) = check.calling {
            let (tag, context) = (communicator.next_compared(), communicator.collective_context());
            let parties = &communicator.parties;
            let ring = Ring { comm, context, members: parties.all(), rank: parties.place(), tag };
            check.start(engine, &ring, name);
        }
        Ok(communicator.circle_of_all())
    }
}

/// So long a call that has failed waits to hear whether the members' calls match.
const PATIENCE: Duration = Duration::from_secs(1);

impl Guard<'_> {
    /// Compares a collective call with that of the previous member; waits for the result if `waits`, otherwise a later call reports it.
    pub fn compare(&mut self, ring: &Ring<'_>, text: &str, waits: bool) -> MpiResult {
        let State { check, engine, .. } = &mut **self;
        check.start(engine, ring, text);
        if !waits {
            return Ok(());
        }
        self.wait(|State { check, engine, .. }| match check.poll(engine) {
            Ok(()) => check.is_over(ring.context).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    }

    /// Other members have failed as well, so they have started to compare.
    fn wait_for_comparisons(&mut self) {
        let until = Instant::now() + PATIENCE;
        self.wait_or(
            |State { check, engine, .. }| check.is_known(engine).then_some(()),
            |_| (Instant::now() >= until).then_some(()),
        );
    }

    /// Reports on stderr what the program has not freed, and messages that it has not received, in one line for each kind and function.
    pub fn report_leaks(&mut self) {
        let job = self.world.as_ref().and_then(|world| world.pmi.as_ref()).and_then(|pmi| number_of(pmi.kvsname()));
        let job = job.map(|job| format!(" of job {job}")).unwrap_or_default();
        let rank = self.me().0;
        for line in leaks(self) {
            eprintln!("MPI check on rank {rank}{job}: MPI_Finalize: {line}");
        }
    }
}

/// What is left, in words.
fn leaks(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, objects) in kinds(state) {
        let mut left: Vec<(&str, usize)> = Vec::new();
        for handle in objects.all().into_iter().filter(|handle| is_left(state, kind, *handle)) {
            let maker = state.check.maker(kind, handle);
            match left.iter_mut().find(|(known, _)| *known == maker) {
                Some((_, count)) => *count += 1,
                None => left.push((maker, 1)),
            }
        }
        let verb = if kind == "request" { "completed or freed" } else { "freed" };
        let verb = if kind == "probed message" { "received" } else { verb };
        lines.extend(left.into_iter().map(|(maker, count)| match count {
            1 => format!("1 {kind} of {maker} was not {verb}"),
            _ => format!("{count} {kind}s of {maker} were not {verb}"),
        }));
    }
    for (message, count) in state.engine.unreceived() {
        let (source, tag, bytes) = (message.source, message.tag, message.bytes);
        lines.push(match count {
            1 => format!("1 message of {bytes} bytes from rank {source} with tag {tag} was not received"),
            _ => format!(
                "{count} messages from rank {source} with tag {tag} were not received, the first of {bytes} bytes"
            ),
        });
    }
    lines
}

/// Whether the program still has to free the object: what it cannot free, or has freed while it was in use, is in the tables as well.
fn is_left(state: &State, kind: &str, handle: usize) -> bool {
    match kind {
        "datatype" => state.types.is_held(handle),
        "error handler" => state.errhandlers.is_held(handle),
        "communicator" => {
            let comm = CommHandle::from_bits(handle);
            state.comms.parent != Some(comm) && !state.windows.own(comm)
        }
        _ => true,
    }
}
