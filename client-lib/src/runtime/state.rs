//! The state of the library.

use super::farewells::Farewells;
use super::lookups::Lookups;
use super::ports::Ports;
use crate::abi::{CommHandle, MessageHandle};
use crate::bootstrap::Pmi;
use crate::coll::outboxes::Outboxes;
use crate::coll::{CollectiveId, Collectives};
use crate::engine::{Engine, Envelope, MessageId, Peer, Source, Started, TagMatch};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::attr::Keyvals;
use crate::object::buffered::Buffered;
use crate::object::check::Check;
use crate::object::comm::Comms;
use crate::object::datatypes::Types;
use crate::object::errcodes::ErrorCodes;
use crate::object::errhandler::{Errhandler, Errhandlers};
use crate::object::fortran::Fortran;
use crate::object::group::Groups;
use crate::object::info::Infos;
use crate::object::ops::Ops;
use crate::object::partitioned::Partitions;
use crate::object::recovery::Recovery;
use crate::object::requests::Requests;
use crate::object::session::{Psets, Sessions};
use crate::object::table::Table;
use crate::object::tools::Tools;
use crate::object::window::Windows;
use crate::settings::Settings;
use crate::transport::Routes;
use crate::transport::port::PortName;

/// The whole state, behind one lock.
pub struct State {
    /// The messages.
    pub engine: Engine<Routes>,
    /// Communicators.
    pub comms: Comms,
    /// Groups.
    pub groups: Groups,
    /// Sessions.
    pub sessions: Sessions,
    /// Keys of attributes.
    pub keyvals: Keyvals,
    /// Info objects.
    pub infos: Infos,
    /// The program's Fortran.
    pub fortran: Fortran,
    /// The tools interface.
    pub tools: Tools,
    /// User-defined error classes and codes.
    pub error_codes: ErrorCodes,
    /// User-defined error handlers.
    pub errhandlers: Errhandlers,
    /// Operations with a request handle.
    pub requests: Requests,
    /// Messages removed from matching by a matched probe.
    pub messages: Table<MessageHandle, Kept>,
    /// Buffers for buffered sends.
    pub buffered: Buffered,
    /// Datatypes.
    pub types: Types,
    /// Open ports.
    pub ports: Ports,
    /// User-defined operations.
    pub ops: Ops,
    /// Collective operations in progress.
    pub collectives: Collectives,
    /// Those over memory that the members share.
    pub outboxes: Outboxes,
    /// Partitioned requests.
    pub partitions: Partitions,
    /// Windows.
    pub windows: Windows,
    /// Communicators that lose members.
    pub recovery: Recovery,
    /// What a process that checks keeps.
    pub check: Check,
    /// The error handler before `MPI_Init` and after `MPI_Finalize`.
    pub initial_errhandler: Errhandler,
    /// This process in its job, while the library is open.
    pub world: Option<World>,
    /// Peers of other jobs that are leaving.
    pub(super) farewells: Farewells,
    /// Pending requests for addresses.
    pub(super) lookups: Lookups,
    /// How often operations have moved.
    pub(super) movements: u64,
    /// How many times the library has been opened.
    pub(super) opened: u32,
    /// Whether a thread is closing it.
    pub(super) closes: bool,
    /// The thread that makes progress while the program computes.
    pub(super) background: Option<super::background::Background>,
    /// How waiting goes.
    pub(super) waiting: super::waiting::Waiting,
    /// The threads that sleep.
    pub(super) resting: super::resting::Resting<State>,
}

/// A message removed from matching by a matched probe.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// The engine's message.
    pub id: MessageId,
    /// The communicator on which it was found.
    pub comm: CommHandle,
}

/// This process among those that were started with it.
pub struct World {
    /// The rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// The number of processes.
    pub size: u32,
    /// `nodes[rank]`: the node of each rank, from 0.
    pub nodes: Vec<u32>,
    /// Whether some machine runs more of the ranks than it has processors; all ranks know the same.
    pub is_crowded: bool,
    /// The index of this process's program in the job.
    pub appnum: u32,
    /// The thread level that `MPI_Init_thread` provided.
    pub thread_level: i32,
    /// The thread that has called `MPI_Init`.
    pub main_thread: std::thread::ThreadId,
    /// The process manager; `None` in a singleton.
    pub pmi: Option<Pmi>,
    /// The user's settings.
    pub settings: Settings,
    /// The process sets, once more than the standard ones were requested.
    pub(super) psets: Option<Psets>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            engine: Engine::new(crate::engine::Peer(0), Routes::default()),
            comms: Comms::default(),
            groups: Groups::default(),
            sessions: Sessions::default(),
            keyvals: Keyvals::default(),
            infos: Infos::default(),
            fortran: Fortran::default(),
            tools: Tools::default(),
            error_codes: ErrorCodes::default(),
            errhandlers: Errhandlers::default(),
            requests: Table::default(),
            messages: Table::default(),
            buffered: Buffered::default(),
            types: Types::default(),
            ports: Ports::default(),
            ops: Ops::default(),
            collectives: Collectives::default(),
            outboxes: Outboxes::default(),
            partitions: Partitions::default(),
            windows: Windows::default(),
            recovery: Recovery::default(),
            check: Check::default(),
            initial_errhandler: Errhandler::Fatal,
            world: None,
            farewells: Farewells::default(),
            lookups: Lookups::default(),
            movements: 0,
            opened: 0,
            closes: false,
            background: None,
            waiting: super::waiting::Waiting::default(),
            resting: super::resting::Resting::default(),
        }
    }
}

impl State {
    /// Drops everything that uses the engine or refers to other processes.
    pub(super) fn forget_all(&mut self) {
        // First, since the others lend it memory.
        self.engine = Engine::new(Peer(0), Routes::default());
        self.farewells = Farewells::default();
        self.ports = Ports::default();
        self.comms = Comms::default();
        self.groups = Groups::default();
        self.requests = Requests::default();
        self.messages = Table::default();
        self.buffered = Buffered::default();
        self.collectives = Collectives::default();
        self.outboxes = Outboxes::default();
        self.partitions = Partitions::default();
        self.windows = Windows::default();
        self.recovery = Recovery::default();
        self.check = Check::default();
    }

    /// This process.
    pub fn me(&self) -> Peer {
        Peer(self.world.as_ref().map_or(0, |world| world.rank))
    }

    /// Advances all operations in progress; returns whether any moved.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let moved = self.advance();
        self.movements += u64::from(moved);
        moved
    }

    /// Starts to receive a message for the user: see [`Engine::recv_catching`], which polls less often, so not while something else needs polls.
    #[inline]
    pub fn recv(&mut self, context: u32, source: Source, tag: TagMatch, buffer: Buffer) -> Started {
        let is_alone = self.collectives.under_way() == 0
            && self.outboxes.is_idle()
            && self.windows.is_empty()
            && self.partitions.is_idle();
        match is_alone {
            true => self.engine.recv_catching(context, source, tag, buffer),
            false => self.engine.recv(context, source, tag, buffer),
        }
    }

    /// Changes whenever a request may have ended: only then is it worth while to look at many of them.
    pub fn movements(&self) -> u64 {
        self.movements + self.engine.finished() + self.outboxes.ended()
    }

    #[inline]
    fn advance(&mut self) -> bool {
        let mut moved = self.engine.progress();
        moved |= self.poll_disconnects();
        if self.recovery.has_work(&self.engine, &self.comms) {
            self.recovery.heed(&mut self.engine, &mut self.comms);
            moved = true;
        }
        moved |= self.comms.progress(&mut self.engine);
        moved |= self.collectives.advance(&mut self.engine);
        moved |= self.outboxes.progress(&self.engine);
        if !self.windows.is_empty() {
            moved |= self.windows.progress(&mut self.engine);
        }
        if !self.partitions.is_idle() {
            moved |= self.partitions.progress(&mut self.engine);
        }
        if let Some(peer) = self.engine.transport_mut().next_wanted() {
            self.lookups.want(peer);
            moved = true;
        }
        if !self.lookups.is_idle() {
            let pmi = self.world.as_mut().and_then(|world| world.pmi.as_mut());
            moved |= self.lookups.poll(pmi, self.engine.transport_mut());
        }
        moved
    }

    /// How often a call of this process has slept.
    pub fn sleeps(&self) -> u64 {
        self.waiting.sleeps
    }

    /// Opens a port; returns its name.
    pub fn open_port(&mut self) -> MpiResult<PortName> {
        let owner = self.comms.names.of_rank(self.me().0);
        let Some(world) = &self.world else { return Err(MpiError::intern("the library is not open")) };
        self.ports.open(owner, self.engine.transport_mut(), &world.settings)
    }

    /// Sends a copy of a buffer's bytes, which counts against the user's attached buffer.
    pub fn send_buffered(&mut self, comm: CommHandle, envelope: Envelope, to: Peer, buffer: &Buffer) -> MpiResult {
        // A persistent request may outlive its communicator.
        let session = self.comms.get(comm).ok().and_then(|communicator| communicator.session);
        self.buffered.send(&mut self.engine, (comm, session), envelope, to, buffer)
    }

    /// Starts a collective operation that is not in progress.
    pub fn start_collective(&mut self, id: CollectiveId) -> MpiResult {
        self.collectives.start(id, &mut self.engine);
        Ok(())
    }

    /// Keeps a message removed from matching by a matched probe.
    pub fn keep_message(&mut self, id: MessageId, comm: CommHandle) -> MpiResult<MessageHandle> {
        self.messages.add(Kept { id, comm }).ok_or_else(too_many_probed)
    }

    /// Whether there is room for one more. Checked before a message is removed from matching, because that cannot be undone.
    pub fn check_room_for_message(&self) -> MpiResult {
        if self.messages.has_room() { Ok(()) } else { Err(too_many_probed()) }
    }
}

#[cold]
fn too_many_probed() -> MpiError {
    MpiError::no_mem("too many probed messages (two million)")
}
