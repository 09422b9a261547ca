//! A joined daemon's `Dvm` service: forwards clients' requests about the DVM to the head. This daemon itself answers status,
//! shutdown and joins to groups.
//!
//! Calls with one request and one answer share one connection. A stream has one of its own: over a shared one, a client that does not
//! read would hold the others' messages up. Each user may have as many calls in progress as connections.

use std::pin::Pin;

use rsd_core::JobId;
use rsd_core::rsd::Caller;
use rsd_proto::services::dvm_client::DvmClient;
use rsd_proto::services::dvm_server::Dvm;
use rsd_proto::transport::{Share, Shares, Stamped, dvm_client, exit, for_request, refusal};
use rsd_proto::v1::{
    AttachRequest, CancelRequest, ChangeJobRequest, ChangeNodeRequest, GroupInfo, GroupRules, GroupSelector,
    InputChunk, InputReply, JobEvent, JobInfo, JobSelector, JobSpec, JoinRequest, KickRequest, KvDeleteRequest, KvDone,
    KvEntries, KvFenceRequest, KvGetRequest, KvPutRequest, KvScope, KvValue, ListGroupsReply, ListGroupsRequest,
    ListJobsReply, ListJobsRequest, ListNamesReply, ListNamesRequest, ListNodesReply, ListNodesRequest, LogsRequest,
    NodeInfo, PlanReply, PlanRequest, Record, ShutdownReply, ShutdownRequest, SignalRequest, StatusReply,
    StatusRequest, UpgradeReply, UpgradeRequest, WaitsReply, WaitsRequest, WhyReply, job_event,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use super::callers::{self, Callers};
use super::groups::{self, JoinEvents};
use super::{self as serve, About, STREAM_QUEUE};
use crate::door::Door;
use crate::way_up::WayUp;

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service and the way to the head.
#[derive(Debug, Clone)]
pub(crate) struct ForwardService {
    pub(crate) door: Door,
    pub(crate) about: About,
    pub(crate) way_up: WayUp,
    pub(crate) callers: Callers,
    pub(crate) turns: Turns,
}

/// The forwarded calls in progress.
#[derive(Debug, Clone)]
pub(crate) struct Turns(pub(crate) Shares);

impl Turns {
    /// Counts a call until the result is dropped; None in a DVM that serves one user.
    ///
    /// # Errors
    /// When the user has too many.
    pub(crate) fn take<T>(&self, callers: Callers, request: &Request<T>) -> Result<Option<Share>, Status> {
        let uid = callers.of(request)?.uid;
        if !callers.serves_all {
            return Ok(None);
        }
        self.0.take(uid, 0).map(Some).ok_or_else(|| {
            let text = format!(
                "{} calls of yours are waiting for the head, as many as this daemon allows a user (setting users.connections): \
                 end some commands",
                self.0.most()
            );
            refusal(Code::ResourceExhausted, exit::NOT_PERMITTED, text)
        })
    }
}

impl ForwardService {
    /// Returns a client with a connection of its own.
    async fn alone(&self) -> Result<DvmClient<Stamped>, Status> {
        Ok(dvm_client(self.way_up.dial().await?))
    }

    /// Forwards the events of a job that ends with its client. When the client has disconnected, tells the head, to which a lost
    /// connection alone could also mean that this daemon is lost and its client will come back.
    async fn owned(
        &self,
        caller: Caller,
        turn: Option<Share>,
        mut job: Option<JobId>,
        open: impl Future<Output = Reply<Streaming<JobEvent>>> + Send + 'static,
    ) -> Reply<Events<JobEvent>> {
        let (client, stream) = mpsc::channel(STREAM_QUEUE);
        let (accepted, answer) = oneshot::channel();
        let service = self.clone();
        // A task of its own, because this handler ends with the client's connection.
        tokio::spawn(for_request(async move {
            let mut events = match open.await {
                Ok(reply) => reply.into_inner(),
                Err(status) => return drop(accepted.send(Err(status))),
            };
            let _ = accepted.send(Ok(())); // where the client is gone, its receiver is, too
            if !pass_on(&mut events, &mut job, &client).await
                && let Some(job) = job
            {
                let request = CancelRequest { job, client_gone: true, ..CancelRequest::default() };
                if let Err(status) = service.tell(Callers::stamped(caller, request)).await {
                    debug!(job, why = status.message(), "the head does not hear that the client of a job is gone");
                }
            }
            drop(turn);
        }));
        answer.await.map_err(|_| Status::internal("the submission was lost"))??;
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn tell(&self, request: Request<CancelRequest>) -> Reply<JobInfo> {
        let told = async {
            let mut head = dvm_client(self.way_up.shared().await?);
            self.way_up.check(head.cancel(request).await).await
        };
        let late = |_| Status::deadline_exceeded("the head does not answer");
        tokio::time::timeout(self.way_up.deadline(), told).await.map_err(late)?
    }
}

/// Passes events on to a client, up to the last one or an error; `job` gets the number of the job. Returns false if the client has
/// disconnected before the job's end.
async fn pass_on(
    events: &mut Streaming<JobEvent>,
    job: &mut Option<JobId>,
    client: &mpsc::Sender<Result<JobEvent, Status>>,
) -> bool {
    let mut is_over = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Only with its number can the job be told of.
            () = client.closed(), if job.is_some() => return is_over,
        };
        let Some(event) = event else { return true };
        is_over |= event.is_err();
        if let Ok(JobEvent { body: Some(body), .. }) = &event {
            match body {
                job_event::Body::Submitted(submitted) => *job = Some(submitted.job),
                job_event::Body::Ended(_) => is_over = true,
                _ => {}
            }
        }
        if client.send(event).await.is_err() && job.is_some() {
            return is_over;
        }
    }
}

/// Forwards a call with one request and one answer.
macro_rules! forward {
    ($self:ident, $method:ident, $request:expr) => {{
        let request = $request;
        let _turn = $self.turns.take($self.callers, &request)?;
        let mut head = dvm_client($self.way_up.shared().await?);
        $self.way_up.check(head.$method($self.callers.forwarded(request)?).await).await
    }};
}

/// Forwards a call that is answered by a stream.
macro_rules! follow {
    ($self:ident, $method:ident, $request:expr) => {{
        let request = $request;
        let turn = $self.turns.take($self.callers, &request)?;
        boxed($self.alone().await?.$method($self.callers.forwarded(request)?).await?, turn)
    }};
}

fn boxed<T: Send + 'static>(reply: Response<Streaming<T>>, turn: Option<Share>) -> Reply<Events<T>> {
    let stream = reply.into_inner().map(move |message| {
        let _counted = &turn; // until the stream is dropped
        message
    });
    Ok(Response::new(Box::pin(stream)))
}

#[tonic::async_trait]
impl Dvm for ForwardService {
    type SubmitStream = Events<JobEvent>;
    type AttachStream = Events<JobEvent>;
    type LogsStream = Events<Record>;
    type InputStream = Events<InputReply>;
    type JoinGroupStream = JoinEvents;

    async fn submit(&self, request: Request<JobSpec>) -> Reply<Self::SubmitStream> {
        let (caller, turn) = (self.callers.of(&request)?, self.turns.take(self.callers, &request)?);
        // If the client is a daemon that forwards, that one says whether its own client is gone.
        let is_owned = request.get_ref().attached && !callers::is_forwarded(&request);
        let request = self.callers.forwarded(request)?;
        if !is_owned {
            return boxed(self.alone().await?.submit(request).await?, turn);
        }
        let service = self.clone();
        self.owned(caller, turn, None, async move { service.alone().await?.submit(request).await }).await
    }
    async fn plan(&self, request: Request<PlanRequest>) -> Reply<PlanReply> {
        forward!(self, plan, request)
    }
    async fn attach(&self, request: Request<AttachRequest>) -> Reply<Self::AttachStream> {
        let (caller, turn) = (self.callers.of(&request)?, self.turns.take(self.callers, &request)?);
        let AttachRequest { owner, job, .. } = *request.get_ref();
        let is_owned = owner && job != 0 && !callers::is_forwarded(&request);
        let request = self.callers.forwarded(request)?;
        if !is_owned {
            return boxed(self.alone().await?.attach(request).await?, turn);
        }
        let (service, job) = (self.clone(), request.get_ref().job);
        self.owned(caller, turn, Some(job), async move { service.alone().await?.attach(request).await }).await
    }
    async fn logs(&self, request: Request<LogsRequest>) -> Reply<Self::LogsStream> {
        follow!(self, logs, request)
    }
    async fn input(&self, request: Request<Streaming<InputChunk>>) -> Reply<Self::InputStream> {
        let (caller, turn) = (self.callers.of(&request)?, self.turns.take(self.callers, &request)?);
        let chunks = request.into_inner().map_while(Result::ok);
        boxed(self.alone().await?.input(Callers::stamped(caller, chunks)).await?, turn)
    }
    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Reply<ListJobsReply> {
        forward!(self, list_jobs, request)
    }
    async fn get_job(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        forward!(self, get_job, request)
    }
    async fn wait(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        forward!(self, wait, request)
    }
    async fn signal(&self, request: Request<SignalRequest>) -> Reply<JobInfo> {
        forward!(self, signal, request)
    }
    async fn cancel(&self, request: Request<CancelRequest>) -> Reply<JobInfo> {
        forward!(self, cancel, request)
    }
    async fn unhold(&self, request: Request<JobSelector>) -> Reply<JobInfo> {
        forward!(self, unhold, request)
    }
    async fn change_job(&self, request: Request<ChangeJobRequest>) -> Reply<JobInfo> {
        forward!(self, change_job, request)
    }
    async fn why(&self, request: Request<JobSelector>) -> Reply<WhyReply> {
        forward!(self, why, request)
    }
    async fn list_waits(&self, request: Request<WaitsRequest>) -> Reply<WaitsReply> {
        forward!(self, list_waits, request)
    }
    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Reply<ListNodesReply> {
        forward!(self, list_nodes, request)
    }
    async fn list_names(&self, request: Request<ListNamesRequest>) -> Reply<ListNamesReply> {
        forward!(self, list_names, request)
    }
    async fn join_group(&self, request: Request<JoinRequest>) -> Reply<JoinEvents> {
        groups::join(&self.door, self.callers, request).await
    }
    async fn create_group(&self, request: Request<GroupRules>) -> Reply<GroupInfo> {
        forward!(self, create_group, request)
    }
    async fn list_groups(&self, request: Request<ListGroupsRequest>) -> Reply<ListGroupsReply> {
        forward!(self, list_groups, request)
    }
    async fn get_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        forward!(self, get_group, request)
    }
    async fn close_group(&self, request: Request<GroupSelector>) -> Reply<GroupInfo> {
        forward!(self, close_group, request)
    }
    async fn kick_member(&self, request: Request<KickRequest>) -> Reply<GroupInfo> {
        forward!(self, kick_member, request)
    }
    async fn kv_put(&self, request: Request<KvPutRequest>) -> Reply<KvDone> {
        forward!(self, kv_put, request)
    }
    async fn kv_get(&self, request: Request<KvGetRequest>) -> Reply<KvValue> {
        forward!(self, kv_get, request)
    }
    async fn kv_list(&self, request: Request<KvScope>) -> Reply<KvEntries> {
        forward!(self, kv_list, request)
    }
    async fn kv_delete(&self, request: Request<KvDeleteRequest>) -> Reply<KvDone> {
        forward!(self, kv_delete, request)
    }
    async fn kv_fence(&self, request: Request<KvFenceRequest>) -> Reply<KvDone> {
        forward!(self, kv_fence, request)
    }
    async fn change_node(&self, request: Request<ChangeNodeRequest>) -> Reply<NodeInfo> {
        forward!(self, change_node, request)
    }
    async fn get_status(&self, request: Request<StatusRequest>) -> Reply<StatusReply> {
        serve::status(&self.door, self.callers.of(&request)?, &self.about).await
    }
    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Reply<UpgradeReply> {
        serve::upgrade(&self.door, self.callers.of(&request)?, &self.about, request.into_inner()).await
    }
    async fn shutdown(&self, request: Request<ShutdownRequest>) -> Reply<ShutdownReply> {
        serve::shutdown(&self.door, self.callers.of(&request)?, request.into_inner()).await
    }
}
