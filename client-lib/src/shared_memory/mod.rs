//! What processes of one node do with memory that they share, whatever it is for: atomics on it ([`sync`]), and the kernel's
//! copies out of another process's memory ([`cma`]).

pub(crate) mod cma;
pub(crate) mod sync;
