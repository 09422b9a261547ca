//! The command line of `rsctl group`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::words::{duration, frameworks, group_name};
use crate::exit::Failure;

/// `group …`.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Join a group, wait until it is complete, then become the program, which is a rank of the group
    #[command(after_help = EXEC_HELP)]
    Exec(Exec),
    /// Join a group for this shell, wait until it is complete, then print the member's environment
    #[command(after_help = ENV_HELP)]
    Env {
        #[command(flatten)]
        join: JoinOptions,
        /// The process that becomes the member until it ends [default: the parent of rsctl]
        #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
        pid: Option<u32>,
    },
    /// Create a group with rules of its own (otherwise, the first member that joins creates it)
    #[command(after_help = CREATE_HELP)]
    Create(Create),
    /// List groups
    Ls,
    /// Show a group: waiting members and running epochs
    Show {
        /// The group's name
        #[arg(value_name = "GROUP", value_parser = group_name)]
        name: String,
    },
    /// Close the group: waiting members are turned away, running epochs continue
    Close {
        /// The group's name
        #[arg(value_name = "GROUP", value_parser = group_name)]
        name: String,
    },
    /// Turn a waiting member away
    #[command(after_help = "Examples:\n  rsctl group kick actors 4411\n  rsctl group kick actors node7:4411")]
    Kick {
        /// The group's name
        #[arg(value_name = "GROUP", value_parser = group_name)]
        name: String,
        /// The member's process id, after its node's name if several nodes have a member with this id
        #[arg(value_name = "[NODE:]PID", value_parser = member)]
        member: Member,
    },
}

const EXEC_HELP: &str = "\
Examples, each called by sixteen processes, on any nodes of the DVM, in any order:
  rsctl group exec actors --size 16 -- python serve.py
  rsctl group exec actors --size 16 --rank 3 --timeout 5m -- ./worker
  rsctl group exec actors --size 16 --export torch,nccl -- python train.py

rsctl becomes the program: same process, same parent, same terminal. MPI_Init finds an MPI_COMM_WORLD \
of 16. Ranks are numbered by node, then by arrival; --rank requests a particular rank. If the group is \
not complete in time, rsctl exits with 124 and reports the waiting members and how many are missing. \
When a member dies, the epoch ends; processes that join later form epoch 2.

--export sets variables before the program starts. With RSD_JOIN, a program with rsd's MPI library joins \
in MPI_Init, which sets no variables: other threads of the process may be reading the environment.

rsd never signals a process it did not start.";

const ENV_HELP: &str = "\
Example:
  eval \"$(rsctl group env actors --size 16)\" && python serve.py

The shell that runs this becomes the member. If the shell ends before MPI_Init, its place is free again.";

const CREATE_HELP: &str = "\
Examples:
  rsctl group create actors --size 16
  rsctl group create actors --min 8 --max 16 --settle 5s
  rsctl group create actors --size 16 --timeout 10m --ttl 1d

The second group starts with 16 members, or with at least 8 once no member has joined for 5 s.

--mode only matters for a group created by root: a daemon accepts its own user and root, whatever the \
mode. Processes of several users must join as the daemon's user (sudo -u, for example).";

/// What a member requests.
#[derive(Debug, Clone, Args)]
pub(crate) struct JoinOptions {
    /// The group's name
    #[arg(value_name = "GROUP", value_parser = group_name)]
    pub(crate) name: String,
    /// Number of members [default: as the group was created]
    #[arg(long, value_name = "N", conflicts_with_all = ["min", "max"])]
    pub(crate) size: Option<u32>,
    /// Minimum number of members, instead of --size
    #[arg(long, value_name = "N", requires = "max")]
    pub(crate) min: Option<u32>,
    /// Maximum number of members, with --min
    #[arg(long, value_name = "N", requires = "min")]
    pub(crate) max: Option<u32>,
    /// The rank to request [default: by node, then by arrival]
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Option<u32>,
    /// How long to wait for the other members, for example `90s` [default: the group's timeout, 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Set the variables that these frameworks read: torch, nccl, nvshmem; the program need not use MPI
    #[arg(long, value_name = "FRAMEWORK,…", value_parser = exported)]
    pub(crate) export: Option<String>,
}

/// `exec`.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) join: JoinOptions,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// `create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The group's name
    #[arg(value_name = "GROUP", value_parser = group_name)]
    pub(crate) name: String,
    /// Number of members
    #[arg(long, value_name = "N", conflicts_with_all = ["min", "max"])]
    pub(crate) size: Option<u32>,
    /// Minimum number of members, instead of --size
    #[arg(long, value_name = "N", requires = "max")]
    pub(crate) min: Option<u32>,
    /// Maximum number of members, with --min
    #[arg(long, value_name = "N", requires = "min")]
    pub(crate) max: Option<u32>,
    /// With --min: start once no member has joined for this time [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) settle: Option<Duration>,
    /// Default wait for members that set no timeout [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long an empty group is kept [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) ttl: Option<Duration>,
    /// Which other users may join, as a file mode: 600 none, 666 all that the daemon accepts [default: 600]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,
}

impl Create {
    pub(crate) fn sizes(&self) -> Result<(u32, u32), Failure> {
        match (self.size, self.min, self.max) {
            (Some(size), _, _) => Ok((size, size)),
            (None, Some(min), Some(max)) => Ok((min, max)),
            (None, _, _) => Err(Failure::usage("number of members missing: rsctl group create actors --size 16")),
        }
    }
}

/// A process of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The name of its node; empty for any node.
    pub(crate) node: String,
    pub(crate) pid: u32,
}

fn exported(text: &str) -> Result<String, String> {
    frameworks(text, "the program inherits the environment of rsctl or the shell anyway")
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("the empty group would be removed at once; use 10m or 1d, for example".to_owned()),
        time => Ok(time),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "expected an octal file mode such as 600 or 666".to_owned())
}

fn member(text: &str) -> Result<Member, String> {
    let (node, pid) = text.rsplit_once(':').unwrap_or(("", text));
    let pid = pid.parse().ok().filter(|pid| *pid > 0).ok_or("expected PID or NODE:PID")?;
    Ok(Member { node: node.to_owned(), pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_framework_is_refused_with_the_known_ones() {
        let error = exported("foo").unwrap_err();
        assert!(error.contains("use torch, nccl or nvshmem"), "{error}");
        assert!(error.ends_with("inherits the environment of rsctl or the shell anyway"), "{error}");
        assert_eq!(exported("nccl,torch"), Ok("torch,nccl".into()));
    }

    #[test]
    fn members_and_modes_are_read() {
        assert_eq!(member("4411"), Ok(Member { node: String::new(), pid: 4411 }));
        assert_eq!(member("a:7"), Ok(Member { node: "a".into(), pid: 7 }));
        assert!(member("a:").is_err() && member("0").is_err() && member("me").is_err());
        assert_eq!((mode("666"), mode("0600")), (Ok(0o666), Ok(0o600)));
        assert!(mode("rw").is_err() && mode("1777").is_err());
    }
}
