//! Calls to the daemon, each with a deadline.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::geteuid;
use rsd_proto::services::dvm_client::DvmClient;
use rsd_proto::transport::{self, DialError, Stamped, Target};
use rsd_proto::v1::{JobInfo, JobSelector};
use tonic::{Response, Status, Streaming};

use crate::exit::Failure;
use crate::selectors::Selector;

/// A connected client.
pub(crate) type Client = DvmClient<Stamped>;

/// How long a daemon may take to accept, to answer, or to begin a stream.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// A connection to the daemon behind `socket`, which must be our own: it is given our environment, and runs what we say. That
/// it lets root in does not mean that root should trust it.
pub(crate) async fn connect(socket: PathBuf) -> Result<Client, Failure> {
    let own_uid = geteuid().as_raw();
    let owner_uid = fs::metadata(&socket).map_or(own_uid, |meta| meta.uid());
    let target = Target::Unix(socket);
    let channel = match owner_uid == own_uid {
        true => transport::dial(&target, DEADLINE).await,
        false => Err(DialError::NotPermitted { owner_uid, own_uid }),
    };
    channel.map(transport::dvm_client).map_err(|error| Failure::of_dial(&target.to_string(), &error))
}

/// What the daemon answers. `doing` reads after "while".
pub(crate) async fn answer<T>(
    doing: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    in_time(doing, call).await.map(Response::into_inner)
}

/// The first message of a stream.
pub(crate) async fn first<T>(doing: &str, stream: &mut Streaming<T>) -> Result<T, Failure> {
    let ended = || Failure::unreachable(format!("lost the daemon while {doing}: it said nothing"));
    in_time(doing, stream.message()).await?.ok_or_else(ended)
}

async fn in_time<T>(doing: &str, call: impl Future<Output = Result<T, Status>>) -> Result<T, Failure> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|status| Failure::of_status(doing, &status)),
        Err(_) => Err(Failure::unreachable(format!(
            "the daemon did not answer within {} s while {doing}",
            DEADLINE.as_secs()
        ))),
    }
}

/// The job that `selector` means, as it is now. A rank that it does not have is refused.
pub(crate) async fn job(client: &mut Client, selector: Selector) -> Result<JobInfo, Failure> {
    let doing = format!("asking for job {selector}");
    let info = answer(&doing, client.get_job(JobSelector { job: selector.job.unwrap_or(0) })).await?;
    match selector.rank {
        Some(rank) if info.ranks > 0 && rank >= info.ranks => Err(Failure::new(
            transport::exit::NO_SUCH_JOB,
            format!("job {} has no rank {rank}: its ranks are 0 to {}", info.job, info.ranks - 1),
        )),
        Some(_) | None => Ok(info),
    }
}
