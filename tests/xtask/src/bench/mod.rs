//! `cargo xtask bench …`: compares speed with other launchers and MPIs, measured in turn in one run.

mod before;
mod collectives;
mod daemons;
mod distance;
mod dvm;
mod figures;
mod growth;
mod hangs;
mod incast;
mod join;
mod launch;
mod mpi;
mod nodes;
mod phases;
mod scale;
mod submit;
mod sweep;
mod turns;

use std::ffi::OsString;
use std::fs;

use anyhow::Context;

const ROUNDS: usize = 9;

/// `cargo xtask bench WHAT`.
pub(crate) fn bench(args: &[OsString]) -> anyhow::Result<()> {
    match args.first().and_then(|name| name.to_str()) {
        Some("collectives") => collectives::bench(),
        Some("dvm") => dvm::bench(&args[1..]),
        Some("growth") => growth::bench(),
        Some("hangs") => hangs::bench(&args[1..]),
        Some("incast") => incast::bench(),
        Some("join") => join::bench(),
        Some("launch") => launch::bench(),
        Some("mpi") => mpi::bench(&args[1..]),
        Some("scale") => scale::bench(&args[1..]),
        Some("submit") => submit::bench(),
        Some(_) | None => {
            anyhow::bail!(
                "unknown bench: use collectives, dvm, growth, hangs, incast, join, launch, mpi, scale or submit"
            )
        }
    }
}

/// Describes the machine and its load.
fn machine() -> anyhow::Result<String> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
    let cpus = read("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("an unknown CPU");
    let cores = std::thread::available_parallelism()?;
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let load = read("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or("?");
    let model = model.trim_start_matches([' ', '\t', ':']);
    Ok(format!("{cores} CPUs ({model}), Linux {}, load {load} before", kernel.trim()))
}
