//! Every byte that leaves an rsd process.
//!
//! - [`v1`] (feature `messages`): the gRPC messages, generated from `rsd/v1/*.proto` and checked in.
//! - [`services`] and [`transport`] (feature `grpc`): their tonic stubs, and the only code that opens and accepts
//!   connections.
//! - [`called`] (always): names and labels of jobs.
//! - [`frameworks`] (always): the variables by which frameworks other than MPI find their peers.
//! - [`indexes`] (always): the indexes of an array of jobs.
//! - [`inherited`] (feature `messages`): what ranks inherit from the process that submitted their job.
//! - [`join`] (always): how a running process joins a named group.
//! - [`mod@etcd`] (feature `grpc`): a client of etcd, for the head's lease.
//! - [`library`] (always): the MPI library's settings.
//! - [`pmi`] (always): the PMI wire protocols of MPI libraries, sans-IO, client and server.
//! - [`pmix`] (feature `messages`): PMIx, the process management interface of Open MPI, sans-IO, client and server.
//! - [`resources`] (always): resources that users declare and jobs reserve.
//! - [`mod@pacing`] (always): the congestion control of connections between ranks.
//! - [`mod@visible`] (always): text for a terminal, without its control characters.
//!
//! This package makes no decisions; `rsd-core` gives messages their meaning.

pub mod called;
#[cfg(feature = "grpc")]
pub mod etcd;
#[cfg(feature = "messages")]
pub mod exits;
pub mod frameworks;
pub mod indexes;
#[cfg(feature = "messages")]
pub mod inherited;
pub mod join;
pub mod library;
pub mod pacing;
pub mod pmi;
#[cfg(feature = "messages")]
pub mod pmix;
pub mod ranges;
pub mod resources;
pub mod visible;

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

/// The number of the gRPC protocol. It changes when an older peer would misunderstand a message.
pub const PROTOCOL: u32 = 4;

/// The oldest protocol that this build still speaks: that of the previous release. Peers without a protocol in common refuse each
/// other with a message that names both versions.
pub const PROTOCOL_OLDEST: u32 = 4;

/// The version of this build, for messages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
