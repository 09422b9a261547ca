//! Datatypes: what a message is made of, and the loops that pack and unpack it (MPI 5.0 §5).

mod layout;

pub use layout::Layout;
