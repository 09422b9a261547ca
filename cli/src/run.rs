//! Follows a job: its events become output, messages and an exit code; Ctrl-C becomes a cancel.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;

use bytes::Bytes;
use rsd_proto::transport::exit;
use rsd_proto::v1::job_event::Body;
use rsd_proto::v1::{AttachRequest, CancelRequest, JobEvent, JobInfo, JobSpec, Stream};
use tokio::task::JoinHandle;
use tonic::Streaming;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::input::Input;
use crate::interrupts::{Interrupts, Step};
use crate::output::{Broken, Output, Style};
use crate::print::{self, say};
use crate::reconnect::Contact;
use crate::selectors::{Selector, Which};
use crate::{json, verdict, waits};

/// As JobSpec.token.
const TOKEN_BYTES: usize = 16;

/// How the user wants to see a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// Labels, and files instead of the two streams.
    pub(crate) style: Style,
    /// How each rank ended is printed at the end.
    pub(crate) exits: bool,
    /// Events as JSON lines instead of output and messages.
    pub(crate) json: bool,
    /// What the job waits for is not reported.
    pub(crate) quiet: bool,
}

impl View {
    /// With `label`, each line begins with its rank.
    pub(crate) fn new(label: bool, json: bool) -> View {
        View { style: Style::labelled(label), exits: false, json, quiet: false }
    }
}

/// Submits a job, follows it, and returns its exit code.
pub(crate) async fn run(
    mut contact: Contact<'_>,
    spec: JobSpec,
    view: View,
    forward_stdin: bool,
) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let reconnect_ms = u64::try_from(contact.patience().as_millis()).unwrap_or(u64::MAX);
    let spec = JobSpec { reconnect_ms, token: token()?, ..spec };
    let (events, first) = interrupts.unless_pressed(submitted(&mut contact, &spec)).await?;
    Follow::new(contact, view, Role::Owner { forward_stdin }).story(interrupts, events, first).await
}

/// Submits a job. Returns its events, of which the first has arrived.
async fn submitted(contact: &mut Contact<'_>, spec: &JobSpec) -> Result<(Streaming<JobEvent>, JobEvent), Failure> {
    let submit = async |client: &mut Client| {
        let mut events = dvm::answer("submitting", client.submit(spec.clone())).await?;
        let first = dvm::first("submitting", &mut events).await?;
        Ok((events, first))
    };
    contact.keep(submit).await
}

/// Returns what makes a submission one, however often it is sent.
fn token() -> Result<Bytes, Failure> {
    let mut token = [0; TOKEN_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut token));
    read.map_err(|error| Failure::new(exit::SYSTEM, format!("cannot read /dev/urandom: {error}")))?;
    Ok(Bytes::copy_from_slice(&token))
}

/// Follows a job that was submitted elsewhere, and returns its exit code.
pub(crate) async fn attach(mut contact: Contact<'_>, selector: Selector, view: View) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let attach = async |client: &mut Client| {
        let doing = format!("attaching to job {selector}");
        let job = match &selector.job {
            Which::Last => 0,
            Which::Number(job) => *job,
            Which::Named(_) => dvm::job(client, selector.clone()).await?.job,
        };
        let wanted = AttachRequest { job, ..AttachRequest::default() };
        let mut events = dvm::answer(&doing, client.attach(wanted)).await?;
        let first = dvm::first(&doing, &mut events).await?;
        Ok((events, first))
    };
    let (events, first) = interrupts.unless_pressed(contact.keep(attach)).await?;
    Follow::new(contact, view, Role::Watcher).story(interrupts, events, first).await
}

/// Submits a job and waits until it is accepted. Returns its number, and the reason if it is queued.
pub(crate) async fn submit(mut contact: Contact<'_>, spec: JobSpec) -> Result<(u64, Option<String>), Failure> {
    let spec = JobSpec { token: token()?, ..spec };
    let (mut events, first) = submitted(&mut contact, &spec).await?;
    let (mut job, mut event) = (0, Some(first));
    loop {
        let next = match event.take() {
            Some(first) => first,
            // The job is accepted. Whether it is queued is only news.
            None => match dvm::first("submitting", &mut events).await {
                Ok(event) => event,
                Err(failure) if failure.is_unreachable() => return Ok((job, None)),
                Err(failure) => return Err(failure),
            },
        };
        match next.body {
            Some(Body::Submitted(submitted)) => job = submitted.job,
            Some(Body::Queued(queued)) => return Ok((job, Some(queued.reason))),
            Some(Body::Notice(text)) => say(&text),
            Some(
                Body::Placed(_)
                | Body::Output(_)
                | Body::RankExit(_)
                | Body::Killing(_)
                | Body::Ended(_)
                | Body::Gap(_)
                | Body::Requeued(_),
            )
            | None => return Ok((job, None)),
        }
    }
}

/// What Ctrl-C does to the job, and whether its ranks read the standard input of rsctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// This process submitted the job, which ends with it.
    Owner { forward_stdin: bool },
    /// This process only watches the job.
    Watcher,
}

struct Follow<'a> {
    contact: Contact<'a>,
    view: View,
    role: Role,
    output: Output,
    /// The job's number; 0 until the daemon has sent it.
    job: u64,
    /// Jobs (0: this one) and ranks whose stderr this process has printed.
    heard: HashSet<(u64, u32)>,
    /// Reports what the job waits for.
    watch: Option<JoinHandle<()>>,
    /// The standard input of this process, once it is forwarded.
    input: Option<Input>,
    /// Where the log continues after the last event; 0: an earlier daemon does not say.
    position: u64,
}

/// How a follower comes out of the search for a lost daemon.
enum Back {
    Events(Box<Streaming<JobEvent>>),
    /// The user no longer waits: this process exits with this code.
    Left(u8),
}

impl<'a> Follow<'a> {
    fn new(contact: Contact<'a>, view: View, role: Role) -> Follow<'a> {
        let output = Output::new(if view.json { Style::default() } else { view.style.clone() });
        Follow { contact, view, role, output, job: 0, heard: HashSet::new(), watch: None, input: None, position: 0 }
    }

    async fn story(
        mut self,
        mut interrupts: Interrupts,
        mut events: Streaming<JobEvent>,
        first: JobEvent,
    ) -> Result<u8, Failure> {
        let mut ended = self.on_event(first);
        while ended.is_none() {
            let failure = tokio::select! {
                biased;
                step = interrupts.next() => match self.on_interrupt(step) {
                    Some(code) => return Ok(code),
                    None => continue,
                },
                event = self.output.when_ready(events.message()) => match event {
                    Ok(Ok(Some(event))) => {
                        ended = self.on_event(event);
                        continue;
                    }
                    Ok(Ok(None)) => lost(self.job, "the connection was closed"),
                    Ok(Err(status)) => broken_off(self.job, &status),
                    Err(broken) => return after_broken(&mut self.contact.client, self.role, self.job, broken).await,
                },
            };
            events = match self.attach_again(&mut interrupts, failure).await {
                Ok(Back::Events(events)) => *events,
                Ok(Back::Left(code)) => return Ok(code),
                Err(failure) => {
                    // What has come is shown, however slowly it is read.
                    tokio::select! {
                        _ = interrupts.next() => {}
                        _ = self.output.finish() => {}
                    }
                    return Err(failure);
                }
            };
        }
        let info = ended.unwrap_or_default();
        self.watch.iter().for_each(JoinHandle::abort);
        let code = exit_code(&info);
        let Follow { output, view, heard, contact, role, job, .. } = self;
        let mut client = contact.client;
        tokio::select! {
            // The job has ended; an interrupt drops the rest of its output.
            _ = interrupts.next() => return Ok(code),
            written = output.finish() => match written {
                Ok(()) => {}
                Err(broken) => return after_broken(&mut client, role, job, broken).await,
            },
        }
        if view.exits {
            verdict::of_each_rank(&info).iter().for_each(|line| print::err(line));
        }
        if !view.json && info.lost_bytes > 0 {
            say(&verdict::not_kept(&info));
        }
        if !view.json
            && let Some(text) = verdict::verdict(&info, |job, rank| heard.contains(&(job, rank)))
        {
            say(&text);
        }
        Ok(code)
    }

    /// Handles that the daemon is lost: follows the job again, from the last event on, when it is back.
    async fn attach_again(&mut self, interrupts: &mut Interrupts, failure: Failure) -> Result<Back, Failure> {
        self.watch.take().iter().for_each(JoinHandle::abort);
        if self.position == 0 {
            return Err(failure);
        }
        let (job, role) = (self.job, self.role);
        let owner = matches!(role, Role::Owner { .. });
        let wanted = AttachRequest { job, from: self.position, owner };
        let mut is_cancelled = false;
        let events = {
            let attach = async |client: &mut Client| {
                dvm::answer(&format!("attaching to job {job}"), client.attach(wanted)).await
            };
            let mut back = std::pin::pin!(self.contact.again(failure, attach));
            loop {
                tokio::select! {
                    biased;
                    step = interrupts.next() => match (role, step) {
                        (Role::Owner { .. }, Step::Cancel) => {
                            is_cancelled = true;
                            say(&format!(
                                "job {job} will be cancelled when the daemon is back (Ctrl-C again: exit without waiting)"
                            ));
                        }
                        (Role::Owner { .. }, Step::Nothing) => {}
                        (Role::Owner { .. }, Step::Kill | Step::Leave) | (Role::Watcher, _) => {
                            return Ok(Back::Left(exit::CANCELLED));
                        }
                    },
                    events = &mut back => break events?,
                }
            }
        };
        if is_cancelled {
            self.cancel(None);
        }
        self.watch(Vec::new());
        self.forward_stdin();
        Ok(Back::Events(Box::new(events)))
    }

    fn forward_stdin(&mut self) {
        if matches!(self.role, Role::Owner { forward_stdin: true }) {
            let input = self.input.get_or_insert_with(Input::begin).clone();
            tokio::spawn(input.forward(self.contact.client.clone(), self.job));
        }
    }

    /// Handles an event; returns the job's last state if it was the last event.
    fn on_event(&mut self, event: JobEvent) -> Option<JobInfo> {
        self.position = self.position.max(event.position);
        if self.view.json {
            self.output.line(json::document(json::event(&event)));
        }
        match event.body? {
            Body::Submitted(submitted) => {
                self.job = submitted.job;
                self.output.submitted(submitted.job);
                self.watch(Vec::new());
                self.forward_stdin();
            }
            Body::Queued(queued) => {
                let text = format!("job {} is queued: {}", self.job, queued.reason);
                self.tell(&text);
                self.watch(vec![text]);
            }
            Body::Output(output) if !self.view.json => {
                let stderr = output.records.iter().filter(|record| record.stream() == Stream::Stderr);
                self.heard.extend(stderr.map(|record| (record.job, record.rank)));
                self.output.write(output.records);
            }
            Body::Notice(text) => self.tell(&text),
            Body::Ended(info) => return Some(info),
            // The verdict reports these once, at the end.
            Body::Placed(placed) => self.output.placed(&placed),
            Body::Gap(gap) => self.tell(&verdict::missing(gap.bytes)),
            Body::Requeued(again) => self.tell(&verdict::requeued(&again)),
            Body::Output(_) | Body::RankExit(_) | Body::Killing(_) => {}
        }
        None
    }

    /// Begins to report what the job waits for, except what the user has been told.
    fn watch(&mut self, told: Vec<String>) {
        self.watch.take().iter().for_each(JoinHandle::abort);
        if !self.view.json && !self.view.quiet {
            self.watch = Some(tokio::spawn(waits::watch(self.contact.client.clone(), self.job, told)));
        }
    }

    /// Handles an interrupt; returns the exit code if this process must exit now.
    fn on_interrupt(&mut self, step: Step) -> Option<u8> {
        let Role::Owner { .. } = self.role else {
            say(&format!("job {0} is still running; follow it again with: rsctl attach {0}", self.job));
            return Some(exit::CANCELLED);
        };
        match step {
            Step::Cancel => {
                say(&format!(
                    "cancelling job {}: TERM now, KILL after the grace period (Ctrl-C again: KILL now)",
                    self.job
                ));
                self.cancel(None);
            }
            Step::Kill => {
                say(&format!("killing job {} (Ctrl-C again: exit without waiting)", self.job));
                self.cancel(Some(0));
            }
            Step::Leave => return Some(exit::CANCELLED),
            Step::Nothing => {}
        }
        None
    }

    /// Requests the cancel and returns at once.
    fn cancel(&self, grace_ms: Option<u64>) {
        let (mut client, job) = (self.contact.client.clone(), self.job);
        tokio::spawn(async move {
            if let Err(failure) = cancel(&mut client, job, grace_ms).await {
                say(&failure.to_string());
            }
        });
    }

    fn tell(&self, text: &str) {
        if !self.view.json {
            say(text);
        }
    }
}

/// Handles a failed write: cancels the job if this process submitted it; a watched job continues.
async fn after_broken(client: &mut Client, role: Role, job: u64, broken: Broken) -> Result<u8, Failure> {
    let cancelled = match role {
        Role::Owner { .. } => {
            // A failure does not matter: the job may have ended already, and the end of this connection cancels it too.
            let _ = cancel(client, job, None).await;
            "; the job was cancelled"
        }
        Role::Watcher => "",
    };
    match broken.is_pipe() {
        true => Ok(print::BROKEN_PIPE),
        false => Err(Failure::new(exit::SYSTEM, format!("{broken}{cancelled}"))),
    }
}

/// Returns the failure for a stream of events that ended with `status`.
pub(crate) fn broken_off(job: u64, status: &tonic::Status) -> Failure {
    let failure = Failure::of_status(&format!("job {job} ran"), status);
    match failure.code {
        exit::UNREACHABLE => again(job, failure),
        _ => failure,
    }
}

fn lost(job: u64, why: &str) -> Failure {
    again(job, Failure::unreachable(format!("lost the daemon while job {job} ran: {why}")))
}

/// Adds the hint how to look at the job later.
fn again(job: u64, failure: Failure) -> Failure {
    failure.hint(format!("when a daemon is running again (rsd start), see: rsctl job show {job}"))
}

/// Asks the daemon to end a job.
pub(crate) async fn cancel(client: &mut Client, job: u64, grace_ms: Option<u64>) -> Result<JobInfo, Failure> {
    dvm::answer(
        &format!("cancelling job {job}"),
        client.cancel(CancelRequest { job, grace_ms, ..CancelRequest::default() }),
    )
    .await
}

/// Returns the exit code for a job that has ended.
pub(crate) fn exit_code(info: &JobInfo) -> u8 {
    u8::try_from(info.exit_code).unwrap_or(exit::INTERNAL)
}
