//! Options of other launchers: those that are translated because they mean exactly the same, and the errors for the others.
//!
//! The options are those of Open MPI's `mpirun` 4 and 5, Hydra's `mpiexec`, Slurm's `srun` and `flux run`. Nothing is guessed: the error
//! for an option with different meanings in two launchers lists both.

use Answer::{ByValue, Either, Hosts, Leave, Same, Write};

/// The answer to an option. `{}` is its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// Translated to these words, which mean the same.
    Same(&'static [&'static str]),
    /// With one of these values, translated to the words beside it. With any other value, refused with what to write.
    ByValue(&'static [(&'static str, &'static [&'static str])], &'static str),
    /// A list of hosts: translated to `--host` if each host has a number. A host without a number means one slot in Open MPI and the
    /// whole node here, so it is refused.
    Hosts,
    /// Refused, with what to write.
    Write(&'static str),
    /// Refused, with the reason why it is not needed.
    Leave(&'static str),
    /// Refused, because launchers differ: each meaning, and what to write for it.
    Either(&'static [(&'static str, &'static str)]),
}

/// The names of an option, and the answer to it.
pub(super) type Row = (&'static [&'static str], Answer);

/// Finds the row of an option by its name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|(names, _)| names.contains(&name))
}

pub(super) const ROWS: &[Row] = &[
    // How many ranks.
    (&["--n", "-ntasks", "--ntasks"], Same(&["-n", "{}"])),
    (&["-c"], Either(&[("number of ranks (Open MPI)", "-n {}"), ("cpus per rank (srun)", "--map-by slot:pe={}")])),
    (
        &["-N"],
        Either(&[
            ("ranks per node (Open MPI)", "--map-by ppr:{}:node"),
            ("number of nodes (srun, flux)", "--host with their names, or --host +e:{} for idle nodes"),
        ]),
    ),
    (&["--nodes"], Write("--host with the names of the nodes, or --host +e:{} for idle nodes")),
    (&["-npernode", "--npernode"], Same(&["--map-by", "ppr:{}:node"])),
    (&["-pernode", "--pernode"], Same(&["--map-by", "ppr:1:node"])),
    (
        &["-ppn", "--ppn", "-perhost", "--perhost", "-grr"],
        Write("--map-by ppr:{}:node (ranks per node; no node is used twice)"),
    ),
    (&["--ntasks-per-node", "--tasks-per-node"], Write("--map-by ppr:{}:node")),
    (&["-npersocket", "--npersocket"], Write("--map-by ppr:{}:package --bind-to package")),
    (&["--ntasks-per-socket"], Write("--map-by ppr:{}:package")),
    (&["--ntasks-per-core", "--tasks-per-core"], Write("--map-by ppr:{}:core")),
    // Which hosts.
    (&["-H", "-hosts", "--hosts", "-hostlist", "--hostlist"], Hosts),
    (&["-w", "--nodelist"], Write("--host {}")),
    (&["--exclude"], Write("--host ^{} (and ^ before each further name)")),
    (&["-r", "--relative"], Write("--host +n{}, with an entry for each node: --host +n2,+n3")),
    (&["-machinefile", "--machinefile"], Same(&["--hostfile", "{}"])),
    (
        &["-f", "--default-hostfile", "-default-hostfile"],
        Write("--hostfile {} (a host without a number is the whole node)"),
    ),
    (&["-nolocal", "--nolocal", "-skip-launch-node", "--skip-launch-node"], Write("--map-by slot:nolocal")),
    (&["-order-nodes", "--order-nodes"], Write("--host with the nodes in that order")),
    (&["--exclusive", "--exact", "--overlap"], Leave("jobs do not share slots, and --host +e:2 selects idle nodes")),
    // Where ranks go.
    (&["-bynode", "--bynode"], Same(&["--map-by", "node"])),
    (&["-byslot", "--byslot"], Same(&["--map-by", "slot"])),
    (&["-rr"], Write("--map-by node")),
    (
        &["-m", "--distribution", "--taskmap"],
        ByValue(
            &[("block", &["--map-by", "slot"]), ("cyclic", &["--map-by", "node"])],
            "--map-by slot (block), --map-by node (cyclic), --map-by seq --hostfile FILE (arbitrary), --rankfile FILE (any); \
             within nodes --map-by core (block) or --map-by package (cyclic)",
        ),
    ),
    (&["-rf"], Same(&["--rankfile", "{}"])),
    (&["-rankmap", "--rankmap"], Write("--rankfile FILE, or --map-by seq --host a,b,b")),
    (&["-O", "--overcommit"], Same(&["--oversubscribe"])),
    (&["-nooversubscribe", "--nooversubscribe"], Leave("this is the default")),
    (
        &[
            "--cpus-per-task",
            "--cores-per-task",
            "-cpus-per-proc",
            "--cpus-per-proc",
            "-cpus-per-rank",
            "--cpus-per-rank",
        ],
        Write("--map-by slot:pe={}"),
    ),
    (&["-cpu-list", "--cpu-list", "-cpu-set", "--cpu-set"], Write("--map-by pe-list={}")),
    // What ranks are bound to.
    (&["-bind-to-core", "--bind-to-core"], Same(&["--bind-to", "core"])),
    (&["-bind-to-socket", "--bind-to-socket"], Same(&["--bind-to", "package"])),
    (&["-bind-to-none", "--bind-to-none"], Same(&["--bind-to", "none"])),
    (
        &["--cpu-bind", "--cpu_bind"],
        ByValue(
            &[
                ("cores", &["--bind-to", "core"]),
                ("threads", &["--bind-to", "hwthread"]),
                ("sockets", &["--bind-to", "package"]),
                ("ldoms", &["--bind-to", "numa"]),
                ("none", &["--bind-to", "none"]),
                ("no", &["--bind-to", "none"]),
            ],
            "--bind-to core, hwthread, package, numa or none, or --rankfile FILE for lists of cpus; `rsctl plan` shows the outcome",
        ),
    ),
    (&["--hint"], Write("--bind-to core, or --use-hwthread-cpus for one rank per hardware thread")),
    (&["--threads-per-core"], Write("--bind-to core, or --use-hwthread-cpus for one rank per hardware thread")),
    (
        &["-membind", "--membind"],
        ByValue(&[("firsttouch", &["--mem-bind", "none"])], "--mem-bind local, preferred or interleave"),
    ),
    (
        &["-report-bindings", "--report-bindings"],
        Write("--show-plan with run; `rsctl plan` with the same options shows it and starts nothing"),
    ),
    (
        &[
            "-display",
            "--display",
            "-display-map",
            "--display-map",
            "-display-allocation",
            "--display-allocation",
            "-display-devel-map",
            "--display-devel-map",
            "-do-not-launch",
            "--do-not-launch",
            "--test-only",
        ],
        Leave("`rsctl plan` with the same options shows where ranks go"),
    ),
    // GPUs.
    (&["--gpus-per-task", "-gpus-per-proc", "--gpus-per-proc"], Same(&["--gpus-per-rank", "{}", "--gpus-visible"])),
    (&["-G", "--gpus", "--gpus-per-node", "--gres"], Write("--gpus-per-rank N")),
    (&["--gpu-bind"], Write("--gpus-per-rank N, and --gpus-visible to hide the other GPUs")),
    // Environment, directory, input and output.
    (&["--wd", "-wd", "--cwd", "-cwd", "-dir", "-D", "--chdir"], Same(&["--wdir", "{}"])),
    (&["-genv", "--genv", "-env", "--env"], Write("-x NAME=VALUE")),
    (
        &["-genvlist", "--genvlist", "-envlist", "--envlist"],
        Write("-x NAME for each (the whole environment is forwarded anyway)"),
    ),
    (&["-genvall", "--genvall", "-envall", "--envall", "--export-all"], Same(&[])),
    (&["-tag-output", "--tag-output", "-prepend-rank", "--prepend-rank"], Write("--label")),
    (&["-output-filename", "--output-filename", "-outfile-pattern", "-errfile-pattern"], Write("--output DIR")),
    (
        &["-s"],
        Either(&[
            ("ranks that read standard input (Hydra)", "--stdin all, --stdin none or --stdin RANK"),
            ("nodes shared with other jobs (srun)", "nothing, because rsd always shares nodes"),
        ]),
    ),
    // The job.
    (&["-t", "--time", "--time-limit"], Write("--timeout 5m (or 90s, 1h)")),
    (
        &["-configfile", "--configfile", "-app", "--app", "--multi-prog"],
        Write("the programs one after the other, joined by ` : `"),
    ),
    (&["-p", "--partition", "-A", "--account", "-q", "--qos"], Leave("rsd has no partitions or accounts")),
    (&["-J", "--job-name"], Same(&["--name", "{}"])),
    (&["-mca", "--mca", "--gmca", "--prtemca", "--omca", "--pmixmca"], Write("-x OMPI_MCA_name=value")),
    (&["--personality"], Write("--compat openmpi5, --compat hydra, or nothing")),
    (&["--allow-run-as-root"], Same(&[])),
    (
        &["-launcher", "--launcher", "-bootstrap", "-rmk", "--prefix", "-iface", "--mpi"],
        Leave("daemons already run on the nodes, and MPI libraries find them"),
    ),
];
