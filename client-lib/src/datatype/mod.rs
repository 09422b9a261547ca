//! Datatypes: what a message is made of, and the loops that pack and unpack it (MPI 5.0 §5).
//!
//! A [`Datatype`] is made by a constructor from others, and found by handle in [`Types`]. Of its type map it keeps what is needed:
//!
//! - where the bytes lie: a tree of loops (`shape`) in a [`Layout`], which packs, unpacks and lists any part of them (`copy`);
//! - the bounds (`body`), the order of the basic elements (`signature`), which `external` converts; the constructor's arguments ([`Contents`]).
//!
//! The predefined datatypes are a table ([`element`]).

mod body;
mod construct;
mod copy;
pub mod element;
mod external;
mod layout;
mod object;
mod shape;
mod signature;

#[cfg(test)]
mod tests;

pub use construct::{Form, Unit};
pub use element::{Class, Element, Repr, basic_size};
pub use layout::Layout;
pub use object::{Contents, Datatype, TypeRef};
