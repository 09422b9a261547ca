//! The objects behind handles: communicators, groups, attributes, error handlers, info.

pub mod buffered;
pub mod comm;
pub mod errhandler;
pub mod group;
pub mod request;
pub mod table;
