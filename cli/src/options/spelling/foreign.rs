//! Options of other launchers: what is taken as ours because it means exactly the same, and what is answered instead.
//!
//! Open MPI's are those of `mpirun` 4 and 5, Hydra's those of `mpiexec`, srun's and Flux's those of `srun` and `flux run`.
//! Nothing is guessed: what two launchers mean differently is answered with both meanings.

use Answer::{ByValue, Either, Hosts, Leave, Same, Write};

/// What becomes of an option. `{}` is its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// These words mean the same.
    Same(&'static [&'static str]),
    /// With one of these values, the words behind it mean the same; with any other it is answered with what to write.
    ByValue(&'static [(&'static str, &'static [&'static str])], &'static str),
    /// A list of hosts: `--host`, if each has a number; one without means one slot there and the whole node here.
    Hosts,
    /// What to write here.
    Write(&'static str),
    /// Why nothing need be written.
    Leave(&'static str),
    /// Means different things in different launchers: who means what, and what to write for it.
    Either(&'static [(&'static str, &'static str)]),
}

/// Names, and what becomes of them.
pub(super) type Row = (&'static [&'static str], Answer);

/// The row of an option by its name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|(names, _)| names.contains(&name))
}

pub(super) const ROWS: &[Row] = &[
    // How many ranks.
    (&["--n", "-ntasks", "--ntasks"], Same(&["-n", "{}"])),
    (
        &["-c"],
        Either(&[("in Open MPI the number of ranks", "-n {}"), ("in srun cpus per rank", "--map-by slot:pe={}")]),
    ),
    (
        &["-N"],
        Either(&[
            ("in Open MPI ranks per node", "--map-by ppr:{}:node"),
            ("in srun and flux the number of nodes", "--host with their names, or --host +e:{} for idle ones"),
        ]),
    ),
    (&["--nodes"], Write("--host with the names of the nodes, or --host +e:{} for idle ones")),
    (&["-npernode", "--npernode"], Same(&["--map-by", "ppr:{}:node"])),
    (&["-pernode", "--pernode"], Same(&["--map-by", "ppr:1:node"])),
    (
        &["-ppn", "--ppn", "-perhost", "--perhost", "-grr"],
        Write("--map-by ppr:{}:node (ranks per node; no wrapping around)"),
    ),
    (&["--ntasks-per-node", "--tasks-per-node"], Write("--map-by ppr:{}:node")),
    (&["-npersocket", "--npersocket"], Write("--map-by ppr:{}:package --bind-to package")),
    (&["--ntasks-per-socket"], Write("--map-by ppr:{}:package")),
    (&["--ntasks-per-core", "--tasks-per-core"], Write("--map-by ppr:{}:core")),
    // Which hosts.
    (&["-H", "-hosts", "--hosts", "-hostlist", "--hostlist"], Hosts),
    (&["-w", "--nodelist"], Write("--host {}")),
    (&["--exclude"], Write("--host ^{} (and ^ before each further name)")),
    (&["-r", "--relative"], Write("--host +n{}, and the places of the others: --host +n2,+n3")),
    (&["-machinefile", "--machinefile"], Same(&["--hostfile", "{}"])),
    (
        &["-f", "--default-hostfile", "-default-hostfile"],
        Write("--hostfile {} (a host without a number is the whole node)"),
    ),
    (&["-nolocal", "--nolocal", "-skip-launch-node", "--skip-launch-node"], Write("--map-by slot:nolocal")),
    (&["-order-nodes", "--order-nodes"], Write("--host with the nodes in the order wanted")),
    (&["--exclusive", "--exact", "--overlap"], Leave("a job takes slots, and --host +e:2 takes idle nodes")),
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
    // What they are bound to.
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
    (&["--gpu-bind"], Write("--gpus-per-rank N, and --gpus-visible to hide the others")),
    // What they find, read and write.
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
            ("in Hydra who reads standard input", "--stdin all, --stdin none or --stdin RANK"),
            ("in srun that other jobs may share the nodes", "nothing: they always may"),
        ]),
    ),
    // The job.
    (&["-t", "--time", "--time-limit"], Write("--timeout 5m (or 90s, 1h)")),
    (
        &["-configfile", "--configfile", "-app", "--app", "--multi-prog"],
        Write("the programs one after the other, joined by ` : `"),
    ),
    (
        &["-p", "--partition", "-A", "--account", "-q", "--qos", "-J", "--job-name"],
        Leave("a job has no partition, account or name here"),
    ),
    (&["-mca", "--mca", "--gmca", "--prtemca", "--omca", "--pmixmca"], Write("-x OMPI_MCA_name=value")),
    (&["--personality"], Write("--compat openmpi5 or --compat hydra, or nothing")),
    (&["--allow-run-as-root"], Same(&[])),
    (
        &["-launcher", "--launcher", "-bootstrap", "-rmk", "--prefix", "-iface", "--mpi"],
        Leave("it is not needed: daemons are there, and libraries find them"),
    ),
];
