//! How a standby becomes the head.
//!
//! The copy is the state directory of a head, and the head is a process of its own on it. The node's daemon stays what it is, with its
//! steps, and finds the new head as all other nodes do. So a head that has moved has a node without slots beside the node of its machine.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use rsd_core::lease::{self, NotNow};
use rsd_proto::etcd::EtcdError;
use rsd_proto::transport::{exit, exit_code, heads_client, refusal};
use rsd_proto::v1::{GetEpochRequest, HandOver, HeadEpoch, PromoteReply, PromoteRequest};
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tonic::{Code, Status};
use tracing::{error, info, warn};

use super::etcd::{HeadKey, Store};
use super::files;
use super::follow::Standby;
use crate::clock::{since_boot, unix_ms};
use crate::options::DAEMONIZED;
use crate::secure::authority::Authority;

/// How long the head may take to answer before it counts as lost.
const HEAD_DEADLINE: Duration = Duration::from_secs(3);
/// How long it may take to hand over.
const HAND_OVER_DEADLINE: Duration = Duration::from_secs(30);
/// The numbers of jobs and nodes that are left out: the earlier head may have given them after this standby was last in step.
const NUMBERS_LEFT_OUT: (u64, u32) = (10_000, 1_000);
/// How often a standby that hears nothing from the head looks into etcd.
const LOOK: Duration = Duration::from_secs(1);

/// How the head is started.
#[derive(Debug)]
pub(crate) struct Promotion {
    pub(crate) standby: Arc<Standby>,
    /// The name of the head's node, and of its daemon for `--dvm`.
    pub(crate) name: String,
    pub(crate) serves_all: bool,
    /// Keeps the port free for the head.
    pub(crate) reserved: Mutex<Option<TcpSocket>>,
    /// The settings file that was named on the command line.
    pub(crate) config: Option<PathBuf>,
    /// What etcd has about the head; None: this standby takes over by command only. One promotion at a time.
    pub(crate) turn: tokio::sync::Mutex<Option<Store>>,
}

/// Why etcd does not make this standby the head.
enum Unclaimed {
    /// It may soon.
    Wait(String),
    Refused(String),
}

impl Promotion {
    /// Makes this standby the head.
    ///
    /// # Errors
    /// Why it must not become the head, or why the head could not be started.
    pub(crate) async fn promote(&self, request: &PromoteRequest) -> Result<PromoteReply, Status> {
        let mut turn = self.turn.lock().await;
        let standby = &self.standby;
        if !files::is_promoted(&standby.state_dir) {
            if let Some(store) = &mut *turn {
                store.view().await.map_err(|error| unavailable(&error))?;
            }
            self.check(request, turn.is_some()).await?;
            let claimed = match &mut *turn {
                Some(store) => Some(self.claim_in_time(store, request).await?),
                None => None,
            };
            self.take_over(claimed).map_err(|error| failed(&error))?;
        }
        let epoch = standby.files().epoch().map_err(|error| failed(&error))?.number;
        let ready = self.begin().await.map_err(|error| failed(&error))?;
        Ok(PromoteReply { epoch, ready })
    }

    /// Starts the head. Returns what it prints.
    async fn begin(&self) -> anyhow::Result<String> {
        let command = self.command();
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = None;
        tokio::task::spawn_blocking(move || start(command)).await?
    }

    /// Takes over by itself when etcd says so, as long as the daemon runs.
    pub(crate) async fn watch(self: Arc<Promotion>) {
        let mut said = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let mut turn = self.turn.lock().await;
            let Some(store) = &mut *turn else { return };
            if files::is_promoted(&self.standby.state_dir) {
                return;
            }
            if since_boot() < self.standby.following().heard + store.lasts || !self.standby.files().is_complete() {
                said.clear();
                continue;
            }
            let why = match self.claim(store, false, false).await {
                Ok(epoch) => {
                    warn!(epoch = epoch.number, "the head is lost, and this standby takes its place");
                    match self.take_over(Some(epoch)) {
                        Ok(()) => break,
                        Err(error) => format!("{error:#}"),
                    }
                }
                Err(Unclaimed::Wait(why) | Unclaimed::Refused(why)) => why,
            };
            if said != why {
                warn!(why, "this standby hears nothing from the head, and does not take over");
                said = why;
            }
        }
        match self.begin().await {
            Ok(ready) => info!(ready, "the head of this DVM runs here"),
            Err(error) => error!(error = format!("{error:#}"), "cannot start the head of this DVM"),
        }
    }

    /// Has etcd make this standby the head, for a command: the lease of the head before may have to end first.
    async fn claim_in_time(&self, store: &mut Store, request: &PromoteRequest) -> Result<HeadEpoch, Status> {
        let deadline = tokio::time::Instant::now() + 2 * store.lasts + HEAD_DEADLINE;
        loop {
            match self.claim(store, request.force, request.hand_over).await {
                Ok(epoch) => return Ok(epoch),
                Err(Unclaimed::Wait(_)) if tokio::time::Instant::now() < deadline => tokio::time::sleep(LOOK).await,
                Err(Unclaimed::Wait(why) | Unclaimed::Refused(why)) => {
                    return Err(refusal(Code::FailedPrecondition, exit::USAGE, why));
                }
            }
        }
    }

    /// Has etcd make this standby the head. `force`: also if it may lack something; `handed_over`: the head has said that it ends.
    async fn claim(&self, store: &mut Store, force: bool, handed_over: bool) -> Result<HeadEpoch, Unclaimed> {
        let standby = &self.standby;
        let internal = |error: anyhow::Error| Unclaimed::Refused(format!("{error:#}"));
        let view = store.view().await.map_err(|error| not_now(&error))?;
        let copied = standby.files().epoch().map_err(internal)?;
        let number = lease::claim(&view.stored(), standby.node, copied.number, force)
            .map_err(|why| unclaimed(why, &store.place()))?;
        let authority = standby.files().authority().and_then(|authority| Authority::stored(&authority));
        let epoch = authority.and_then(|authority| authority.for_epoch(number, unix_ms())).map_err(internal)?;
        // From here on the head hears nothing from this standby, so that it cannot take a confirmation for more than it is.
        {
            let mut following = standby.following();
            let quiet_at = following.heard + store.lasts;
            if !handed_over && since_boot() < quiet_at {
                return Err(Unclaimed::Wait("the head was heard of a moment ago".into()));
            }
            following.is_claiming = true;
        }
        let head = HeadKey { epoch: number, name: self.name.clone(), listen: standby.listen.clone() };
        let taken = store.take(&view, &head, &epoch, None).await;
        let mut following = standby.following();
        following.is_claiming = false;
        following.is_over |= matches!(taken, Ok(Some(_)));
        match taken {
            Ok(Some(_)) => Ok(epoch),
            Ok(None) => Err(Unclaimed::Wait("another standby was faster".into())),
            Err(error) => Err(not_now(&error)),
        }
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

    async fn check(&self, request: &PromoteRequest, has_etcd: bool) -> Result<(), Status> {
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
        // etcd knows better.
        if !is_in_step && !request.force && !has_etcd {
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

    /// Writes the epoch that etcd has given, or the next one. From here on nothing is copied, and no earlier head is obeyed where this is
    /// heard.
    fn take_over(&self, claimed: Option<HeadEpoch>) -> anyhow::Result<()> {
        let standby = &self.standby;
        let mut files = standby.files();
        standby.following().is_over = true;
        let write = || -> anyhow::Result<u64> {
            let epoch = match claimed {
                Some(epoch) => epoch,
                None => {
                    let number = files.epoch()?.number + 1;
                    let authority = Authority::stored(&files.authority()?).context("read the authority's key")?;
                    authority.for_epoch(number, unix_ms()).context("prove the epoch")?
                }
            };
            let number = epoch.number;
            files.promote(standby.node, epoch, NUMBERS_LEFT_OUT)?;
            Ok(number)
        };
        let written = write();
        drop(files);
        match written {
            Ok(epoch) => info!(epoch, "this standby becomes the head"),
            Err(error) => {
                standby.following().is_over = false;
                bail!(error);
            }
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let dir = files::dir(&self.standby.state_dir);
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rsd").args(["start", "--slots", "0", "--state-dir"]).arg(dir);
        command.args(["--name", &self.name, "--listen", &self.standby.listen]);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
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

fn not_now(error: &EtcdError) -> Unclaimed {
    let text = format!("etcd: {error}");
    match error {
        EtcdError::Unreachable(_) => Unclaimed::Wait(text),
        EtcdError::Setting(_) | EtcdError::Refused { .. } => Unclaimed::Refused(text),
    }
}

fn unclaimed(why: NotNow, place: &str) -> Unclaimed {
    match why {
        NotNow::HeadHolds(epoch) => {
            Unclaimed::Wait(format!("the head with epoch {epoch} has its lease in etcd: rsctl head promote --switch makes it hand over"))
        }
        NotNow::NoRecord => Unclaimed::Refused(format!(
            "etcd has nothing about this DVM under {place}: the head must have the same head.etcd and head.etcd_prefix"
        )),
        NotNow::NotInStep => Unclaimed::Refused(
            "the head did not count on this standby any more: what it has decided since is not here. Promote another standby, or with \
             --force this one"
                .into(),
        ),
        NotNow::OtherCopy { copied, stored } => Unclaimed::Refused(format!(
            "the copy here is of the head with epoch {copied}, and a head with epoch {stored} came after it: promote a standby of that \
             one, or with --force this one"
        )),
    }
}

fn unavailable(error: &EtcdError) -> Status {
    let text = format!("etcd must say that no other standby becomes the head at the same time: {error}");
    refusal(Code::FailedPrecondition, exit::USAGE, text)
}

fn failed(error: &anyhow::Error) -> Status {
    refusal(Code::Internal, exit::SYSTEM, format!("the head cannot be started here: {error:#}"))
}
