//! The primitives for memory that processes of one node share: atomics on it ([`sync`]), and copies from another
//! process's memory by the kernel ([`cma`]).

pub(crate) mod cma;
pub(crate) mod sync;
#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod traffic;
