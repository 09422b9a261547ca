//! A daemon from its settings to its end: the state directory, the sockets, the state machine and its shell.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use rsd_config::settings::{Jobs, Settings};
use rsd_core::rsd::{Call, KnownStep, Memory, Start};
use rsd_core::taskmap::TaskMap;
use rsd_core::uplink::{Known, Limits};
use rsd_core::{Rsd, Uplink};
use rsd_proto::resources;
use rsd_proto::services::access_server::{Access, AccessServer};
use rsd_proto::services::dvm_server::DvmServer;
use rsd_proto::services::heads_server::HeadsServer;
use rsd_proto::services::link_server::LinkServer;
use rsd_proto::services::observe_server::ObserveServer;
use rsd_proto::services::pmi_server::PmiServer;
use rsd_proto::transport::parts::SENT_BYTES_MAX;
use rsd_proto::transport::token::Token;
use rsd_proto::transport::{self, Admission, MESSAGE_BYTES_MAX, Own, Refusals, Services, Shares, TcpDoor, exit};
use rsd_proto::v1::{self as wire, Inventory, NewTokenRequest, NodeInfo, Resource};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{RwLock, oneshot, watch};
use tracing::{info, warn};

use super::name_of;
use crate::clock::{Clock, since_boot, unix_ms};
use crate::disk::job_log::JobLogs;
use crate::disk::journal::Journal;
use crate::disk::state_dir::{Identity, StateDir};
use crate::disk::step_files;
use crate::door::{Door, Event};
use crate::failed::Failed;
use crate::inventory;
use crate::metrics::Meter;
use crate::metrics::port::MetricsPort;
use crate::network;
use crate::options::{DAEMONIZED, StartOptions, TERMINAL};
use crate::presence::{Presence, Sockets};
use crate::random::random;
use crate::reach::{self, TcpPort};
use crate::secure::authority::Authority;
use crate::secure::membership::Membership;
use crate::secure::{enroll, refusals};
use crate::serve::About;
use crate::serve::access::{ForwardAccess, HeadAccess};
use crate::serve::callers::Callers;
use crate::serve::forward::{ForwardService, Turns};
use crate::serve::head::HeadService;
use crate::serve::heads::{HeadService as HeadHeads, NodeService as NodeHeads};
use crate::serve::link::{Limits as LinkLimits, LinkService};
use crate::serve::observe::ObserveService;
use crate::serve::pmi::PmiService;
use crate::settings::tuning;
use crate::shell::{Placed, Shell, replaced};
use crate::standby::copies::Copies;
use crate::standby::epochs;
use crate::standby::etcd::{HeadKey, Store};
use crate::standby::files::{self, Files};
use crate::standby::follow::{Following, Standby};
use crate::standby::lease::{self, Keeper, NoLease};
use crate::standby::promote::Promotion;
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
/// A disk with less than so much free is called full.
const FULL_DISK_BYTES: u64 = 128 << 10;
/// The largest request about tokens and certificates, which callers without a certificate may send.
const ACCESS_BYTES_MAX: usize = 4 << 10;

/// Runs a daemon until it has stopped, or until another program takes its place: returns that.
pub(super) async fn serve(
    options: StartOptions,
    token: Option<Token>,
    settings: Settings,
    state_dir: &Arc<StateDir>,
) -> anyhow::Result<Option<Successor>> {
    let before = state_dir.identity();
    let mut identity = identity(&options, before.clone())?;
    // What is wrong with these shows before the token, which may serve only once, is used.
    let network = reach::wishes(&options, &settings.network);
    let (port, listeners, bound) = TcpPort::open(&options, &network)?;
    let addresses = reach::addresses(&options, &network, bound)?;
    let membership = membership(&options, token.as_ref(), &settings, &mut identity, state_dir).await?;
    // A daemon that does not need its port closes it once it has joined.
    let listen = bound.filter(|_| options.listen.is_some()).map(|at| at.to_string()).unwrap_or_default();
    let callers = Callers { serves_all: membership.serves_all(|| head_serves_all(&options)) };
    let clock = Clock::start();
    let (door, inbox) = Door::new();
    let entry = match options.private {
        // The dot hides it from the search for daemons.
        true => format!(".private-{}", std::process::id()),
        false => name_of(&options).to_owned(),
    };
    let connections = Shares::new(settings.users.connections);
    let (sockets, unix) = Sockets::open(state_dir, entry, callers, connections.clone(), &door)?;
    if before.is_none_or(|before| before.dvm != identity.dvm) {
        state_dir.forget_kept();
    }
    let mut inventory = inventory::measure(options.slots);
    inventory.addresses = addresses;
    inventory.machine = network::machine();
    inventory.port_range = network.port_range.to_string();
    let own: Vec<String> =
        if options.resource.is_empty() { settings.node.resources.clone() } else { options.resource.clone() };
    inventory.resources = declared("node.resources or --resource", &own)?;
    info!(slots = inventory.slots, reason = inventory.slots_reason, cores = inventory.cores, "measured this node");
    state_dir.try_write_inventory(&inventory);
    let name = options.name.clone().unwrap_or_else(|| short(&inventory.hostname));
    if identity.name.is_empty() || options.name.is_some() {
        identity.name = name;
    }

    let found = step_files::known(state_dir.path())?;
    let steps = found.iter().filter_map(|step| {
        let map = step.launch.map.clone().and_then(|map| TaskMap::try_from(map).ok())?;
        Some(KnownStep {
            job: step.launch.job,
            map,
            group: step.launch.group.clone(),
            owner: step.launch.owner.clone(),
        })
    });
    let told = state_dir.ancestors().filter(|known| known.dvm == identity.dvm).unwrap_or_default();
    let epoch = told.epoch.clone().unwrap_or_default();
    let known = Known { above: told.above, standbys: told.standbys, epoch: epoch.number };
    let way_up = options.join.clone().zip(membership.own());
    let way_up =
        way_up.map(|(join, own)| WayUp::new(join, own, settings.link.dial_deadline, settings.link.silence, &known));
    let start = Start {
        me: NodeInfo {
            node: identity.node,
            name: identity.name.clone(),
            inventory: Some(inventory.clone()),
            listen: listen.clone(),
            version: rsd_proto::VERSION.into(),
            pid: std::process::id(),
            may_listen: bound.is_some(),
            ..Default::default()
        },
        dvm: identity.dvm.clone(),
        head_addr: options.join.clone(),
        above: known.above.clone(),
        epoch,
        standbys: known.standbys.clone(),
        connect_back: bound.filter(|_| options.join.is_some()).map_or(0, |at| at.port()),
        memory: Memory { next_job: identity.next_job.max(1), next_node: identity.next_node.max(1) },
        steps: steps.collect(),
        serves_all: callers.serves_all,
        resources: declared("jobs.resources", &settings.jobs.resources)?,
    };
    let journal = Journal::open(state_dir.path())?;
    let own_epoch = files::epoch_of(&journal.1);
    let standbys = epochs::standbys_of(&journal.1);
    if options.join.is_none() {
        give_way(state_dir, membership.own(), &journal.1, own_epoch.number).await?;
    }
    let core = Rsd::new(clock.now(), start, tuning(&settings));
    let tell = door.clone();
    let tell = move |input| tell.send(Event::Input(input));
    let Jobs { log_max, logs_max, .. } = &settings.jobs;
    let (log_max, logs_max) = (*log_max, *logs_max);
    let logs = Arc::new(JobLogs::new(state_dir.jobs(), log_max, settings.users.log, logs_max, tell));
    let (ready, placed) = oneshot::channel();
    let is_listening_head = options.join.is_none() && membership.own().is_some();
    let store = match is_listening_head || options.standby.is_some() {
        true => {
            let store = Store::of(&settings.head, &identity.dvm);
            store.map_err(|error| Failed::new(exit::USAGE, format!("{error:#}")))?
        }
        false => None, // it needs none of the files that the settings name
    };
    let lasts = store.as_ref().filter(|_| is_listening_head).map(|store| store.lasts);
    let copies = Copies::new(Arc::clone(&logs), door.clone(), settings.standby.patience, lasts);
    let (store_of_head, store_of_standby) = if is_listening_head { (store, None) } else { (None, store) };
    let at = bound.map(|at| reach::join_address(at, &network)).unwrap_or_default();
    let keeper = match (store_of_head, membership.own()) {
        (Some(store), Some(own)) => {
            let head = HeadKey { epoch: own_epoch.number, name: identity.name.clone(), listen: at.clone() };
            let keeper = Keeper { store, copies: copies.clone(), own, head, epoch: own_epoch.clone(), lease: None };
            Some(first_lease(keeper, state_dir).await?)
        }
        _ => None,
    };
    let (tell_epoch, epochs) = watch::channel(known.epoch);
    let (identity_name, identity_dvm) = (identity.name.clone(), identity.dvm.clone());
    let shell = Shell::new(
        core,
        clock,
        Arc::clone(state_dir),
        identity,
        Arc::clone(&logs),
        door.clone(),
        way_up.clone(),
        port,
        ready,
        journal,
        (copies.clone(), tell_epoch),
    );

    let (stop_serving, stopped) = oneshot::channel();
    let arguments = (!options.private).then(|| upgrade::arguments((!listen.is_empty()).then_some(&*listen)));
    let about = About { state_dir: state_dir.path().display().to_string(), started_ms: unix_ms(), arguments };
    let refusals = refusals::logged();
    let tcp = bound.and(membership.own()).map(|own| TcpDoor { listeners, own, refusals: refusals.clone() });
    let admission = Admission { serves_all: callers.serves_all, connections };
    let connections = transport::accept(unix, tcp, admission);
    let followers = Shares::new(settings.users.followers);
    let turns = Turns(Shares::new(settings.users.connections));
    let machine = inventory.machine.clone();
    let meter = Meter::new(door.clone(), state_dir, about.started_ms);
    let metrics_port = match options.metrics {
        Some(at) => Some(MetricsPort::open(at).await?),
        None => None,
    };
    let metrics_at = metrics_port.as_ref().and_then(|port| port.address().ok());
    let observe = ObserveService {
        door: door.clone(),
        callers,
        way_up: way_up.clone(),
        followers: followers.clone(),
        turns: turns.clone(),
        meter: meter.clone(),
    };
    metrics_port.map(|port| tokio::spawn(port.serve(meter)));
    let asks = Arc::new(RwLock::new(()));
    let of_head = HeadHeads {
        door: door.clone(),
        callers,
        copies,
        logs: Arc::clone(&logs),
        epoch: own_epoch.clone(),
        name: identity_name.clone(),
        dvm: identity_dvm,
        listen: at.clone(),
        keys: membership.own().zip(membership.authority().map(|authority| authority.to_wire())),
        dial_deadline: settings.link.dial_deadline,
        known: Arc::new(Mutex::new(standbys)),
        asks: Arc::clone(&asks),
    };
    if let Some(keeper) = keeper {
        tokio::spawn(keeper.keep(door.clone()));
    }
    let of_standby = (identity_name.as_str(), bound.map(|at| at.to_string()).unwrap_or_default());
    let promotion = standby(&options, state_dir, &membership, way_up.as_ref(), of_standby, store_of_standby)?;
    if let (None, Some(own)) = (&options.join, membership.own()) {
        tokio::spawn(epochs::watch(own, door.clone(), Callers::daemon(), own_epoch.number));
    }
    let turns_of_heads = turns.clone();
    let services =
        services(&door, callers, followers, turns, logs, about, &membership, way_up.clone(), &at, machine, refusals)
            .with(observed(observe));
    let services = match &way_up {
        Some(way_up) => services.with(HeadsServer::new(NodeHeads {
            door: door.clone(),
            way_up: way_up.clone(),
            callers,
            turns: turns_of_heads,
            promotion: promotion.clone(),
        })),
        None => services.with(HeadsServer::new(of_head)),
    };
    let server = tokio::spawn(services.serve(connections, settings.link.silence, async {
        // A message and a dropped sender both mean stop.
        let _ = stopped.await;
    }));
    for step in found {
        match step.alive {
            true => steps::watch(state_dir.path(), &step.launch, door.clone()),
            false => steps::report_ended_while_down(&step.launch, door.clone()),
        }
    }
    let (failed, failure) = oneshot::channel();
    if let (Some(join), Some(own)) = (options.join.clone(), membership.own()) {
        let limits = Limits { dial_deadline: settings.link.dial_deadline, retry_max: settings.link.retry_max };
        let seed = u64::from_ne_bytes(random().context("read /dev/urandom")?);
        let uplink = Uplink::new(clock.now(), join, known, limits, seed);
        tokio::spawn(uplink::keep(uplink, clock, own, settings.link.silence, door.clone(), epochs, failed));
    }
    membership.spawn_renewal(way_up, state_dir);
    watch_signals(door.clone(), options.private)?;
    let mut work = tokio::spawn(shell.run(inbox));

    let Placed { identity, reached } = tokio::select! {
        placed = placed => placed.context("the daemon stopped before it was ready")?,
        Ok(why) = failure => bail!(Failed::new(exit::UNREACHABLE, why)),
    };
    let (reachable, out_of_reach) = reach::reachability(&inventory.addresses, reached.as_deref(), &listen);
    let metrics_line = metrics_at.map(|at| format!("rsd: metrics at: http://{at}/metrics\n"));
    // A head without a lease answers nothing.
    let join_line = tokio::time::timeout(JOIN_LINE, join_line(&door, &membership, &at)).await.ok().flatten();
    let more = [out_of_reach, metrics_line, join_line, full_disk(state_dir)];
    let more: String = more.into_iter().flatten().collect();
    let mut ended = Ok(None);
    let mut presence = announce(&options, state_dir, sockets, &identity, (&listen, &reachable), inventory, &more)?;
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
    drop(presence);
    // A standby that takes over after a request here answers soon.
    let _ = tokio::time::timeout(PROMOTION, asks.write()).await;
    // The server ends when its connections do, so the last answers are still sent.
    let _ = stop_serving.send(());
    let _ = tokio::time::timeout(FAREWELL, server).await;
    Ok(ended?)
}

/// Refuses to be the head again if another machine has become the head meanwhile.
async fn give_way(state_dir: &StateDir, own: Option<Own>, records: &[wire::Kept], number: u64) -> anyhow::Result<()> {
    if let Some(later) = state_dir.later_epoch().filter(|later| later.number > number) {
        bail!(replaced(later.number));
    }
    let Some(own) = own else { return Ok(()) };
    if let Some(later) = epochs::later(&own, &epochs::standbys_of(records), number).await {
        state_dir.write_later_epoch(&later)?;
        bail!(replaced(later.number));
    }
    Ok(())
}

/// Takes the head's lease in etcd. Where etcd cannot be reached yet, the head waits for it while it runs.
async fn first_lease(mut keeper: Keeper, state_dir: &StateDir) -> anyhow::Result<Keeper> {
    let place = keeper.store.place();
    let deadline = Instant::now() + lease::FIRST;
    let why = loop {
        match keeper.take().await {
            Ok(()) => return Ok(keeper),
            Err(NoLease::Later(later)) => {
                state_dir.write_later_epoch(&later)?;
                bail!(replaced(later.number));
            }
            Err(NoLease::Refused(why)) => {
                bail!(Failed::new(exit::USAGE, format!("cannot use {place} in etcd: {why} (see rsctl help standbys)")));
            }
            Err(NoLease::NotYet(_)) if Instant::now() < deadline => tokio::time::sleep(lease::AGAIN).await,
            Err(NoLease::NotYet(why)) => break why,
        }
    };
    warn!(why, "this head has no lease in etcd, and decides nothing until it has");
    keeper.copies.set_why(&why);
    Ok(keeper)
}

/// Returns how this daemon becomes the head, if it stands by; begins to follow the head, or starts it if it is here.
fn standby(
    options: &StartOptions,
    state_dir: &StateDir,
    membership: &Membership,
    way_up: Option<&WayUp>,
    (name, daemon_listen): (&str, String),
    store: Option<Store>,
) -> anyhow::Result<Option<Arc<Promotion>>> {
    let (Some(listen), Some(way_up), Membership::Node { own, credentials }) = (&options.standby, way_up, membership)
    else {
        return Ok(None);
    };
    let name = format!("{name}-head");
    let path = state_dir.path().to_owned();
    let files = Files::open(&path, &credentials.dvm, &name)?;
    let is_promoted = files::is_promoted(&path);
    // The port of a head that was promoted is in use already.
    let (listen, reserved) = match is_promoted {
        true => (files.listen().unwrap_or_else(|| listen.clone()), None),
        false => {
            let (at, reserved) = reach::reserve(listen)?;
            files.write_listen(&at)?;
            (at, Some(reserved))
        }
    };
    let standby = Arc::new(Standby {
        node: credentials.node.unwrap_or_default(),
        own: own.clone(),
        authority: credentials.authority.clone(),
        way_up: way_up.clone(),
        listen,
        daemon_listen,
        state_dir: path,
        files: Mutex::new(files),
        following: Mutex::new(Following { heard: since_boot(), ..Following::default() }),
    });
    let has_etcd = store.is_some();
    let promotion = Arc::new(Promotion {
        standby: Arc::clone(&standby),
        name,
        serves_all: credentials.serves_all,
        reserved: Mutex::new(reserved),
        config: options.config.clone(),
        turn: tokio::sync::Mutex::new(store),
    });
    if is_promoted {
        promotion.start_again();
    } else {
        standby.start()?;
        if has_etcd {
            tokio::spawn(Arc::clone(&promotion).watch());
        }
    }
    Ok(Some(promotion))
}

/// Whether a head serves all users of its machines: root's does, unless root wants it for itself.
fn head_serves_all(options: &StartOptions) -> bool {
    geteuid().is_root() && !options.single_user && !options.private
}

/// Returns the identity of this daemon: the saved identity, unless the daemon's role has changed.
fn identity(options: &StartOptions, before: Option<Identity>) -> anyhow::Result<Identity> {
    let is_head = options.join.is_none();
    match before {
        Some(before) if (before.node == 0) == is_head => Ok(before),
        _ if is_head => Ok(Identity { dvm: random_id()?, next_job: 1, next_node: 1, ..Default::default() }),
        _ => Ok(Identity::default()),
    }
}

fn random_id() -> anyhow::Result<String> {
    let bytes = random().context("read /dev/urandom")?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn short(hostname: &str) -> String {
    hostname.split('.').next().filter(|name| !name.is_empty()).unwrap_or("localhost").to_owned()
}

/// Returns what this daemon is in its DVM. A joining daemon gets its certificate here, and with it its node id.
async fn membership(
    options: &StartOptions,
    token: Option<&Token>,
    settings: &Settings,
    identity: &mut Identity,
    state_dir: &StateDir,
) -> anyhow::Result<Membership> {
    match &options.join {
        Some(join) => {
            let deadline = settings.link.dial_deadline;
            let credentials = enroll::credentials(join, token, state_dir, deadline).await?;
            enroll::check_head(join, &credentials, options.trust_user)?;
            let name = if identity.dvm == credentials.dvm { identity.name.clone() } else { String::new() };
            let node = credentials.node.unwrap_or_default();
            *identity = Identity { dvm: credentials.dvm.clone(), node, name, ..Identity::default() };
            Membership::of_node(credentials)
        }
        None if options.listen.is_some() => Membership::of_head(Authority::open(state_dir, &identity.dvm, unix_ms())?),
        None => Ok(Membership::Alone),
    }
}

#[expect(clippy::too_many_arguments, reason = "called once, with everything that the services need")]
fn services(
    door: &Door,
    callers: Callers,
    followers: Shares,
    turns: Turns,
    logs: Arc<JobLogs>,
    about: About,
    membership: &Membership,
    way_up: Option<WayUp>,
    at: &str,
    machine: String,
    refusals: Refusals,
) -> Services {
    let door = door.clone();
    let link = LinkServer::new(LinkService {
        door: door.clone(),
        own: membership.own(),
        machine,
        limits: LinkLimits::default(),
    })
    .max_decoding_message_size(SENT_BYTES_MAX)
    .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let pmi = PmiServer::new(PmiService { door: door.clone(), callers });
    let services = Services::default().reporting_to(refusals.clone()).with(link).with(pmi);
    match way_up {
        Some(way_up) => {
            let access = ForwardAccess::new(way_up.clone(), callers, turns.clone());
            let dvm = DvmServer::new(ForwardService { door, about, way_up, callers, turns })
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            services.with(dvm).with(AccessServer::new(access).max_decoding_message_size(ACCESS_BYTES_MAX))
        }
        None => {
            let authority = membership.authority();
            let access = HeadAccess { door: door.clone(), authority, listen: at.to_owned(), refusals, callers };
            let dvm = DvmServer::new(HeadService {
                door,
                logs,
                about,
                callers,
                names: Arc::default(),
                followers,
                owners: Arc::default(),
            })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
            services.with(dvm).with(AccessServer::new(access).max_decoding_message_size(ACCESS_BYTES_MAX))
        }
    }
}

/// Returns the line that says that the disk of the state directory is full; None if it is not.
fn full_disk(state_dir: &StateDir) -> Option<String> {
    let path = state_dir.path();
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    let free_bytes = stat.blocks_available().saturating_mul(stat.fragment_size());
    let text = || {
        let (path, kib) = (path.display(), free_bytes >> 10);
        format!(
            "rsd: the disk of {path} is full ({kib} KiB free): jobs may not start, and their output is not kept: make room\n"
        )
    };
    (free_bytes < FULL_DISK_BYTES).then(text)
}

fn observed(observe: ObserveService) -> ObserveServer<ObserveService> {
    ObserveServer::new(observe)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the line that says how other daemons join; None if none can. It has a token only for a terminal: any other output may be a
/// log, which others can read.
async fn join_line(door: &Door, membership: &Membership, at: &str) -> Option<String> {
    let (authority, listen) = (membership.authority()?, at.to_owned());
    let daemonized = std::env::var_os(DAEMONIZED);
    let on_terminal = daemonized.map_or_else(|| std::io::stdout().is_terminal(), |from| from == TERMINAL);
    if !on_terminal {
        return Some(format!("rsd: join with: rsd start --join {listen} --token TOKEN (rsd token new prints one)\n"));
    }
    let (door, refusals) = (door.clone(), Refusals::default());
    // The request is the daemon's own, as if it served only its own user.
    let callers = Callers { serves_all: false };
    let access = HeadAccess { door, authority: Some(authority), listen, refusals, callers };
    let reply = access.new_token(tonic::Request::new(NewTokenRequest::default())).await.ok()?.into_inner();
    Some(format!("rsd: join with: rsd start --join {} --token {}\n", reply.listen, reply.token))
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

/// Announces the daemon: to rsctl, to the service manager, and on standard output, with `more` lines.
fn announce(
    options: &StartOptions,
    state_dir: &StateDir,
    sockets: Sockets,
    identity: &Identity,
    (listen, reachable): (&str, &str),
    inventory: Inventory,
    more: &str,
) -> anyhow::Result<Presence> {
    let serves_all = sockets.serves_all();
    let record = serde_json::json!({
        "name": name_of(options),
        "node_name": identity.name,
        "dvm": identity.dvm,
        "node": identity.node,
        "head": options.join.is_none(),
        "pid": std::process::id(),
        "state_dir": state_dir.path(),
        "serves_all": serves_all,
        "listen": listen,
        "version": rsd_proto::VERSION,
        "protocol": rsd_proto::PROTOCOL,
    });
    let (slots, reason) = (inventory.slots, inventory.slots_reason.clone());
    let presence = Presence::show(sockets, record, inventory)?;
    upgrade::arrived();
    notify("READY=1");
    let role = if options.join.is_none() { "head" } else { "node" };
    let for_all = if serves_all { ", for all users" } else { "" };
    let listening = if listen.is_empty() { String::new() } else { format!(", listening on {listen}") };
    let line = format!(
        "rsd: ready: {} ({role} {} of DVM {}{for_all}), {} slots ({}), pid {}{listening}{reachable}, state in {}\n{more}",
        identity.name,
        identity.node,
        identity.dvm,
        slots,
        reason,
        std::process::id(),
        state_dir.path().display(),
    );
    let mut stdout = std::io::stdout();
    if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        warn!("cannot write the ready line");
    }
    if std::env::var_os(DAEMONIZED).is_some() {
        let null = OpenOptions::new().write(true).open("/dev/null")?;
        nix::unistd::dup2_stdout(null.as_fd()).context("redirect standard output to /dev/null")?;
    }
    Ok(presence)
}

/// Notifies systemd, if it started this daemon.
fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Parses the resources that a user declares.
pub(super) fn declared(wherefrom: &str, texts: &[String]) -> Result<Vec<Resource>, Failed> {
    let found = resources::declared(texts).map_err(|why| Failed::new(exit::USAGE, format!("{wherefrom}: {why}")))?;
    Ok(found.into_iter().map(|(name, amount)| Resource { name, amount }).collect())
}
