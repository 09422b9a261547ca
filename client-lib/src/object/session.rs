//! Sessions: uses of the library that know nothing of each other (MPI 5.0 §11.3).

use std::ffi::c_int;

use super::errhandler::Errhandler;
use super::info::Info;
use super::table::Table;
use crate::abi::constants::{
    MPI_ERR_SESSION, MPI_SESSION_NULL, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED,
    MPI_THREAD_SINGLE,
};
use crate::abi::{SessionHandle, handle::Handle};
use crate::error::{MpiError, MpiResult};

/// A session.
#[derive(Debug)]
pub struct Session {
    /// What becomes of its errors.
    pub errhandler: Errhandler,
    /// Of how many threads it is used.
    pub thread_level: c_int,
}

/// The key by which a program asks for a thread level, and by which it is told.
pub const THREAD_LEVEL: &str = "thread_level";

/// Thread levels by the names that values of [`THREAD_LEVEL`] have.
const LEVELS: [(&str, c_int); 4] = [
    ("MPI_THREAD_SINGLE", MPI_THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", MPI_THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", MPI_THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", MPI_THREAD_MULTIPLE),
];

/// The level that is asked for; who does not ask gets all that there is.
pub fn thread_level(hints: Option<&Info>) -> MpiResult<c_int> {
    let Some(name) = hints.and_then(|hints| hints.get(THREAD_LEVEL.as_bytes())) else { return Ok(MPI_THREAD_MULTIPLE) };
    let known = LEVELS.iter().find(|(known, _)| known.as_bytes() == name);
    known.map(|(_, level)| *level).ok_or_else(|| {
        let names = LEVELS.map(|(name, _)| name).join(", ");
        MpiError::arg(format!("{THREAD_LEVEL} is {:?}: there are {names}", String::from_utf8_lossy(name)))
    })
}

impl Session {
    /// What `MPI_Session_get_info` tells.
    pub fn info(&self) -> MpiResult<Info> {
        let name = LEVELS.iter().find(|(_, level)| *level == self.thread_level).map_or("", |(name, _)| *name);
        let mut info = Info::default();
        info.set(THREAD_LEVEL.as_bytes(), name.as_bytes())?;
        Ok(info)
    }
}

/// The processes that a process set names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pset {
    /// All that were started together.
    World,
    /// This process.
    Own,
}

/// Process sets in the order of their numbers.
pub const PSETS: [(&str, Pset); 2] = [("mpi://WORLD", Pset::World), ("mpi://SELF", Pset::Own)];

impl Pset {
    /// By its name, of which upper and lower case are the same before the path (MPI 5.0 §11.3.2).
    pub fn named(name: &[u8]) -> MpiResult<Self> {
        let found = PSETS.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        found.map(|(_, pset)| *pset).ok_or_else(|| {
            let names = PSETS.map(|(name, _)| name).join(", ");
            MpiError::arg(format!("there is no process set {:?}: there are {names}", String::from_utf8_lossy(name)))
        })
    }
}

/// All sessions of the process.
#[derive(Debug, Default)]
pub struct Sessions {
    made: Table<SessionHandle, Session>,
}

impl Sessions {
    /// The session of a handle; an error of class `MPI_ERR_SESSION` if there is none.
    pub fn get(&self, handle: SessionHandle) -> MpiResult<&Session> {
        self.made.get(handle).ok_or_else(|| unknown(handle))
    }

    /// As [`Sessions::get`].
    pub fn get_mut(&mut self, handle: SessionHandle) -> MpiResult<&mut Session> {
        self.made.get_mut(handle).ok_or_else(|| unknown(handle))
    }

    /// A handle for a session.
    pub fn add(&mut self, session: Session) -> MpiResult<SessionHandle> {
        self.made.add(session).ok_or_else(|| MpiError::no_mem("there are two million sessions already"))
    }

    /// Ends a session.
    pub fn take(&mut self, handle: SessionHandle) -> MpiResult<Session> {
        self.made.take(handle).ok_or_else(|| unknown(handle))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.made.iter().map(|(_, session)| session)
    }
}

#[cold]
fn unknown(handle: SessionHandle) -> MpiError {
    let text = match handle.bits() {
        MPI_SESSION_NULL => "the session is MPI_SESSION_NULL",
        _ => "the session was finalised or never was one",
    };
    MpiError::new(MPI_ERR_SESSION, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::MPI_ERR_ARG;

    #[test]
    fn thread_levels_are_asked_for_and_told_by_name() {
        let mut hints = Info::default();
        assert_eq!(thread_level(Some(&hints)).unwrap(), MPI_THREAD_MULTIPLE);
        for (name, level) in LEVELS {
            hints.set(THREAD_LEVEL.as_bytes(), name.as_bytes()).unwrap();
            let thread_level = thread_level(Some(&hints)).unwrap();
            assert_eq!(thread_level, level);
            let session = Session { errhandler: Errhandler::Return, thread_level };
            assert_eq!(session.info().unwrap().get(b"thread_level"), Some(name.as_bytes()));
        }
        hints.set(THREAD_LEVEL.as_bytes(), b"many").unwrap();
        assert_eq!(thread_level(Some(&hints)).unwrap_err().class, MPI_ERR_ARG);
    }

    #[test]
    fn a_process_set_that_is_none_names_those_that_are() {
        assert_eq!(Pset::named(b"mpi://WORLD").unwrap(), Pset::World);
        assert_eq!(Pset::named(b"mpi://self").unwrap(), Pset::Own);
        let error = Pset::named(b"mpi://ELSE").unwrap_err();
        assert_eq!(error.class, MPI_ERR_ARG);
        assert_eq!(error.text, "there is no process set \"mpi://ELSE\": there are mpi://WORLD, mpi://SELF");
    }
}
