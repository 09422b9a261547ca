//! What `rsctl up` has started, for `rsctl down`: a file per DVM in `~/.local/state/rsd/up`, which only the user can read.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use rsd_proto::transport::exit;
use serde::{Deserialize, Serialize};

use super::targets::Host;
use crate::exit::Failure;

/// The daemons of one DVM that were started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The DVM's name for the user: that of the head's daemon.
    pub(crate) name: String,
    /// The DVM's id.
    pub(crate) dvm: String,
    pub(crate) head: HeadRecord,
    pub(crate) nodes: Vec<NodeRecord>,
}

/// The head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadRecord {
    /// None: on this machine.
    pub(crate) host: Option<HostRecord>,
    /// The path of its rsd.
    pub(crate) rsd: String,
    /// The name of its daemon; None: the default one.
    pub(crate) daemon: Option<String>,
    /// Whether it was started by `rsctl up`.
    pub(crate) started: bool,
}

/// A node that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) host: HostRecord,
    pub(crate) rsd: String,
    pub(crate) daemon: Option<String>,
}

/// A host, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostRecord {
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    pub(crate) port: Option<u16>,
}

impl From<&Host> for HostRecord {
    fn from(host: &Host) -> HostRecord {
        HostRecord { name: host.name.clone(), user: host.user.clone(), port: host.port }
    }
}

impl From<&HostRecord> for Host {
    fn from(record: &HostRecord) -> Host {
        Host { name: record.name.clone(), user: record.user.clone(), port: record.port, slots: None }
    }
}

/// Returns the directory of all records.
pub(super) fn folder() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    let missing = || Failure::usage("no place to write down what is started: set HOME to an absolute path");
    Ok(state.ok_or_else(missing)?.join("rsd/up"))
}

fn path(name: &str) -> Result<PathBuf, Failure> {
    // A DVM may be named by a path.
    Ok(folder()?.join(format!("{}.json", name.replace('/', "%"))))
}

impl Record {
    /// Reads the record of a DVM, as [`Record::read`] does, and makes sure that one can be written.
    pub(crate) fn prepare(name: &str) -> Result<Option<Record>, Failure> {
        let folder = folder()?;
        let failed = |error: io::Error| Failure::new(exit::SYSTEM, format!("write {}: {error}", folder.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let probe = folder.join(format!(".{}.new", std::process::id()));
        fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)).map_err(failed)?;
        Record::read(name)
    }

    /// Reads the record of a DVM; None: nothing has been started.
    pub(crate) fn read(name: &str) -> Result<Option<Record>, Failure> {
        let path = path(name)?;
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(exit::SYSTEM, format!("read {}: {error}", path.display()));
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Returns the names of all DVMs with a record.
    pub(crate) fn names() -> Result<Vec<String>, Failure> {
        let files = fs::read_dir(folder()?).into_iter().flatten().flatten();
        let name = |file: fs::DirEntry| {
            Some(file.file_name().to_str()?.strip_suffix(".json")?.replace('%', "/"))
                .filter(|name| !name.starts_with('.'))
        };
        let mut names: Vec<String> = files.filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Writes the record, completely or not at all.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let (folder, path) = (folder()?, path(&self.name)?);
        let scratch = folder.join(format!(".{}.new", std::process::id()));
        let write = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&scratch)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            fs::rename(&scratch, &path)
        };
        write().map_err(|error| Failure::new(exit::SYSTEM, format!("write {}: {error}", path.display())))
    }

    /// Removes the record.
    pub(crate) fn remove(&self) -> Result<(), Failure> {
        let path = path(&self.name)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::new(exit::SYSTEM, format!("remove {}: {error}", path.display())))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
