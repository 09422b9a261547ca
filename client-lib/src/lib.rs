//! The thin MPI library of rsd, as far as it goes: how a process finds out who it is and exchanges addresses with its peers.
//!
//! There is no MPI interface here yet: no `MPI_Init`, no communicators, no transports, and no C library to link. What is here
//! is [`bootstrap`], a client of the process management interface that works under any launcher that speaks PMI-1
//! (rsd, Hydra, Flux, …). The library will start through it; the fence bench does already.

pub mod bootstrap;
