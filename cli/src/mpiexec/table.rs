//! The options of `mpiexec` as a table: their names in each launcher, their values, and what becomes of them. The parser, `mpiexec
//! --help` and the table of `rsctl help from-mpirun` read it.
//!
//! The names are those of the MPI standard (5.0, "Portable MPI Process Startup"), Open MPI 4.1 and 5.0, MPICH's Hydra 4 and 5 and Intel
//! MPI's, and MPICH's smpd with its successor MS-MPI. Options that are not in the table are unknown; the error names the nearest one.

use Does::{Accepted, Ignored, Refused};
use Takes::{Hosts, Nothing, Pair, Two, Value};

/// One option.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its names without dashes, separated by blanks: Open MPI's.
    pub(crate) openmpi: &'static str,
    /// Hydra's, of MPICH and of Intel MPI.
    pub(crate) hydra: &'static str,
    /// Those of smpd and MS-MPI.
    pub(crate) smpd: &'static str,
    /// Names of the MPI standard and of rsctl that none of these has.
    pub(crate) more: &'static str,
    pub(crate) takes: Takes,
    pub(crate) does: Does,
    /// What it means here, for people.
    pub(crate) here: &'static str,
}

/// The values of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// One value; here, what it is called.
    Value(&'static str),
    /// `NAME VALUE`, or `NAME=VALUE` as one word.
    Pair,
    /// Two words.
    Two(&'static str),
    /// A list of hosts, or MS-MPI's `COUNT HOST [N] HOST [N] …`.
    Hosts,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Ranks,
    Soft,
    Host,
    /// As `Host`, by Hydra's rules.
    HydraHosts,
    HostFile,
    HydraHostFile,
    /// N ranks per node by Hydra's rules.
    PerNodeInTurns,
    /// N ranks per node, no node twice.
    PerNode,
    OnePerNode,
    PerPackage,
    MapBy,
    Ppr,
    /// `--map-by` with this value.
    MapTo(&'static str),
    RankBy,
    BindTo,
    /// `--bind-to` with this value.
    BoundTo(&'static str),
    MemBind,
    RankFile,
    Oversubscribe,
    NoOversubscribe,
    AllowSingletons,
    /// The other ranks continue when one dies.
    Survive,
    /// The same, and Open MPI's fault tolerance.
    FaultTolerance,
    ThreadsAsCpus,
    CpusPerRank,
    CpuList,
    NoLocal,
    Gpus,
    LocalOnly,
    Compat,
    Env(Scope),
    EnvAll(Scope),
    EnvNone(Scope),
    EnvList(Scope),
    Export,
    /// A parameter of a library: the variable with this prefix.
    Parameter(&'static str),
    Directory(Scope),
    Path(Scope),
    Umask,
    Priority,
    Label,
    Tag,
    Timestamp,
    LabelPattern,
    StdoutFile,
    StderrFile,
    OutputFiles,
    Output,
    Merge,
    Stdin,
    /// Hydra's `-s RANKS`, or Open MPI's `-s` without a value.
    StdinOrPreload,
    ExitCodes,
    Timeout,
    JobName,
    JobLabel,
    Universe,
    ConfigFile,
    ShowPlan,
    PlanOnly,
    Quiet,
    Info,
    Version,
    Help,
    Dvm,
    /// Needs nothing: it is the case anyway.
    Accepted,
    /// Has no meaning here; a notice says so, with this reason.
    Ignored(&'static str),
    /// Refused, with what to do instead.
    Refused(&'static str),
}

/// Which programs an option applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The one that it precedes.
    Program,
    All,
}

impl Row {
    /// All names, without dashes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.openmpi, self.hydra, self.smpd, self.more].into_iter().flat_map(str::split_whitespace)
    }
}

/// Finds the option of this name, without dashes.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().flat_map(|section| section.1).find(|row| row.names().any(|known| known == name))
}

/// A row, by columns: Open MPI, Hydra, smpd, others.
const fn row(names: [&'static str; 4], takes: Takes, does: Does, here: &'static str) -> Row {
    let [openmpi, hydra, smpd, more] = names;
    Row { openmpi, hydra, smpd, more, takes, does, here }
}

const ON_NODES: &str = "daemons already run on the nodes";
const NO_LOGS: &str = "rsd's daemons have logs of their own: rsctl help troubleshooting";

/// All options, in sections.
pub(crate) const ROWS: &[(&str, &[Row])] = &[
    (
        "Ranks and programs",
        &[
            row(["n np c", "n np", "n np", ""], Value("N"), Does::Ranks, "number of ranks; without it, one per slot"),
            row(
                ["", "", "", "soft gsoft"],
                Value("TRIPLETS"),
                Does::Soft,
                "numbers of ranks to start if N do not fit: 2:8:2,1",
            ),
            row(
                ["app", "configfile", "configfile", ""],
                Value("FILE"),
                Does::ConfigFile,
                "the command line is in this file, one program per line",
            ),
            row(["", "", "", "name"], Value("NAME"), Does::JobName, "as rsctl run: the name of the job"),
            row(["", "", "", "job-label"], Value("KEY=VALUE"), Does::JobLabel, "as rsctl run: a label of the job"),
            row(
                ["", "usize", "", ""],
                Value("N"),
                Does::Universe,
                "MPI_UNIVERSE_SIZE: a number, SYSTEM (slots) or INFINITE",
            ),
        ],
    ),
    (
        "Hosts",
        &[
            row(
                ["H host", "host ghost", "host ghost", ""],
                Value("HOSTS"),
                Does::Host,
                "these nodes; of several, each without a number has one slot",
            ),
            row(
                ["", "hosts", "hosts", ""],
                Hosts,
                Does::HydraHosts,
                "these nodes, by Hydra's rules; 2 a b and 2 a 4 b 4 as in MS-MPI",
            ),
            row(
                ["hostfile machinefile default-hostfile", "hostfile machinefile", "machinefile gmachinefile", ""],
                Value("FILE"),
                Does::HostFile,
                "nodes from a file",
            ),
            row(["", "f", "", ""], Value("FILE"), Does::HydraHostFile, "nodes from a file, by Hydra's rules"),
            row(["nolocal", "nolocal skip-launch-node", "", ""], Nothing, Does::NoLocal, "no rank on the head's node"),
            row(
                ["", "", "localonly", ""],
                Nothing,
                Does::LocalOnly,
                "ranks on this node only; -localonly N is -n N -localonly",
            ),
            row(
                ["", "order-nodes", "", ""],
                Value("ORDER"),
                Refused("list the nodes in the order you want: -hosts a,b"),
                "",
            ),
            row(["", "hosts-group", "", ""], Value("GROUPS"), Refused("write -hosts gpu[01-16]"), ""),
            row(
                ["", "", "", "arch"],
                Value("NAME"),
                Refused("label nodes (rsctl node label) and select them: -host +arch=NAME"),
                "",
            ),
            row(["", "", "", "file"], Value("FILE"), Refused("its form is not defined; use -configfile"), ""),
            row(
                ["add-host add-hostfile", "", "", ""],
                Value("HOSTS"),
                Refused("start daemons there: rsctl help several-machines"),
                "",
            ),
        ],
    ),
    (
        "Placement",
        &[
            row(
                ["", "ppn perhost grr", "cores", ""],
                Value("N"),
                Does::PerNodeInTurns,
                "N ranks per node and turn, by Hydra's rules",
            ),
            row(["N npernode", "", "", ""], Value("N"), Does::PerNode, "--map-by ppr:N:node"),
            row(["pernode", "", "", ""], Nothing, Does::OnePerNode, "--map-by ppr:1:node"),
            row(["npersocket", "", "", ""], Value("N"), Does::PerPackage, "--map-by ppr:N:package --bind-to package"),
            row(["map-by", "map-by", "", ""], Value("MAPPING"), Does::MapBy, "as rsctl run"),
            row(["ppr", "", "", ""], Value("N:OBJECT"), Does::Ppr, "--map-by ppr:N:OBJECT"),
            row(["bynode", "rr", "", ""], Nothing, Does::MapTo("node"), "--map-by node"),
            row(["byslot", "", "", ""], Nothing, Does::MapTo("slot"), "--map-by slot"),
            row(["bycore", "", "", ""], Nothing, Does::MapTo("core"), "--map-by core"),
            row(["rank-by", "", "", ""], Value("ORDER"), Does::RankBy, "as rsctl run"),
            row(["bind-to", "bind-to", "", ""], Value("CPUS"), Does::BindTo, "as rsctl run; core:2 is --map-by :pe=2"),
            row(["bind-to-core", "", "affinity", ""], Nothing, Does::BoundTo("core"), "--bind-to core"),
            row(["bind-to-socket", "", "", ""], Nothing, Does::BoundTo("package"), "--bind-to package"),
            row(["bind-to-none", "", "", ""], Nothing, Does::BoundTo("none"), "--bind-to none"),
            row(["", "membind", "", "mem-bind"], Value("MEMORY"), Does::MemBind, "as rsctl run --mem-bind"),
            row(["rf rankfile", "", "", ""], Value("FILE"), Does::RankFile, "as rsctl run"),
            row(["oversubscribe", "", "", ""], Nothing, Does::Oversubscribe, "more ranks than slots are allowed"),
            row(["nooversubscribe", "", "", ""], Nothing, Does::NoOversubscribe, "never more ranks than slots"),
            row(["use-hwthread-cpus", "", "", ""], Nothing, Does::ThreadsAsCpus, "hardware threads count as cpus"),
            row(["cpus-per-proc cpus-per-rank", "", "", ""], Value("N"), Does::CpusPerRank, "--map-by :pe=N"),
            row(["cpu-list cpu-set", "", "", ""], Value("CPUS"), Does::CpuList, "--map-by pe-list=CPUS"),
            row(
                ["", "gpus-per-proc", "", ""],
                Value("N"),
                Does::Gpus,
                "--gpus-per-rank N --gpus-visible; auto: nothing",
            ),
            row(["", "", "", "compat"], Value("LAUNCHER"), Does::Compat, "places ranks by openmpi5's or hydra's rules"),
            row(["personality", "", "", ""], Value("NAME"), Accepted, "nothing is needed; see -compat"),
            row(["", "rankmap", "", ""], Value("MAP"), Refused("write -rankfile FILE, or -map-by seq -host a,b,b"), ""),
            row(
                ["", "", "affinity_layout al", ""],
                Value("LAYOUT"),
                Refused("write -map-by and -bind-to: rsctl help placement"),
                "",
            ),
        ],
    ),
    (
        "Environment",
        &[
            row(["", "env", "env", ""], Pair, Does::Env(Scope::Program), "sets a variable for this program"),
            row(["", "genv", "genv", ""], Pair, Does::Env(Scope::All), "sets a variable for all programs"),
            row(["", "envall", "", ""], Nothing, Does::EnvAll(Scope::Program), "passes the environment (default)"),
            row(["", "genvall", "genvall", ""], Nothing, Does::EnvAll(Scope::All), "passes the environment (default)"),
            row(["", "envnone", "", ""], Nothing, Does::EnvNone(Scope::Program), "passes no variables to this program"),
            row(["", "genvnone", "genvnone", ""], Nothing, Does::EnvNone(Scope::All), "passes no variables"),
            row(
                ["", "envlist", "", ""],
                Value("NAMES"),
                Does::EnvList(Scope::Program),
                "passes only these to this program",
            ),
            row(["", "genvlist", "genvlist", ""], Value("NAMES"), Does::EnvList(Scope::All), "passes only these"),
            row(
                ["x", "", "", ""],
                Value("NAME[=VALUE]"),
                Does::Export,
                "sets or passes a variable; NAME* passes all that begin so",
            ),
            row(
                ["mca gmca omca", "", "", ""],
                Two("NAME VALUE"),
                Does::Parameter("OMPI_MCA_"),
                "sets OMPI_MCA_NAME=VALUE for the ranks",
            ),
            row(
                ["prtemca", "", "", ""],
                Two("NAME VALUE"),
                Does::Parameter("PRTE_MCA_"),
                "sets PRTE_MCA_NAME=VALUE for the ranks",
            ),
            row(
                ["pmixmca gpmixmca", "", "", ""],
                Two("NAME VALUE"),
                Does::Parameter("PMIX_MCA_"),
                "sets PMIX_MCA_NAME=VALUE for the ranks",
            ),
            row(
                ["wdir wd", "wdir", "wdir dir", "cwd"],
                Value("DIR"),
                Does::Directory(Scope::Program),
                "directory in which this program starts",
            ),
            row(
                ["", "gwdir", "gwdir gdir", ""],
                Value("DIR"),
                Does::Directory(Scope::All),
                "directory for all programs",
            ),
            row(
                ["path", "path", "path", ""],
                Value("DIRS"),
                Does::Path(Scope::Program),
                "searched for this program before PATH",
            ),
            row(["", "", "gpath", ""], Value("DIRS"), Does::Path(Scope::All), "searched for all programs before PATH"),
            row(["", "umask gumask", "", ""], Value("MODE"), Does::Umask, "umask of the ranks, in octal"),
            row(
                ["", "", "priority iuserpriority", ""],
                Value("0-4"),
                Does::Priority,
                "nice value 19, 10, 0, -5 or -10",
            ),
            row(["am tune", "", "", ""], Value("FILES"), Refused("set each parameter with -mca NAME VALUE"), ""),
        ],
    ),
    (
        "Input and output",
        &[
            row(["", "l prepend-rank", "l lines", "label"], Nothing, Does::Label, "[rank] before each line"),
            row(["tag-output", "", "", ""], Nothing, Does::Tag, "[job,rank]<stdout>: before each line"),
            row(
                ["timestamp-output", "prepend-timestamp", "", ""],
                Nothing,
                Does::Timestamp,
                "the time in UTC before each line",
            ),
            row(
                ["", "prepend-pattern", "", ""],
                Value("PATTERN"),
                Does::LabelPattern,
                "text before each line: %r rank, %h node, %p its index, %j job",
            ),
            row(
                ["", "outfile-pattern outfile", "", ""],
                Value("PATTERN"),
                Does::StdoutFile,
                "stdout to files here: out.%r.%h.%j",
            ),
            row(["", "errfile-pattern errfile", "", ""], Value("PATTERN"), Does::StderrFile, "stderr to files here"),
            row(
                ["output-filename", "", "", ""],
                Value("DIR[:nocopy]"),
                Does::OutputFiles,
                "also to files here: DIR/1/rank.N/stdout and stderr",
            ),
            row(
                ["output", "", "", ""],
                Value("WORDS"),
                Does::Output,
                "tag, timestamp, merge, dir=DIR, file=FILE (FILE.RANK.out), with :nocopy",
            ),
            row(["merge-stderr-to-stdout", "", "", ""], Nothing, Does::Merge, "stderr of ranks is printed on stdout"),
            row(["stdin", "", "", ""], Value("RANK|all|none"), Does::Stdin, "ranks that read standard input"),
            row(
                ["s", "s", "", ""],
                Value("RANK|all|none"),
                Does::StdinOrPreload,
                "as -stdin; alone (preload in Open MPI), ignored",
            ),
            row(
                ["", "", "logfile", ""],
                Value("FILE"),
                Refused("write -outfile-pattern FILE -errfile-pattern FILE"),
                "",
            ),
            row(["xml", "", "", ""], Nothing, Refused("for programs, `rsctl run --json` prints events"), ""),
            row(
                ["xterm xml-file", "", "", ""],
                Value("WORD"),
                Refused("write one file per rank: -outfile-pattern out.%r"),
                "",
            ),
            row(["stream-buffering", "", "", ""], Value("0|1|2"), Accepted, "output is passed on line by line"),
        ],
    ),
    (
        "The job and mpiexec",
        &[
            row(
                ["timeout", "", "timeout", "maxtime"],
                Value("SECONDS"),
                Does::Timeout,
                "ends the job after this time; also MPIEXEC_TIMEOUT",
            ),
            row(
                ["", "print-all-exitcodes", "exitcodes", ""],
                Nothing,
                Does::ExitCodes,
                "prints how each rank ended, on stderr",
            ),
            row(
                [
                    "report-bindings display-map display-allocation display-diffable-map",
                    "print-rank-map",
                    "",
                    "show-plan",
                ],
                Nothing,
                Does::ShowPlan,
                "prints the placement before the start",
            ),
            row(["display", "", "", ""], Value("WORDS"), Does::ShowPlan, "prints the placement before the start"),
            row(["do-not-launch", "", "", ""], Nothing, Does::PlanOnly, "prints the placement, starts nothing"),
            row(["q quiet", "", "", ""], Nothing, Does::Quiet, "does not report what the job waits for"),
            row(
                ["v verbose", "v verbose", "verbose", ""],
                Nothing,
                Does::ShowPlan,
                "prints the placement before the start",
            ),
            row(["", "info", "", ""], Nothing, Does::Info, "version and paths"),
            row(["V version", "version", "", ""], Nothing, Does::Version, "the version"),
            row(["h help", "h help", "help ?", "usage"], Nothing, Does::Help, "these options"),
            row(["dvm", "", "", ""], Value("NAME"), Does::Dvm, "the daemon to use, as rsctl --dvm"),
            row(
                ["", "", "nompi", "allow-singletons"],
                Nothing,
                Does::AllowSingletons,
                "ranks may run as worlds of one",
            ),
            row(["allow-run-as-root", "", "nopm noprompt nopopup_debug", ""], Nothing, Accepted, "nothing is needed"),
            row(
                ["", "disable-hostname-propagation enable-x disable-x silent-abort", "", ""],
                Nothing,
                Accepted,
                "nothing is needed",
            ),
            row(
                ["prefix launch-agent", "launcher launcher-exec bootstrap bootstrap-exec rmk localhost", "", ""],
                Value("WORD"),
                Ignored(ON_NODES),
                "ignored, with a notice",
            ),
            row(
                [
                    "noprefix novm do-not-resolve fwd-mpirun-port leave-session-attached use-regexp enable-instant-on-support",
                    "hybrid-hosts",
                    "",
                    "",
                ],
                Nothing,
                Ignored(ON_NODES),
                "ignored, with a notice",
            ),
            row(
                ["preload-binary set-cwd-to-session-dir", "", "", ""],
                Nothing,
                Ignored("rsd copies no files; the program must be on each node"),
                "ignored, with a notice",
            ),
            row(
                ["preload-files", "", "", ""],
                Value("FILES"),
                Refused("rsd copies no files: put them on each node"),
                "",
            ),
            row(
                ["", "iface", "", ""],
                Value("NAME"),
                Ignored("the daemons choose addresses: rsd start --interface NAME"),
                "ignored, with a notice",
            ),
            row(
                ["ompi-server", "nameserver", "", ""],
                Value("ADDRESS"),
                Ignored("the head serves published names"),
                "ignored, with a notice",
            ),
            row(
                ["", "memory-alloc-kinds", "", ""],
                Value("KINDS"),
                Ignored("rsd's process manager has no memory kinds"),
                "ignored, with a notice",
            ),
            row(
                ["", "pmi-port profile aps mps prot", "", ""],
                Nothing,
                Ignored("it concerns Hydra's own processes"),
                "ignored, with a notice",
            ),
            row(
                ["", "demux topolib pmi ranks-per-proc", "", ""],
                Value("WORD"),
                Ignored("it concerns Hydra's own processes"),
                "ignored, with a notice",
            ),
            row(["", "disable-auto-cleanup", "", ""], Nothing, Does::Survive, "`--on-rank-loss continue`"),
            row(
                [
                    "d debug-devel debug-daemons debug-daemons-file show-progress display-topo display-devel-map",
                    "",
                    "debug",
                    "",
                ],
                Nothing,
                Ignored(NO_LOGS),
                "ignored, with a notice",
            ),
            row(
                ["", "", "log logon plaintext impersonate delegate mapall", ""],
                Nothing,
                Ignored("it concerns Windows"),
                "ignored, with a notice",
            ),
            row(
                ["", "", "map gmap job pwdfile user phrase smpdfile port p tracefile", ""],
                Value("WORD"),
                Ignored("it concerns Windows or smpd"),
                "ignored, with a notice",
            ),
            row(["enable-recovery continuous", "", "", ""], Nothing, Does::Survive, "`--on-rank-loss continue`"),
            row(["disable-recovery", "", "", ""], Nothing, Accepted, "nothing is needed"),
            row(
                ["report-child-jobs-separately", "", "", ""],
                Nothing,
                Refused("the exit code is that of the first job of the family that failed"),
                "",
            ),
            row(
                ["with-ft", "", "", ""],
                Value("KIND"),
                Does::FaultTolerance,
                "`--on-rank-loss continue` and `OMPI_MCA_mpi_ft_enable=1`; KIND is `mpi`, `ulfm` or `none`",
            ),
            row(
                ["forward-signals", "", "", ""],
                Value("SIGNALS"),
                Ignored("`rsctl signal` sends signals to ranks"),
                "ignored, with a notice",
            ),
            row(["index-argv-by-rank", "", "", ""], Nothing, Refused("ranks find their number in RSD_RANK"), ""),
            row(["output-proctable", "", "", ""], Nothing, Refused("`rsctl job show` lists the ranks"), ""),
            row(
                ["report-events cartofile cf", "", "", ""],
                Value("WORD"),
                Refused("rsd has no such thing; leave it out"),
                "",
            ),
            row(["max-restarts", "", "", ""], Value("N"), Refused("rsd restarts no ranks"), ""),
            row(
                ["runtime-options rtos", "", "", ""],
                Value("WORDS"),
                Refused("use the options of this table: -timeout, -do-not-launch"),
                "",
            ),
            row(
                ["get-stack-traces report-state-on-timeout", "", "", ""],
                Nothing,
                Ignored("`rsctl waits` shows what a job waits for"),
                "ignored, with a notice",
            ),
            row(
                ["tv", "gdb", "", ""],
                Nothing,
                Refused("start the debugger as the program: mpiexec -n 2 xterm -e gdb ./a.out"),
                "",
            ),
            row(
                ["debugger", "gtool gtoolfile gdb-args", "", ""],
                Value("WORD"),
                Refused("start the tool as the program, with yours as its argument"),
                "",
            ),
            row(
                ["report-uri report-pid hnp max-vm-size", "", "", ""],
                Value("WORD"),
                Refused("a DVM is started with rsd start: rsctl help getting-started"),
                "",
            ),
        ],
    ),
];
