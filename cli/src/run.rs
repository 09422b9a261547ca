//! Follows a job: its events become output, messages and an exit code; Ctrl-C becomes a cancel.

use std::collections::HashSet;

use rsd_proto::transport::exit;
use rsd_proto::v1::job_event::Body;
use rsd_proto::v1::{CancelRequest, JobEvent, JobInfo, JobSelector, JobSpec, Stream};
use tokio::task::JoinHandle;
use tonic::Streaming;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::interrupts::{Interrupts, Step};
use crate::output::{Broken, Output, Style};
use crate::print::{self, say};
use crate::selectors::{Selector, Which};
use crate::{input, json, verdict, waits};

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
pub(crate) async fn run(mut client: Client, spec: JobSpec, view: View, forward_stdin: bool) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let submitting = async {
        let mut events = dvm::answer("submitting", client.submit(spec)).await?;
        let first = dvm::first("submitting", &mut events).await?;
        Ok((events, first))
    };
    let (events, first) = interrupts.unless_pressed(submitting).await?;
    Follow::new(client, view, Role::Owner { forward_stdin }).story(interrupts, events, first).await
}

/// Follows a job that was submitted elsewhere, and returns its exit code.
pub(crate) async fn attach(mut client: Client, selector: Selector, view: View) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let attaching = async {
        let doing = format!("attaching to job {selector}");
        let job = match &selector.job {
            Which::Last => 0,
            Which::Number(job) => *job,
            Which::Named(_) => dvm::job(&mut client, selector.clone()).await?.job,
        };
        let wanted = JobSelector { job, ..JobSelector::default() };
        let mut events = dvm::answer(&doing, client.attach(wanted)).await?;
        let first = dvm::first(&doing, &mut events).await?;
        Ok((events, first))
    };
    let (events, first) = interrupts.unless_pressed(attaching).await?;
    Follow::new(client, view, Role::Watcher).story(interrupts, events, first).await
}

/// Submits a job and waits until it is accepted. Returns its number, and the reason if it is queued.
pub(crate) async fn submit(mut client: Client, spec: JobSpec) -> Result<(u64, Option<String>), Failure> {
    let mut events = dvm::answer("submitting", client.submit(spec)).await?;
    let mut job = 0;
    loop {
        match dvm::first("submitting", &mut events).await?.body {
            Some(Body::Submitted(submitted)) => job = submitted.job,
            Some(Body::Queued(queued)) => return Ok((job, Some(queued.reason))),
            Some(Body::Notice(text)) => say(&text),
            Some(Body::Placed(_) | Body::Output(_) | Body::RankExit(_) | Body::Killing(_) | Body::Ended(_)) | None => {
                return Ok((job, None));
            }
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

struct Follow {
    client: Client,
    view: View,
    role: Role,
    output: Output,
    /// The job's number; 0 until the daemon has sent it.
    job: u64,
    /// Jobs (0: this one) and ranks whose stderr this process has printed.
    heard: HashSet<(u64, u32)>,
    /// Reports what the job waits for.
    watch: Option<JoinHandle<()>>,
}

impl Follow {
    fn new(client: Client, view: View, role: Role) -> Follow {
        let output = Output::new(if view.json { Style::default() } else { view.style.clone() });
        Follow { client, view, role, output, job: 0, heard: HashSet::new(), watch: None }
    }

    async fn story(
        mut self,
        mut interrupts: Interrupts,
        mut events: Streaming<JobEvent>,
        first: JobEvent,
    ) -> Result<u8, Failure> {
        let mut ended = self.on_event(first);
        while ended.is_none() {
            tokio::select! {
                biased;
                step = interrupts.next() => if let Some(code) = self.on_interrupt(step) {
                    return Ok(code);
                },
                event = self.output.when_ready(events.message()) => match event {
                    Ok(Ok(Some(event))) => ended = self.on_event(event),
                    Ok(Ok(None)) => return Err(lost(self.job, "the connection was closed")),
                    Ok(Err(status)) => return Err(broken_off(self.job, &status)),
                    Err(broken) => return after_broken(&mut self.client, self.role, self.job, broken).await,
                },
            }
        }
        let info = ended.unwrap_or_default();
        self.watch.iter().for_each(JoinHandle::abort);
        let code = exit_code(&info);
        let Follow { output, view, heard, client, role, job, .. } = self;
        let mut client = client;
        tokio::select! {
            // The job has ended; an interrupt drops the rest of its output.
            _ = interrupts.next() => return Ok(code),
            written = output.finish() => match written {
                Ok(()) => {}
                Err(broken) => return after_broken(&mut client, role, job, broken).await,
            },
        }
        if view.exits {
            verdict::exits(&info).iter().for_each(|line| print::err(line));
        }
        if !view.json
            && let Some(text) = verdict::verdict(&info, |job, rank| heard.contains(&(job, rank)))
        {
            say(&text);
        }
        Ok(code)
    }

    /// Handles an event; returns the job's last state if it was the last event.
    fn on_event(&mut self, event: JobEvent) -> Option<JobInfo> {
        if self.view.json {
            self.output.line(json::document(json::event(&event)));
        }
        match event.body? {
            Body::Submitted(submitted) => {
                self.job = submitted.job;
                self.output.submitted(submitted.job);
                self.watch(Vec::new());
                if matches!(self.role, Role::Owner { forward_stdin: true, .. }) {
                    input::forward(self.client.clone(), self.job);
                }
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
            Body::Output(_) | Body::RankExit(_) | Body::Killing(_) => {}
        }
        None
    }

    /// Begins to report what the job waits for, except what the user has been told.
    fn watch(&mut self, told: Vec<String>) {
        self.watch.take().iter().for_each(JoinHandle::abort);
        if !self.view.json && !self.view.quiet {
            self.watch = Some(tokio::spawn(waits::watch(self.client.clone(), self.job, told)));
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
        let (mut client, job) = (self.client.clone(), self.job);
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
    dvm::answer(&format!("cancelling job {job}"), client.cancel(CancelRequest { job, grace_ms })).await
}

/// Returns the exit code for a job that has ended.
pub(crate) fn exit_code(info: &JobInfo) -> u8 {
    u8::try_from(info.exit_code).unwrap_or(exit::INTERNAL)
}
