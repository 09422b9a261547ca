//! The head's services to clients.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use rsd_core::JobId;
use rsd_core::rsd::{Answer, Call, Caller, JobChange};
use rsd_proto::services::dvm_server::Dvm;
use rsd_proto::transport::{Share, Shares, exit, refusal};
use rsd_proto::v1::{
    AttachRequest, CancelRequest, ChangeJobRequest, ChangeNodeRequest, GroupInfo, GroupRules, GroupSelector,
    InputChunk, InputReply, JobEvent, JobInfo, JobSelector, JobSpec, JoinRequest, KickRequest, KvDeleteRequest, KvDone,
    KvEntries, KvFenceRequest, KvGetRequest, KvPutRequest, KvScope, KvValue, ListGroupsReply, ListGroupsRequest,
    ListJobsReply, ListJobsRequest, ListNamesReply, ListNamesRequest, ListNodesReply, ListNodesRequest, LogsRequest,
    NodeInfo, PlanReply, PlanRequest, Record, ShutdownReply, ShutdownRequest, SignalRequest, StatusReply,
    StatusRequest, UpgradeReply, UpgradeRequest, WaitsReply, WaitsRequest, WhyReply, change_job_request, job_event,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::callers::{self, Callers, Names};
use super::groups::{self, JoinEvents};
use super::owners::Owners;
use super::{About, Events, Reply, STREAM_QUEUE, kv, reply, shutdown, status, status_of, unexpected, upgrade};
use crate::disk::job_log::{Follower, JobLogs};
use crate::door::Door;
use crate::random::random;

/// The size from which a list of jobs is continued in another reply.
const LIST_BYTES: usize = 8 << 20;

/// Returns the first jobs after number `after`: about as many as fit into `bytes`, and at least one.
fn page(mut jobs: Vec<JobInfo>, after: u64, bytes: usize) -> ListJobsReply {
    jobs.retain(|job| job.job > after);
    jobs.sort_by_key(|job| job.job);
    let mut size = 0;
    let fits = jobs.iter().take_while(|job| {
        let before = size;
        size += job.encoded_len();
        before == 0 || size <= bytes
    });
    let fits = fits.count();
    let more = fits < jobs.len();
    jobs.truncate(fits);
    ListJobsReply { jobs, more }
}

/// The head's services to clients.
#[derive(Debug, Clone)]
pub(crate) struct HeadService {
    pub(crate) door: Door,
    pub(crate) logs: Arc<JobLogs>,
    pub(crate) about: About,
    pub(crate) callers: Callers,
    pub(crate) names: Arc<Names>,
    /// The clients that follow jobs.
    pub(crate) followers: Shares,
    pub(crate) owners: Arc<Owners>,
}

impl HeadService {
    async fn job(&self, caller: Caller, call: Call) -> Reply<JobInfo> {
        reply!(self.door.call(caller, call).await, Answer::Job(job) => *job)
    }

    /// Counts a client that follows a job, until the result is dropped.
    fn share(&self, caller: Caller) -> Result<Option<Share>, Status> {
        if !self.callers.serves_all {
            return Ok(None);
        }
        let full = || {
            let most = self.followers.most();
            let text = format!(
                "{most} clients follow your jobs, and this DVM allows a user no more (setting users.followers): end some, or use \
                 rsctl submit"
            );
            refusal(Code::ResourceExhausted, exit::NOT_PLACED, text)
        };
        self.followers.take(caller.uid, 0).map(Some).ok_or_else(full)
    }

    /// Returns a follower of a job's log from this position; 0 is the caller's last job.
    async fn follow(&self, caller: Caller, job: JobId, from: u64) -> Result<(JobId, Follower), Status> {
        let job = self.job(caller, Call::GetJob(job)).await?.into_inner().job;
        let gone = || {
            refusal(
                Code::NotFound,
                exit::NO_SUCH_JOB,
                format!("job {job} has no log any more: it was deleted to make room (rsctl help troubleshooting)"),
            )
        };
        Ok((job, self.logs.follow(job, from).ok_or_else(gone)?))
    }

    /// Sends a job's events as fast as the client reads them. Returns true if all were sent.
    async fn send_events(
        &self,
        caller: Caller,
        job: JobId,
        mut follower: Follower,
        client: &mpsc::Sender<Result<JobEvent, Status>>,
    ) -> bool {
        let mut has_ended = false;
        loop {
            let event = tokio::select! {
                event = follower.next() => event,
                () = client.closed() => return false,
            };
            let Some(event) = event else {
                // The client may be gone.
                if let Some(lost) = output_lost(&follower) {
                    let _ = client.send(Err(lost)).await;
                } else if !has_ended && let Some(end) = self.end_of(caller, job).await {
                    let _ = client.send(Ok(end)).await;
                }
                return true;
            };
            has_ended = matches!(event.body, Some(job_event::Body::Ended(_)));
            if client.send(Ok(event)).await.is_err() {
                return has_ended;
            }
        }
    }
}

/// Passes a client's input to its job, and tells the client how much of it has been delivered.
async fn take_input(
    door: &Door,
    caller: Caller,
    mut chunks: Streaming<InputChunk>,
    client: &mpsc::Sender<Result<InputReply, Status>>,
) -> Result<(), Status> {
    let (mut job, mut says_end) = (None, false);
    let none = || refusal(Code::InvalidArgument, exit::USAGE, "the input does not name a job");
    loop {
        let chunk = chunks.message().await?;
        if chunk.is_none() && says_end {
            return Ok(()); // the client was lost behind another daemon
        }
        let eof = chunk.as_ref().is_none_or(|chunk| chunk.end == Some(true));
        let chunk = chunk.unwrap_or_default();
        says_end |= chunk.end.is_some();
        let job = *job.get_or_insert(chunk.job);
        if job == 0 && eof {
            return Err(none());
        }
        match door.call(caller, Call::Stdin { job, at: chunk.at, data: chunk.data, eof }).await {
            Answer::Fed { delivered, closed } => {
                let reply = InputReply { delivered_bytes: delivered, closed };
                if client.send(Ok(reply)).await.is_err() || closed {
                    return Ok(());
                }
            }
            Answer::Refused(refused) => return Err(status_of(refused)),
            other => return Err(unexpected(&other)),
        }
        if eof {
            return Ok(());
        }
    }
}

impl HeadService {
    /// Ends a connection with whose client the job ends, unless the client has seen the job's end or is back. If it was forwarded, it may
    /// be the daemon between that is lost. If it was the client, that daemon says so.
    async fn owner_left(&self, caller: Caller, job: JobId, is_forwarded: bool, was_followed: bool) {
        if !self.owners.leave(job) || was_followed {
            return;
        }
        if !is_forwarded {
            self.door.call(caller, Call::ClientGone(job)).await;
            return;
        }
        self.door.call(caller, Call::OwnerLost(job)).await;
        // It may have come back in between, and been told before.
        if self.owners.count(job) > 0 {
            self.door.call(caller, Call::OwnerBack(job)).await;
        }
    }

    /// Returns the last event of a job whose log lacks it: an earlier head was killed before it had written it, or the client has it.
    async fn end_of(&self, caller: Caller, job: JobId) -> Option<JobEvent> {
        let info = self.job(caller, Call::GetJob(job)).await.ok()?.into_inner();
        let body = job_event::Body::Ended(info.clone());
        (info.ended_ms > 0).then(|| JobEvent { at_ms: info.ended_ms, body: Some(body), ..JobEvent::default() })
    }
}

/// The error that ends a client's stream before the job's end.
fn output_lost(follower: &Follower) -> Option<Status> {
    follower.failure().map(|why| refusal(Code::DataLoss, exit::SYSTEM, why))
}

#[tonic::async_trait]
impl Dvm for HeadService {
    type SubmitStream = Events<JobEvent>;
    type AttachStream = Events<JobEvent>;
    type LogsStream = Events<Record>;
    type InputStream = Events<InputReply>;
    type JoinGroupStream = JoinEvents;

    async fn submit(&self, request: Request<JobSpec>) -> Reply<Self::SubmitStream> {
        let caller = self.callers.of(&request)?;
        let user = self.names.of(self.callers, caller).await?;
        let share = self.share(caller)?;
        let is_forwarded = callers::is_forwarded(&request);
        let spec = request.into_inner();
        let attached = spec.attached;
        let random = random::<44>().map_err(|error| Status::internal(format!("cannot read random bytes: {error}")))?;
        let random = Bytes::copy_from_slice(&random);
        let (client, stream) = mpsc::channel(STREAM_QUEUE);
        let (accepted, answer) = oneshot::channel();
        let service = self.clone();
        // A task of its own, because this handler ends when the connection is lost, and an attached job must not stay behind.
        tokio::spawn(async move {
            let job = match service.door.call(caller, Call::Submit { spec: Box::new(spec), random, user }).await {
                Answer::Submitted(job) => {
                    // Nobody may be left who knows of the job when the machine crashes. An attached client would submit it again.
                    if !attached {
                        service.door.sync().await;
                    }
                    if attached {
                        service.owners.enter(job);
                    }
                    job
                }
                Answer::Refused(refused) => return drop(accepted.send(Err(status_of(refused)))),
                other => return drop(accepted.send(Err(unexpected(&other)))),
            };
            let was_followed = match service.follow(caller, job, 0).await {
                Ok((_, follower)) => {
                    // Without a handler, the receiver of the events is gone, too.
                    let _ = accepted.send(Ok(()));
                    service.send_events(caller, job, follower, &client).await
                }
                Err(status) => {
                    let _ = accepted.send(Err(status));
                    false
                }
            };
            if attached {
                service.owner_left(caller, job, is_forwarded, was_followed).await;
            }
            drop(share);
        });
        answer.await.map_err(|_| Status::internal("the submission was lost"))??;
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Reply<PlanReply> {
        let caller = self.callers.of(&request)?;
        let call = Call::Plan(Box::new(request.into_inner()));
        reply!(self.door.call(caller, call).await, Answer::Plan(reply) => *reply)
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Reply<Self::AttachStream> {
        let caller = self.callers.of(&request)?;
        let is_forwarded = callers::is_forwarded(&request);
        let AttachRequest { job, from, owner } = request.into_inner();
        let (job, follower) = self.follow(caller, job, from).await?;
        let (client, stream) = mpsc::channel(STREAM_QUEUE);
        let share = self.share(caller)?;
        let service = self.clone();
        tokio::spawn(async move {
            if owner {
                // In this order, so that the loss of the client's earlier connection finds it back.
                service.owners.enter(job);
                service.door.call(caller, Call::OwnerBack(job)).await;
            }
            let was_followed = service.send_events(caller, job, follower, &client).await;
            if owner {
                service.owner_left(caller, job, is_forwarded, was_followed).await;
            }
            drop(share);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn input(&self, request: Request<Streaming<InputChunk>>) -> Reply<Self::InputStream> {
        let caller = self.callers.of(&request)?;
        let (client, replies) = mpsc::channel(STREAM_QUEUE);
        let door = self.door.clone();
        tokio::spawn(async move {
            if let Err(status) = take_input(&door, caller, request.into_inner(), &client).await {
                let _ = client.send(Err(status)).await; // the client may be gone
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(replies))))
    }

    async fn logs(&self, request: Request<LogsRequest>) -> Reply<Self::LogsStream> {
        let caller = self.callers.of(&request)?;
        let wanted = request.into_inner();
        if let Some(rank) = wanted.rank {
            let job = self.job(caller, Call::GetJob(wanted.job)).await?.into_inner();
            if job.ranks > 0 && rank >= job.ranks {
                let text = format!("job {} has no rank {rank}: its ranks are 0 to {}", job.job, job.ranks - 1);
                return Err(refusal(Code::NotFound, exit::NO_SUCH_JOB, text));
            }
        }
        let (_, mut follower) = self.follow(caller, wanted.job, wanted.from).await?;
        let (client, stream) = mpsc::channel(STREAM_QUEUE);
        let share = self.share(caller)?;
        tokio::spawn(async move {
            let _share = share;
            let mut skip = wanted.skip;
            loop {
                let event = match wanted.follow {
                    true => tokio::select! {
                        event = follower.next() => event,
                        () = client.closed() => return,
                    },
                    false => follower.next_if_there().await,
                };
                let Some(event) = event else {
                    if let Some(lost) = output_lost(&follower) {
                        let _ = client.send(Err(lost)).await; // the client may be gone
                    }
                    return;
                };
                let position = follower.last();
                let records = match event.body {
                    Some(job_event::Body::Output(output)) => output.records,
                    Some(job_event::Body::Gap(gap)) => vec![Record { lost_bytes: gap.bytes, ..Record::default() }],
                    Some(
                        job_event::Body::Submitted(_)
                        | job_event::Body::Queued(_)
                        | job_event::Body::Placed(_)
                        | job_event::Body::RankExit(_)
                        | job_event::Body::Killing(_)
                        | job_event::Body::Ended(_)
                        | job_event::Body::Notice(_)
                        | job_event::Body::Requeued(_),
                    )
                    | None => continue,
                };
                // Of the event in which the client stopped, it has the first records.
                let had = if position == wanted.from { std::mem::take(&mut skip) } else { 0 };
                for (index, record) in (1..).zip(records).filter(|(index, _)| *index > had) {
                    let rank = wanted.rank.is_none_or(|rank| rank == record.rank && record.job == 0);
                    let stream = wanted.stream.is_none_or(|stream| stream == record.stream);
                    let is_wanted = record.lost_bytes > 0 || rank && stream;
                    if is_wanted && client.send(Ok(Record { position, index, ..record })).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Reply<ListJobsReply> {
        let caller = self.callers.of(&request)?;
        let wanted = request.into_inner();
        let after = wanted.after;
        let jobs = self.door.call(caller, Call::ListJobs(Box::new(wanted))).await;
        reply!(jobs, Answer::Jobs(jobs) => page(jobs, after, LIST_BYTES))
    }

    async fn get_job(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        let caller = self.callers.of(&request)?;
        let JobSelector { job, name, index } = request.into_inner();
        let call = match (name.is_empty(), index) {
            (true, None) => Call::GetJob(job),
            (true, Some(index)) => Call::GetElement { job, index },
            (false, None) => Call::FindJob(name),
            (false, Some(index)) => {
                let job = self.job(caller, Call::FindJob(name)).await?.into_inner().job;
                Call::GetElement { job, index }
            }
        };
        self.job(caller, call).await
    }

    async fn wait(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        let caller = self.callers.of(&request)?;
        let (job, mut follower) = self.follow(caller, request.into_inner().job, u64::MAX).await?;
        let _share = self.share(caller)?;
        follower.ended().await;
        self.job(caller, Call::GetJob(job)).await
    }

    async fn signal(&self, request: Request<SignalRequest>) -> Reply<JobInfo> {
        let caller = self.callers.of(&request)?;
        let SignalRequest { job, rank, signal } = request.into_inner();
        self.job(caller, Call::Signal { job, rank, signal }).await
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Reply<JobInfo> {
        let caller = self.callers.of(&request)?;
        let CancelRequest { job, grace_ms, elements, client_gone } = request.into_inner();
        let call = match elements.is_empty() {
            // The stream whose client is gone still counts. With another one, the client has come back.
            _ if client_gone && self.owners.count(job) > 1 => Call::GetJob(job),
            _ if client_gone => Call::ClientGone(job),
            true => Call::Cancel { job, grace_ms },
            false => Call::CancelElements { job, grace_ms, elements },
        };
        self.job(caller, call).await
    }

    async fn unhold(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        let caller = self.callers.of(&request)?;
        self.job(caller, Call::Unhold(request.into_inner().job)).await
    }

    async fn change_job(&self, request: Request<ChangeJobRequest>) -> Reply<JobInfo> {
        let caller = self.callers.of(&request)?;
        let ChangeJobRequest { job, elements, change } = request.into_inner();
        let change = match change {
            Some(change_job_request::Change::Hold(hold)) => JobChange::Hold(hold),
            Some(change_job_request::Change::Priority(priority)) => JobChange::Priority(priority),
            None => return Err(refusal(Code::InvalidArgument, exit::USAGE, "the request has no change of the job")),
        };
        self.job(caller, Call::ChangeJob { job, elements, change }).await
    }

    async fn why(&self, request: Request<JobSelector>) -> Reply<WhyReply> {
        let caller = self.callers.of(&request)?;
        let JobSelector { job, name, index } = request.into_inner();
        let job = if name.is_empty() { job } else { self.job(caller, Call::FindJob(name)).await?.into_inner().job };
        let found = self.door.call(caller, Call::Why { job, index }).await;
        reply!(found, Answer::Why(reply) => *reply)
    }

    async fn list_waits(&self, request: Request<WaitsRequest>) -> Reply<WaitsReply> {
        let caller = self.callers.of(&request)?;
        let job = request.into_inner().job;
        reply!(self.door.call(caller, Call::ListWaits(job)).await, Answer::Waits(waits) => WaitsReply { waits })
    }

    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Reply<ListNodesReply> {
        let caller = self.callers.of(&request)?;
        let load = request.into_inner().load;
        reply!(self.door.call(caller, Call::ListNodes { load }).await, Answer::Nodes(nodes) => ListNodesReply { nodes })
    }

    async fn join_group(&self, request: Request<JoinRequest>) -> Reply<JoinEvents> {
        groups::join(&self.door, self.callers, request).await
    }

    async fn create_group(&self, request: Request<GroupRules>) -> Reply<GroupInfo> {
        groups::create(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn list_groups(&self, request: Request<ListGroupsRequest>) -> Reply<ListGroupsReply> {
        groups::list(&self.door, self.callers.of(&request)?).await
    }

    async fn get_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        groups::get(&self.door, self.callers.of(&request)?, request.into_inner().name).await
    }

    async fn close_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        groups::close(&self.door, self.callers.of(&request)?, request.into_inner().name).await
    }

    async fn kick_member(&self, request: Request<KickRequest>) -> Reply<GroupInfo> {
        groups::kick(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn list_names(&self, request: Request<ListNamesRequest>) -> Reply<ListNamesReply> {
        let caller = self.callers.of(&request)?;
        reply!(self.door.call(caller, Call::ListNames).await, Answer::Names(names) => ListNamesReply { names })
    }

    async fn kv_put(&self, request: Request<KvPutRequest>) -> Reply<KvDone> {
        kv::put(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn kv_get(&self, request: Request<KvGetRequest>) -> Reply<KvValue> {
        kv::get(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn kv_list(&self, request: Request<KvScope>) -> Reply<KvEntries> {
        kv::list(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn kv_delete(&self, request: Request<KvDeleteRequest>) -> Reply<KvDone> {
        kv::delete(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn kv_fence(&self, request: Request<KvFenceRequest>) -> Reply<KvDone> {
        kv::fence(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }

    async fn change_node(&self, request: Request<ChangeNodeRequest>) -> Reply<NodeInfo> {
        let caller = self.callers.of(&request)?;
        let call = Call::ChangeNode(Box::new(request.into_inner()));
        reply!(self.door.call(caller, call).await, Answer::Nodes(nodes) => nodes.into_iter().next().unwrap_or_default())
    }

    async fn get_status(&self, request: Request<StatusRequest>) -> Reply<StatusReply> {
        status(&self.door, self.callers.of(&request)?, &self.about).await
    }

    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Reply<UpgradeReply> {
        upgrade(&self.door, self.callers.of(&request)?, &self.about, request.into_inner()).await
    }

    async fn shutdown(&self, request: Request<ShutdownRequest>) -> Reply<ShutdownReply> {
        shutdown(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_jobs_comes_in_several_replies_by_number() {
        let job = |job, name: &str| JobInfo { job, command: name.into(), ..JobInfo::default() };
        let jobs = || vec![job(3, "c"), job(1, &"a".repeat(200)), job(2, "b"), job(9, "d")];
        let (mut seen, mut after, mut replies) = (Vec::new(), 0, 0);
        loop {
            let reply = page(jobs(), after, 100);
            assert!(!reply.jobs.is_empty());
            seen.extend(reply.jobs.iter().map(|job| job.job));
            (after, replies) = (seen[seen.len() - 1], replies + 1);
            if !reply.more {
                break;
            }
        }
        assert_eq!((seen, replies), (vec![1, 2, 3, 9], 2));
        assert_eq!(page(Vec::new(), 0, 100), ListJobsReply::default());
    }
}
