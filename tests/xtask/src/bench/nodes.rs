//! The time of jobs with one rank per daemon, compared with the same jobs whose ranks exchange addresses by a fence (as they do when
//! they must choose their interface), and the cost for programs without MPI.

use std::process::Command;

use super::launch::{form, stop};
use super::turns::{Contender, in_turn_for};
use crate::stage::Stage;

/// The programs and their labels.
const JOBS: [(&str, &[&str]); 3] = [
    ("`true`", &["true"]),
    ("MPI_Init to MPI_Finalize", &["./bench-rsd", "start"]),
    ("with a ring in between", &["./bench-rsd", "ring"]),
];

/// Measures over 1, 2, 8 and 32 daemons on this machine.
pub(super) fn starts(stage: &Stage, rounds: usize) -> anyhow::Result<()> {
    println!(
        "\n| one rank per daemon, daemons | job | sockets made by the step (ms) | by the ranks, one fence (ms) | ratio |"
    );
    println!("|---|---|---|---|---|");
    for nodes in [1, 2, 8, 32] {
        form(stage, nodes, 1)?;
        for (name, program) in JOBS {
            let before = || job(stage, nodes, program);
            let fenced = || {
                let mut command = job(stage, nodes, program)?;
                command.env("RSD_MPI_INTERFACE", "lo");
                Ok(command)
            };
            let contenders: [Contender<'_>; 2] = [&before, &fenced];
            let times = in_turn_for(&contenders, rounds)?;
            println!("| {nodes} | {name} | {} | {} | {} |", times[0].text(), times[1].text(), times[0].over(&times[1]));
        }
        stop(stage, "node0")?;
    }
    Ok(())
}

fn job(stage: &Stage, nodes: usize, program: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command("rsctl")?;
    command.args(["run", "--dvm", "node0", "-n", &nodes.to_string()]).args(program);
    Ok(command)
}
