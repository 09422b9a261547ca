//! The functions behind the exported ones, a file per chapter of the standard. They take what C passes, check every argument, and
//! leave the work to the other modules.

pub mod fortran;
pub mod ints;
