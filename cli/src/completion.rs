//! Shell completions. The shell's script calls rsctl with the words typed so far. rsctl asks the daemon for nodes, jobs and groups, and
//! uses the answer if it comes within [`PATIENCE`]. It prints only candidates, never an error.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::{Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use nix::sys::signal::Signal;
use rsd_proto::transport::exit;
use rsd_proto::v1::{ListGroupsRequest, ListJobsRequest, ListNodesRequest};

use crate::dvm::{Client, Dvm};
use crate::exit::Failure;
use crate::options::{Cli, Shell};
use crate::print;
use crate::topics::TOPICS;

/// The variable that a script sets when it calls rsctl; its value names the shell.
const VARIABLE: &str = "RSCTL_COMPLETE";
/// The longest time that a completion may take.
const PATIENCE: Duration = Duration::from_millis(80);

/// Answers a completion script and exits, if a script called this process.
pub(crate) fn answer_script() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(|| with_completers(Cli::command())).var(VARIABLE).complete();
    }
}

/// `rsctl completion`: prints the script of a shell.
pub(crate) fn script(shell: Shell) -> Result<u8, Failure> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let mut script = Vec::new();
    let written = Shells::builtins()
        .completer(name)
        .map(|shell| shell.write_registration(VARIABLE, "rsctl", "rsctl", "rsctl", &mut script));
    match written {
        Some(Ok(())) => print::out(&String::from_utf8_lossy(&script)).map(|()| 0),
        Some(Err(_)) | None => Err(Failure::new(exit::INTERNAL, format!("no completions for {name}"))),
    }
}

/// Adds a completer to each argument whose values can be listed, in all commands.
fn with_completers(command: Command) -> Command {
    command
        .mut_args(|arg| match completer(arg.get_id().as_str()) {
            Some(completer) => arg.add(completer),
            None => arg,
        })
        .mut_subcommands(with_completers)
}

fn completer(argument: &str) -> Option<ArgValueCompleter> {
    let words =
        |words: &'static [&'static str]| Some(ArgValueCompleter::new(move |typed: &OsStr| matching(typed, words)));
    match argument {
        "map_by" => words(&MAPPINGS),
        "rank_by" => words(&["slot", "node", "fill", "span"]),
        "bind_to" => words(&BINDINGS),
        "mem_bind" => words(&["none", "local", "preferred", "interleave"]),
        "compat" => words(&["openmpi5", "hydra"]),
        "export" => words(&["torch", "nccl", "nvshmem"]),
        "stdin" => words(&["all", "none"]),
        "host" => Some(ArgValueCompleter::new(hosts)),
        "dvm" => Some(ArgValueCompleter::new(dvms)),
        "job" | "jobs" => Some(ArgValueCompleter::new(jobs)),
        "name" | "group" => Some(ArgValueCompleter::new(groups)),
        "signal" => Some(ArgValueCompleter::new(signals)),
        "words" => Some(ArgValueCompleter::new(topics)),
        _ => None,
    }
}

const MAPPINGS: [&str; 13] = [
    "slot", "node", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "package", "ppr:", "seq", "pe-list=",
    "rankfile",
];
const BINDINGS: [&str; 8] = ["none", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "package"];

/// Returns the words that begin with the typed text.
fn matching<W: AsRef<str>>(typed: &OsStr, words: impl IntoIterator<Item = W>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let words = words.into_iter().filter(|word| word.as_ref().starts_with(&*typed));
    words.map(|word| CompletionCandidate::new(word.as_ref())).collect()
}

fn topics(typed: &OsStr) -> Vec<CompletionCandidate> {
    let topics = TOPICS.iter().map(|topic| topic.name.to_owned());
    let commands: Vec<String> = Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    matching(typed, topics.chain(commands))
}

fn signals(typed: &OsStr) -> Vec<CompletionCandidate> {
    matching(typed, Signal::iterator().filter_map(|signal| signal.as_str().strip_prefix("SIG")))
}

fn dvms(typed: &OsStr) -> Vec<CompletionCandidate> {
    let base = rsd_config::runtime_dir(|name| std::env::var_os(name));
    base.map_or_else(|_| Vec::new(), |base| matching(typed, rsd_config::find::names(&base)))
}

/// Completes the last name of a comma-separated list.
fn hosts(typed: &OsStr) -> Vec<CompletionCandidate> {
    let text = typed.to_string_lossy();
    let before = text.rfind(',').map_or("", |at| &text[..=at]);
    let ask =
        async |client: &mut Client| Some(client.list_nodes(ListNodesRequest { load: false }).await.ok()?.into_inner());
    let nodes = asked(ask).map(|reply| reply.nodes).unwrap_or_default();
    matching(typed, nodes.iter().map(|node| format!("{before}{}", node.name)))
}

fn jobs(typed: &OsStr) -> Vec<CompletionCandidate> {
    let ask = async |client: &mut Client| {
        Some(client.list_jobs(ListJobsRequest { all: true, ..ListJobsRequest::default() }).await.ok()?.into_inner())
    };
    let jobs = asked(ask).map(|reply| reply.jobs).unwrap_or_default();
    let numbers = jobs.iter().map(|job| job.job.to_string());
    let names = jobs.iter().map(|job| job.name.clone()).filter(|name| !name.is_empty());
    matching(typed, numbers.chain(["last".to_owned()]).chain(names.collect::<BTreeSet<_>>()))
}

fn groups(typed: &OsStr) -> Vec<CompletionCandidate> {
    let ask = async |client: &mut Client| Some(client.list_groups(ListGroupsRequest {}).await.ok()?.into_inner());
    let groups = asked(ask).map(|reply| reply.groups).unwrap_or_default();
    matching(typed, groups.into_iter().filter_map(|group| Some(group.rules?.name)))
}

/// Returns the daemon's answer, if a daemon is running and answers in time.
fn asked<T>(ask: impl AsyncFnOnce(&mut Client) -> Option<T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let answer = async {
        let mut client = Dvm::new(named_dvm(), true).ok()?.client().await.ok()?;
        ask(&mut client).await
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await.ok().flatten() })
}

/// Returns the value of `--dvm` among the typed words.
fn named_dvm() -> Option<OsString> {
    let mut words = std::env::args_os().skip_while(|word| word != "--dvm");
    words.nth(1)
}
