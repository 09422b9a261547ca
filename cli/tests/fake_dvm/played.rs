//! The fake daemon, and rsctl as its client.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use rsd_proto::services::dvm_server::{Dvm, DvmServer};
use rsd_proto::transport::{self, Admission, Services, Shares, exit, refusal};
use rsd_proto::v1::job_event::{Body, Output as OutputEvent, Submitted};
use rsd_proto::v1::rank_exit::How;
use rsd_proto::v1::{
    AttachRequest, CancelRequest, ChangeJobRequest, ChangeNodeRequest, GroupInfo, GroupRules, GroupSelector,
    InputChunk, InputReply, JobEvent, JobInfo, JobSelector, JobSpec, JobState, JoinEvent, JoinRequest, KickRequest,
    KvDeleteRequest, KvDone, KvEntries, KvFenceRequest, KvGetRequest, KvPutRequest, KvScope, KvValue, ListGroupsReply,
    ListGroupsRequest, ListJobsReply, ListJobsRequest, ListNamesReply, ListNamesRequest, ListNodesReply,
    ListNodesRequest, LiveEpoch, LogsRequest, NodeInfo, PlanReply, PlanRequest, PublishedName, RankExit, Record,
    ShutdownReply, ShutdownRequest, SignalRequest, StatusReply, StatusRequest, Stream, UpgradeReply, UpgradeRequest,
    WaitingMember, WaitsReply, WaitsRequest, WhyReason, WhyReply,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::PATIENCE;

/// A request that the daemon received.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    Submit(Box<JobSpec>),
    Input(u64, Vec<u8>),
    Cancel(u64, Option<u64>),
    CancelElements(u64, String),
    Change(ChangeJobRequest),
    Signal(u64, Option<u32>, i32),
    Logs(LogsRequest),
    Attach(AttachRequest),
    Plan(Box<PlanRequest>),
}

/// A step of the fake daemon's script.
pub(crate) enum Act {
    Say(Box<Body>),
    /// The same, with the position after the event.
    SayAt(u64, Box<Body>),
    /// A record for rsctl logs.
    Tell(Record),
    /// Waits until rsctl has cancelled this many times.
    AwaitCancel(usize),
    /// Waits until rsctl's input has ended.
    AwaitInput,
    Refuse(Status),
    /// Closes the connection without an answer.
    Die,
}

struct Played {
    story: Mutex<VecDeque<Act>>,
    jobs: Vec<JobInfo>,
    plans: Mutex<VecDeque<PlanReply>>,
    asked: mpsc::Sender<Asked>,
    cancels: tokio::sync::watch::Sender<usize>,
    input_ended: tokio::sync::watch::Sender<bool>,
    dead: tokio::sync::watch::Sender<bool>,
}

impl Played {
    fn tell(&self, asked: Asked) {
        // The test may have ended already.
        let _ = self.asked.send(asked);
    }

    fn job(&self, job: u64) -> Result<Response<JobInfo>, Status> {
        let found = match job {
            0 => self.jobs.last(),
            _ => self.jobs.iter().find(|info| info.job == job),
        };
        let missing = || refusal(Code::NotFound, exit::NO_SUCH_JOB, format!("there is no job {job}"));
        found.cloned().map(Response::new).ok_or_else(missing)
    }

    fn story(self: &Arc<Self>) -> Response<ReceiverStream<Result<JobEvent, Status>>> {
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let played = self.clone();
        let acts = std::mem::take(&mut *played.story.lock().unwrap());
        tokio::spawn(async move {
            for act in acts {
                let sent = match act {
                    Act::Say(body) => {
                        sender.send(Ok(JobEvent { at_ms: 1, body: Some(*body), ..JobEvent::default() })).await
                    }
                    Act::SayAt(position, body) => {
                        sender.send(Ok(JobEvent { at_ms: 1, body: Some(*body), position })).await
                    }
                    Act::Tell(_) => panic!("a record among events"),
                    Act::Refuse(status) => sender.send(Err(status)).await,
                    Act::AwaitCancel(count) => {
                        let _ = played.cancels.subscribe().wait_for(|&cancels| cancels >= count).await;
                        Ok(())
                    }
                    Act::AwaitInput => {
                        let _ = played.input_ended.subscribe().wait_for(|&ended| ended).await;
                        Ok(())
                    }
                    Act::Die => {
                        played.dead.send_replace(true);
                        std::future::pending().await
                    }
                };
                if sent.is_err() {
                    return;
                }
            }
        });
        Response::new(ReceiverStream::new(receiver))
    }
}

/// The service.
struct Fake(Arc<Played>);

type Events = ReceiverStream<Result<JobEvent, Status>>;

#[tonic::async_trait]
impl Dvm for Fake {
    type SubmitStream = Events;
    type AttachStream = Events;
    type LogsStream = ReceiverStream<Result<Record, Status>>;
    type InputStream = ReceiverStream<Result<InputReply, Status>>;
    type JoinGroupStream = ReceiverStream<Result<JoinEvent, Status>>;

    async fn submit(&self, request: Request<JobSpec>) -> Result<Response<Events>, Status> {
        self.0.tell(Asked::Submit(Box::new(request.into_inner())));
        Ok(self.0.story())
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanReply>, Status> {
        self.0.tell(Asked::Plan(Box::new(request.into_inner())));
        let reply = self.0.plans.lock().unwrap().pop_front();
        reply.map(Response::new).ok_or_else(|| refusal(Code::InvalidArgument, exit::USAGE, "unknown mapping `x`"))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Result<Response<Events>, Status> {
        let request = request.into_inner();
        self.0.job(request.job)?;
        self.0.tell(Asked::Attach(request));
        Ok(self.0.story())
    }

    async fn input(&self, request: Request<Streaming<InputChunk>>) -> Result<Response<Self::InputStream>, Status> {
        let mut chunks = request.into_inner();
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let played = Arc::clone(&self.0);
        tokio::spawn(async move {
            let (mut job, mut data) = (0, Vec::new());
            while let Ok(Some(chunk)) = chunks.message().await {
                job = chunk.job;
                assert_eq!(chunk.at, Some(data.len() as u64), "the input has no gaps");
                data.extend_from_slice(&chunk.data);
                let reply = InputReply { delivered_bytes: data.len() as u64, closed: false };
                let _ = sender.send(Ok(reply)).await; // the client may be gone
            }
            played.tell(Asked::Input(job, data));
            played.input_ended.send_replace(true);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn logs(&self, request: Request<LogsRequest>) -> Result<Response<Self::LogsStream>, Status> {
        self.0.tell(Asked::Logs(request.into_inner()));
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let acts = std::mem::take(&mut *self.0.story.lock().unwrap());
        if !acts.is_empty() {
            let played = self.0.clone();
            tokio::spawn(async move {
                for act in acts {
                    match act {
                        Act::Tell(record) => sender.send(Ok(record)).await.unwrap(),
                        Act::Die => {
                            played.dead.send_replace(true);
                            std::future::pending().await
                        }
                        Act::Say(_) | Act::SayAt(..) | Act::AwaitCancel(_) | Act::AwaitInput | Act::Refuse(_) => {
                            panic!("an event among records")
                        }
                    }
                }
            });
            return Ok(Response::new(ReceiverStream::new(receiver)));
        }
        for text in ["one\n", "two\n"] {
            sender.try_send(Ok(record(3, Stream::Stdout, text.as_bytes()))).unwrap();
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Result<Response<ListJobsReply>, Status> {
        let all = request.into_inner().all;
        let jobs = self.0.jobs.iter().filter(|info| all || info.ended_ms == 0).cloned().collect();
        Ok(Response::new(ListJobsReply { jobs, more: false }))
    }

    async fn get_job(&self, request: Request<JobSelector>) -> Result<Response<JobInfo>, Status> {
        self.0.job(request.into_inner().job)
    }

    async fn wait(&self, request: Request<JobSelector>) -> Result<Response<JobInfo>, Status> {
        self.0.job(request.into_inner().job)
    }

    async fn signal(&self, request: Request<SignalRequest>) -> Result<Response<JobInfo>, Status> {
        let SignalRequest { job, rank, signal } = request.into_inner();
        self.0.tell(Asked::Signal(job, rank, signal));
        self.0.job(job)
    }

    async fn unhold(&self, request: Request<JobSelector>) -> Result<Response<JobInfo>, Status> {
        self.0.job(request.into_inner().job)
    }

    async fn change_job(&self, request: Request<ChangeJobRequest>) -> Result<Response<JobInfo>, Status> {
        let request = request.into_inner();
        let job = request.job;
        self.0.tell(Asked::Change(request));
        self.0.job(job)
    }

    async fn why(&self, request: Request<JobSelector>) -> Result<Response<WhyReply>, Status> {
        let job = self.0.job(request.into_inner().job)?.into_inner();
        let reasons = vec![WhyReason { text: job.queued_reason.clone(), frees: vec!["the end of job 6".into()] }];
        Ok(Response::new(WhyReply { job: Some(job), reasons, ..WhyReply::default() }))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<JobInfo>, Status> {
        let CancelRequest { job, grace_ms, elements, client_gone: _ } = request.into_inner();
        self.0.tell(match elements.is_empty() {
            true => Asked::Cancel(job, grace_ms),
            false => Asked::CancelElements(job, elements),
        });
        self.0.cancels.send_modify(|cancels| *cancels += 1);
        Ok(Response::new(JobInfo { job, ..JobInfo::default() }))
    }

    async fn list_waits(&self, _: Request<WaitsRequest>) -> Result<Response<WaitsReply>, Status> {
        Ok(Response::new(WaitsReply::default()))
    }

    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Result<Response<ListNodesReply>, Status> {
        Ok(Response::new(ListNodesReply { nodes: vec![NodeInfo { name: "n0".into(), ..NodeInfo::default() }] }))
    }

    async fn list_names(&self, _: Request<ListNamesRequest>) -> Result<Response<ListNamesReply>, Status> {
        let name = PublishedName { name: "ocean".into(), port: "rsd 10.0.0.1:7".into(), job: 3, uid: None };
        Ok(Response::new(ListNamesReply { names: vec![name] }))
    }

    async fn join_group(&self, _: Request<JoinRequest>) -> Result<Response<Self::JoinGroupStream>, Status> {
        Err(Status::unimplemented("rsctl joins by the text protocol"))
    }

    async fn create_group(&self, request: Request<GroupRules>) -> Result<Response<GroupInfo>, Status> {
        Ok(Response::new(GroupInfo { rules: Some(request.into_inner()), epoch: 1, ..GroupInfo::default() }))
    }

    async fn list_groups(&self, _: Request<ListGroupsRequest>) -> Result<Response<ListGroupsReply>, Status> {
        Ok(Response::new(ListGroupsReply { groups: vec![group("actors".into())] }))
    }

    async fn get_group(&self, request: Request<GroupSelector>) -> Result<Response<GroupInfo>, Status> {
        Ok(Response::new(group(request.into_inner().name)))
    }

    async fn close_group(&self, request: Request<GroupSelector>) -> Result<Response<GroupInfo>, Status> {
        Ok(Response::new(GroupInfo { closed: true, ..group(request.into_inner().name) }))
    }

    async fn change_node(&self, _: Request<ChangeNodeRequest>) -> Result<Response<NodeInfo>, Status> {
        Ok(Response::new(NodeInfo::default()))
    }

    async fn kick_member(&self, request: Request<KickRequest>) -> Result<Response<GroupInfo>, Status> {
        Ok(Response::new(group(request.into_inner().name)))
    }

    async fn kv_put(&self, _: Request<KvPutRequest>) -> Result<Response<KvDone>, Status> {
        Ok(Response::new(KvDone {}))
    }

    async fn kv_get(&self, request: Request<KvGetRequest>) -> Result<Response<KvValue>, Status> {
        Ok(Response::new(KvValue { value: request.into_inner().key }))
    }

    async fn kv_list(&self, _: Request<KvScope>) -> Result<Response<KvEntries>, Status> {
        Ok(Response::new(KvEntries::default()))
    }

    async fn kv_delete(&self, _: Request<KvDeleteRequest>) -> Result<Response<KvDone>, Status> {
        Ok(Response::new(KvDone {}))
    }

    async fn kv_fence(&self, _: Request<KvFenceRequest>) -> Result<Response<KvDone>, Status> {
        Ok(Response::new(KvDone {}))
    }

    async fn get_status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Ok(Response::new(StatusReply::default()))
    }

    async fn upgrade(&self, _: Request<UpgradeRequest>) -> Result<Response<UpgradeReply>, Status> {
        Ok(Response::new(UpgradeReply::default()))
    }

    async fn shutdown(&self, _: Request<ShutdownRequest>) -> Result<Response<ShutdownReply>, Status> {
        Ok(Response::new(ShutdownReply::default()))
    }
}

/// A group in which two of three members wait.
fn group(name: String) -> GroupInfo {
    let rules = GroupRules { name, min: 3, max: 3, timeout_ms: Some(60_000), ..GroupRules::default() };
    let member = |pid, rank| WaitingMember {
        node_name: "n0".into(),
        pid,
        rank,
        uid: geteuid().as_raw(),
        waiting_ms: 8000,
        ..WaitingMember::default()
    };
    GroupInfo {
        rules: Some(rules),
        owner_uid: geteuid().as_raw(),
        epoch: 2,
        waiting: vec![member(11, None), member(12, Some(0))],
        epochs: vec![LiveEpoch { epoch: 1, job: 7, size: 3 }],
        ..GroupInfo::default()
    }
}

/// A base directory with the state directory of the fake daemon.
pub(crate) struct Stage {
    pub(crate) base: PathBuf,
    pub(crate) asked: mpsc::Receiver<Asked>,
    _lock: Option<Flock<File>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

impl Stage {
    /// A base directory without a daemon.
    pub(crate) fn empty() -> Stage {
        let base = nix::unistd::mkdtemp(&std::env::temp_dir().join("rsctl-fake-XXXXXX")).unwrap();
        Stage { base, asked: mpsc::channel().1, _lock: None }
    }

    pub(crate) fn new(story: impl IntoIterator<Item = Act>) -> Stage {
        Stage::with_jobs(story, Vec::new())
    }

    pub(crate) fn with_jobs(story: impl IntoIterator<Item = Act>, jobs: Vec<JobInfo>) -> Stage {
        Stage::with(story, jobs, Vec::new())
    }

    pub(crate) fn with_plans(plans: Vec<PlanReply>) -> Stage {
        Stage::with([], Vec::new(), plans)
    }

    pub(crate) fn with(story: impl IntoIterator<Item = Act>, jobs: Vec<JobInfo>, plans: Vec<PlanReply>) -> Stage {
        let mut stage = Stage::empty();
        stage.play("9f", story, jobs, plans);
        stage
    }

    /// Starts the daemon again, of the DVM with this id.
    pub(crate) fn again(&mut self, dvm: &str, story: impl IntoIterator<Item = Act>, jobs: Vec<JobInfo>) {
        self._lock = None;
        fs::remove_dir_all(self.base.join("n0")).unwrap();
        self.play(dvm, story, jobs, Vec::new());
    }

    fn play(&mut self, dvm: &str, story: impl IntoIterator<Item = Act>, jobs: Vec<JobInfo>, plans: Vec<PlanReply>) {
        let (asked, receiver) = mpsc::channel();
        let played = Arc::new(Played {
            story: Mutex::new(story.into_iter().collect()),
            jobs,
            plans: Mutex::new(plans.into()),
            asked,
            cancels: tokio::sync::watch::channel(0).0,
            input_ended: tokio::sync::watch::channel(false).0,
            dead: tokio::sync::watch::channel(false).0,
        });
        self.asked = receiver;
        self._lock = Some(serve(&self.base, dvm, played));
    }

    pub(crate) fn rsctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rsctl"));
        command.args(args).env("RSD_RUNTIME_DIR", &self.base).env_remove("RSD_DVM").stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Said {
        Said::of(self.rsctl(args).output().unwrap())
    }

    pub(crate) fn asked(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("rsctl sends a request")
    }

    pub(crate) fn submitted(&self) -> JobSpec {
        match self.asked() {
            Asked::Submit(spec) => *spec,
            other => panic!("{other:?}"),
        }
    }
}

/// Listens in `base/n0`, in a thread that ends with the process.
fn serve(base: &Path, dvm: &str, played: Arc<Played>) -> Flock<File> {
    let state_dir = base.join("n0");
    fs::create_dir(&state_dir).unwrap();
    let json = format!(r#"{{"name":"n0","dvm":"{dvm}","node":0,"head":true,"pid":1,"protocol":1}}"#);
    fs::write(state_dir.join("daemon.json"), json).unwrap();
    let lock = Flock::lock(File::create(state_dir.join("rsd.lock")).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(state_dir.join("rsd.sock")).unwrap();
    socket.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (listeners, unix) = tokio::sync::mpsc::channel(1);
            listeners.try_send(tokio::net::UnixListener::from_std(socket).unwrap()).unwrap();
            let connections =
                transport::accept(unix, None, Admission { serves_all: false, connections: Shares::new(1) });
            let mut dead = played.dead.subscribe();
            let server = Services::default().with(DvmServer::new(Fake(played))).serve(
                connections,
                std::time::Duration::from_secs(10),
                std::future::pending(),
            );
            tokio::select! {
                served = server => served.unwrap(),
                _ = dead.wait_for(|&dead| dead) => {}
            }
        });
        // Dropping the runtime closes its connections.
    });
    lock
}

/// The exit code and output of one run of rsctl.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Said {
        Said { code: output.status.code(), out: output.stdout, err: String::from_utf8(output.stderr).unwrap() }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

pub(crate) fn say(body: Body) -> Act {
    Act::Say(Box::new(body))
}

pub(crate) fn submitted() -> Act {
    say(Body::Submitted(Submitted { job: 7, command: "a".into(), owner: None }))
}

pub(crate) fn record(rank: u32, stream: Stream, data: &[u8]) -> Record {
    Record { rank, stream: stream.into(), data: data.to_vec().into(), ..Record::default() }
}

/// The act with this position.
pub(crate) fn at(position: u64, act: Act) -> Act {
    match act {
        Act::Say(body) => Act::SayAt(position, body),
        other => other,
    }
}

pub(crate) fn output(records: Vec<Record>) -> Act {
    say(Body::Output(OutputEvent { records, ..Default::default() }))
}

pub(crate) fn ended(state: JobState, exit_code: u32) -> JobInfo {
    JobInfo {
        job: 7,
        state: state.into(),
        ranks: 4,
        submitted_ms: 1,
        started_ms: 1,
        ended_ms: 2,
        exit_code,
        ..JobInfo::default()
    }
}

pub(crate) fn failed() -> JobInfo {
    let cause = RankExit { rank: 3, how: Some(How::Exited(3)), stderr_tail: "oops\n".into(), ..RankExit::default() };
    JobInfo { cause: Some(cause.clone()), exits: vec![cause], ..ended(JobState::Failed, 3) }
}

pub(crate) fn the_end(info: JobInfo) -> Act {
    say(Body::Ended(info))
}
