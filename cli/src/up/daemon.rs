//! One daemon on a host: what is there, how it is started, and how it is stopped. The same scripts run here and over ssh.

use std::time::Duration;

use rsd_proto::transport::exit;
use serde_json::Value;

use super::place::{Place, Told, Why, quoted, quoted_path};

/// What is on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// `Linux x86_64`.
    pub(crate) machine: String,
    /// The address of this machine, as the host sees it.
    pub(crate) client: Option<String>,
    /// The address of the host, as this machine reaches it.
    pub(crate) server: Option<String>,
    /// The path of rsd.
    pub(crate) rsd: Option<String>,
    /// What `rsd --version` says: `0.1.0`; Err: why it does not run.
    pub(crate) version: Option<Result<String, String>>,
    /// The DVM of the daemon of this name that runs there.
    pub(crate) running: Option<Running>,
    /// The SHA-256 of rsd and of rsctl in the directory to which they are copied.
    pub(crate) sums: [String; 2],
}

/// A daemon that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) dvm: String,
    pub(crate) node: u32,
    pub(crate) head: bool,
    /// Whether a node is connected to the DVM.
    pub(crate) connected: bool,
    /// Where it listens; empty: nowhere.
    pub(crate) listen: String,
    pub(crate) slots: u32,
    pub(crate) version: String,
}

/// Where rsd is looked for.
#[derive(Debug, Clone)]
pub(crate) enum Search {
    /// In PATH, then in `~/.local/bin`.
    Usual,
    /// At this path.
    At(String),
    /// In the directory to which it is copied.
    Pushed(String),
}

/// Prints the SHA-256 of its standard input, and more words.
pub(crate) const SUM: &str = "if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi";

impl Search {
    /// The search for an rsd that was recorded by [`Search::word`], or by the path at which it was found.
    fn of(word: &str) -> Search {
        if word == "rsd" { Search::Usual } else { Search::At(word.to_owned()) }
    }

    /// Returns what is recorded before it is known where rsd is.
    pub(crate) fn word(&self) -> String {
        match self {
            Search::Usual => "rsd".to_owned(),
            Search::At(path) => path.clone(),
            Search::Pushed(folder) => format!("{folder}/rsd"),
        }
    }

    /// Returns the part of a script that sets `r` to the path of rsd, or to nothing.
    fn script(&self) -> String {
        match self {
            Search::Usual => "r=$(command -v rsd 2>/dev/null); case $r in /*) ;; *) r=;; esac; \
                 if [ -z \"$r\" ] && [ -x \"$HOME/.local/bin/rsd\" ]; then r=$HOME/.local/bin/rsd; fi"
                .to_owned(),
            Search::At(_) | Search::Pushed(_) => format!("r={}; [ -x \"$r\" ] || r=", quoted_path(&self.word())),
        }
    }
}

/// Returns what is on a host. `daemon`: the name of the daemon to look for; None: the only one that runs.
pub(crate) async fn look(
    place: &Place,
    search: &Search,
    daemon: Option<&str>,
    deadline: Duration,
) -> Result<Found, Why> {
    let sums = match search {
        Search::Usual | Search::At(_) => String::new(),
        Search::Pushed(folder) => format!(
            "d={}; for p in rsd rsctl; do if [ -f \"$d/$p\" ]; then echo \"sum-$p=$({{ {SUM}; }} <\"$d/$p\" 2>/dev/null)\"; fi; done; ",
            quoted_path(folder)
        ),
    };
    let find = search.script();
    let which = which(daemon);
    let script = format!(
        "{sums}{find}; echo \"machine=$(uname -s) $(uname -m)\"; echo \"connection=$SSH_CONNECTION\"; echo \"rsd=$r\"; if [ -n \"$r\" ]; then \
         if v=$(\"$r\" --version 2>&1); then echo \"version=$v\"; else echo \"broken=$v\"; fi; \
         unset RSD_DVM; echo \"status=$(\"$r\" status{which} --json 2>/dev/null)\"; fi; echo end="
    );
    let told = place.run(&script, &[], deadline, "looking for rsd").await?;
    Ok(found(&told.ok("looking for rsd")?))
}

fn found(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim();
        let some = || Some(value.to_owned()).filter(|value| !value.is_empty());
        match key {
            "machine" => found.machine = value.to_owned(),
            "connection" => {
                // SSH_CONNECTION: client address, client port, server address, server port.
                let mut words = value.split(' ');
                found.client = words.next().filter(|word| !word.is_empty()).map(str::to_owned);
                found.server = words.nth(1).map(str::to_owned);
            }
            "rsd" => found.rsd = some(),
            "version" => found.version = Some(Ok(value.trim_start_matches("rsd ").to_owned())),
            "broken" => found.version = Some(Err(value.to_owned())),
            "status" => found.running = running(value),
            "sum-rsd" => found.sums[0] = value.split(' ').next().unwrap_or_default().to_owned(),
            "sum-rsctl" => found.sums[1] = value.split(' ').next().unwrap_or_default().to_owned(),
            _ => {}
        }
    }
    found
}

fn running(json: &str) -> Option<Running> {
    let status: Value = serde_json::from_str(json).ok()?;
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| u32::try_from(status[key].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
    let slots = u32::try_from(status["inventory"]["slots"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
    Some(Running {
        dvm: status["dvm"].as_str()?.to_owned(),
        node: number("node"),
        head: status["head"].as_bool().unwrap_or(false),
        connected: status["connected"].as_bool().unwrap_or(false),
        listen: text("listen"),
        slots,
        version: text("version"),
    })
}

/// How a daemon is to be started.
#[derive(Debug, Clone)]
pub(crate) struct Start<'a> {
    pub(crate) rsd: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) slots: Option<u32>,
    /// Where a head listens.
    pub(crate) listen: Option<&'a str>,
    /// The head's address and a token.
    pub(crate) join: Option<(&'a str, &'a str)>,
}

/// Why a daemon was not started.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) why: Why,
    /// Whether it may be running all the same: nothing says how `rsd start` has ended.
    pub(crate) may_run: bool,
}

/// Starts a daemon and waits until it is ready, which for a node means that the head has admitted it.
pub(crate) async fn start(place: &Place, start: &Start<'_>, deadline: Duration) -> Result<(), NotStarted> {
    let mut words = vec![quoted(start.rsd), "start".to_owned()];
    let mut option = |name: &str, value: &str| words.extend([name.to_owned(), quoted(value)]);
    if let Some(name) = start.name {
        option("--name", name);
    }
    if let Some(slots) = start.slots {
        option("--slots", &slots.to_string());
    }
    if let Some(listen) = start.listen {
        option("--listen", listen);
    }
    let mut token = "";
    if let Some((head, secret)) = start.join {
        option("--join", head);
        option("--token-file", "-");
        token = secret;
    }
    let script = format!("exec {}", words.join(" "));
    let told = place.run(&script, &[token.as_bytes()], deadline, "starting rsd").await;
    let told = told.map_err(|why| NotStarted { why, may_run: true })?;
    let may_run = told.status.is_none();
    told.ok("rsd start failed").map(drop).map_err(|why| NotStarted { why, may_run })
}

/// Returns a new token of the DVM whose head has this name.
pub(crate) async fn token(
    place: &Place,
    rsd: &str,
    name: Option<&str>,
    uses: u32,
    deadline: Duration,
) -> Result<Token, Why> {
    let script = format!("unset RSD_DVM; exec {} token new --json --uses {uses}{}", quoted(rsd), which(name));
    let text = place.run(&script, &[], deadline, "making a token").await?.ok("rsd token new failed")?;
    let reply: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    let word = |key: &str| reply["token"][key].as_str().map(str::to_owned);
    let number = reply["token"]["info"]["number"].as_str().map(str::to_owned);
    match (word("token"), word("join")) {
        (Some(secret), Some(join)) => Ok(Token { secret, join, number: number.unwrap_or_default() }),
        _ => Err(Why::new("rsd token new: unknown answer: the head's rsd has another version")),
    }
}

/// A token, and where the head says that it listens.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) secret: String,
    pub(crate) join: String,
    pub(crate) number: String,
}

/// Revokes a token.
pub(crate) async fn revoke(
    place: &Place,
    rsd: &str,
    name: Option<&str>,
    number: &str,
    deadline: Duration,
) -> Result<(), Why> {
    let script = format!("unset RSD_DVM; exec {} token revoke {}{}", quoted(rsd), quoted(number), which(name));
    place.run(&script, &[], deadline, "revoking the token").await?.ok("rsd token revoke failed").map(drop)
}

/// A daemon that is to be stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop<'a> {
    /// Where rsd was found, or how it is found ([`Search::word`]).
    pub(crate) rsd: &'a str,
    /// The daemon's name; None: the only one that runs.
    pub(crate) name: Option<&'a str>,
    /// Its DVM: a daemon of another one is left alone. None: a daemon of this name was just started.
    pub(crate) dvm: Option<&'a str>,
    /// Whether jobs are killed.
    pub(crate) force: bool,
    /// Whether the head has told it to stop, so that it gets the time for that.
    pub(crate) told: bool,
}

/// When a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Now,
    /// It was not running any more.
    Before,
}

/// Why a daemon was not stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStopped {
    /// It runs and refuses.
    Refused(Why),
    /// It may be running.
    Unknown(Why),
}

impl NotStopped {
    pub(crate) fn why(self) -> Why {
        match self {
            NotStopped::Refused(why) | NotStopped::Unknown(why) => why,
        }
    }
}

/// Written if no such daemon runs.
const GONE: &str = "gone";
/// Written before the output of `rsd stop`.
const STOPPING: &str = "stopping";

/// Stops a daemon.
pub(crate) async fn stop(place: &Place, stop: &Stop<'_>, deadline: Duration) -> Result<Stopped, NotStopped> {
    let told = place.run(&stop.script(), &[], deadline, "stopping rsd").await;
    stopped(told.map_err(NotStopped::Unknown)?)
}

impl Stop<'_> {
    /// Only the exit code of `rsd status` says that no daemon runs; any other failure says nothing about it.
    fn script(&self) -> String {
        let (which, force, none) = (which(self.name), if self.force { " --force" } else { "" }, exit::NO_DAEMON);
        let find = Search::of(self.rsd).script();
        let patience = if self.told { 50 } else { 0 };
        let is_it = self.dvm.map_or("*".to_owned(), |dvm| format!("*'\"dvm\":\"'{}'\"'*", quoted(dvm)));
        let gone = format!("{{ echo {GONE}; exit 0; }}");
        let no_rsd = quoted(&format!("there is no rsd ({}), so nothing says whether a daemon runs", self.rsd));
        format!(
            "unset RSD_DVM; {find}; if [ -z \"$r\" ]; then echo {no_rsd} >&2; exit 1; fi; i=0; while :; do \
             o=$(\"$r\" status --json{which} 2>&1); c=$?; \
             case $c in 0) case $o in {is_it}) ;; *) {gone};; esac;; {none}) {gone};; esac; \
             [ $i -lt {patience} ] || break; sleep 0.1; i=$((i+1)); done; \
             if [ $c != 0 ]; then echo \"rsd status (exit code $c): $o\" >&2; exit 1; fi; \
             echo {STOPPING}; \"$r\" stop{force}{which}; c=$?; if [ $c = {none} ]; then {gone}; fi; exit $c"
        )
    }
}

fn stopped(told: Told) -> Result<Stopped, NotStopped> {
    let (status, is_asked) = (told.status, told.stdout.starts_with(STOPPING));
    let refusals = [exit::USAGE, exit::NOT_PERMITTED].map(|code| Some(u32::from(code)));
    match told.ok("rsd stop failed") {
        Ok(text) if text.lines().any(|line| line == GONE) => Ok(Stopped::Before),
        Ok(_) => Ok(Stopped::Now),
        Err(why) if is_asked && refusals.contains(&status) => Err(NotStopped::Refused(why)),
        Err(why) => Err(NotStopped::Unknown(why)),
    }
}

fn which(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!(" --dvm {}", quoted(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_host_is_read() {
        let text = "sum-rsd=abc  -\nmachine=Linux x86_64\nconnection=10.0.0.1 4000 10.0.0.2 22\nrsd=/opt/rsd\nversion=rsd 0.1.0\n\
                    status={\"dvm\":\"d\",\"node\":3,\"head\":false,\"listen\":\"\",\"inventory\":{\"slots\":4}}\nend=\n";
        let found = found(text);
        assert_eq!((found.client.as_deref(), found.server.as_deref()), (Some("10.0.0.1"), Some("10.0.0.2")));
        assert_eq!((found.rsd.as_deref(), found.version), (Some("/opt/rsd"), Some(Ok("0.1.0".into()))));
        assert_eq!(found.running.map(|it| (it.dvm, it.node, it.slots)), Some(("d".into(), 3, 4)));
        assert_eq!(found.sums, ["abc", ""]);
        let none = super::found("machine=Linux aarch64\nconnection=\nrsd=\nstatus=\n");
        assert_eq!((none.rsd, none.version, none.running, none.client), (None, None, None, None));
    }

    /// Stops a daemon with an `rsd` whose `status` and `stop` are these lines of shell; returns the outcome and `rsd`'s path.
    async fn stop_with(name: &str, status: &str, stop: &str) -> Result<Stopped, NotStopped> {
        let path = std::env::temp_dir().join(format!("rsd-stop-{}-{name}", std::process::id()));
        let write = format!("cat >'{0}' && chmod 700 '{0}'", path.display());
        let text = format!("#!/bin/sh\ncase $1 in status) {status};; stop) {stop};; esac\n");
        // Another process writes it: a program that this one has open for writing while a test forks cannot be executed.
        Place::Here.run(&write, &[text.as_bytes()], WITHIN, "writing").await.unwrap().ok("writing").unwrap();
        let rsd = path.display().to_string();
        let order = Stop { rsd: &rsd, name: Some("a b"), dvm: Some("d1"), force: false, told: false };
        let outcome = super::stop(&Place::Here, &order, WITHIN).await;
        std::fs::remove_file(path).unwrap();
        outcome
    }

    const WITHIN: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn only_a_status_that_says_so_means_that_no_daemon_runs() {
        let ours = "echo '{\"dvm\":\"d1\"}'";
        let vectors = [
            ("now", ours, "echo stopped", Ok(Stopped::Now)),
            ("none", "exit 241", "exit 9", Ok(Stopped::Before)),
            ("other", "echo '{\"dvm\":\"d2\"}'", "exit 9", Ok(Stopped::Before)),
            ("meanwhile", ours, "exit 241", Ok(Stopped::Before)),
            ("busy", ours, "exit 240", Err(true)),
            ("denied", ours, "exit 245", Err(true)),
            ("silent", ours, "exit 242", Err(false)),
            ("unreachable", "exit 242", "exit 0", Err(false)),
            ("settings", "exit 240", "exit 0", Err(false)),
            ("broken", "exit 127", "exit 0", Err(false)),
        ];
        for (name, status, stop, expected) in vectors {
            let outcome = stop_with(name, status, stop).await;
            let outcome = outcome.map_err(|error| matches!(error, NotStopped::Refused(_)));
            assert_eq!(outcome, expected, "{name}");
        }
        let order = Stop { rsd: "/no/such/rsd", name: None, dvm: None, force: false, told: false };
        let missing = super::stop(&Place::Here, &order, WITHIN).await.unwrap_err().why();
        assert!(missing.lines[0].contains("there is no rsd (/no/such/rsd)"), "{missing:?}");
    }
}
