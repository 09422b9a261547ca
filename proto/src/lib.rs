//! Every byte that leaves an rsd process.
//!
//! - [`v1`] (feature `messages`): the gRPC messages, generated from `rsd/v1/*.proto` and checked in.
//! - [`services`] and [`transport`] (feature `grpc`): their tonic stubs, and the one place where a connection is made and
//!   the one where it is accepted.
//! - [`frameworks`] (always): the variables by which other frameworks than MPI find their peers.
//! - [`join`] (always): how a process that already runs asks for a place in a named group.
//! - [`library`] (always): the MPI library's settings.
//! - [`pmi`] (always): the PMI wire that MPI libraries speak, sans-IO, both halves.
//!
//! Nothing here decides anything: what a message means is `rsd-core`'s.

pub mod frameworks;
pub mod join;
pub mod library;
pub mod pmi;

#[cfg(feature = "messages")]
#[expect(missing_docs, clippy::large_enum_variant, reason = "generated: the .proto files carry the documentation")]
pub mod v1 {
    include!("generated/messages.rs");
}

#[cfg(feature = "grpc")]
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated: the .proto files carry the documentation"
)]
pub mod services {
    include!("generated/services.rs");
}

#[cfg(feature = "grpc")]
pub mod transport;

/// The number of the gRPC protocol. It changes when an older peer would misunderstand; peers of different numbers refuse
/// each other by name.
pub const PROTOCOL: u32 = 4;

/// The version of this build, for people.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
