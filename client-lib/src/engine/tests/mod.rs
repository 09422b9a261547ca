//! Tests of the engine: [`bodies`] that run over any transport, a transport with seeded oddities ([`fake`]), and whole
//! worlds over it (`simulation`).

pub(crate) mod bodies;
mod catching;
mod deferred;
pub(crate) mod fake;
mod simulation;
