//! The command line of rsctl, which clap parses, prints as help, completes in shells and writes as man pages.
//!
//! [`cli`] the commands · [`launch`], [`placing`], [`plan`], [`queue`], [`jobs`], [`group`], [`kv`], [`node`], [`up`], [`watching`] the options of
//! each · [`words`] values
//! that several of them take · [`spelling`] options of other launchers · [`overlay`] `plan --diff` · [`mod@read`] arguments → [`Cli`]. Commands import
//! options, never the reverse.

mod cli;
pub(crate) mod group;
mod head;
pub(crate) mod jobs;
pub(crate) mod kv;
pub(crate) mod launch;
pub(crate) mod node;
mod overlay;
pub(crate) mod placing;
pub(crate) mod plan;
pub(crate) mod ports;
mod ps;
pub(crate) mod queue;
mod read;
mod spelling;
mod unread;
pub(crate) mod up;
pub(crate) mod watching;
mod words;

pub(crate) use cli::{Cli, Command, Global, JobCommand, MpiCommand, NameCommand, Shell, Upgrade};
pub(crate) use head::HeadCommand;
pub(crate) use launch::{Launch, NodeLoss, RankLoss, Run, Segment};
pub(crate) use node::NodeCommand;
pub(crate) use ps::Ps;
pub(crate) use read::read;
pub(crate) use unread::Unread;
