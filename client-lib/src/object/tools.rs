//! The tools interface (MPI 5.0 §15.3): its variables, as tables, and the handles that a tool has.
//!
//! *Control variables* are the settings of [`SETTINGS`], under their own names and in their order, as texts. They can be written until the
//! library is opened, and count for the next opening, as if they were in the environment. *Performance variables* are [`VARIABLES`]. The
//! counters never stop; resetting or writing one only moves the point from which a handle counts, so tools do not disturb each other.
//! *Categories* group both. There are no events: nothing that would be cheap to report is not already a counter.

use std::collections::BTreeMap;

use rsd_proto::library::SETTINGS;

use crate::abi::CommHandle;
use crate::abi::constants as c;
use crate::error::{MpiError, MpiResult};

/// What the tools of a process have made. Handles are numbers that are never used again.
#[derive(Debug, Default)]
pub struct Tools {
    /// The calls of `MPI_T_init_thread` without one of `MPI_T_finalize`.
    users: u32,
    next: usize,
    controls: BTreeMap<usize, usize>,
    sessions: BTreeMap<usize, BTreeMap<usize, Reading>>,
    /// Settings that a tool has written.
    written: BTreeMap<&'static str, String>,
}

/// A handle of a performance variable.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The variable.
    pub variable: &'static Variable,
    /// The communicator that it was made for, if the variable needs one.
    pub comm: Option<CommHandle>,
    /// The value from which it counts.
    pub base: u64,
}

/// A performance variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The value that it shows.
    pub of: Of,
}

/// The values of performance variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Messages sent.
    Sent,
    /// Their bytes.
    SentBytes,
    /// Messages received.
    Received,
    /// Their bytes.
    ReceivedBytes,
    /// Sleeps of waiting calls.
    Sleeps,
    /// Messages without a receive.
    Unexpected,
    /// Receives without a message.
    Posted,
    /// Peers with frames that wait for room.
    Backlog,
    /// The used part of the ring in shared memory.
    RingFill,
    /// The transport to each member of a communicator.
    Paths,
}

/// All performance variables: positions never change.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "messages_sent",
        meaning: "messages that this process has sent, including the library's own, except through memory that a collective shares",
        of: Of::Sent,
    },
    Variable { name: "bytes_sent", meaning: "the packed bytes of these messages", of: Of::SentBytes },
    Variable {
        name: "messages_received",
        meaning: "messages that receives of this process have got, including the library's own",
        of: Of::Received,
    },
    Variable { name: "bytes_received", meaning: "the packed bytes of these messages", of: Of::ReceivedBytes },
    Variable {
        name: "sleeps",
        meaning: "how often a call that waited had nothing to do for so long that it slept",
        of: Of::Sleeps,
    },
    Variable {
        name: "unexpected_messages",
        meaning: "messages that have arrived, and for which there is no receive yet",
        of: Of::Unexpected,
    },
    Variable { name: "requests_pending", meaning: "sends and receives that are in progress", of: Of::Posted },
    Variable { name: "peers_without_room", meaning: "peers for which messages wait here for room", of: Of::Backlog },
    Variable {
        name: "ring_fill",
        meaning: "the used part of the ring in shared memory in which this process receives: 1 is full",
        of: Of::RingFill,
    },
    Variable {
        name: "path",
        meaning: "the transport to each member of a communicator, by the ranks that its messages name",
        of: Of::Paths,
    },
];

/// The only enumeration: the values of `path`.
pub const PATHS: [&str; 4] = ["none", "self", "shared_memory", "tcp"];

/// The handle of [`PATHS`]; 0 is `MPI_T_ENUM_NULL`.
pub const PATHS_ENUM: usize = 1;

/// A category.
#[derive(Debug)]
pub struct Category {
    /// Its name.
    pub name: &'static str,
    /// What it contains.
    pub meaning: &'static str,
    /// Names of performance variables begin with one of these.
    variables: &'static [Of],
    /// Names of control variables begin with this.
    controls: Option<&'static str>,
    /// Positions of the categories in it.
    pub categories: &'static [i32],
}

/// All categories.
pub const CATEGORIES: &[Category] = &[
    Category { name: "rsd", meaning: "everything", variables: &[], controls: None, categories: &[1, 2, 3, 4] },
    Category {
        name: "messages",
        meaning: "messages of this process",
        variables: &[Of::Sent, Of::SentBytes, Of::Received, Of::ReceivedBytes, Of::Unexpected, Of::Posted],
        controls: None,
        categories: &[],
    },
    Category {
        name: "transports",
        meaning: "how messages travel, and how the process waits for them",
        variables: &[Of::Sleeps, Of::Backlog, Of::RingFill, Of::Paths],
        controls: None,
        categories: &[],
    },
    Category {
        name: "settings",
        meaning: "settings of the library, by environment variable",
        variables: &[],
        controls: Some("RSD_MPI_"),
        categories: &[],
    },
    Category {
        name: "groups",
        meaning: "settings for processes that join a group instead of being launched",
        variables: &[],
        controls: Some("RSD_JOIN"),
        categories: &[],
    },
];

impl Category {
    /// Positions of its performance variables.
    pub fn variables(&self) -> Vec<i32> {
        let all = VARIABLES.iter().enumerate();
        all.filter(|(_, it)| self.variables.contains(&it.of)).map(|(at, _)| at as i32).collect()
    }

    /// Positions of its control variables.
    pub fn controls(&self) -> Vec<i32> {
        let Some(prefix) = self.controls else { return Vec::new() };
        let all = SETTINGS.iter().enumerate();
        all.filter(|(_, it)| it.name.starts_with(prefix)).map(|(at, _)| at as i32).collect()
    }
}

impl Variable {
    /// `MPI_T_PVAR_CLASS_…`.
    pub fn class(&self) -> i32 {
        match self.of {
            Of::Sent | Of::Received | Of::Sleeps => c::MPI_T_PVAR_CLASS_COUNTER,
            Of::SentBytes | Of::ReceivedBytes => c::MPI_T_PVAR_CLASS_AGGREGATE,
            Of::Unexpected | Of::Posted | Of::Backlog => c::MPI_T_PVAR_CLASS_LEVEL,
            Of::RingFill => c::MPI_T_PVAR_CLASS_PERCENTAGE,
            Of::Paths => c::MPI_T_PVAR_CLASS_STATE,
        }
    }

    /// The datatype of a value.
    pub fn datatype(&self) -> usize {
        match self.of {
            Of::RingFill => c::MPI_DOUBLE,
            Of::Paths => c::MPI_INT,
            Of::Sent | Of::Received | Of::Sleeps | Of::SentBytes | Of::ReceivedBytes => c::MPI_UNSIGNED_LONG,
            Of::Unexpected | Of::Posted | Of::Backlog => c::MPI_UNSIGNED_LONG,
        }
    }

    /// Whether a handle can start to count from another value.
    pub fn counts(&self) -> bool {
        [c::MPI_T_PVAR_CLASS_COUNTER, c::MPI_T_PVAR_CLASS_AGGREGATE].contains(&self.class())
    }
}

impl Tools {
    /// `MPI_T_init_thread`.
    pub fn begin(&mut self) {
        self.users += 1;
    }

    /// `MPI_T_finalize`: the last one invalidates all handles.
    pub fn end(&mut self) -> MpiResult {
        self.check()?;
        self.users -= 1;
        if self.users == 0 {
            self.controls.clear();
            self.sessions.clear();
        }
        Ok(())
    }

    /// Fails with `MPI_T_ERR_NOT_INITIALIZED` outside of the interface's use.
    pub fn check(&self) -> MpiResult {
        match self.users {
            0 => Err(fault(
                c::MPI_T_ERR_NOT_INITIALIZED,
                "the tools interface is not initialized: call MPI_T_init_thread",
            )),
            _ => Ok(()),
        }
    }

    fn new_handle(&mut self) -> usize {
        self.next += 1;
        // Small numbers are constants.
        self.next + 0x100
    }

    /// A handle of a control variable.
    pub fn add_control(&mut self, index: i32) -> MpiResult<usize> {
        let at = control(index)?;
        let handle = self.new_handle();
        self.controls.insert(handle, at);
        Ok(handle)
    }

    /// Invalidates a handle of a control variable.
    pub fn remove_control(&mut self, handle: usize) -> MpiResult {
        self.controls.remove(&handle).map(drop).ok_or_else(bad_handle)
    }

    /// The value of a control variable: as written, otherwise as in the environment, otherwise empty for the default.
    pub fn control_value(&self, handle: usize, environment: impl FnOnce(&str) -> Option<String>) -> MpiResult<String> {
        let name = SETTINGS[*self.controls.get(&handle).ok_or_else(bad_handle)?].name;
        Ok(self.written.get(name).cloned().or_else(|| environment(name)).unwrap_or_default())
    }

    /// The name of a control variable.
    pub fn control_name(&self, handle: usize) -> MpiResult<&'static str> {
        Ok(SETTINGS[*self.controls.get(&handle).ok_or_else(bad_handle)?].name)
    }

    /// Writes a control variable.
    pub fn write_control(&mut self, name: &'static str, value: String) {
        self.written.insert(name, value);
    }

    /// The settings that tools have written, for the next opening of the library; an empty one is the default.
    pub fn written(&self) -> &BTreeMap<&'static str, String> {
        &self.written
    }

    /// A session.
    pub fn add_session(&mut self) -> usize {
        let session = self.new_handle();
        self.sessions.insert(session, BTreeMap::new());
        session
    }

    /// Ends a session, with its handles.
    pub fn remove_session(&mut self, session: usize) -> MpiResult {
        self.sessions.remove(&session).map(drop).ok_or_else(bad_session)
    }

    /// A handle of a performance variable.
    pub fn add_reading(&mut self, session: usize, reading: Reading) -> MpiResult<usize> {
        let handle = self.new_handle();
        self.sessions.get_mut(&session).ok_or_else(bad_session)?.insert(handle, reading);
        Ok(handle)
    }

    /// Invalidates a handle of a performance variable.
    pub fn remove_reading(&mut self, session: usize, handle: usize) -> MpiResult {
        self.sessions.get_mut(&session).ok_or_else(bad_session)?.remove(&handle).map(drop).ok_or_else(bad_handle)
    }

    /// The performance variable behind a handle.
    pub fn reading(&mut self, session: usize, handle: usize) -> MpiResult<&mut Reading> {
        self.sessions.get_mut(&session).ok_or_else(bad_session)?.get_mut(&handle).ok_or_else(bad_handle)
    }

    /// All handles of a session.
    pub fn readings(&mut self, session: usize) -> MpiResult<Vec<usize>> {
        Ok(self.sessions.get(&session).ok_or_else(bad_session)?.keys().copied().collect())
    }
}

/// The position of a control variable.
pub fn control(index: i32) -> MpiResult<usize> {
    position(index, SETTINGS.len(), "control variable")
}

/// A performance variable by its position.
pub fn variable(index: i32) -> MpiResult<&'static Variable> {
    position(index, VARIABLES.len(), "performance variable").map(|at| &VARIABLES[at])
}

/// A category by its position.
pub fn category(index: i32) -> MpiResult<&'static Category> {
    position(index, CATEGORIES.len(), "category").map(|at| &CATEGORIES[at])
}

fn position(index: i32, count: usize, what: &str) -> MpiResult<usize> {
    let found = usize::try_from(index).ok().filter(|at| *at < count);
    found.ok_or_else(|| fault(c::MPI_T_ERR_INVALID_INDEX, format!("no {what} {index}: there are {count}")))
}

/// An error with a code of the tools interface.
#[cold]
pub fn fault(code: i32, text: impl Into<std::borrow::Cow<'static, str>>) -> MpiError {
    MpiError::new(code, text)
}

fn bad_handle() -> MpiError {
    fault(c::MPI_T_ERR_INVALID_HANDLE, "invalid or freed handle")
}

fn bad_session() -> MpiError {
    fault(c::MPI_T_ERR_INVALID_SESSION, "invalid or freed session")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_in_one_category_and_categories_form_a_tree() {
        let mut variables: Vec<i32> = CATEGORIES.iter().flat_map(Category::variables).collect();
        variables.sort_unstable();
        assert_eq!(variables, (0..VARIABLES.len() as i32).collect::<Vec<_>>());
        let mut controls: Vec<i32> = CATEGORIES.iter().flat_map(Category::controls).collect();
        controls.sort_unstable();
        assert_eq!(controls, (0..SETTINGS.len() as i32).collect::<Vec<_>>());
        for (at, category) in CATEGORIES.iter().enumerate() {
            assert!(category.categories.iter().all(|inner| *inner as usize > at));
        }
    }

    #[test]
    fn handles_are_not_used_again_and_end_with_the_last_user() {
        let mut tools = Tools::default();
        assert_eq!(tools.check().unwrap_err().class, c::MPI_T_ERR_NOT_INITIALIZED);
        tools.begin();
        tools.begin();
        let (one, session) = (tools.add_control(0).unwrap(), tools.add_session());
        tools.remove_control(one).unwrap();
        assert_ne!(tools.add_control(0).unwrap(), one);
        assert_eq!(tools.remove_control(one).unwrap_err().class, c::MPI_T_ERR_INVALID_HANDLE);
        tools.end().unwrap();
        let reading = Reading { variable: &VARIABLES[0], comm: None, base: 0 };
        let handle = tools.add_reading(session, reading).unwrap();
        assert!(tools.reading(session, handle).is_ok() && tools.reading(handle, session).is_err());
        tools.end().unwrap();
        assert!(tools.reading(session, handle).is_err() && tools.end().is_err());
        assert_eq!(tools.add_control(-1).unwrap_err().class, c::MPI_T_ERR_INVALID_INDEX);
    }
}
