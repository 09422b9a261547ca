//! A standby's connection to the head. It has a thread of its own: it waits for the disk, and the daemon does not.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use rsd_proto::transport::{Own, exit_code, heads_client};
use rsd_proto::v1::follow_down::Body;
use rsd_proto::v1::{FollowAck, FollowBegin, FollowDown, FollowHello, FollowUp, HandOver, follow_up};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Streaming};
use tracing::{error, info, warn};

use super::files::Files;
use crate::clock::since_boot;
use crate::way_up::WayUp;

/// The pause before another attempt to follow the head.
const PAUSE: Duration = Duration::from_millis(500);
/// A head that sends nothing for so long, not even a beat, is gone.
const SILENCE: Duration = Duration::from_secs(10);

/// The daemon of a standby, for its copy.
#[derive(Debug)]
pub(crate) struct Standby {
    pub(crate) node: u32,
    pub(crate) own: Own,
    /// The certificate of the DVM's authority.
    pub(crate) authority: bytes::Bytes,
    pub(crate) way_up: WayUp,
    /// Where it will listen as the head.
    pub(crate) listen: String,
    /// Where its daemon listens; empty: nowhere.
    pub(crate) daemon_listen: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) files: Mutex<Files>,
    pub(crate) following: Mutex<Following>,
}

/// How it follows.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Why it does not follow.
    pub(crate) why_not: Option<String>,
    /// Whether this standby is about to take over, or has: it follows no more.
    pub(crate) is_over: bool,
    /// Whether this standby is asking etcd to make it the head: it says nothing to the head meanwhile.
    pub(crate) is_claiming: bool,
    /// When it has last confirmed something to the head, or was started, by the clock that counts sleep: it takes over by itself only a lease
    /// later.
    pub(crate) heard: Duration,
    /// Takes requests to the head while the standby follows it.
    pub(crate) requests: Option<mpsc::UnboundedSender<Request>>,
}

/// A request that the head hand over, and where its answer goes.
pub(crate) type Request = (HandOver, oneshot::Sender<Result<(), String>>);

impl Standby {
    pub(crate) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the head in a thread, until this standby takes over or the process ends.
    pub(crate) fn start(self: &Arc<Standby>) -> anyhow::Result<()> {
        let standby = Arc::clone(self);
        let thread = std::thread::Builder::new().name("standby".into());
        let spawned = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(standby.follow()),
                Err(error) => error!(%error, "this daemon cannot stand by: it cannot start a runtime"),
            }
        });
        spawned.context("start the thread that follows the head")?;
        Ok(())
    }

    async fn follow(&self) {
        while !self.following().is_over {
            if self.following().is_claiming {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let ended = self.follow_once().await;
            self.has_ended(ended);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn has_ended(&self, ended: anyhow::Result<()>) {
        let mut following = self.following();
        following.requests = None;
        let Err(error) = ended else { return };
        let why = format!("{error:#}");
        if following.why_not.as_ref() != Some(&why) && !following.is_over {
            warn!(why, "this standby does not follow the head");
        }
        following.why_not = Some(why);
    }

    async fn follow_once(&self) -> anyhow::Result<()> {
        let channel = self.way_up.dial().await.map_err(|status| anyhow::anyhow!("{}", status.message()))?;
        let (to, from) = mpsc::unbounded_channel();
        let (logs, epoch) = {
            let mut files = self.files();
            (files.logs(), files.epoch().ok())
        };
        let (listen, daemon_listen) = (self.listen.clone(), self.daemon_listen.clone());
        let hello = FollowHello { listen, logs, epoch, daemon_listen };
        let _ = to.send(FollowUp { body: Some(follow_up::Body::Hello(hello)) }); // the receiver is below
        let answered = heads_client(channel).follow(UnboundedReceiverStream::new(from)).await;
        let stream = match answered {
            Ok(stream) => stream.into_inner(),
            Err(status) if exit_code(&status).is_some() => bail!("{}", status.message()),
            Err(status) if status.code() == Code::Unimplemented => bail!("the head's version of rsd knows no standbys"),
            Err(status) => bail!("the connection to the head has failed: {}", status.message()),
        };
        self.copy(stream, &to).await
    }

    /// Copies until the connection ends.
    async fn copy(
        &self,
        mut stream: Streaming<FollowDown>,
        to: &mpsc::UnboundedSender<FollowUp>,
    ) -> anyhow::Result<()> {
        let (requests, mut wished) = mpsc::unbounded_channel::<Request>();
        let mut waiting: Option<oneshot::Sender<Result<(), String>>> = None;
        let (mut ack, mut has_begun) = (FollowAck::default(), false);
        loop {
            let message = tokio::select! {
                biased;
                Some((wish, answer)) = wished.recv() => {
                    let _ = to.send(FollowUp { body: Some(follow_up::Body::HandOver(wish)) });
                    waiting = Some(answer);
                    continue;
                }
                message = tokio::time::timeout(SILENCE, stream.message()) => message,
            };
            let message = match message {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => bail!("the head has closed the connection"),
                Ok(Err(status)) => bail!("{}", status.message()),
                Err(_) => bail!("the head is silent"),
            };
            // From the moment in which it takes over, the files are the new head's.
            let mut files = self.files();
            {
                let mut following = self.following();
                if following.is_over || following.is_claiming {
                    return Ok(());
                }
                following.heard = since_boot();
            }
            let mut logs = Vec::new();
            match message.body {
                Some(Body::Begin(begin)) => {
                    self.begin(&files, &begin)?;
                    files.set_in_step(false);
                    has_begun = true;
                    let mut following = self.following();
                    (following.requests, following.why_not) = (Some(requests.clone()), None);
                    info!(head = begin.head_name, "this daemon stands by for the head");
                    continue;
                }
                _ if !has_begun => bail!("the head has not begun with the authority's key"),
                Some(Body::Records(records)) => {
                    ack.bytes += records.data.len() as u64 + 1;
                    if files.write_records(&records)? {
                        (ack.records, ack.has_all_records) = (records.number, true);
                    }
                }
                Some(Body::Log(piece)) => {
                    ack.bytes += piece.data.len() as u64 + 1;
                    logs.push(files.write_log(&piece)?);
                }
                Some(Body::LogGone(job)) => {
                    ack.bytes += 1;
                    files.remove_log(job);
                }
                Some(Body::Numbers(numbers)) => {
                    ack.bytes += 1;
                    files.write_numbers(numbers)?;
                }
                Some(Body::Beat(_)) => ack.bytes += 1,
                Some(Body::InStep(is_in_step)) => {
                    files.set_in_step(is_in_step);
                    info!(is_in_step, "what the head keeps, this standby has");
                    continue;
                }
                Some(Body::HandedOver(_)) => {
                    self.following().is_over = true;
                    if let Some(waiting) = waiting.take() {
                        let _ = waiting.send(Ok(())); // it may have given up
                    }
                    return Ok(());
                }
                Some(Body::Refused(why)) => {
                    if let Some(waiting) = waiting.take() {
                        let _ = waiting.send(Err(why));
                    }
                    continue;
                }
                None => continue,
            }
            let is_long = files.is_long();
            drop(files);
            let _ = to.send(FollowUp { body: Some(follow_up::Body::Ack(FollowAck { logs, ..ack.clone() })) });
            if is_long {
                return Ok(()); // the next connection begins with a shorter copy
            }
        }
    }

    /// Takes the authority's key, if this is the DVM's authority and its head is not an earlier one.
    fn begin(&self, files: &Files, begin: &FollowBegin) -> anyhow::Result<()> {
        let authority = begin.authority.as_ref().context("the head has sent no key")?;
        if authority.certificate != self.authority {
            bail!("the head has sent the key of another authority");
        }
        let (epoch, known) = (begin.epoch.clone().unwrap_or_default(), files.epoch().unwrap_or_default());
        if !self.own.proves(&epoch) || epoch.number < known.number {
            bail!(
                "the daemon there is an earlier head than the one whose copy is here (epoch {} and {})",
                epoch.number,
                known.number
            );
        }
        files.write_authority(authority)
    }
}
