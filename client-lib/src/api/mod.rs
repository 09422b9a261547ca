//! The functions behind the exported ones, one file per chapter of the standard. They get the arguments that C passes,
//! check each of them, and leave the work to the other modules.

pub mod about;
pub mod alloc_mem;
pub mod args;
pub mod attr;
pub mod buffered;
pub mod checked;
pub mod coll;
pub mod comm;
pub mod completion;
pub mod construct;
pub mod datatype;
pub mod dynamic;
pub mod env;
pub mod errcodes;
pub mod errhandler;
pub mod fortran;
pub mod ft;
pub mod group;
pub mod info;
pub mod intercomm;
pub mod ints;
pub mod names;
pub mod op;
pub mod p2p;
pub mod pack;
pub mod partitioned;
pub mod rma;
pub mod session;
pub mod spawn;
pub mod status;
pub mod tools;
pub mod topo;
pub mod window;
