//! Sessions: independent uses of the library (MPI 5.0 §11.3).

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
    /// Its error handler.
    pub errhandler: Errhandler,
    /// Its thread level.
    pub thread_level: c_int,
}

/// The key with which a program requests a thread level, and reads the provided one.
pub const THREAD_LEVEL: &str = "thread_level";

/// The thread levels by their names in values of [`THREAD_LEVEL`].
const LEVELS: [(&str, c_int); 4] = [
    ("MPI_THREAD_SINGLE", MPI_THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", MPI_THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", MPI_THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", MPI_THREAD_MULTIPLE),
];

/// The requested level; without a request, the highest.
pub fn thread_level(hints: Option<&Info>) -> MpiResult<c_int> {
    let Some(name) = hints.and_then(|hints| hints.get(THREAD_LEVEL.as_bytes())) else { return Ok(MPI_THREAD_MULTIPLE) };
    let known = LEVELS.iter().find(|(known, _)| known.as_bytes() == name);
    known.map(|(_, level)| *level).ok_or_else(|| {
        let names = LEVELS.map(|(name, _)| name).join(", ");
        MpiError::arg(format!("invalid {THREAD_LEVEL} {:?} (known: {names})", String::from_utf8_lossy(name)))
    })
}

impl Session {
    /// The content of `MPI_Session_get_info`.
    pub fn info(&self) -> MpiResult<Info> {
        let name = LEVELS.iter().find(|(_, level)| *level == self.thread_level).map_or("", |(name, _)| *name);
        let mut info = Info::default();
        info.set(THREAD_LEVEL.as_bytes(), name.as_bytes())?;
        Ok(info)
    }
}

/// The processes in a process set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pset {
    /// All processes that were started together.
    World,
    /// This process.
    Own,
    /// The processes on one of their nodes.
    Node(u32),
}

/// The process sets that every process has, in the order of their numbers.
const STANDARD: [(&str, Pset); 2] = [("mpi://WORLD", Pset::World), ("mpi://SELF", Pset::Own)];
/// The most process sets that an error lists.
const LISTED: usize = 8;

impl Pset {
    /// A standard process set by its name, which is case-insensitive (MPI 5.0 §11.3.2).
    pub fn standard(name: &[u8]) -> Option<Self> {
        let found = STANDARD.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        found.map(|(_, pset)| *pset)
    }
}

/// All process sets of this process: the standard's, and those from rsd. Numbers are indices.
#[derive(Debug)]
pub struct Psets(Vec<(String, Pset)>);

impl Psets {
    /// `job`, `group`: the job and group of this process, if its process manager knows them; `nodes`: the names of the
    /// job's nodes.
    pub fn new(job: Option<&str>, group: Option<&str>, nodes: &[String]) -> Self {
        let mut all: Vec<_> = STANDARD.iter().map(|(name, pset)| ((*name).to_owned(), *pset)).collect();
        all.extend(job.map(|job| (format!("rsd://job/{job}"), Pset::World)));
        all.extend(group.map(|group| (format!("rsd://group/{group}"), Pset::World)));
        all.extend((0..).zip(nodes).map(|(node, name)| (format!("rsd://node/{name}"), Pset::Node(node))));
        Self(all)
    }

    /// The number of process sets.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The name of a process set.
    pub fn name(&self, number: usize) -> Option<&str> {
        self.0.get(number).map(|(name, _)| name.as_str())
    }

    /// A process set by its name; the part after the last slash is case-sensitive.
    pub fn named(&self, name: &[u8]) -> MpiResult<Pset> {
        let alike = |known: &str| {
            let kind = known.rfind('/').map_or(0, |at| at + 1);
            let (known, kind_given) = (known.as_bytes(), name.get(..kind));
            kind_given.is_some_and(|given| given.eq_ignore_ascii_case(&known[..kind])) && name[kind..] == known[kind..]
        };
        let found = self.0.iter().find(|(known, _)| alike(known)).map(|(_, pset)| *pset);
        found.or_else(|| Pset::standard(name)).ok_or_else(|| {
            let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).take(LISTED).collect();
            if self.count() > LISTED {
                names.push("…");
            }
            let (name, names) = (String::from_utf8_lossy(name), names.join(", "));
            MpiError::arg(format!("unknown process set {name:?} (known: {names})"))
        })
    }
}

/// All sessions of the process.
#[derive(Debug, Default)]
pub struct Sessions {
    made: Table<SessionHandle, Session>,
}

impl Sessions {
    /// The session of a handle; fails with class `MPI_ERR_SESSION` if there is none.
    pub fn get(&self, handle: SessionHandle) -> MpiResult<&Session> {
        self.made.get(handle).ok_or_else(|| unknown(handle))
    }

    /// As [`Sessions::get`].
    pub fn get_mut(&mut self, handle: SessionHandle) -> MpiResult<&mut Session> {
        self.made.get_mut(handle).ok_or_else(|| unknown(handle))
    }

    /// Returns a handle for a session.
    pub fn add(&mut self, session: Session) -> MpiResult<SessionHandle> {
        self.made.add(session).ok_or_else(|| MpiError::no_mem("too many sessions (two million)"))
    }

    /// Removes a session.
    pub fn take(&mut self, handle: SessionHandle) -> MpiResult<Session> {
        self.made.take(handle).ok_or_else(|| unknown(handle))
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.made.iter().map(|(_, session)| session)
    }
}

#[cold]
fn unknown(handle: SessionHandle) -> MpiError {
    let text = match handle.bits() {
        MPI_SESSION_NULL => "the session is MPI_SESSION_NULL",
        _ => "invalid or finalized session",
    };
    MpiError::new(MPI_ERR_SESSION, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::MPI_ERR_ARG;

    #[test]
    fn thread_levels_are_requested_and_reported_by_name() {
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
    fn a_process_set_is_found_by_its_name_and_by_its_number() {
        let nodes = ["a", "b"].map(str::to_owned);
        let psets = Psets::new(Some("7"), Some("actors"), &nodes);
        let names: Vec<_> = (0..psets.count()).filter_map(|number| psets.name(number)).collect();
        assert_eq!(
            names,
            ["mpi://WORLD", "mpi://SELF", "rsd://job/7", "rsd://group/actors", "rsd://node/a", "rsd://node/b"]
        );
        assert_eq!(psets.name(names.len()), None);
        let found = |name: &str| psets.named(name.as_bytes()).unwrap();
        assert_eq!(["mpi://WORLD", "mpi://self"].map(found), [Pset::World, Pset::Own]);
        assert_eq!(["rsd://job/7", "RSD://Group/actors"].map(found), [Pset::World; 2]);
        assert_eq!(["rsd://node/a", "rsd://node/b"].map(found), [Pset::Node(0), Pset::Node(1)]);
    }

    #[test]
    fn the_error_for_an_unknown_process_set_names_the_known_ones() {
        let psets = Psets::new(None, None, &[]);
        let error = psets.named(b"mpi://ELSE").unwrap_err();
        assert_eq!(error.class, MPI_ERR_ARG);
        assert_eq!(error.text, "unknown process set \"mpi://ELSE\" (known: mpi://WORLD, mpi://SELF)");
        let nodes: Vec<String> = (0..100).map(|node| format!("n{node}")).collect();
        let psets = Psets::new(Some("7"), None, &nodes);
        for other in ["rsd://job/8", "rsd://group/actors", "rsd://node/N1", "rsd://node/", "rsd://", ""] {
            let error = psets.named(other.as_bytes()).unwrap_err();
            assert!(
                error.text.ends_with(
                    "rsd://job/7, rsd://node/n0, rsd://node/n1, rsd://node/n2, rsd://node/n3, \
                 rsd://node/n4, …)"
                ),
                "{}",
                error.text
            );
        }
    }
}
