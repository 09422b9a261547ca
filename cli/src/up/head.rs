//! The head: here, or on a host.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rsd_config::find::FindError;
use rsd_proto::transport::exit;
use rsd_ssh::Network;

use super::daemon::{self, Found, NotStarted, Running, Search, Start, Stop, Stopped, Token};
use super::place::{Place, Why};
use super::push::Programs;
use super::record::{HeadRecord, HostRecord};
use super::report::{Board, Phase};
use super::targets::{Host, is_here, leads_here};
use super::wished_name;
use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::interrupts::Interrupts;
use crate::options::up::Up;
use crate::print::say;
use crate::private;

/// What is to be the head.
pub(crate) struct Plan {
    /// The name of its daemon, by which `--dvm` finds it.
    pub(crate) daemon: String,
    /// Whether a new daemon is to get this name; false: it is the default one.
    pub(crate) named: bool,
    /// None: here.
    pub(crate) host: Option<Host>,
    /// The slots that a new head offers; None: its cores.
    pub(crate) slots: Option<u32>,
    /// The hosts on which nodes are to be started.
    pub(crate) nodes: Vec<Host>,
}

/// The head that runs.
pub(crate) struct Head {
    pub(crate) place: Arc<Place>,
    pub(crate) rsd: String,
    pub(crate) daemon: String,
    pub(crate) running: Running,
    pub(crate) started: bool,
    /// Names and addresses of the head's host; empty: this machine.
    addresses: Vec<String>,
}

impl Plan {
    /// Decides what is the head, and which of the hosts are nodes.
    pub(crate) fn new(up: &Up, dvm: &Dvm, hosts: Vec<Host>, own_name: &str) -> Result<Plan, Failure> {
        let wished = wished_name(dvm)?;
        let is_here = |name: &str| is_here(name, own_name, leads_here);
        let elsewhere = up.head.as_deref().filter(|name| !is_here(name));
        let is_head = |host: &Host| match elsewhere {
            Some(name) => host.name.eq_ignore_ascii_case(name),
            // With an account or a port, ssh may lead to another place.
            None => host.user.is_none() && host.port.is_none() && is_here(&host.name),
        };
        let (listed, nodes): (Vec<Host>, Vec<Host>) = hosts.into_iter().partition(is_head);
        if let [one, other, ..] = &listed[..] {
            return Err(Failure::usage(format!(
                "{} and {} both mean this machine: name it once",
                one.name, other.name
            )));
        }
        // A head that the list does not name only coordinates.
        let slots = listed.first().map_or(Some(0), |host| host.slots);
        let Some(name) = elsewhere else {
            let (daemon, named) = match (dvm.find_own(), wished) {
                (Ok(daemon), _) => (daemon.name().to_owned(), true),
                (Err(FindError::NoneRuns { .. } | FindError::NotRunning { .. }), Some(name)) => (name, true),
                (Err(FindError::NoneRuns { .. }), None) => ("default".to_owned(), false),
                (Err(error), _) => return Err(error.into()),
            };
            if dvm.is_of_root(&daemon) {
                let text = format!("a DVM {daemon} that serves all users runs here, and only root adds hosts to it");
                return Err(
                    Failure::new(exit::NOT_PERMITTED, text).hint("to start one of your own: rsctl --dvm NAME up …")
                );
            }
            return Ok(Plan { daemon, named, host: None, slots, nodes });
        };
        let parse = || {
            let entries = rsd_config::hostlist::parse(name).map_err(Failure::usage)?;
            match &entries[..] {
                [entry] => Ok(Host { name: entry.host.to_string(), user: entry.user.clone(), port: None, slots }),
                _ => Err(Failure::usage(format!("--head {name}: name one host"))),
            }
        };
        let host = listed.into_iter().next().map_or_else(parse, Ok)?;
        let daemon = wished.or_else(|| host.daemon_name().map(str::to_owned));
        let (daemon, named) = daemon.map_or(("default".to_owned(), false), |name| (name, true));
        Ok(Plan { daemon, named, host: Some(host), slots, nodes })
    }
}

/// Why there is no head.
#[derive(Debug)]
pub(crate) enum NoHead {
    /// The user has interrupted it.
    Interrupted,
    Failed(Why),
}

impl From<Why> for NoHead {
    fn from(why: Why) -> NoHead {
        NoHead::Failed(why)
    }
}

/// Where the head is to run, and what is there.
struct Site {
    place: Place,
    search: Search,
    found: Found,
    /// The path of rsd.
    rsd: String,
    /// The host's name for the network; None: this machine.
    name: Option<String>,
}

/// Makes sure that the head runs. If it cannot be used or the user interrupts, a head that was started here is stopped again. `at`: its
/// row.
pub(crate) async fn ensure(
    plan: &Plan,
    up: &Up,
    network: &Network,
    programs: Option<&Programs>,
    board: &Board,
    at: usize,
    interrupts: &mut Interrupts,
) -> Result<Head, NoHead> {
    let looking = board.shown(site(plan, up, network, programs, board, at), || network.asking());
    let Some(site) = interrupts.unless(looking).await else { return Err(NoHead::Interrupted) };
    let Site { place, search, found, rsd, name } = site?;
    board.phase(at, Phase::Starting);
    let started = found.running.is_none();
    let running = match found.running {
        Some(running) => usable_head(running, &plan.daemon)?,
        None => {
            let start = Start {
                rsd: &rsd,
                name: plan.named.then_some(plan.daemon.as_str()),
                slots: plan.slots,
                listen: Some(up.listen.as_deref().unwrap_or(if up.via_ssh { "127.0.0.1:0" } else { "0.0.0.0:0" })),
                join: None,
            };
            let starting = start_head(&place, &search, &plan.daemon, &start, up.ssh.timeout);
            let starting = board.shown(starting, || network.asking());
            match finished(starting, board, interrupts).await {
                Ok(running) => running,
                Err((no_head, may_run)) => {
                    if may_run {
                        stop_again(&place, &rsd, &plan.daemon, up.ssh.timeout).await;
                    }
                    return Err(no_head);
                }
            }
        }
    };
    // Towards a host, this machine has the address from which ssh connects; only another head's addresses are the same for all.
    let addresses = name.map_or_else(Vec::new, |name| [Some(name), found.server].into_iter().flatten().collect());
    Ok(Head { place: Arc::new(place), rsd, daemon: plan.daemon.clone(), running, started, addresses })
}

/// Connects to the head's host, and finds rsd there or copies it.
async fn site(
    plan: &Plan,
    up: &Up,
    network: &Network,
    programs: Option<&Programs>,
    board: &Board,
    at: usize,
) -> Result<Site, Why> {
    let deadline = up.ssh.timeout;
    board.phase(at, Phase::Connecting);
    let (place, search, name) = match &plan.host {
        None => {
            let program = private::program();
            let search = if program.is_absolute() { Search::At(program.display().to_string()) } else { Search::Usual };
            (Place::Here, search, None)
        }
        Some(host) => {
            let connection = network.connect(&host.wish()).await?;
            let name = connection.settings().host_name.clone();
            (Place::There(Box::new(connection)), search(up), Some(name))
        }
    };
    board.phase(at, Phase::Looking);
    let mut found = daemon::look(&place, &search, Some(&plan.daemon), deadline).await?;
    if let (Some(programs), Some(_)) = (programs, &plan.host) {
        board.phase(at, Phase::Copying);
        if programs.push(&place, &up.push_to, &found, deadline).await? {
            found = daemon::look(&place, &search, Some(&plan.daemon), deadline).await?;
        }
    }
    let rsd = usable(&found, &search)?;
    Ok(Site { place, search, found, rsd, name })
}

/// Starts a head. Err: why not, and whether it may be running all the same.
async fn start_head(
    place: &Place,
    search: &Search,
    daemon: &str,
    start: &Start<'_>,
    deadline: Duration,
) -> Result<Running, (Why, bool)> {
    daemon::start(place, start, deadline).await.map_err(|NotStarted { why, may_run }| (why, may_run))?;
    let may_run = |why| (why, true);
    let found = daemon::look(place, search, Some(daemon), deadline).await.map_err(may_run)?;
    let ended = || (Why::new("the head ended as soon as it was ready: see its log"), false);
    usable_head(found.running.ok_or_else(ended)?, daemon).map_err(may_run)
}

/// Waits until the head has been started, also after an interrupt: a daemon that is not ready yet cannot be stopped. A second interrupt
/// ends the wait.
async fn finished(
    starting: impl Future<Output = Result<Running, (Why, bool)>>,
    board: &Board,
    interrupts: &mut Interrupts,
) -> Result<Running, (NoHead, bool)> {
    tokio::pin!(starting);
    if let Some(done) = interrupts.unless(&mut starting).await {
        return done.map_err(|(why, may_run)| (NoHead::Failed(why), may_run));
    }
    board.note("interrupted: stopping the head as soon as it is ready");
    let may_run = match interrupts.unless(starting).await {
        Some(Err((_, may_run))) => may_run,
        Some(Ok(_)) | None => true,
    };
    Err((NoHead::Interrupted, may_run))
}

/// Stops a head that was just started, or may be starting yet.
async fn stop_again(place: &Place, rsd: &str, daemon: &str, deadline: Duration) {
    let stop = Stop { rsd, name: Some(daemon), dvm: None, force: true, told: false };
    let why = match daemon::stop(place, &stop, deadline).await {
        Ok(Stopped::Now) => return,
        Ok(Stopped::Before) => "nothing says how rsd start has ended".to_owned(),
        Err(error) => error.why().text,
    };
    say(&format!("a head may be running or starting (to stop it, on its machine: rsd stop --dvm {daemon}): {why}"));
}

/// Checks that a daemon is a head that others can join.
fn usable_head(running: Running, daemon: &str) -> Result<Running, Why> {
    if !running.head {
        return Err(Why::new(format!(
            "daemon {daemon} runs there as node {} of DVM {}: extend that DVM from its head",
            running.node, running.dvm
        )));
    }
    if running.listen.is_empty() {
        return Err(Why::new(format!(
            "daemon {daemon} runs, but other machines cannot join it: stop it (rsd stop --dvm {daemon}), then repeat this command"
        )));
    }
    Ok(running)
}

/// Where rsd is looked for on a host.
pub(crate) fn search(up: &Up) -> Search {
    match (&up.remote_rsd, up.push) {
        (Some(path), _) => Search::At(path.clone()),
        (None, true) => Search::Pushed(up.push_to.clone()),
        (None, false) => Search::Usual,
    }
}

/// Returns the path of an rsd that runs.
pub(crate) fn usable(found: &Found, search: &Search) -> Result<String, Why> {
    match (&found.rsd, &found.version, search) {
        (Some(rsd), Some(Ok(_)), _) => Ok(rsd.clone()),
        (Some(rsd), Some(Err(error)), _) => Err(Why::new(format!("{rsd} does not run there: {error}"))),
        (_, _, Search::Usual) => Err(Why::new(
            "rsd is not there, neither in PATH nor in ~/.local/bin: copy it with --push, or name it with --remote-rsd PATH",
        )),
        (_, _, Search::At(_) | Search::Pushed(_)) => {
            Err(Why::new(format!("there is no program at {} on the host", search.word())))
        }
    }
}

impl Head {
    pub(crate) async fn token(&self, uses: u32, deadline: Duration) -> Result<Token, Failure> {
        let token = daemon::token(&self.place, &self.rsd, Some(&self.daemon), uses, deadline).await;
        token.map_err(|why| Failure::new(exit::UNREACHABLE, format!("{}: {}", why.text, why.lines.join(" "))))
    }

    /// Revokes a token, of which uses may be left.
    pub(crate) async fn revoke(&self, token: &Token, deadline: Duration) {
        // It expires by itself if this fails.
        let _ = daemon::revoke(&self.place, &self.rsd, Some(&self.daemon), &token.number, deadline).await;
    }

    /// Returns the address at which this machine reaches the head that it runs.
    pub(crate) fn own_address(&self) -> String {
        match self.running.listen.parse::<SocketAddr>() {
            Ok(at) if at.ip().is_unspecified() => format!("127.0.0.1:{}", at.port()),
            Ok(_) | Err(_) => self.running.listen.clone(),
        }
    }

    /// Returns the addresses at which a host may reach the head, the best first. `seen`: this machine's address, as that host sees it.
    pub(crate) fn addresses(&self, named: Option<&str>, token: &Token, seen: Option<&str>) -> Vec<String> {
        let port = self.running.listen.rsplit(':').next().unwrap_or_default();
        let with_port = |host: &str| match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            Ok(IpAddr::V4(_)) | Err(_) => format!("{host}:{port}"),
        };
        if let Some(named) = named {
            return vec![if has_port(named) { named.to_owned() } else { with_port(named) }];
        }
        let is_any = self.running.listen.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_unspecified());
        if !is_any {
            return vec![self.running.listen.clone()];
        }
        let known = self.addresses.iter().map(String::as_str).chain(seen.filter(|_| self.addresses.is_empty()));
        let mut all: Vec<String> = known.map(with_port).collect();
        all.push(token.join.clone());
        all.dedup();
        all
    }

    pub(crate) fn record(&self, plan: &Plan) -> HeadRecord {
        HeadRecord {
            host: plan.host.as_ref().map(HostRecord::from),
            rsd: self.rsd.clone(),
            daemon: Some(self.daemon.clone()),
            started: self.started,
        }
    }
}

/// Whether a word is `HOST:PORT`; an IPv6 address is in brackets then.
fn has_port(word: &str) -> bool {
    let Some((host, port)) = word.rsplit_once(':') else { return false };
    let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    is_host && matches!(port.parse::<u16>(), Ok(1..))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::PathBuf;

    use clap::Parser;

    use super::super::targets;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        up: Up,
    }

    fn plan(dvm: &Dvm, words: &[&str]) -> Result<Plan, Failure> {
        let Line { up } = Line::parse_from([&["up"], words].concat());
        Plan::new(&up, dvm, targets::hosts(&up)?, "desk")
    }

    /// Directories for a user's daemons and for root's, removed at the end.
    struct Bases(PathBuf);

    impl Bases {
        fn new(name: &str) -> Bases {
            let dir = std::env::temp_dir().join(format!("rsd-up-{}-{name}", std::process::id()));
            fs::create_dir_all(dir.join("own")).unwrap();
            Bases(dir)
        }

        fn dvm(&self) -> Dvm {
            Dvm::below(self.0.join("own"), Box::leak(self.0.join("system").into_boxed_path()))
        }

        /// A daemon that runs as long as its lock is held.
        fn daemon(&self, at: &str, name: &str) -> File {
            let dir = self.0.join(at).join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("daemon.json"), format!(r#"{{"name":"{name}","dvm":"{at}","head":true}}"#)).unwrap();
            let lock = File::create(dir.join("rsd.lock")).unwrap();
            lock.try_lock().unwrap();
            lock
        }
    }

    impl Drop for Bases {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_dvm_of_root_is_not_taken_as_the_head() {
        let bases = Bases::new("root");
        let _lock = bases.daemon("system", "default");
        let Err(failure) = plan(&bases.dvm(), &["--host", "a"]) else { panic!("only root adds hosts to it") };
        assert_eq!(failure.code, exit::NOT_PERMITTED);
        assert!(failure.hint.contains("--dvm NAME"), "{failure}");
        let _own = bases.daemon("own", "mine");
        let plan = plan(&bases.dvm(), &["--host", "a"]).unwrap();
        assert_eq!((plan.daemon.as_str(), plan.named), ("mine", true));
    }

    #[test]
    fn an_account_or_a_port_means_another_place_and_two_names_of_this_machine_are_refused() {
        let bases = Bases::new("names");
        let dvm = bases.dvm();
        let here = plan(&dvm, &["--host", "desk:3,a"]).unwrap();
        assert_eq!((here.slots, here.nodes.len()), (Some(3), 1));
        let there = plan(&dvm, &["--host", "me@localhost,a"]).unwrap();
        assert_eq!((there.slots, there.nodes.len()), (Some(0), 2));
        let Err(failure) = plan(&dvm, &["--host", "localhost:2,desk:3"]) else { panic!("the slots are ambiguous") };
        assert!(failure.text.contains("localhost and desk both mean this machine"), "{failure}");
    }

    #[test]
    fn a_head_address_may_have_a_port() {
        for word in ["gw:7000", "10.0.0.1:7000", "[fd00::1]:7000"] {
            assert!(has_port(word), "{word}");
        }
        for word in ["gw", "10.0.0.1", "fd00::1", "[fd00::1]", ":7000", "gw:0", "gw:http"] {
            assert!(!has_port(word), "{word}");
        }
    }

    #[test]
    fn a_missing_rsd_is_reported_with_its_place() {
        let text = |search| usable(&Found::default(), &search).unwrap_err().text;
        assert!(text(Search::Usual).contains("neither in PATH nor in ~/.local/bin"));
        assert_eq!(text(Search::At("/opt/rsd".into())), "there is no program at /opt/rsd on the host");
        assert_eq!(text(Search::Pushed("~/bin".into())), "there is no program at ~/bin/rsd on the host");
    }
}
