//! PMIx, the process management interface of Open MPI: the messages between a client (a rank) and its server, without I/O and without
//! job state.
//!
//! A client connects over TCP and sends a [`Hello`]; the server answers [`accepted`] or [`refused`]. Then both sides send
//! [`Message`]s: a header of 16 bytes and a payload. A client sends [`Request`]s, each with a tag, and the server answers with a
//! [`Reply`] under the same tag, in any order. A message of the server under tag 0 is an [`Event`].
//!
//! Payloads are encoded in a [`Codec`]. The server chooses it by the variable in which it passes its address:
//! `PMIX_SERVER_URI41` or `PMIX_SERVER_URI3`; the client names the one that it uses in its `Hello`. Every list that is packed at the
//! top level of a payload is preceded by the number of its items. Values carry the number of their [`DataType`].
//!
//! The forms were observed on the wire of PMIx 3.2.5, 4.2.2, 5.0.11 and 6.1.0, which Open MPI 4.1 and 5.0 bring along or use.
//! What a debug build of PMIx sends (buffers that describe each item) is refused, and so are tools.
//!
//! Everything a peer sends is bounded: a `Hello` by [`HELLO_MAX`], a payload by [`PAYLOAD_MAX`], the number of values in a payload by
//! [`ITEMS_MAX`], and their nesting by [`DEPTH_MAX`].

mod codec;
pub mod environment;
mod error;
pub mod fabric;
mod hello;
pub mod keys;
mod message;
mod names;
mod reply;
mod request;
#[cfg(test)]
mod strategies;
mod value;
#[cfg(test)]
mod vectors;

pub use codec::{Codec, Item, Reader, Writer};
pub use error::WireError;
pub use hello::{Hello, Role, accepted, refused};
pub use message::{Message, MessageDecoder};
pub use names::{Persistence, Range, Scope, Status, rank};
pub use reply::{Event, Founded, GroupForm, Kept, Reply, append, encode_all};
pub use request::{Commit, Entry, Request};
pub use value::{App, DataArray, DataType, Envar, Info, KVal, Pdata, Proc, ProcInfo, Query, Text, Value, text};

/// The longest first message of a client, without its header.
pub const HELLO_MAX: usize = 64 << 10;
/// The longest payload of a later message.
pub const PAYLOAD_MAX: usize = 16 << 20;
/// The most values in one payload.
pub const ITEMS_MAX: u32 = 1 << 20;
/// The deepest nesting of values: arrays of infos whose values are arrays, and so on.
pub const DEPTH_MAX: u8 = 12;
/// The longest name of a namespace, without its end byte.
pub const NAMESPACE_MAX: usize = 255;
/// The longest key, without its end byte.
pub const KEY_MAX: usize = 511;
