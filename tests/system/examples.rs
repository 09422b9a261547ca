//! Runs the examples that `rsctl group --help` prints, verbatim in a shell, on two nodes.

use std::path::Path;
use std::time::Duration;

use rsd_tests::{Call, Dvm, Mpi, Running, built, python};

use crate::groups::{hello_lines, until_waiting};
use crate::sorted;

/// The deadline for jobs of Python interpreters.
const PATIENCE: Duration = Duration::from_secs(180);

/// A program with MPI, which waits for the gate.
const SERVE: &str = r#"
import os, time
from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}", flush=True)
while not os.path.exists("gate"):
    time.sleep(0.02)
world.Barrier()
"#;
/// A program without MPI.
const TRAIN: &str = r#"
import os
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", os.environ["MASTER_PORT"] != "")
"#;

/// The examples in the help of the group commands, without their descriptions.
fn examples(dvm: &Dvm) -> Vec<String> {
    let help = dvm.rsctl(["group", "--help"]).ok();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = commands.filter(|command| !command.is_empty() && *command != "help");
    let mut texts: Vec<String> = commands.map(|command| dvm.rsctl(["group", command, "--help"]).ok()).collect();
    texts.push(help.clone());
    let lines = texts.iter().filter_map(|text| text.split_once("\nExample")).flat_map(|(_, examples)| examples.lines());
    let lines = lines.filter_map(|line| line.strip_prefix("  ")?.split("  ").next());
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// A shell that finds `rsctl`, `python` and the files that the examples name.
fn shell(dvm: &Dvm, at: usize, line: &str) -> Call {
    let [interpreter, _] = python("join.py");
    let folders = [built::rsctl().parent(), Path::new(&interpreter).parent()];
    let folders = folders.map(|folder| folder.expect("a program is in a folder").display().to_string()).join(":");
    let path = format!("{folders}:{}", std::env::var("PATH").unwrap_or_default());
    let call = dvm.call("sh").dir(dvm.scratch()).env("PATH", path).env("RSD_DVM", dvm.state_dir(at));
    call.args(["-c", line]).deadline(PATIENCE)
}

fn in_each_of(dvm: &Dvm, places: usize, line: impl Fn(usize) -> String) -> Vec<Running> {
    (0..places).map(|at| shell(dvm, at % 2, &line(at)).start()).collect()
}

/// Waits until all have succeeded; returns what they printed.
fn printed(members: Vec<Running>) -> String {
    members.into_iter().map(|member| member.end().ok()).collect()
}

fn ranks(size: usize, more: &str) -> Vec<String> {
    let mut lines: Vec<String> = (0..size).map(|rank| format!("rank {rank} of {size}{more}")).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn every_example_of_rsctl_group_works_as_shown() {
    let dvm = Dvm::start(2);
    dvm.file("serve.py", SERVE);
    dvm.file("train.py", TRAIN);
    std::os::unix::fs::symlink(Mpi::Debian.program("hello.c"), dvm.scratch().join("worker"))
        .expect("the file does not exist yet");
    // Each example is taken from the help when it is run; none may remain.
    let mut left = examples(&dvm);
    let mut example = |line: &str| {
        let at = left.iter().position(|example| example == line);
        left.remove(at.unwrap_or_else(|| panic!("{line:?} is not one of the examples {left:#?}")));
        line.to_owned()
    };
    let run = |line: &str| shell(&dvm, 1, line).ok();

    run(&example("rsctl group create actors --size 16"));
    assert!(run(&example("rsctl group ls")).contains("actors  empty    16"));
    assert!(run(&example("rsctl group show actors")).contains("epoch 1: 0 waiting, 16 missing"));
    let serve = example("rsctl group exec actors --size 16 -- python serve.py");
    let members = in_each_of(&dvm, 16, |_| serve.clone());
    members.iter().for_each(|member| member.until_stdout(|out| out.contains("of 16").then_some(())));
    assert!(run(&example("rsctl ps")).contains("actors.1"));
    dvm.file("gate", "");
    assert_eq!(sorted(&printed(members)), ranks(16, ""));

    let worker = example("rsctl group exec actors --size 16 --rank 3 --timeout 5m -- ./worker");
    let members = in_each_of(&dvm, 16, |at| worker.replace("--rank 3", &format!("--rank {at}")));
    assert_eq!(sorted(&printed(members)).len(), 16);
    let train = example("rsctl group exec actors --size 16 --export torch,nccl -- python train.py");
    assert_eq!(sorted(&printed(in_each_of(&dvm, 16, |_| train.clone()))), ranks(16, " True"));
    let env = example(r#"eval "$(rsctl group env actors --size 16)" && python serve.py"#);
    assert_eq!(sorted(&printed(in_each_of(&dvm, 16, |_| env.clone()))), ranks(16, ""));

    run("rsctl group close actors");
    run(&example("rsctl group create actors --min 8 --max 16 --settle 5s"));
    let members = in_each_of(&dvm, 8, |_| "rsctl group exec actors -- ./worker".to_owned());
    assert_eq!(sorted(&printed(members)), hello_lines(2, 4));

    run("rsctl group close actors");
    run(&example("rsctl group create actors --size 16 --timeout 10m --ttl 1d"));
    for kick in ["rsctl group kick actors 4411", "rsctl group kick actors node7:4411"] {
        let member = shell(&dvm, 1, "exec rsctl group exec actors -- ./worker").start();
        let pid = until_waiting(&dvm, "actors", 1)[0]["pid"].to_string();
        run(&example(kick).replace("4411", &pid).replace("node7", "node1"));
        member.end().fails(130);
        until_waiting(&dvm, "actors", 0);
    }
    assert!(left.is_empty(), "examples that were not run: {left:#?}");
}
