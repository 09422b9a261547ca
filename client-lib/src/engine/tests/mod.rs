//! The engine under test: [`bodies`] that hold over any transport, a transport as odd as a seed says ([`fake`]), and whole
//! worlds over it (`simulation`).

pub(crate) mod bodies;
pub(crate) mod fake;
mod simulation;
