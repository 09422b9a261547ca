//! The step's link to its daemon, which is dialled again as long as the step runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rsd_core::step::Input;
use rsd_core::uplink::Backoff;
use rsd_proto::transport::parts::Joiner;
use rsd_proto::transport::{DialError, Target, dial, exit_code, link_client};
use rsd_proto::v1::{Down, Hello, StepHello, Up, down, hello, up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::Event;
use crate::disk::state_dir;

const DIAL_DEADLINE: Duration = Duration::from_secs(10);

/// A connected stream to the daemon, before the first message.
pub(super) struct Line {
    ups: mpsc::UnboundedSender<Up>,
    downs: Streaming<Down>,
}

/// Why a link failed, and whether the daemon has refused it.
pub(super) struct Broken {
    why: String,
    refused: bool,
}

impl Broken {
    fn of(status: &Status) -> Broken {
        Broken { why: status.message().to_owned(), refused: exit_code(status).is_some() }
    }
}

/// Connects to the daemon.
pub(super) async fn open(state_dir: &Path) -> Result<Line, Broken> {
    let target = Target::Unix(state_dir::socket(state_dir));
    let unreachable = |error: DialError| Broken { why: error.to_string(), refused: false };
    let channel = dial(&target, DIAL_DEADLINE).await.map_err(unreachable)?;
    let (ups, receiver) = mpsc::unbounded_channel();
    let attaching = link_client(channel).attach(UnboundedReceiverStream::new(receiver)).await;
    let downs = attaching.map_err(|status| Broken::of(&status))?.into_inner();
    Ok(Line { ups, downs })
}

/// Attaches, passes messages, and attaches again until the step's loop ends. Uses `first` before it connects again.
pub(super) async fn keep(
    state_dir: PathBuf,
    hello: StepHello,
    events: mpsc::UnboundedSender<Event>,
    mut first: Option<Line>,
) {
    let (mut backoff, mut was_refused) = (Backoff::of_step(), false);
    while !events.is_closed() {
        let opened = match first.take() {
            Some(line) => Ok(line),
            None => open(&state_dir).await,
        };
        let ended = match opened {
            Ok(line) => serve(line, &hello, &events).await,
            Err(broken) => Err(broken),
        };
        match ended {
            Ok(()) => backoff.reset(),
            Err(Broken { why, refused: true }) if !was_refused => {
                was_refused = true;
                warn!(
                    why,
                    "the daemon refuses the link of this job's step, which tries on until its ranks' grace is over"
                );
            }
            Err(Broken { why, .. }) => debug!(why, "the link to the daemon failed"),
        }
        if events.send(Event::Input(Input::LinkDown)).is_err() {
            return;
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

/// Serves one link, from its first message to its end.
async fn serve(line: Line, hello: &StepHello, events: &mpsc::UnboundedSender<Event>) -> Result<(), Broken> {
    let Line { ups, mut downs } = line;
    let who = Some(hello::Who::Step(hello.clone()));
    let first = Hello { version: rsd_proto::VERSION.into(), who };
    ups.send(Up { body: Some(up::Body::Hello(first)) }).map_err(|_| Broken { why: "closed".into(), refused: false })?;
    let (mut sender, mut joiner) = (Some(ups), Joiner::default());
    loop {
        let down = match downs.message().await.and_then(|down| down.map(|down| joiner.join(down)).transpose()) {
            Ok(Some(Some(down))) => down,
            Ok(Some(None)) => continue,
            Ok(None) => return Ok(()),
            Err(status) => return Err(Broken::of(&status)),
        };
        let event = match down.body {
            Some(down::Body::Welcome(_)) => match sender.take() {
                Some(sender) => Event::LinkUp(sender),
                None => continue,
            },
            _ => Event::Input(Input::Down(down)),
        };
        if events.send(event).is_err() {
            return Ok(());
        }
    }
}
