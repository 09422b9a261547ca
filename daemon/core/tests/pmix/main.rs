//! PMIx clients against steps, without I/O: each test plays the clients, the daemon and the clock.

mod bench;
mod collectives;
mod costs;
mod elsewhere;
mod held;
mod values;
