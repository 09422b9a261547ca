//! Datatypes: the content of a message, and the loops that pack and unpack it (MPI 5.0 §5).
//!
//! A constructor makes a [`Datatype`] from others; the handle table is in `object`. Of its type map it keeps only what is needed:
//!
//! - the places of the bytes: a tree of loops (`shape`) in a [`Layout`], which packs, unpacks and lists any part of them (`copy`);
//! - the bounds (`body`), the order of the basic elements (`signature`), which `external` converts, and the constructor's
//!   arguments ([`Contents`]); a digest of it tells whether two processes mean the same ([`Sign`]).
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
mod sign;
mod signature;

#[cfg(test)]
mod tests;

pub use construct::{Distribution, Form, Unit};
pub use element::{Class, Element, Repr, basic_size, forgettable_size, is_tracked, track};
pub use layout::Layout;
pub use object::{Contents, Datatype, TypeRef};
pub use sign::Sign;
