//! The commands in README.md that need several machines, typed as they stand there.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rsd_tests::built;
use rsd_tests::hosts::Plan;
use rsd_tests::{Call, Mpi};

/// The machine and the command of each line of README's example with several machines.
fn lines() -> Vec<(String, String)> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).expect("README.md is beside the folder of the tests");
    let (_, after) = readme.split_once("```console needs a second machine\n").expect("README has such an example");
    let (example, _) = after.split_once("```").expect("the example ends");
    let commands = example.lines().map(|line| line.split("  #").next().unwrap_or(line));
    let lines = commands.filter_map(|line| line.split_once("$ "));
    lines.map(|(host, command)| (host.to_owned(), command.trim().to_owned())).collect()
}

#[test]
fn the_lines_of_the_readme_work_as_they_stand() {
    let lines = lines();
    let hosts: Vec<&str> = lines.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(hosts, ["head", "other", "head", "head"], "{lines:?}");
    let [(_, start), (_, join), (_, look), (_, run)] = lines.try_into().expect("there are four");
    assert!(run.contains("-n 8 "), "{run}");
    // As many machines as eight ranks need; each of the others is `other`.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let others: Vec<String> = (1..8_usize.div_ceil(cores).max(2)).map(|at| format!("other{at}")).collect();
    let names: Vec<&str> = std::iter::once("head").chain(others.iter().map(String::as_str)).collect();
    let Some(network) = Plan::of(&names).start() else { return };

    let place = built::target().join("tmp").join(format!("readme-{}", std::process::id()));
    fs::create_dir_all(&place).expect("the target directory is writable");
    fs::copy(Mpi::Ours.program("hello.c"), place.join("hello")).expect("the target directory is writable");
    let type_at = |host: &str, line: &str| network.host(host).sh(&format!("cd {}; {line}", place.display())).ok();

    let said = type_at("head", &start);
    let printed =
        said.lines().find_map(|line| line.strip_prefix("rsd: join with: ")).expect("the head prints the join line");
    let (before, _) = printed.split_once("--token ").expect("the join line has a token");
    // It is shown on terminals only.
    let token = type_at("head", "rsd token new --quiet");
    let token = token.trim();
    assert_eq!(join, format!("{before}--token rsd1-…"), "the join line is the one in README");
    for other in &names[1..] {
        type_at(other, &join.replace("rsd1-…", token));
    }
    let nodes = type_at("head", &look);
    assert!(names.iter().all(|name| nodes.lines().any(|line| line.starts_with(&format!("{name} ")))), "{nodes}");
    let said = type_at("head", &run);
    for rank in 0..8 {
        assert!(said.contains(&format!("rank {rank} of 8 on ")), "{said}");
    }
    type_at("head", "rsd stop");
    fs::remove_dir_all(&place).expect("it was made above");
}

#[test]
fn the_demo_on_hosts_runs() {
    let Some(probe) = Plan::of(&["probe"]).start() else { return };
    drop(probe);
    let told = Call::new(env!("CARGO_BIN_EXE_demo-hosts")).args(["3"]).deadline(Duration::from_secs(120)).end();
    let said = told.ok();
    assert!(said.contains("\nnode2$ rsd start --join node0:7817 --token rsd1-"), "{said}");
    assert!(said.contains("pi is 3.14159265"), "{said}");
    assert!(said.contains("line 4 of 4") && said.contains("Nothing of the hosts is left"), "{said}");
}
