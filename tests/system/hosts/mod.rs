//! Daemons and jobs on several hosts with real networks between them ([`rsd_tests::hosts`]).

mod addresses;
mod doctor;
mod hosts_themselves;
mod incast;
mod joining;
mod losses;
mod partitions;
mod pods;
mod programs;
mod rails;
mod readme;
mod ssh;
mod standbys;
mod strangers;
mod tree;
