//! Connections into a daemon: its gRPC services, which convert requests to calls of the core and answers to replies, and the
//! socket for processes that join a group.
//!
//! - [`head`]: clients' requests about the DVM, answered by the head; [`forward`]: the same on every other daemon, forwarded to
//!   the head.
//!   [`groups`], [`kv`]: two families of these calls. [`access`]: join tokens and certificates.
//! - [`heads`]: the head itself, and its standbys.
//! - [`observe`]: events of the DVM, and metrics.
//! - [`callers`]: the users who make requests. [`owners`]: the clients whose jobs end with them.
//! - [`link`]: child daemons and steps; [`connect_back`]: where a child is reachable. [`pmi`]: ranks that speak gRPC. [`join`]: the
//!   socket for members of groups.

pub(crate) mod access;
pub(crate) mod callers;
mod connect_back;
pub(crate) mod forward;
mod groups;
pub(crate) mod head;
pub(crate) mod heads;
pub(crate) mod join;
mod kv;
pub(crate) mod link;
pub(crate) mod observe;
mod owners;
pub(crate) mod pmi;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::Pin;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call, Caller, Refused};
use rsd_proto::transport::{exit, refusal};
use rsd_proto::v1::{ShutdownReply, ShutdownRequest, StatusReply, UpgradeReply, UpgradeRequest};
use tonic::{Code, Response, Status};

use crate::door::{Door, Event};
use crate::upgrade::{self, Successor};

/// The most messages that wait for a slow client.
const STREAM_QUEUE: usize = 16;

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// The part of a daemon's status that its state machine does not have.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) state_dir: String,
    pub(crate) started_ms: u64,
    /// The arguments with which another program takes this daemon's place. None: it is private.
    pub(crate) arguments: Option<Vec<OsString>>,
}

/// Translates a refusal to gRPC.
pub(crate) fn status_of(refused: Refused) -> Status {
    let code = match refused.exit_code {
        exit::NO_SUCH_JOB => Code::NotFound,
        exit::USAGE => Code::InvalidArgument,
        exit::UNREACHABLE => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    refusal(code, refused.exit_code, refused.text)
}

/// Reports that the state machine answered with the wrong type of answer.
pub(crate) fn unexpected(answer: &Answer) -> Status {
    refusal(Code::Internal, exit::INTERNAL, format!("internal error: unexpected answer {answer:?}"))
}

/// `reply!(answer, Answer::Job(job) => reply)`
macro_rules! reply {
    ($answer:expr, $pattern:pat => $reply:expr) => {
        match $answer {
            $pattern => Ok(Response::new($reply)),
            Answer::Refused(refused) => Err(status_of(refused)),
            other => Err(unexpected(&other)),
        }
    };
}

use reply;

/// Answers a status request, in the same way on every daemon.
pub(crate) async fn status(door: &Door, caller: Caller, about: &About) -> Reply<StatusReply> {
    reply!(door.call(caller, Call::Status).await, Answer::Status(status) => StatusReply {
        state_dir: about.state_dir.clone(),
        started_ms: about.started_ms,
        ..*status
    })
}

/// Handles a request to shut down, in the same way on every daemon.
pub(crate) async fn shutdown(door: &Door, caller: Caller, request: ShutdownRequest) -> Reply<ShutdownReply> {
    if request.keep_jobs {
        if !caller.is_admin {
            let text = "only root stops a daemon that serves all users";
            return Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text));
        }
        // As TERM does: the steps wait for the next daemon.
        door.send(Event::Terminate);
        return Ok(Response::new(ShutdownReply::default()));
    }
    let answer = door.call(caller, Call::Shutdown { force: request.force }).await;
    reply!(answer, Answer::Stopping { unreached } => ShutdownReply { unreached })
}

/// Handles a request that another program takes this daemon's place, in the same way on every daemon.
pub(crate) async fn upgrade(
    door: &Door,
    caller: Caller,
    about: &About,
    request: UpgradeRequest,
) -> Reply<UpgradeReply> {
    if !caller.is_admin {
        let text = "only root replaces the program of a daemon that serves all users";
        return Err(refusal(Code::PermissionDenied, exit::NOT_PERMITTED, text));
    }
    let Some(arguments) = about.arguments.clone() else {
        return Err(refusal(Code::FailedPrecondition, exit::USAGE, "this daemon is private, and ends with its job"));
    };
    let program = PathBuf::from(request.program);
    let checked = upgrade::check(&program, &arguments).await;
    let version = checked.map_err(|failed| refusal(Code::FailedPrecondition, failed.code, failed.text))?;
    let reply = UpgradeReply {
        version,
        arguments: arguments.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect(),
    };
    door.send(Event::Upgrade(Successor { program, arguments }));
    Ok(Response::new(reply))
}
