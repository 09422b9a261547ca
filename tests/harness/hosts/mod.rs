//! Hosts to test on: namespaces of this machine that see nothing of each other but a network.
//!
//! In reading order:
//!
//! - [`Plan`]: the hosts and networks to make.
//! - [`Network`]: running hosts and the switch that connects them, which can cut a host off.
//! - [`Host`]: runs programs on one host.
//! - [`Cluster`]: a daemon on every host, joined with a token.
//!
//! A host has its own network, host name, processes, shared memory, `/tmp`, `/run`, `/var/lib` and users' home directories. All
//! other files are shared, as on a cluster with a network file system. Only root can make hosts.
//!
//! The process 1 of each host waits for the end of a pipe that only this process holds. So all hosts end with this process, even if it is
//! killed, and the kernel removes everything that is theirs.

mod cluster;
mod host;
mod network;
mod plan;

pub use cluster::Cluster;
pub use host::Host;
pub use network::Network;
pub use plan::{Cable, Family, Plan};
