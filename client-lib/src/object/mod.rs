//! The objects behind handles: communicators, groups, attributes, error handlers, info.
//!
//! To make a communicator, [`creation`] drives the exchanges of [`agree`], with which [`context`] finds a context; [`bridge`]
//! does the same for two groups that make an intercommunicator. When members have died, the survivors decide with [`agreement`] what
//! [`recovery`] does.

pub mod agree;
pub mod agreement;
pub mod attr;
pub mod bridge;
pub mod buffered;
pub mod check;
pub mod comm;
pub mod context;
pub mod creation;
pub mod datatypes;
pub mod dims;
pub mod errcodes;
pub mod errhandler;
pub mod fortran;
pub mod group;
pub mod hardware;
pub mod info;
pub mod names;
pub mod ops;
pub mod parties;
pub mod partitioned;
pub mod recovery;
pub mod requests;
pub mod session;
pub mod table;
pub mod tools;
pub mod topology;
pub mod window;
