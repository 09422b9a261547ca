//! How a standby becomes the head.
//!
//! The copy is the state directory of a head, and the head is a process of its own on it. The node's daemon stays what it is, with its
//! steps, and finds the new head as all other nodes do. So a head that has moved has a node without slots beside the node of its machine.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use rsd_proto::transport::{exit, exit_code, heads_client, refusal};
use rsd_proto::v1::{GetEpochRequest, HandOver, PromoteReply, PromoteRequest};
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tonic::{Code, Status};
use tracing::{error, info};

use super::files;
use super::follow::Standby;
use crate::clock::unix_ms;
use crate::options::DAEMONIZED;
use crate::secure::authority::Authority;

/// How long the head may take to answer before it counts as lost.
const HEAD_DEADLINE: Duration = Duration::from_secs(3);
/// How long it may take to hand over.
const HAND_OVER_DEADLINE: Duration = Duration::from_secs(30);
/// The numbers of jobs and nodes that are left out: the earlier head may have given them after this standby was last in step.
const NUMBERS_LEFT_OUT: (u64, u32) = (10_000, 1_000);

/// How the head is started.
#[derive(Debug)]
pub(crate) struct Promotion {
    pub(crate) standby: Arc<Standby>,
    /// The name of the head's node, and of its daemon for `--dvm`.
    pub(crate) name: String,
    pub(crate) serves_all: bool,
    /// Keeps the port free for the head.
    pub(crate) reserved: Mutex<Option<TcpSocket>>,
    /// One promotion at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Promotion {
    /// Makes this standby the head.
    ///
    /// # Errors
    /// Why it must not become the head, or why the head could not be started.
    pub(crate) async fn promote(&self, request: &PromoteRequest, node: &str) -> Result<PromoteReply, Status> {
        let _turn = self.turn.lock().await;
        let standby = &self.standby;
        if !request.node.is_empty() && request.node != node && request.node != standby.node.to_string() {
            let text = format!("this daemon is node {node}: run rsctl head promote on the machine of {}", request.node);
            return Err(refusal(Code::InvalidArgument, exit::USAGE, text));
        }
        if !files::is_promoted(&standby.state_dir) {
            self.check(request).await?;
            let epoch = self.take_over().map_err(|error| {
                standby.following().is_over = false;
                failed(&error)
            })?;
            info!(epoch, "this standby becomes the head");
        }
        let epoch = standby.files().epoch().map_err(|error| failed(&error))?.number;
        let command = self.command();
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let started = tokio::task::spawn_blocking(move || start(command)).await;
        let ready = started.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| failed(&error))?;
        Ok(PromoteReply { epoch, ready })
    }

    /// Starts the head again, if this standby was promoted before.
    pub(crate) fn start_again(&self) {
        let command = self.command();
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = None;
        std::thread::spawn(move || match start(command) {
            Ok(ready) => info!(ready, "the head of this DVM runs here"),
            Err(error) => error!(error = format!("{error:#}"), "cannot start the head of this DVM"),
        });
    }

    async fn check(&self, request: &PromoteRequest) -> Result<(), Status> {
        let standby = &self.standby;
        let refused = |text: String| Err(refusal(Code::FailedPrecondition, exit::USAGE, text));
        let (is_complete, is_in_step) = {
            let files = standby.files();
            (files.is_complete(), files.is_in_step())
        };
        if !is_complete {
            let why = standby.following().why_not.clone().unwrap_or_else(|| "it is being made".into());
            return refused(format!("this standby has no complete copy of what the head keeps: {why}"));
        }
        if request.hand_over {
            return self.ask_to_hand_over(request.force).await;
        }
        if self.head_answers().await {
            let text = "the head answers: rsctl head promote --switch makes it hand over; without that, only a head that is lost is \
                        replaced";
            return refused(text.into());
        }
        if !is_in_step && !request.force {
            let text = "the head did not count on this standby any more when it was last heard of: what it has decided since is not \
                        here. Promote another standby, or with --force this one";
            return refused(text.into());
        }
        Ok(())
    }

    async fn head_answers(&self) -> bool {
        let ask = async {
            let channel = self.standby.way_up.dial().await.ok()?;
            match heads_client(channel).get_epoch(GetEpochRequest {}).await {
                Ok(_) => Some(()),
                // Another daemon of the DVM has answered in its place.
                Err(status) => exit_code(&status).filter(|code| *code != exit::UNREACHABLE).map(drop),
            }
        };
        tokio::time::timeout(HEAD_DEADLINE, ask).await.is_ok_and(|answer| answer.is_some())
    }

    async fn ask_to_hand_over(&self, force: bool) -> Result<(), Status> {
        let refused = |text: String| refusal(Code::FailedPrecondition, exit::USAGE, text);
        let requests = self.standby.following().requests.clone();
        let requests = requests.ok_or_else(|| {
            refused(
                "this standby is not connected to the head: without --switch, it takes over from a head that is lost"
                    .into(),
            )
        })?;
        let (answer, answered) = oneshot::channel();
        let asked = requests.send((HandOver { force }, answer));
        let gone = || {
            refused(
                "the connection to the head was lost: without --switch, this standby takes over if it is lost".into(),
            )
        };
        asked.map_err(|_| gone())?;
        match tokio::time::timeout(HAND_OVER_DEADLINE, answered).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(why))) => Err(refused(format!("the head does not hand over: {why}"))),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(refused(format!("the head did not hand over within {HAND_OVER_DEADLINE:?}"))),
        }
    }

    /// Writes the next epoch. From here on nothing is copied, and no earlier head is obeyed where this is heard.
    fn take_over(&self) -> anyhow::Result<u64> {
        let standby = &self.standby;
        let mut files = standby.files();
        standby.following().is_over = true;
        let number = files.epoch()?.number + 1;
        let authority = Authority::stored(&files.authority()?).context("read the authority's key")?;
        let epoch = authority.for_epoch(number, unix_ms()).context("prove the epoch")?;
        files.promote(standby.node, epoch, NUMBERS_LEFT_OUT)?;
        Ok(number)
    }

    fn command(&self) -> Command {
        let dir = files::dir(&self.standby.state_dir);
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rsd").args(["start", "--slots", "0", "--state-dir"]).arg(dir);
        command.args(["--name", &self.name, "--listen", &self.standby.listen]);
        if !self.serves_all {
            command.arg("--single-user");
        }
        command
    }
}

/// Starts the head in the background; returns what it prints.
fn start(mut command: Command) -> anyhow::Result<String> {
    let command = command.env_remove(DAEMONIZED).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    let output = command.output().context("start the head")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("rsd: ").to_owned();
    anyhow::ensure!(output.status.success(), "{said}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn failed(error: &anyhow::Error) -> Status {
    refusal(Code::Internal, exit::SYSTEM, format!("the head cannot be started here: {error:#}"))
}
