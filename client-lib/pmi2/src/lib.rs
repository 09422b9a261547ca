//! `libpmi2.so.0`: the PMI-2 API for programs that call it themselves, with the functions of Slurm's library, `PMIX_Ring` included.
//! `client-lib/include/pmi2.h` describes them.
//!
//! - `exports`: the functions that C calls. `process`: what this process is, a rank or alone.
//!
//! One process manager connection per process, behind a lock.

mod exports;
mod process;
