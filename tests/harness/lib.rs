//! The harness of the system tests: the built daemons and clients, in their own directories.
//!
//! In reading order:
//!
//! - [`Dvm`]: daemons on this machine, and the check that they leave nothing behind.
//! - [`hosts`]: hosts with networks between them, made of namespaces, and daemons on them.
//! - [`Call`], [`Running`], [`Ended`]: a command with a deadline, while it runs, and after it has exited.
//! - [`write_program`], [`copy_program`]: programs that a test writes.
//! - [`Mpi`], [`plain`], [`python`]: compiled test programs.
//! - [`Etcd`]: an etcd server; [`Certificates`]: those that it may need.
//! - [`Hosts`]: ssh servers on this machine.
//! - [`built`]: the programs under test, checked to be up to date.
//! - [`processes`]: facts from `/proc`.

pub mod built;
mod call;
mod certificates;
mod dvm;
pub mod etcd;
mod executable;
pub mod hosts;
mod leftovers;
mod prefix;
pub mod processes;
mod programs;
mod sshd;
mod watched;

pub use call::{Call, Ended, Running, all_ok};
pub use certificates::Certificates;
pub use dvm::{Dvm, Options, state_dir};
pub use etcd::Etcd;
pub use executable::{copy_program, write_program};
pub use programs::{Mpi, Pmi, client, hydra, intel, mpi4py_for_the_abi, pkg_config, plain, plain_with, python, script};
pub use sshd::{Hosts, SshHost};
pub use watched::eventually;
