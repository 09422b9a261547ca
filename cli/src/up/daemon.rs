//! One daemon on a host: what is there, how it is started, and how it is stopped. The same scripts run here and over ssh.

use std::time::Duration;

use serde_json::Value;

use super::place::{Place, Why, quoted, quoted_path};

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

/// Returns what is on a host. `daemon`: the name of the daemon to look for; None: the only one that runs.
pub(crate) async fn look(
    place: &Place,
    search: &Search,
    daemon: Option<&str>,
    deadline: Duration,
) -> Result<Found, Why> {
    let find = match search {
        Search::Usual => "r=$(command -v rsd 2>/dev/null); case $r in /*) ;; *) r=;; esac; \
             if [ -z \"$r\" ] && [ -x \"$HOME/.local/bin/rsd\" ]; then r=$HOME/.local/bin/rsd; fi"
            .to_owned(),
        Search::At(path) => format!("r={}; [ -x \"$r\" ] || r=", quoted_path(path)),
        Search::Pushed(folder) => {
            let sum = "if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi";
            format!(
                "d={}; r=$d/rsd; for p in rsd rsctl; do if [ -f \"$d/$p\" ]; then echo \"sum-$p=$({{ {sum}; }} <\"$d/$p\" 2>/dev/null)\"; fi; \
                 done; [ -x \"$r\" ] || r=",
                quoted_path(folder)
            )
        }
    };
    let which = daemon.map_or(String::new(), |name| format!("--dvm {}", quoted(name)));
    let script = format!(
        "{find}; echo \"machine=$(uname -s) $(uname -m)\"; echo \"connection=$SSH_CONNECTION\"; echo \"rsd=$r\"; if [ -n \"$r\" ]; then \
         if v=$(\"$r\" --version 2>&1); then echo \"version=$v\"; else echo \"broken=$v\"; fi; \
         unset RSD_DVM; echo \"status=$(\"$r\" status {which} --json 2>/dev/null)\"; fi; echo end="
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

/// Starts a daemon and waits until it is ready, which for a node means that the head has admitted it.
pub(crate) async fn start(place: &Place, start: &Start<'_>, deadline: Duration) -> Result<(), Why> {
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
    let told = place.run(&format!("exec {}", words.join(" ")), &[token.as_bytes()], deadline, "starting rsd").await?;
    told.ok("rsd start failed").map(drop)
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

/// Stops a daemon of the DVM `dvm`. A daemon that has ended, or is of another DVM, is left alone. `told`: the head has told it to
/// stop, so it gets the time for that.
pub(crate) async fn stop(
    place: &Place,
    rsd: &str,
    name: Option<&str>,
    dvm: &str,
    force: bool,
    told: bool,
    deadline: Duration,
) -> Result<Stopped, Why> {
    let rsd = quoted_path(rsd);
    let (which, force) = (which(name), if force { " --force" } else { "" });
    let status = format!("case $({rsd} status --json{which} 2>/dev/null) in *'\"dvm\":\"'{}'\"'*)", quoted(dvm));
    let patience = if told { 50 } else { 0 };
    let script = format!(
        "unset RSD_DVM; i=0; while [ $i -lt {patience} ]; do {status} sleep 0.1; i=$((i+1));; *) break;; esac; done; \
         {status} ;; *) echo gone; exit 0;; esac; exec {rsd} stop{force}{which}"
    );
    let told = place.run(&script, &[], deadline, "stopping rsd").await?.ok("rsd stop failed")?;
    Ok(if told.trim() == "gone" { Stopped::Before } else { Stopped::Now })
}

/// When a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Now,
    /// It was not running any more.
    Before,
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
}
