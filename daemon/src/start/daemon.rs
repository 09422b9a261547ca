//! A daemon from its settings to its end: the state directory, the sockets, the state machine and its shell.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use rsd_config::settings::{Jobs, Settings};
use rsd_core::rsd::{Call, KnownStep, Memory, Start};
use rsd_core::taskmap::TaskMap;
use rsd_core::uplink::{Known, Limits};
use rsd_core::{Rsd, Uplink};
use rsd_proto::transport::token::Token;
use rsd_proto::transport::{self, Admission, Refusals, Services, Shares, TcpDoor, exit};
use rsd_proto::v1::{Ancestors, HeadEpoch, Kept, KeptStandby};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{RwLock, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::info;

use super::announce::{announce, full_disk, join_line, notify};
use super::head::{Leases, give_way};
use super::name_of;
use super::place::{Place, declared};
use super::services::Shared;
use super::standby::standby;
use crate::clock::{Clock, unix_ms};
use crate::disk::job_log::JobLogs;
use crate::disk::journal::Journal;
use crate::disk::state_dir::{Identity, StateDir};
use crate::disk::step_files;
use crate::door::{Door, Event};
use crate::failed::Failed;
use crate::metrics::Meter;
use crate::metrics::port::MetricsPort;
use crate::options::StartOptions;
use crate::presence::Sockets;
use crate::random::random;
use crate::reach::{self, TcpPort};
use crate::secure::refusals;
use crate::serve::About;
use crate::serve::callers::Callers;
use crate::serve::forward::Turns;
use crate::serve::heads::HeadService as HeadHeads;
use crate::settings::tuning;
use crate::shell::{Placed, Shell};
use crate::standby::copies::Copies;
use crate::standby::{epochs, files};
use crate::steps;
use crate::upgrade::{self, Successor};
use crate::uplink;
use crate::way_up::WayUp;

/// How long a stopping daemon waits until its last answers are sent.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long it waits for a standby to which it has handed over.
const PROMOTION: Duration = Duration::from_secs(30);
/// How long the line for joining nodes may take.
const JOIN_LINE: Duration = Duration::from_secs(5);

/// A daemon that is starting, or runs.
struct Daemon<'a> {
    options: StartOptions,
    settings: Settings,
    state_dir: &'a Arc<StateDir>,
    place: Place,
    clock: Clock,
    door: Door,
    /// To the daemons above; None: it is the head.
    way_up: Option<WayUp>,
    /// What it knew about these when it last ran.
    known: Known,
    logs: Arc<JobLogs>,
}

/// Runs a daemon until it has stopped, or until another program takes its place: returns that.
pub(super) async fn serve(
    options: StartOptions,
    token: Option<Token>,
    settings: Settings,
    state_dir: &Arc<StateDir>,
) -> anyhow::Result<Option<Successor>> {
    let before = state_dir.identity();
    let dvm = before.as_ref().map(|before| before.dvm.clone());
    let (mut place, (port, listeners)) = Place::take(&options, token.as_ref(), &settings, before, state_dir).await?;
    let clock = Clock::start();
    let (door, inbox) = Door::new();
    let connections = Shares::new(settings.users.connections);
    let (sockets, unix) = Sockets::open(state_dir, entry(&options), place.callers, connections.clone(), &door)?;
    if dvm.is_none_or(|before| before != place.identity.dvm) {
        state_dir.forget_kept();
    }
    place.measure(&options, &settings)?;
    state_dir.try_write_inventory(&place.inventory);

    let found = step_files::known(state_dir.path())?;
    let told = state_dir.ancestors().filter(|known| known.dvm == place.identity.dvm).unwrap_or_default();
    let Ancestors { above, standbys, epoch, .. } = told;
    let epoch = epoch.unwrap_or_default();
    let known = Known { above, standbys, epoch: epoch.number };
    let own = place.membership.own();
    let link = &settings.link;
    let way_up = options.join.clone().zip(own.clone());
    let way_up = way_up.map(|(join, own)| WayUp::new(join, own, link.dial_deadline, link.silence, &known));
    let tell = door.clone();
    let tell = move |input| tell.send(Event::Input(input));
    let Jobs { log_max, logs_max, .. } = settings.jobs;
    let logs = Arc::new(JobLogs::new(state_dir.jobs(), log_max, settings.users.log, logs_max, tell));
    let daemon = Daemon { options, settings, state_dir, place, clock, door, way_up, known, logs };

    let start = daemon.start(&found, epoch)?;
    let journal = Journal::open(state_dir.path())?;
    let (epoch, standbys) = (files::epoch_of(&journal.1), epochs::standbys_of(&journal.1));
    if daemon.is_head() {
        give_way(state_dir, own.clone(), &journal.1, epoch.number).await?;
    }
    let core = Rsd::new(clock.now(), start, tuning(&daemon.settings));
    let leases = daemon.leases(&epoch).await?;
    let (ready, placed) = oneshot::channel();
    let (tell_epoch, epochs) = watch::channel(daemon.known.epoch);
    let shell = daemon.shell(core, port, ready, journal, (leases.copies.clone(), tell_epoch));
    let refusals = refusals::logged();
    let tcp = daemon.place.bound.and(own).map(|own| TcpDoor { listeners, own, refusals: refusals.clone() });
    let admission = Admission { serves_all: daemon.place.callers.serves_all, connections };
    let connections = transport::accept(unix, tcp, admission);
    let asks = Arc::new(RwLock::new(()));
    let (shared, metrics_at) = daemon.shared(refusals).await?;
    let services = daemon.services(shared, leases, epoch, standbys, Arc::clone(&asks))?;
    let (stop_serving, stopped) = oneshot::channel();
    let server = tokio::spawn(services.serve(connections, daemon.settings.link.silence, async {
        // A message and a dropped sender both mean stop.
        let _ = stopped.await;
    }));
    let failure = daemon.begin(found, epochs)?;
    let work = tokio::spawn(shell.run(inbox));
    let ended = daemon.run(work, placed, failure, sockets, metrics_at).await?;
    // A standby that takes over after a request here answers soon.
    let _ = tokio::time::timeout(PROMOTION, asks.write()).await;
    // The server ends when its connections do, so the last answers are still sent.
    let _ = stop_serving.send(());
    let _ = tokio::time::timeout(FAREWELL, server).await;
    Ok(ended?)
}

/// The daemon's entry in the runtime directory.
fn entry(options: &StartOptions) -> String {
    match options.private {
        // The dot hides it from the search for daemons.
        true => format!(".private-{}", std::process::id()),
        false => name_of(options).to_owned(),
    }
}

impl Daemon<'_> {
    fn is_head(&self) -> bool {
        self.options.join.is_none()
    }

    /// What the state machine begins with.
    fn start(&self, found: &[step_files::KnownStep], epoch: HeadEpoch) -> anyhow::Result<Start> {
        let Daemon { options, place, known, .. } = self;
        let steps = found.iter().filter_map(|step| {
            let map = step.launch.map.clone().and_then(|map| TaskMap::try_from(map).ok())?;
            let (job, group, owner) = (step.launch.job, step.launch.group.clone(), step.launch.owner.clone());
            Some(KnownStep { job, map, group, owner })
        });
        let Identity { next_job, next_node, .. } = place.identity;
        Ok(Start {
            me: place.introduction(),
            dvm: place.identity.dvm.clone(),
            head_addr: options.join.clone(),
            above: known.above.clone(),
            epoch,
            standbys: known.standbys.clone(),
            connect_back: place.bound.filter(|_| !self.is_head()).map_or(0, |at| at.port()),
            memory: Memory { next_job: next_job.max(1), next_node: next_node.max(1) },
            steps: steps.collect(),
            serves_all: place.callers.serves_all,
            resources: declared("jobs.resources", &self.settings.jobs.resources)?,
        })
    }

    async fn leases(&self, epoch: &HeadEpoch) -> anyhow::Result<Leases> {
        let Daemon { options, settings, place, door, logs, state_dir, .. } = self;
        Leases::open(options, settings, place, epoch, (door, logs), state_dir).await
    }

    fn shell(
        &self,
        core: Rsd,
        port: TcpPort,
        ready: oneshot::Sender<Placed>,
        journal: (Journal, Vec<Kept>),
        copies: (Copies, watch::Sender<u64>),
    ) -> Shell {
        let (state_dir, identity, logs) =
            (Arc::clone(self.state_dir), self.place.identity.clone(), Arc::clone(&self.logs));
        let (door, way_up) = (self.door.clone(), self.way_up.clone());
        Shell::new(core, self.clock, state_dir, identity, logs, door, way_up, port, ready, journal, copies)
    }

    /// What the services share, and where the daemon's metrics are served.
    async fn shared(&self, refusals: Refusals) -> anyhow::Result<(Shared, Option<SocketAddr>)> {
        let (listen, users) = (&*self.place.listen, &self.settings.users);
        let arguments = (!self.options.private).then(|| upgrade::arguments((!listen.is_empty()).then_some(listen)));
        let state_dir = self.state_dir.path().display().to_string();
        let about = About { state_dir, started_ms: unix_ms(), arguments };
        let meter = Meter::new(self.door.clone(), self.state_dir, about.started_ms);
        let mut metrics_at = None;
        if let Some(at) = self.options.metrics {
            let port = MetricsPort::open(at).await?;
            metrics_at = port.address().ok();
            tokio::spawn(port.serve(meter.clone()));
        }
        let (followers, turns) = (Shares::new(users.followers), Turns(Shares::new(users.connections)));
        let (door, callers) = (self.door.clone(), self.place.callers);
        Ok((Shared { door, callers, followers, turns, about, refusals, meter }, metrics_at))
    }

    /// Makes the services, and begins to keep what makes this daemon the head, or able to become it.
    fn services(
        &self,
        shared: Shared,
        leases: Leases,
        epoch: HeadEpoch,
        standbys: Vec<KeptStandby>,
        asks: Arc<RwLock<()>>,
    ) -> anyhow::Result<Services> {
        let Daemon { options, settings, place, door, way_up, logs, state_dir, .. } = self;
        let Leases { copies, keeper, of_standby } = leases;
        if let Some(keeper) = keeper {
            tokio::spawn(keeper.keep(door.clone()));
        }
        let promotion = standby(options, state_dir, place, way_up.as_ref(), of_standby)?;
        if let (true, Some(own)) = (self.is_head(), place.membership.own()) {
            tokio::spawn(epochs::watch(own, door.clone(), Callers::daemon(), epoch.number));
        }
        if let Some(way_up) = way_up {
            return Ok(shared.of_node(place, way_up.clone(), promotion));
        }
        let heads = HeadHeads {
            door: door.clone(),
            callers: place.callers,
            copies,
            logs: Arc::clone(logs),
            epoch,
            name: place.identity.name.clone(),
            dvm: place.identity.dvm.clone(),
            listen: place.join_address.clone(),
            keys: place.membership.own().zip(place.membership.authority().map(|authority| authority.to_wire())),
            dial_deadline: settings.link.dial_deadline,
            known: Arc::new(Mutex::new(standbys)),
            asks,
        };
        Ok(shared.of_head(place, Arc::clone(logs), heads))
    }

    /// Watches the steps that have outlived the daemon before, connects to the daemon above, and listens to signals. The returned receiver
    /// gets the reason if the daemon cannot join.
    fn begin(
        &self,
        found: Vec<step_files::KnownStep>,
        epochs: watch::Receiver<u64>,
    ) -> anyhow::Result<oneshot::Receiver<String>> {
        let Daemon { options, settings, place, door, way_up, state_dir, .. } = self;
        for step in found {
            match step.alive {
                true => steps::watch(state_dir.path(), &step.launch, door.clone()),
                false => steps::report_ended_while_down(&step.launch, door.clone()),
            }
        }
        let (failed, failure) = oneshot::channel();
        if let (Some(join), Some(own)) = (options.join.clone(), place.membership.own()) {
            let limits = Limits { dial_deadline: settings.link.dial_deadline, retry_max: settings.link.retry_max };
            let seed = u64::from_ne_bytes(random().context("read /dev/urandom")?);
            let uplink = Uplink::new(self.clock.now(), join, self.known.clone(), limits, seed);
            tokio::spawn(uplink::keep(uplink, self.clock, own, settings.link.silence, door.clone(), epochs, failed));
        }
        place.membership.spawn_renewal(way_up.clone(), state_dir);
        watch_signals(door.clone(), options.private)?;
        Ok(failure)
    }

    /// Announces the daemon once it has its place, and waits for its end.
    async fn run(
        &self,
        mut work: JoinHandle<Result<Option<Successor>, Failed>>,
        placed: oneshot::Receiver<Placed>,
        failure: oneshot::Receiver<String>,
        sockets: Sockets,
        metrics_at: Option<SocketAddr>,
    ) -> anyhow::Result<Result<Option<Successor>, Failed>> {
        let Daemon { options, place, door, state_dir, .. } = self;
        let Placed { identity, reached } = tokio::select! {
            placed = placed => placed.context("the daemon stopped before it was ready")?,
            Ok(why) = failure => bail!(Failed::new(exit::UNREACHABLE, why)),
        };
        let (inventory, listen) = (place.inventory.clone(), &*place.listen);
        let (reachable, out_of_reach) = reach::reachability(&inventory.addresses, reached.as_deref(), listen);
        let metrics_line = metrics_at.map(|at| format!("rsd: metrics at: http://{at}/metrics\n"));
        // A head without a lease answers nothing.
        let join_line = join_line(door, &place.membership, &place.join_address);
        let join_line = tokio::time::timeout(JOIN_LINE, join_line).await.ok().flatten();
        let more = [out_of_reach, metrics_line, join_line, full_disk(state_dir)];
        let more: String = more.into_iter().flatten().collect();
        let mut presence = announce(options, state_dir, sockets, &identity, (listen, &reachable), inventory, &more)?;
        let mut ended = Ok(None);
        tokio::select! {
            over = &mut work => ended = over.context("the daemon's loop")?,
            () = presence.keep() => {}
        }
        match &ended {
            Ok(Some(Successor { program, .. })) => {
                info!(program = %program.display(), "another program takes this daemon's place");
                notify("RELOADING=1");
            }
            Ok(None) | Err(_) => {
                info!("stopping");
                notify("STOPPING=1");
            }
        }
        Ok(ended)
    }
}

/// Stops the daemon on TERM and INT, and a private daemon also at the end of its standard input. Steps keep running, except
/// those of a private daemon.
fn watch_signals(door: Door, private: bool) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let leave = door.clone();
    tokio::spawn(async move {
        loop {
            let (name, leaving) = tokio::select! {
                _ = terminate.recv() => ("TERM", true),
                _ = interrupt.recv() => ("INT", !private),
                _ = hangup.recv() => ("HUP", false),
            };
            info!(signal = name, "signal");
            match (leaving, private) {
                (true, false) => leave.send(Event::Terminate),
                (true, true) => drop(leave.call(Callers::daemon(), Call::Shutdown { force: true }).await),
                (false, _) => {}
            }
        }
    });
    if private {
        tokio::spawn(async move {
            let mut stdin = tokio::io::stdin();
            while stdin.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
            door.call(Callers::daemon(), Call::Shutdown { force: true }).await;
        });
    }
    Ok(())
}
