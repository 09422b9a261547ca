//! `cargo xtask demo`: starts a DVM of four daemons on this machine and runs a real MPI program on it.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;

use crate::places;
use crate::setup;
use crate::shell::{cargo, quiet, shown, step};
use crate::stage::Stage;

/// `cargo xtask demo`, `cargo xtask demo --hosts N`.
pub(crate) fn demo(args: &[OsString]) -> anyhow::Result<()> {
    if let Some(hosts) = hosts(args)? {
        return on_hosts(hosts);
    }
    setup::while_compiling(setup::for_the_demo)?;
    step("build rsd and rsctl", || quiet(&mut cargo(["build", "--quiet", "--package=rsd", "--package=rsctl"])))?;
    let since = Instant::now();
    let stage = Stage::set("demo", places::binaries()?)?;
    fs::copy(places::root().join("tests/programs/pi.c"), stage.dir().join("pi.c"))?;
    println!("\nThe demo runs in {}", stage.dir().display());
    play(&stage)?;
    println!("\nDone in {:.1} s. README.md continues from here.", since.elapsed().as_secs_f64());
    Ok(())
}

/// The number of hosts that the arguments request.
fn hosts(args: &[OsString]) -> anyhow::Result<Option<usize>> {
    const USAGE: &str = "expected no arguments, or --hosts N with N from 2 to 64";
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    match words.as_slice() {
        [] if args.is_empty() => Ok(None),
        ["--hosts", count] => {
            let count = count.parse().ok().filter(|count| (2..=64).contains(count));
            Ok(Some(count.context(USAGE)?))
        }
        _ => anyhow::bail!(USAGE),
    }
}

/// Shows rsd on hosts that are namespaces of this machine (`tests/harness/hosts`).
fn on_hosts(hosts: usize) -> anyhow::Result<()> {
    anyhow::ensure!(setup::root(), "only root can make hosts: run it as root, or without --hosts");
    setup::while_compiling(setup::for_the_demo_on_hosts)?;
    let packages = ["--package=rsd", "--package=rsctl", "--package=rsd-mpi", "--package=rsd-tests", "--bins", "--lib"];
    step("build rsd, rsctl and the demo", || quiet(cargo(["build", "--quiet"]).args(packages)))?;
    shown(Command::new(places::binaries()?.join("demo-hosts")).arg(hosts.to_string()))
}

fn play(stage: &Stage) -> anyhow::Result<()> {
    say("Start four daemons on this machine, as if it were four machines. The first is the head; the others join it.");
    run(stage, "rsd start --name node0 --listen 127.0.0.1:0 --slots 4")?;
    let head = stage.listen("node0")?;
    for node in 1..4 {
        run(stage, &format!("rsd start --name node{node} --join {head} --slots 4"))?;
    }
    run(stage, "rsctl nodes")?;

    say("Compile an MPI program with Debian's MPICH. Nothing in it is specific to rsd.");
    run(stage, "mpicc.mpich -O2 -o pi pi.c -lm")?;

    say("`submit` runs it in the background and prints the job's number. `attach` follows it from the beginning.");
    run(stage, "rsctl submit -n 16 ./pi")?;
    run(stage, "rsctl attach last")?;
    run(stage, "rsctl job show last")?;

    say(
        "`run` does both and exits with the program's code. Ranks go to the nodes in turn; -l labels each line with its rank.",
    );
    run(stage, "rsctl run -n 4 --map-by node -l sh -c 'echo \"hello from $RSD_NODE_NAME\"'")?;

    say("An error says what failed, where and why.");
    fail(stage, "rsctl run -n 4 sh -c 'test $RSD_RANK != 2 || { echo \"out of luck\" >&2; exit 3; }'", 3)?;
    fail(stage, "rsctl run -n 20 ./pi", 243)?;

    say("Ranks survive their daemon: here the daemon of node3 is killed and restarted.");
    run(stage, "rsctl submit -n 16 sh -c 'sleep 2; echo \"rank $RSD_RANK on $RSD_NODE_NAME is done\"'")?;
    run(stage, &format!("kill -9 {}", stage.pid("node3")?))?;
    run(stage, &format!("rsd start --name node3 --join {head} --slots 4"))?;
    run(stage, "rsctl wait last && rsctl logs last | grep node3")?;

    say("List all jobs of this demo:");
    run(stage, "rsctl ps -a")?;
    run(stage, "rsd stop --dvm node0")
}

fn say(text: &str) {
    println!("\n# {text}");
}

/// Shows a command, then what it prints.
fn run(stage: &Stage, line: &str) -> anyhow::Result<()> {
    let code = shell(stage, line)?;
    anyhow::ensure!(code == Some(0), "`{line}` exited with {code:?}");
    Ok(())
}

/// Like [`run`], for a command that must fail.
fn fail(stage: &Stage, line: &str, expected: i32) -> anyhow::Result<()> {
    let code = shell(stage, line)?;
    anyhow::ensure!(code == Some(expected), "`{line}` exited with {code:?}, expected {expected}");
    println!("$ echo $?\n{expected}");
    Ok(())
}

fn shell(stage: &Stage, line: &str) -> anyhow::Result<Option<i32>> {
    println!("$ {line}");
    std::io::stdout().flush()?;
    Ok(stage.command("sh")?.args(["-c", &format!("exec 2>&1; {line}")]).status()?.code())
}
