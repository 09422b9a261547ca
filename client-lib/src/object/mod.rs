//! The objects behind handles: communicators, groups, attributes, error handlers, info.

pub mod table;
