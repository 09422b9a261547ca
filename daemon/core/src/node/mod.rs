//! What every daemon does: the tree, its relays, where ranks listen, and the members of groups that wait here.

pub(crate) mod locations;
pub(crate) mod members;
pub(crate) mod relay;
pub(crate) mod tree;
