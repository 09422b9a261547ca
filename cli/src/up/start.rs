//! `rsctl up`: the head first, then all nodes at the same time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rsd_proto::transport::exit;
use rsd_ssh::{Here, Network};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::daemon::{self, Running, Start, Token};
use super::head::{self, Head, Plan, search, usable};
use super::hold::{self, Ports};
use super::network;
use super::place::{Place, Why};
use super::push::Programs;
use super::record::{HostRecord, NodeRecord, Record};
use super::report::{Board, Phase, Verdict};
use super::targets::{self, Host};
use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::options::up::Up;
use crate::print::say;
use crate::private;

/// How long a node that is ready may take to say that it is connected.
const CONNECTED: Duration = Duration::from_secs(10);

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
}

/// A daemon that was started.
#[derive(Clone)]
struct Begun {
    place: Arc<Place>,
    rsd: String,
}

/// Starts a DVM on hosts, or adds hosts to one.
pub(crate) async fn up(dvm: &Dvm, up: Up, json: bool) -> Result<u8, Failure> {
    let here = Here::now();
    let plan = Plan::new(&up, dvm, targets::hosts(&up)?, &here.host)?;
    if up.via_ssh {
        hold::check_free(&plan.daemon)?;
    }
    let network = network(&up.ssh)?;
    let programs = if up.push { Some(Programs::read(&private::program())?) } else { None };
    let head_name = plan.host.as_ref().map_or("here", |host| host.name.as_str());
    let rows = [(head_name.to_owned(), "head")].into_iter();
    let rows = rows.chain(plan.nodes.iter().map(|host| (host.name.clone(), "node")));
    let board = Board::new(rows, json);

    let starting = head::ensure(&plan, &up, &network, programs.as_ref(), &board, 0);
    let head = tokio::select! {
        head = board.shown(starting, || network.asking()) => head,
        () = interrupted() => Err(Why::new("interrupted")),
    };
    let head = match head {
        Ok(head) => head,
        Err(why) => {
            board.end(0, Verdict::Failed(why));
            board.print(&plan.daemon, json)?;
            return Err(Failure::new(exit::UNREACHABLE, "the head was not started, so nothing was"));
        }
    };
    ready(&board, 0, &head.running, if head.started { "ready" } else { "already up" });
    let uses = u32::try_from(plan.nodes.len()).unwrap_or(u32::MAX);
    let token = match uses {
        0 => Ok(None),
        uses => head.token(uses, up.ssh.timeout).await.map(Some),
    };
    let token = match token {
        Ok(token) => token,
        Err(failure) => {
            stop_head(&head, up.ssh.timeout).await;
            return Err(failure);
        }
    };
    let mut record = Record {
        name: head.daemon.clone(),
        dvm: head.running.dvm.clone(),
        head: head.record(&plan),
        nodes: Vec::new(),
    };
    if let Some(before) = Record::read(&record.name)?.filter(|before| before.dvm == record.dvm) {
        record.head.started |= before.head.started;
        record.nodes = before.nodes;
    }
    let known = record.nodes.len();
    // Written before anything is started, so that `down` finds it if this process is killed.
    let planned = plan.nodes.iter().map(|host| node_record(host, "rsd"));
    record.nodes.extend(planned);
    record.write()?;
    record.nodes.truncate(known);

    let ports = match up.via_ssh {
        true => {
            let hosts = plan.nodes.iter().map(HostRecord::from).collect();
            match hold::start(&record.name, &head.own_address(), hosts, &up.ssh).await {
                Ok(ports) => Some(ports),
                Err(failure) => {
                    if head.started {
                        stop_head(&head, up.ssh.timeout).await;
                        record.remove()?;
                    } else {
                        record.write()?;
                    }
                    return Err(failure);
                }
            }
        }
        false => None,
    };
    let begun = Mutex::new(vec![None; plan.nodes.len()]);
    let work = Arc::new(Work { up, network, programs, head, token, ports, board, begun });
    let was_interrupted = work.nodes(&plan.nodes).await;
    for notice in work.network.notices() {
        say(&notice);
    }
    if let Some(token) = &work.token {
        work.head.revoke(token, work.up.ssh.timeout).await;
    }
    work.conclude(&plan, record, was_interrupted, json).await
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

async fn interrupted() {
    // Without the signal, the wait goes on until the work has ended.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn stop_head(head: &Head, deadline: Duration) {
    if head.started {
        let stopped =
            daemon::stop(&head.place, &head.rsd, Some(&head.daemon), &head.running.dvm, true, false, deadline).await;
        if let Err(why) = stopped {
            say(&format!("the head is left running: {}", why.text));
        }
    }
}

impl Work {
    /// Starts all nodes. Returns whether the user has interrupted it.
    async fn nodes(self: &Arc<Work>, hosts: &[Host]) -> bool {
        let slots = Arc::new(Semaphore::new(self.up.ssh.parallel as usize));
        let mut tasks = JoinSet::new();
        for (at, host) in hosts.iter().cloned().enumerate() {
            let (work, slots) = (Arc::clone(self), Arc::clone(&slots));
            tasks.spawn(async move {
                let Ok(_slot) = slots.acquire().await else { return };
                match work.node(at, &host).await {
                    Ok((running, word)) => ready(&work.board, at + 1, &running, word),
                    Err(why) => work.board.end(at + 1, Verdict::Failed(why)),
                }
            });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        tokio::select! {
            () = self.board.shown(all, || self.network.asking()) => false,
            () = interrupted() => true,
        }
    }

    /// Starts one node.
    async fn node(&self, at: usize, host: &Host) -> Result<(Running, &'static str), Why> {
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
        let rsd = usable(&found)?;
        match found.running {
            Some(running) if running.dvm == self.head.running.dvm => {
                return Ok((running, "already up"));
            }
            Some(running) => {
                let name = daemon.unwrap_or("default");
                return Err(Why::new(format!(
                    "a daemon {name} runs there, node {} of another DVM ({}): stop it there (rsd stop --dvm {name})",
                    running.node, running.dvm
                )));
            }
            None => {}
        }
        phase(Phase::Starting);
        self.begin(at, &place, &rsd);
        let seen = found.client.as_deref().filter(|_| is_direct);
        let token = self.token.as_ref().ok_or_else(|| Why::new("internal error: no token"))?;
        let addresses = match port {
            Some(port) => vec![format!("127.0.0.1:{port}")],
            None => self.head.addresses(self.up.head_address.as_deref(), token, seen),
        };
        join(&place, &rsd, host, token, &addresses, deadline).await?;
        let end = tokio::time::Instant::now() + CONNECTED;
        loop {
            let running = daemon::look(&place, &search, daemon, deadline).await?.running;
            match running {
                Some(running) if running.connected && running.dvm == self.head.running.dvm => {
                    return Ok((running, "ready"));
                }
                _ if tokio::time::Instant::now() < end => tokio::time::sleep(Duration::from_millis(100)).await,
                Some(_) => return Err(Why::new("the daemon has joined, but lost its connection to the head")),
                None => return Err(Why::new("the daemon ended as soon as it was ready: see its log there")),
            }
        }
    }

    fn begin(&self, at: usize, place: &Arc<Place>, rsd: &str) {
        let begun = Begun { place: Arc::clone(place), rsd: rsd.to_owned() };
        self.begun.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[at] = Some(begun);
    }

    /// Keeps or stops what was started, writes the record, and prints the table.
    async fn conclude(&self, plan: &Plan, mut record: Record, interrupted: bool, json: bool) -> Result<u8, Failure> {
        let begun = self.begun.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let done: Vec<bool> =
            self.board.rows()[1..].iter().map(|row| matches!(row.verdict, Some(Verdict::Done(_)))).collect();
        let (up, all) = (done.iter().filter(|done| **done).count(), done.len());
        let keep = !interrupted && (up == all || (self.up.allow_missing && (up > 0 || !self.head.started)));
        let deadline = self.up.ssh.timeout;
        let mut left = Vec::new();
        let mut stopping = JoinSet::new();
        for (at, host) in plan.nodes.iter().cloned().enumerate() {
            let Some(Begun { place, rsd }) = begun[at].clone() else { continue };
            if keep && done[at] {
                left.push(node_record(&host, &rsd));
                continue;
            }
            let dvm = self.head.running.dvm.clone();
            stopping.spawn(async move {
                let stopped = daemon::stop(&place, &rsd, host.daemon_name(), &dvm, true, false, deadline).await;
                (at, node_record(&host, &rsd), stopped)
            });
        }
        while let Some(stopped) = stopping.join_next().await {
            match stopped {
                Ok((at, _, Ok(_))) if done[at] => {
                    self.board.rows()[at + 1].verdict = Some(Verdict::Done("stopped again"))
                }
                Ok((_, _, Ok(_))) | Err(_) => {}
                Ok((_, node, Err(why))) => {
                    say(&format!("{} may still run a daemon: {}", node.host.name, why.text));
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
        if !keep && self.head.started {
            stop_head(&self.head, deadline).await;
            self.board.rows()[0].verdict = Some(Verdict::Done("stopped again"));
        }
        // A head that an earlier call has started stays.
        let head_stays = record.head.started && (keep || !self.head.started);
        match record.nodes.is_empty() && !head_stays {
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

/// Starts the daemon with each address of the head until it has joined.
async fn join(
    place: &Place,
    rsd: &str,
    host: &Host,
    token: &Token,
    addresses: &[String],
    deadline: Duration,
) -> Result<(), Why> {
    let mut last = Why::new("the head has no address");
    for address in addresses {
        let join = Some((address.as_str(), token.secret.as_str()));
        let start = Start { rsd, name: host.daemon_name(), slots: host.slots, listen: None, join };
        match daemon::start(place, &start, deadline).await {
            Ok(()) => return Ok(()),
            Err(why) => last = why,
        }
    }
    if addresses.len() > 1 {
        let tried = addresses.join(" and ");
        last.text.push_str(&format!("; tried {tried}: name the right address with --head-address"));
    }
    Err(last)
}
