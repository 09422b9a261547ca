//! `libpmi.so.0`: the PMI-1 API for programs that call it themselves, as many runtimes besides MPI do. `client-lib/include/pmi.h`
//! describes the functions.
//!
//! - `exports`: the functions that C calls. `process`: what this process is, a rank or alone.
//!
//! One process manager connection per process, behind a lock. The option functions of the API (`PMI_Parse_option` and others) and
//! iteration over a KVS, which no process manager of today offers, are not there.

mod exports;
mod process;
