//! Numbers that PMIx gives names to.

/// The outcome of a request, or the kind of an event: 0 or a negative number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub i32);

impl Status {
    /// The request has succeeded.
    pub const SUCCESS: Status = Status(0);
    /// A failure without a number of its own.
    pub const ERROR: Status = Status(-1);
    /// A process has died, for fault-tolerant MPI.
    pub const PROC_ABORTED: Status = Status(-7);
    /// A process has requested the abort.
    pub const PROC_REQUESTED_ABORT: Status = Status(-8);
    /// The name exists already.
    pub const EXISTS: Status = Status(-11);
    /// A data type that the server does not know.
    pub const UNKNOWN_DATA_TYPE: Status = Status(-16);
    /// The caller may not do this.
    pub const NO_PERMISSIONS: Status = Status(-23);
    /// The request's time has passed.
    pub const TIMEOUT: Status = Status(-24);
    /// The peer cannot be reached.
    pub const UNREACHABLE: Status = Status(-25);
    /// The request is invalid.
    pub const BAD_PARAM: Status = Status(-27);
    /// The server has no room for it.
    pub const OUT_OF_RESOURCE: Status = Status(-29);
    /// No such value, name or process.
    pub const NOT_FOUND: Status = Status(-46);
    /// The server does not do this.
    pub const NOT_SUPPORTED: Status = Status(-47);
    /// Some of the values were found.
    pub const PARTIAL_SUCCESS: Status = Status(-52);
    /// The key is published already.
    pub const DUPLICATE_KEY: Status = Status(-53);
    /// A process has closed its connection without finalize.
    pub const LOST_CONNECTION: Status = Status(-61);
    /// A process has ended.
    pub const PROC_TERMINATED: Status = Status(-201);
    /// A job could not be started.
    pub const JOB_FAILED_TO_LAUNCH: Status = Status(-181);
    /// A job has ended.
    pub const JOB_END: Status = Status(-145);

    /// Returns whether this is success.
    pub fn is_success(self) -> bool {
        self == Status::SUCCESS
    }
}

/// Ranks with a meaning of their own.
pub mod rank {
    /// No rank in particular.
    pub const UNDEFINED: u32 = u32::MAX;
    /// All ranks of a namespace.
    pub const WILDCARD: u32 = u32::MAX - 1;
    /// All ranks of the namespace on the caller's node.
    pub const LOCAL_PEERS: u32 = u32::MAX - 4;
    /// All ranks on the caller's node.
    pub const LOCAL_NODE: u32 = u32::MAX - 2;
    /// The smallest of these.
    pub const FIRST_SPECIAL: u32 = u32::MAX - 50;
}

/// For which processes a rank puts a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those on its node.
    Local,
    /// Those on other nodes.
    Remote,
    /// All.
    Global,
}

impl Scope {
    /// Returns the scope with this number.
    pub fn of(number: u8) -> Option<Scope> {
        match number {
            1 => Some(Scope::Local),
            2 => Some(Scope::Remote),
            3 => Some(Scope::Global),
            _ => None,
        }
    }

    /// Returns the scope's number.
    pub fn number(self) -> u8 {
        match self {
            Scope::Local => 1,
            Scope::Remote => 2,
            Scope::Global => 3,
        }
    }
}

/// For whom a value is published, or an event is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Not said: all processes of the user.
    Undefined,
    /// The resource manager.
    Manager,
    /// The processes on the caller's node.
    Local,
    /// The processes of the caller's namespace.
    Namespace,
    /// The processes of the user's session.
    Session,
    /// All processes.
    Global,
    /// A list of processes that is passed along.
    Custom,
    /// The caller alone.
    Process,
}

impl Range {
    /// Returns the range with this number; unknown numbers are [`Range::Undefined`].
    pub fn of(number: u8) -> Range {
        match number {
            1 => Range::Manager,
            2 => Range::Local,
            3 => Range::Namespace,
            4 => Range::Session,
            5 => Range::Global,
            6 => Range::Custom,
            7 => Range::Process,
            _ => Range::Undefined,
        }
    }

    /// Returns the range's number.
    pub fn number(self) -> u8 {
        match self {
            Range::Undefined => 0,
            Range::Manager => 1,
            Range::Local => 2,
            Range::Namespace => 3,
            Range::Session => 4,
            Range::Global => 5,
            Range::Custom => 6,
            Range::Process => 7,
        }
    }
}

/// How long a published value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Until it is withdrawn.
    Indefinite,
    /// Until it is first read.
    FirstRead,
    /// Until the process that published it ends.
    Process,
    /// Until that process's application ends.
    Application,
    /// Until the session ends.
    Session,
}

impl Persistence {
    /// Returns the persistence with this number; unknown numbers are [`Persistence::Application`], PMIx's default.
    pub fn of(number: u8) -> Persistence {
        match number {
            0 => Persistence::Indefinite,
            1 => Persistence::FirstRead,
            2 => Persistence::Process,
            4 => Persistence::Session,
            _ => Persistence::Application,
        }
    }

    /// Returns the persistence's number.
    pub fn number(self) -> u8 {
        match self {
            Persistence::Indefinite => 0,
            Persistence::FirstRead => 1,
            Persistence::Process => 2,
            Persistence::Application => 3,
            Persistence::Session => 4,
        }
    }
}
