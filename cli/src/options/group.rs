//! The command line of `rsctl group`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::words::{duration, frameworks, group_name};
use crate::exit::Failure;

/// `group …`.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Join a group, wait until it is complete, and become the program: an MPI rank of it
    #[command(after_help = EXEC_HELP)]
    Exec(Exec),
    /// Join a group for this shell, wait until it is complete, and print the environment of its member
    #[command(after_help = ENV_HELP)]
    Env {
        #[command(flatten)]
        join: JoinOptions,
        /// The process that is to be the member: its end ends the membership [default: the parent]
        #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
        pid: Option<u32>,
    },
    /// Make a group with rules of its own (one that nobody made is made by the first to join)
    #[command(after_help = CREATE_HELP)]
    Create(Create),
    /// List groups
    Ls,
    /// Look at one group: who waits, which epochs live
    Show {
        /// Its name
        #[arg(value_name = "GROUP", value_parser = group_name)]
        name: String,
    },
    /// Let nobody join any more; who waits is sent away, epochs that have begun go on
    Close {
        /// Its name
        #[arg(value_name = "GROUP", value_parser = group_name)]
        name: String,
    },
    /// Send a waiting member away
    #[command(after_help = "Examples:\n  rsctl group kick actors 4411\n  rsctl group kick actors node7:4411")]
    Kick {
        /// The group's name
        #[arg(value_name = "GROUP", value_parser = group_name)]
        name: String,
        /// Its process
        #[arg(value_name = "[NODE:]PID", value_parser = member)]
        member: Member,
    },
}

const EXEC_HELP: &str = "\
Examples, in sixteen places, on any nodes of the DVM, in any order:
  rsctl group exec actors --size 16 -- python serve.py
  rsctl group exec actors --size 16 --rank 3 --timeout 5m -- ./worker
  rsctl group exec actors --size 16 --export torch,nccl -- python train.py

rsctl becomes the program: the process stays, with its parent, its terminal and its pid, and its
MPI_Init finds an MPI_COMM_WORLD of 16. Ranks go by node, then by arrival; --rank asks for one.
A group that is not complete in time is refused with who is there and how many are missing (124).
When a member dies the epoch is over; whoever joins then is in epoch 2.

What --export names is set here, before the program begins. RSD_JOIN in a program of our MPI library
joins too, but sets nothing: MPI_Init does not change the environment of a process with threads.

rsd sends no signal to a process that it has not started.";

const ENV_HELP: &str = "\
Example:
  eval \"$(rsctl group env actors --size 16)\" && python serve.py

The member is the shell that runs this: when it ends before MPI_Init, its place is lost.";

const CREATE_HELP: &str = "\
Examples:
  rsctl group create actors --size 16
  rsctl group create actors --min 8 --max 16 --settle 5s
  rsctl group create actors --size 16 --timeout 10m --ttl 1d

The second begins with 16 members, or with 8 or more when nobody has come for 5 s.

--mode is for a group of root's: so far a daemon lets in its own user and root alone, whatever the
mode. Members of several users need a daemon that runs as one user, and to join as that user, with
sudo -u for example; or a DVM, and a world, for each of them.";

/// What a member asks for.
#[derive(Debug, Clone, Args)]
pub(crate) struct JoinOptions {
    /// The group's name
    #[arg(value_name = "GROUP", value_parser = group_name)]
    pub(crate) name: String,
    /// How many members it is to have [default: as it was created]
    #[arg(long, value_name = "N", conflicts_with_all = ["min", "max"])]
    pub(crate) size: Option<u32>,
    /// Instead of --size: at least so many
    #[arg(long, value_name = "N", requires = "max")]
    pub(crate) min: Option<u32>,
    /// With --min: at most so many
    #[arg(long, value_name = "N", requires = "min")]
    pub(crate) max: Option<u32>,
    /// The rank to be [default: any]
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Option<u32>,
    /// How long to wait for the others, `90s` say [default: the group's own, 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// What other frameworks read from their environment, too: torch, nccl, nvshmem, several with commas between; the member need
    /// not be an MPI program then
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
    /// How many members it has
    #[arg(long, value_name = "N", conflicts_with_all = ["min", "max"])]
    pub(crate) size: Option<u32>,
    /// Instead of --size: at least so many
    #[arg(long, value_name = "N", requires = "max")]
    pub(crate) min: Option<u32>,
    /// With --min: at most so many
    #[arg(long, value_name = "N", requires = "min")]
    pub(crate) max: Option<u32>,
    /// With --min: begin when nobody has come for this time [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) settle: Option<Duration>,
    /// How long members wait that do not say [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long the group lives while nobody is in it [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) ttl: Option<Duration>,
    /// Who may join besides its owner and root, as of a file: 600 nobody, 666 everybody whom the daemon lets in [default: 600]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,
}

impl Create {
    pub(crate) fn sizes(&self) -> Result<(u32, u32), Failure> {
        match (self.size, self.min, self.max) {
            (Some(size), _, _) => Ok((size, size)),
            (None, Some(min), Some(max)) => Ok((min, max)),
            (None, _, _) => Err(Failure::usage("how many members? rsctl group create actors --size 16")),
        }
    }
}

/// One process of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The name of its node; empty: any.
    pub(crate) node: String,
    pub(crate) pid: u32,
}

fn exported(text: &str) -> Result<String, String> {
    frameworks(text, "the program keeps the environment that rsctl or the shell has, no option is needed")
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it would be gone before anybody came: say 10m or 1d, for example".to_owned()),
        time => Ok(time),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "give it as to chmod, in octal: 600, 666".to_owned())
}

fn member(text: &str) -> Result<Member, String> {
    let (node, pid) = text.rsplit_once(':').unwrap_or(("", text));
    let pid = pid.parse().ok().filter(|pid| *pid > 0).ok_or("give its pid, or NODE:PID")?;
    Ok(Member { node: node.to_owned(), pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_framework_is_refused_with_what_this_command_knows() {
        let error = exported("foo").unwrap_err();
        assert!(error.contains("use torch, nccl or nvshmem"), "{error}");
        assert!(error.ends_with("keeps the environment that rsctl or the shell has, no option is needed"), "{error}");
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
