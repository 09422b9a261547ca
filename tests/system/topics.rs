//! Runs the examples in the topics of the manual (`rsctl help TOPIC`, `cli/topics/*.md`).
//!
//! The convention, which [`every_block_is_marked_by_the_convention`] checks:
//!
//! - A fenced block that begins with `sh` is an example. All blocks of a topic are run here in their order, each by `sh -eu`, and
//!   each must succeed. They find `rsd`, `rsctl` and `mpicc` in PATH; `hello`, `server`, `client` and `hello.c` in the current
//!   directory; a daemon with four slots, unless the block starts its own; and a job that has ended.
//! - `sh alone`: no daemon is running.
//! - `sh in a rank`: the block is run as a rank of a job of one.
//! - `console REASON` is an example that cannot be run here, with the reason: a second machine, a download. Another test may run
//!   it.
//! - `text`, `json`, `toml`, `cmake`, `python` and `c` are output and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rsd_tests::{Call, Dvm, Mpi, Options, built};

/// The deadline for all blocks of a topic: they take seconds, and more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A fenced block.
struct Example {
    info: String,
    code: String,
}

fn sources() -> Vec<(String, String)> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the checkout").join("cli/topics");
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("the folder can be listed").path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("a topic is text"))).collect()
}

fn blocks(source: &str) -> Vec<Example> {
    let mut blocks = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let code = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            blocks.push(Example { info: info.to_owned(), code });
        }
    }
    blocks
}

#[test]
fn every_block_is_marked_by_the_convention() {
    for (topic, source) in sources() {
        for Example { info, code } in blocks(&source) {
            let known = match info.split_once(' ').unwrap_or((&info, "")) {
                ("sh", rest) => matches!(rest, "" | "alone" | "in a rank"),
                ("console", reason) => !reason.is_empty(),
                ("text" | "json" | "toml" | "cmake" | "python" | "c", rest) => rest.is_empty(),
                _ => false,
            };
            assert!(known, "{topic}: a block that begins with ```{info}\n{code}");
        }
    }
}

/// Runs the examples of one topic.
#[track_caller]
fn run(topic: &str) {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 4, args: Vec::new() });
    let sources = sources();
    let (_, source) = sources.iter().find(|(name, _)| name == topic).expect("the topic exists");
    furnish(&dvm);
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.expect("the loopback interface exists").port().to_string();
    let mut daemon = false;
    for Example { info, code } in blocks(source).into_iter().filter(|block| block.info.starts_with("sh")) {
        // A port that is free on this machine replaces the one in the example.
        let code = code.replace("7817", &port);
        let wanted = info != "sh alone" && !code.contains("rsd start");
        if daemon && !wanted {
            shell(&dvm, "rsd stop --force").ok();
        } else if wanted && !daemon {
            shell(&dvm, "rsd start --slots 4 && rsctl run -n 1 true").ok();
        }
        daemon = wanted;
        match &*info {
            "sh in a rank" => {
                dvm.file("block", &code);
                shell(&dvm, "rsctl run -n 1 sh -eu ./block").ok()
            }
            _ => shell(&dvm, &code).ok(),
        };
    }
    if daemon {
        shell(&dvm, "rsd stop --force").ok();
    }
}

/// Creates the programs and files that the examples name.
fn furnish(dvm: &Dvm) {
    let hello = Mpi::Ours.program("hello.c");
    for name in ["hello", "server", "client"] {
        fs::copy(&hello, dvm.scratch().join(name)).expect("the directory is writable");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/hello.c");
    fs::copy(source, dvm.scratch().join("hello.c")).expect("the directory is writable");
    dvm.file("id.bin", "0123456789abcdef");
}

fn shell(dvm: &Dvm, code: &str) -> Call {
    let prefix = built::library();
    let folders = [built::rsctl().parent().expect("a program is in a folder"), &prefix.join("bin")];
    let folders = folders.map(|folder| folder.display().to_string()).join(":");
    let path = format!("{folders}:{}", std::env::var("PATH").unwrap_or_default());
    let call = dvm.call("sh").dir(dvm.scratch()).env("PATH", path).env("PAGER", "cat");
    let call = call.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    call.args(["-euc", code]).deadline(PATIENCE)
}

#[test]
fn the_examples_of_getting_started_run() {
    run("getting-started");
}

#[test]
fn the_examples_of_several_machines_run() {
    run("several-machines");
}

#[test]
fn the_examples_of_placement_run() {
    run("placement");
}

#[test]
fn the_examples_of_queue_run() {
    run("queue");
}

#[test]
fn the_examples_of_groups_run() {
    run("groups");
}

#[test]
fn the_examples_of_mpi_run() {
    run("mpi");
}

#[test]
fn the_examples_of_values_run() {
    run("values");
}

#[test]
fn the_examples_of_settings_json_and_troubleshooting_run() {
    ["settings", "json", "troubleshooting"].into_iter().for_each(run);
}

#[test]
fn the_examples_of_watching_run() {
    run("watching");
}

#[test]
fn the_examples_for_users_of_other_launchers_run() {
    ["from-mpirun", "from-slurm", "from-torchrun"].into_iter().for_each(run);
}

#[test]
fn every_topic_with_examples_is_run() {
    let own = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("system/topics.rs"))
        .expect("this file can be read");
    for (topic, source) in sources() {
        let has_examples = blocks(&source).iter().any(|block| block.info.starts_with("sh"));
        assert!(!has_examples || own.contains(&format!("\"{topic}\"")), "no test runs the examples of {topic}");
    }
}
