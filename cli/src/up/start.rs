//! `rsctl up`: the head first, then all nodes at the same time.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rsd_proto::transport::exit;
use rsd_ssh::{Here, Network};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::daemon::{self, NotStarted, Running, Start, Stop, Stopped, Token};
use super::head::{self, Head, NoHead, Plan, search, usable};
use super::hold::{self, Ports};
use super::network;
use super::place::{Place, Why};
use super::push::Programs;
use super::record::{HostRecord, NodeRecord, Record};
use super::report::{Board, Phase, Verdict};
use super::targets::{self, Host};
use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::interrupts::Interrupts;
use crate::options::up::Up;
use crate::print::say;
use crate::private;

/// How long a node that is ready may take to say that it is connected.
const CONNECTED: Duration = Duration::from_secs(10);
const INTERRUPTED: &str = "interrupted: no node was started";

/// What the tasks of all hosts share.
struct Work {
    up: Up,
    network: Network,
    programs: Option<Programs>,
    head: Head,
    token: Option<Token>,
    /// With `--via-ssh`: the port of each host that leads to the head.
    ports: Option<Ports>,
    board: Board,
    /// For each node, where it was started, or may have been when its task was ended.
    begun: Mutex<Vec<Option<Begun>>>,
    /// Whether the user has interrupted it.
    interrupted: watch::Sender<bool>,
}

/// What is on a host before a node is started there.
struct Looked {
    place: Arc<Place>,
    rsd: String,
    /// Where it may reach the head.
    addresses: Vec<String>,
    running: Option<Running>,
}

/// A daemon that was started.
#[derive(Clone)]
struct Begun {
    place: Arc<Place>,
    rsd: String,
    /// Whether nothing says how `rsd start` has ended: it may become a daemon later.
    may_follow: bool,
}

/// Starts a DVM on hosts, or adds hosts to one.
pub(crate) async fn up(dvm: &Dvm, up: Up, json: bool) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let here = Here::now();
    let plan = Plan::new(&up, dvm, targets::hosts(&up)?, &here.host)?;
    if up.via_ssh {
        hold::check(&plan.daemon, plan.nodes.len())?;
    }
    // Before anything is started: without a record, `down` would not find it.
    let before = Record::prepare(&plan.daemon)?;
    let network = network(&up.ssh)?;
    let programs = if up.push { Some(Programs::read(&private::program())?) } else { None };
    let head_name = plan.host.as_ref().map_or("here", |host| host.name.as_str());
    let rows = [(head_name.to_owned(), "head")].into_iter();
    let rows = rows.chain(plan.nodes.iter().map(|host| (host.name.clone(), "node")));
    let board = Board::new(rows, json);

    let head = match head::ensure(&plan, &up, &network, programs.as_ref(), &board, 0, &mut interrupts).await {
        Ok(head) => head,
        Err(no_head) => {
            let (why, failure) = not_begun(no_head);
            board.end(0, Verdict::Failed(why));
            board.print(&plan.daemon, json)?;
            return Err(failure);
        }
    };
    ready(&board, 0, &head.running, if head.started { "ready" } else { "already up" });
    let record = record_of(&head, &plan, before);
    let (token, ports) = match interrupts.unless(prepare(&head, &plan, &up, &record)).await {
        Some(Ok(prepared)) => prepared,
        failed => {
            undo(&head, &record, up.ssh.timeout).await;
            return Err(failed.and_then(Result::err).unwrap_or_else(|| Failure::new(exit::CANCELLED, INTERRUPTED)));
        }
    };
    let begun = Mutex::new(vec![None; plan.nodes.len()]);
    let interrupted = watch::Sender::new(false);
    let work = Arc::new(Work { up, network, programs, head, token, ports, board, begun, interrupted });
    let was_interrupted = work.nodes(&plan.nodes, &mut interrupts).await;
    for notice in work.network.notices() {
        say(&notice);
    }
    if let Some(token) = &work.token {
        work.head.revoke(token, work.up.ssh.timeout).await;
    }
    work.conclude(&plan, record, was_interrupted, json).await
}

/// Returns the reason for the table, and the failure.
fn not_begun(no_head: NoHead) -> (Why, Failure) {
    match no_head {
        NoHead::Interrupted => (Why::new("interrupted"), Failure::new(exit::CANCELLED, INTERRUPTED)),
        NoHead::Failed(why) => {
            (why, Failure::new(exit::UNREACHABLE, "the head did not become ready; no node was started"))
        }
    }
}

/// Returns the record of the head and of the nodes that earlier calls have started.
fn record_of(head: &Head, plan: &Plan, before: Option<Record>) -> Record {
    let (name, dvm) = (head.daemon.clone(), head.running.dvm.clone());
    let mut record = Record { name, dvm, head: head.record(plan), nodes: Vec::new() };
    if let Some(before) = before.filter(|before| before.dvm == record.dvm) {
        record.head.started |= before.head.started;
        record.nodes = before.nodes;
    }
    record
}

/// Makes a token, writes down what is about to be started, and starts the process that holds connections.
async fn prepare(
    head: &Head,
    plan: &Plan,
    up: &Up,
    record: &Record,
) -> Result<(Option<Token>, Option<Ports>), Failure> {
    let token = match u32::try_from(plan.nodes.len()).unwrap_or(u32::MAX) {
        0 => None,
        uses => Some(head.token(uses, up.ssh.timeout).await?),
    };
    // Written before a node is started, so that `down` finds it if this process is killed.
    let mut planned = record.clone();
    let rsd = search(up).word();
    planned.nodes.extend(plan.nodes.iter().map(|host| node_record(host, &rsd)));
    planned.write()?;
    if !up.via_ssh {
        return Ok((token, None));
    }
    let hosts = plan.nodes.iter().map(HostRecord::from).collect();
    let ports = hold::start(&record.name, &head.own_address(), hosts, &up.ssh).await?;
    Ok((token, Some(ports)))
}

/// Stops a head that was started, and writes down what stays.
async fn undo(head: &Head, record: &Record, deadline: Duration) {
    let head_stays = record.head.started && !stop_head(head, deadline).await;
    let written = match record.nodes.is_empty() && !head_stays {
        true => record.remove(),
        false => record.write(),
    };
    if let Err(failure) = written {
        say(&failure.to_string());
    }
}

fn node_record(host: &Host, rsd: &str) -> NodeRecord {
    NodeRecord { host: HostRecord::from(host), rsd: rsd.to_owned(), daemon: host.daemon_name().map(str::to_owned) }
}

fn ready(board: &Board, at: usize, running: &Running, word: &'static str) {
    {
        let row = &mut board.rows()[at];
        row.node = Some(running.node);
        row.slots = Some(running.slots);
        row.version = running.version.clone();
    }
    board.end(at, Verdict::Done(word));
}

/// Stops the head if this call has started it. Returns whether it was stopped.
async fn stop_head(head: &Head, deadline: Duration) -> bool {
    if !head.started {
        return false;
    }
    let (name, dvm) = (Some(head.daemon.as_str()), Some(head.running.dvm.as_str()));
    let stop = Stop { rsd: &head.rsd, name, dvm, force: true, told: false };
    match daemon::stop(&head.place, &stop, deadline).await {
        Ok(_) => true,
        Err(error) => {
            say(&format!("the head is left running: {}", error.why().text));
            false
        }
    }
}

impl Work {
    /// Starts all nodes. Returns whether the user has interrupted it.
    async fn nodes(self: &Arc<Work>, hosts: &[Host], interrupts: &mut Interrupts) -> bool {
        let slots = Arc::new(Semaphore::new(self.up.ssh.parallel as usize));
        let mut tasks = JoinSet::new();
        for (at, host) in hosts.iter().cloned().enumerate() {
            let (work, slots) = (Arc::clone(self), Arc::clone(&slots));
            tasks.spawn(async move {
                let Ok(_slot) = slots.acquire().await else { return };
                match work.node(at, &host).await {
                    Ok(Some((running, word))) => ready(&work.board, at + 1, &running, word),
                    Ok(None) => {}
                    Err(why) => work.board.end(at + 1, Verdict::Failed(why)),
                }
            });
        }
        let all = self.board.shown(async { while tasks.join_next().await.is_some() {} }, || self.network.asking());
        tokio::pin!(all);
        if interrupts.unless(&mut all).await.is_some() {
            return false;
        }
        // Only daemons that are being started are waited for, because they cannot be stopped before they are ready. A second interrupt
        // ends this, too.
        self.interrupted.send_replace(true);
        self.board.note("interrupted: stopping what was started");
        interrupts.unless(all).await;
        true
    }

    /// Waits until the user interrupts.
    async fn until_interrupted(&self) {
        // The sender is in `self`, so the wait ends with the value.
        let _ = self.interrupted.subscribe().wait_for(|interrupted| *interrupted).await;
    }

    /// Starts one node. None: the user has interrupted it.
    async fn node(&self, at: usize, host: &Host) -> Result<Option<(Running, &'static str)>, Why> {
        let looked = tokio::select! {
            biased;
            () = self.until_interrupted() => return Ok(None),
            looked = self.look(at, host) => looked?,
        };
        let Looked { place, rsd, addresses, running } = looked;
        match running {
            Some(running) if running.dvm == self.head.running.dvm => return Ok(Some((running, "already up"))),
            Some(running) => {
                let name = host.daemon_name().unwrap_or("default");
                return Err(Why::new(format!(
                    "a daemon {name} runs there, node {} of another DVM ({}): stop it there (rsd stop --dvm {name})",
                    running.node, running.dvm
                )));
            }
            None => {}
        }
        self.board.phase(at + 1, Phase::Starting);
        self.begin(at, &place, &rsd);
        self.join(at, &place, &rsd, host, &addresses).await?;
        self.connected(&place, host).await
    }

    /// Connects to a host, and finds rsd there or copies it.
    async fn look(&self, at: usize, host: &Host) -> Result<Looked, Why> {
        let deadline = self.up.ssh.timeout;
        let phase = |phase| self.board.phase(at + 1, phase);
        phase(Phase::Connecting);
        let port = match self.ports.as_ref().map(|ports| &ports[at]) {
            Some(Err(why)) => return Err(Why::new(why)),
            Some(Ok(port)) => Some(*port),
            None => None,
        };
        let connection = self.network.connect(&host.wish()).await?;
        let is_direct = connection.is_direct();
        let place = Arc::new(Place::There(Box::new(connection)));
        phase(Phase::Looking);
        let (search, daemon) = (search(&self.up), host.daemon_name());
        let mut found = daemon::look(&place, &search, daemon, deadline).await?;
        if let Some(Ok(version)) = &found.version {
            self.board.rows()[at + 1].version.clone_from(version);
        }
        if let Some(programs) = &self.programs {
            phase(Phase::Copying);
            if programs.push(&place, &self.up.push_to, &found, deadline).await? {
                found = daemon::look(&place, &search, daemon, deadline).await?;
            }
        }
        let rsd = usable(&found, &search)?;
        let seen = found.client.as_deref().filter(|_| is_direct);
        let addresses = match (port, &self.token) {
            (Some(port), _) => vec![format!("127.0.0.1:{port}")],
            (None, Some(token)) => self.head.addresses(self.up.head_address.as_deref(), token, seen),
            (None, None) => Vec::new(),
        };
        Ok(Looked { place, rsd, addresses, running: found.running })
    }

    /// Starts the daemon with each address of the head until it has joined.
    async fn join(&self, at: usize, place: &Place, rsd: &str, host: &Host, addresses: &[String]) -> Result<(), Why> {
        let token = self.token.as_ref().ok_or_else(|| Why::new("internal error: no token"))?;
        let mut last = Why::new("the head has no address");
        for address in addresses {
            let join = Some((address.as_str(), token.secret.as_str()));
            let start = Start { rsd, name: host.daemon_name(), slots: host.slots, listen: None, join };
            match daemon::start(place, &start, self.up.ssh.timeout).await {
                Ok(()) => return Ok(()),
                Err(NotStarted { why, may_run }) => {
                    last = why;
                    if let Some(begun) = self.begun()[at].as_mut() {
                        begun.may_follow |= may_run;
                    }
                }
            }
            if *self.interrupted.borrow() {
                return Err(last);
            }
        }
        if addresses.len() > 1 {
            let tried = addresses.join(" and ");
            last.text.push_str(&format!("; tried {tried}: name the right address with --head-address"));
        }
        Err(last)
    }

    /// Waits until a daemon that has joined says that it is connected. None: the user has interrupted it.
    async fn connected(&self, place: &Place, host: &Host) -> Result<Option<(Running, &'static str)>, Why> {
        let search = search(&self.up);
        let end = Instant::now() + CONNECTED;
        loop {
            let running = daemon::look(place, &search, host.daemon_name(), self.up.ssh.timeout).await?.running;
            match running {
                Some(running) if running.connected && running.dvm == self.head.running.dvm => {
                    return Ok(Some((running, "ready")));
                }
                _ if *self.interrupted.borrow() => return Ok(None),
                _ if Instant::now() < end => tokio::time::sleep(Duration::from_millis(100)).await,
                Some(_) => return Err(Why::new("the daemon has joined, but lost its connection to the head")),
                None => return Err(Why::new("the daemon ended as soon as it was ready: see its log there")),
            }
        }
    }

    fn begin(&self, at: usize, place: &Arc<Place>, rsd: &str) {
        self.begun()[at] = Some(Begun { place: Arc::clone(place), rsd: rsd.to_owned(), may_follow: false });
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Option<Begun>>> {
        self.begun.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps or stops what was started, writes the record, and prints the table.
    async fn conclude(&self, plan: &Plan, mut record: Record, interrupted: bool, json: bool) -> Result<u8, Failure> {
        let begun = self.begun().clone();
        let done: Vec<bool> =
            self.board.rows()[1..].iter().map(|row| matches!(row.verdict, Some(Verdict::Done(_)))).collect();
        let (up, all) = (done.iter().filter(|done| **done).count(), done.len());
        let keep = !interrupted && (up == all || (self.up.allow_missing && (up > 0 || !self.head.started)));
        let deadline = self.up.ssh.timeout;
        let mut left = Vec::new();
        let mut stopping = JoinSet::new();
        for (at, host) in plan.nodes.iter().cloned().enumerate() {
            let Some(Begun { place, rsd, may_follow }) = begun[at].clone() else { continue };
            if keep && done[at] {
                left.push(node_record(&host, &rsd));
                continue;
            }
            let dvm = self.head.running.dvm.clone();
            stopping.spawn(async move {
                let stop = Stop { rsd: &rsd, name: host.daemon_name(), dvm: Some(&dvm), force: true, told: false };
                let stopped = daemon::stop(&place, &stop, deadline).await;
                (at, node_record(&host, &rsd), may_follow, stopped)
            });
        }
        while let Some(stopped) = stopping.join_next().await {
            match stopped {
                // A second interrupt has ended its task while rsd was starting there, or nothing says how that has ended.
                Ok((at, node, may_follow, Ok(Stopped::Before)))
                    if may_follow || self.board.rows()[at + 1].verdict.is_none() =>
                {
                    say(&format!("{} may still start a daemon: repeat rsctl down later", node.host.name));
                    left.push(node);
                }
                Ok((at, _, _, Ok(when))) => self.stopped_again(at + 1, done[at], when),
                Err(_) => {}
                Ok((_, node, _, Err(error))) => {
                    say(&format!("{} may still run a daemon: {}", node.host.name, error.why().text));
                    left.push(node);
                }
            }
        }
        record.nodes.retain(|node| !left.iter().any(|new| new.host == node.host));
        record.nodes.extend(left);
        if !keep
            && self.ports.is_some()
            && let Err(failure) = hold::end(&record.name).await
        {
            say(&failure.to_string());
        }
        let head_stopped = !keep && stop_head(&self.head, deadline).await;
        if head_stopped {
            self.stopped_again(0, true, Stopped::Now);
        }
        // A head that an earlier call has started stays.
        record.head.started &= !head_stopped;
        match record.nodes.is_empty() && !record.head.started {
            true => record.remove()?,
            false => record.write()?,
        }
        self.board.print(&record.name, json)?;
        if keep {
            self.advise(plan, json);
            return Ok(0);
        }
        if interrupted {
            return Err(Failure::new(exit::CANCELLED, "interrupted: what was started has been stopped again"));
        }
        let text = format!("{} of {} failed, so what was started has been stopped again", all - up, hosts(all));
        let hint = "see the reasons above; to go on without hosts that fail: --allow-missing";
        Err(Failure::new(exit::UNREACHABLE, text).hint(hint))
    }

    /// Shows that a daemon was stopped, unless its row has the reason why it was not ready.
    fn stopped_again(&self, row: usize, was_ready: bool, when: Stopped) {
        let row = &mut self.board.rows()[row];
        if was_ready || (row.verdict.is_none() && when == Stopped::Now) {
            row.verdict = Some(Verdict::Done("stopped again"));
        }
    }

    /// Says how to use and how to stop the DVM.
    fn advise(&self, plan: &Plan, json: bool) {
        if json {
            return;
        }
        let name = &self.head.daemon;
        let dvm = if plan.named { format!(" --dvm {name}") } else { String::new() };
        match &plan.host {
            None => say(&format!("ready: rsctl{dvm} run ./a.out; to stop it: rsctl{dvm} down")),
            Some(host) => {
                say(&format!("ready: on {}, rsctl{dvm} run ./a.out; to stop it, here: rsctl{dvm} down", host.name));
            }
        }
    }
}

fn hosts(count: usize) -> String {
    format!("{count} host{}", if count == 1 { "" } else { "s" })
}
