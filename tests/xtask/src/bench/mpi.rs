//! `cargo xtask bench mpi`: compares rsd's MPI library with MPICH and Open MPI. Three C programs (`tests/bench/mpi/bench.c`, `rma.c` and
//! `threads.c`) are built for each of them.
//!
//! With two ranks, each has a core of its own (`taskset`); with more, the kernel places them. For TCP, the libraries are
//! configured not to use shared memory; for TCP between nodes, rsd runs several daemons.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::figures::{Figures, Measure, collect, mark};
use super::machine;
use super::nodes;
use super::sweep;
use super::turns::{Contender, in_turn_for};
use crate::places;
use crate::prefix;
use crate::programs;
use crate::setup;
use crate::shell::{quiet, step};
use crate::stage::Stage;

/// Milliseconds per figure between two ranks, and the factor for the number of rounds.
const BUDGET: &str = "60";
const ROUNDS_FOR_TWO: usize = 5;
const COLLECTIVE_BUDGET: &str = "150";

/// The values of `--only`.
const SECTIONS: [&str; 8] = ["p2p", "tcp", "coll", "rma", "threads", "start", "nodes", "size"];

/// The programs: that of most sections, and those of `rma` and `threads`.
const BENCH: &str = "bench";
const RMA: &str = "rma";
const THREADS: &str = "threads";

struct Wanted {
    sections: Vec<String>,
    /// Without rsd's library.
    peers_only: bool,
    /// rsd's library under Hydra, without daemons of rsd.
    hydra: bool,
    rounds: usize,
}

fn wanted(args: &[OsString]) -> anyhow::Result<Wanted> {
    const HOW: &str = "cargo xtask bench mpi [--only p2p,tcp,coll,rma,threads,start,nodes,size] [--peers-only] [--hydra] [--rounds N], or --sweep";
    let mut wanted =
        Wanted { sections: SECTIONS.map(str::to_owned).into(), peers_only: false, hydra: false, rounds: 5 };
    let mut words = args.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match &*word {
            "--peers-only" => wanted.peers_only = true,
            "--hydra" => wanted.hydra = true,
            "--only" => {
                let list = words.next().context(HOW)?;
                wanted.sections = list.split(',').map(str::to_owned).collect();
                anyhow::ensure!(wanted.sections.iter().all(|name| SECTIONS.contains(&name.as_str())), HOW);
            }
            "--rounds" => wanted.rounds = words.next().and_then(|number| number.parse().ok()).context(HOW)?,
            _ => bail!("{HOW}"),
        }
    }
    anyhow::ensure!(wanted.rounds > 0, HOW);
    Ok(wanted)
}

/// `cargo xtask bench mpi`.
pub(super) fn bench(args: &[OsString]) -> anyhow::Result<()> {
    if args.iter().any(|arg| arg == "--sweep") {
        return sweep::bench(args);
    }
    let wanted = wanted(args)?;
    setup::setup(&[])?;
    let binaries = if wanted.peers_only { places::binaries()? } else { programs::build()? };
    let stage = Stage::set("bench-mpi", binaries)?;
    let bench = Bench::build(stage, &wanted)?;
    println!("\n{}; medians of {} rounds in turn", machine()?, wanted.rounds);
    let two = |title: &str, way: Way, what: &str| {
        let rounds = wanted.rounds * ROUNDS_FOR_TWO;
        let program = if matches!(what, "rma" | "beside" | "overlap") { RMA } else { BENCH };
        let figures = bench.figures(rounds, way, (2, program), &[what, BUDGET], &|| bench.distance())?;
        figures.print_by_distance(&format!("np = 2, {title}"), &bench.names(way), bench.ours);
        anyhow::Ok(())
    };
    for section in &wanted.sections {
        match section.as_str() {
            "p2p" => two("shared memory", Way::Shared, "p2p")?,
            "tcp" => two("TCP", Way::Tcp, "p2p")?,
            "coll" => {
                two("collectives", Way::Shared, "coll")?;
                for ranks in [4, 8, 16] {
                    bench.jobs(&format!("np = {ranks}"), Way::Shared, ranks, &["coll", COLLECTIVE_BUDGET])?;
                }
            }
            "rma" => {
                two("one-sided, shared memory", Way::Shared, "rma")?;
                two("one-sided, TCP", Way::Nodes, "rma")?;
                two("vectors, neighbours and threads", Way::Shared, "beside")?;
                bench.overlaps()?;
            }
            "threads" => {
                let figures = bench.figures(bench.rounds, Way::Shared, (2, THREADS), &[BUDGET], &|| Ok(0.0))?;
                figures.print("np = 2, threads, shared memory", &bench.names(Way::Shared), bench.ours);
            }
            "start" => bench.starts()?,
            "nodes" if bench.ours => nodes::starts(&bench.stage, bench.rounds)?,
            "nodes" => {}
            _ => bench.weighs()?,
        }
    }
    bench.end()
}

/// The transport of the messages, and where rsd's ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Shared,
    /// TCP between processes of one launcher, as with the other libraries.
    Tcp,
    /// TCP between daemons, each with one rank. Each rank is in a session of its own, and Linux divides the processors among sessions
    /// first. The ranks of the other libraries share one, and rsd's of one daemon do if they are more than the processors.
    Nodes,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Shared, Self::Tcp, Self::Nodes];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Tcp => "tcp",
            Self::Nodes => "nodes",
        }
    }
}

/// The library that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Ours,
    Mpich,
    /// MPICH with its other network module, which is slower in some cases and faster in others.
    MpichOfi,
    OpenMpi,
}

impl Library {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "rsd",
            Self::Mpich => "MPICH",
            Self::MpichOfi => "MPICH (OFI)",
            Self::OpenMpi => "Open MPI",
        }
    }
}

pub(super) struct Bench {
    stage: Stage,
    /// The program that every library runs, unless another is named: a source file beside `bench.c`, without its ending.
    program: &'static str,
    ours: bool,
    hydra: bool,
    rounds: usize,
    /// Two CPUs of different cores.
    cpus: [String; 2],
}

/// The program that measures [`Bench::distance`].
const DISTANCE: &str = "distance";

const ONE_NODE: &str = "one";
/// One rank on each, for [`Way::Nodes`].
const NODES: [&str; 4] = ["node-a", "node-b", "node-c", "node-d"];

impl Bench {
    fn build(stage: Stage, wanted: &Wanted) -> anyhow::Result<Self> {
        Self::compile(stage, &[BENCH, RMA, THREADS], !wanted.peers_only, wanted.hydra, wanted.rounds)
    }

    /// Builds another program than `bench.c` for every library.
    pub(super) fn build_program(stage: Stage, program: &'static str) -> anyhow::Result<Self> {
        Self::compile(stage, &[program], true, false, 1)
    }

    fn compile(
        stage: Stage,
        programs: &[&'static str],
        ours: bool,
        hydra: bool,
        rounds: usize,
    ) -> anyhow::Result<Self> {
        let compile = |compiler: PathBuf, library: &str| {
            programs.iter().try_for_each(|program| {
                let mut command = Command::new(&compiler);
                let source = places::root().join("tests/bench/mpi").join(program).with_extension("c");
                let output = stage.dir().join(format!("{program}-{library}"));
                quiet(command.args(["-O2", "-pthread", "-o"]).arg(output).arg(&source)).map(drop)
            })
        };
        step("compile the bench", || {
            let distance = places::root().join("tests/bench/mpi/distance.c");
            let mut command = Command::new("cc");
            quiet(command.args(["-O2", "-pthread", "-o"]).arg(stage.dir().join(DISTANCE)).arg(distance))?;
            compile(places::peer("mpich")?.join("bin/mpicc_abi"), "mpich")?;
            compile(places::peer("openmpi")?.join("bin/mpicc"), "openmpi")?;
            if ours { compile(release_prefix()?.join("bin/mpicc"), "rsd") } else { Ok(()) }
        })?;
        let bench = Self { stage, program: programs[0], ours, hydra, rounds, cpus: cpus_of_two_cores()? };
        if ours && !bench.hydra {
            bench.start_daemons()?;
        }
        Ok(bench)
    }

    fn start_daemons(&self) -> anyhow::Result<()> {
        let start = |args: &[&str]| quiet(self.stage.command("rsd")?.arg("start").args(args)).map(drop);
        start(&["--name", ONE_NODE])?;
        start(&["--name", NODES[0], "--slots", "1", "--listen", "127.0.0.1:0"])?;
        let head = self.stage.listen(NODES[0])?;
        NODES[1..].iter().try_for_each(|node| start(&["--name", node, "--slots", "1", "--join", &head]))
    }

    /// The directory in which the programs run.
    pub(super) fn dir(&self) -> &Path {
        self.stage.dir()
    }

    pub(super) fn end(self) -> anyhow::Result<()> {
        if self.ours && !self.hydra {
            for daemon in [ONE_NODE, NODES[0]] {
                quiet(self.stage.command("rsd")?.args(["stop", "--force", "--dvm", daemon]))?;
            }
        }
        Ok(())
    }

    /// The contenders, rsd first.
    pub(super) fn contenders(&self, way: Way) -> Vec<Library> {
        let ours = self.ours.then_some(Library::Ours);
        let ofi = (way != Way::Shared).then_some(Library::MpichOfi);
        ours.into_iter().chain([Library::Mpich]).chain(ofi).chain([Library::OpenMpi]).collect()
    }

    fn names(&self, way: Way) -> Vec<&'static str> {
        self.contenders(way).into_iter().map(Library::name).collect()
    }

    /// Runs one job of each contender in turn and prints the table.
    fn jobs(&self, title: &str, way: Way, ranks: usize, args: &[&str]) -> anyhow::Result<()> {
        let figures = self.figures(self.rounds, way, (ranks, BENCH), args, &|| Ok(0.0))?;
        figures.print(title, &self.names(way), self.ours && args[0] != "memory");
        Ok(())
    }

    /// Collects the figures of jobs, one of each contender in turn.
    fn figures(
        &self,
        rounds: usize,
        way: Way,
        (ranks, program): (usize, &str),
        args: &[&str],
        distance: Measure<'_>,
    ) -> anyhow::Result<Figures> {
        let contenders = self.contenders(way);
        let job = |mpi: Library| move || self.command_of(mpi, way, (ranks, program), args, ranks == 2);
        let commands: Vec<_> = contenders.iter().map(|&mpi| job(mpi)).collect();
        let turns: Vec<Contender<'_>> = commands.iter().map(|command| command as Contender<'_>).collect();
        collect(&turns, rounds, self.stage.dir(), distance)
    }

    /// Measures the nanoseconds for a cache line to go from one of the two CPUs to the other and back.
    fn distance(&self) -> anyhow::Result<f64> {
        let told = quiet(Command::new(self.stage.dir().join(DISTANCE)).args(&self.cpus))?.stdout;
        let told = String::from_utf8_lossy(&told);
        told.trim().parse().with_context(|| format!("read {told:?} as nanoseconds"))
    }

    /// Measures whole jobs that only start and end.
    fn starts(&self) -> anyhow::Result<()> {
        const MARK: f64 = 0.3;
        let contenders = self.contenders(Way::Shared);
        let names: String = contenders.iter().map(|mpi| format!(" {} |", mpi.name())).collect();
        let compared = if self.ours { (" rsd / MPICH | mark |", 2) } else { ("", 0) };
        println!("\n| MPI_Init to MPI_Finalize (ms), np = |{names}{}", compared.0);
        println!("|---|{}", "---|".repeat(contenders.len() + compared.1));
        for ranks in [2, 8, 32] {
            let job = |mpi: Library| move || self.command_of(mpi, Way::Shared, (ranks, BENCH), &["start"], false);
            let commands: Vec<_> = contenders.iter().map(|&mpi| job(mpi)).collect();
            let turns: Vec<Contender<'_>> = commands.iter().map(|command| command as Contender<'_>).collect();
            let times = in_turn_for(&turns, self.rounds)?;
            let cells: String = times.iter().map(|times| format!(" {} |", times.text())).collect();
            let compared = match times.as_slice() {
                [ours, mpich, ..] if self.ours => {
                    let met = ours.median().zip(mpich.median()).is_some_and(|(ours, theirs)| ours <= MARK * theirs);
                    format!(" {} | {} |", ours.over(mpich), mark(met))
                }
                _ => String::new(),
            };
            println!("| {ranks} |{cells}{compared}");
        }
        Ok(())
    }

    /// Measures how much of a transfer goes on while both ranks compute: with a thread for progress and without. No other library has such
    /// a thread that is on by default.
    fn overlaps(&self) -> anyhow::Result<()> {
        if !self.ours {
            return Ok(());
        }
        let kinds = [("one", Way::Shared), ("two", Way::Nodes)];
        for (nodes, way) in kinds {
            let job = |setting: &'static str| {
                move || {
                    let mut command = self.command_of(Library::Ours, way, (2, RMA), &["overlap"], true)?;
                    command.env("RSD_MPI_PROGRESS", setting);
                    Ok(command)
                }
            };
            let (none, thread) = (job("none"), job("thread"));
            let turns: [Contender<'_>; 2] = [&none, &thread];
            let figures = collect(&turns, self.rounds, self.stage.dir(), &|| Ok(0.0))?;
            figures.print(&format!("np = 2 on {nodes}, overlap"), &["RSD_MPI_PROGRESS=none", "=thread"], false);
        }
        Ok(())
    }

    /// Measures the memory of sixteen ranks that have all communicated with each other, and the size of the library on disk.
    fn weighs(&self) -> anyhow::Result<()> {
        self.jobs("np = 16, private memory of a rank", Way::Shared, 16, &["memory"])?;
        if self.ours {
            let prefix = release_prefix()?;
            let stripped = self.stage.dir().join("stripped");
            quiet(Command::new("strip").arg(prefix.join(prefix::MPI.file())).arg("-o").arg(&stripped))?;
            let mib = fs::metadata(&stripped)?.len() as f64 / f64::from(1 << 20);
            println!(
                "\nThe library, stripped: {mib:.2} MiB. Marks: under 2 MiB private memory, under 3 MB of library."
            );
        }
        Ok(())
    }

    pub(super) fn command(&self, mpi: Library, way: Way, ranks: usize, args: &[&str]) -> anyhow::Result<Command> {
        self.command_of(mpi, way, (ranks, self.program), args, ranks == 2)
    }

    /// The launcher's command line for this many ranks of a program.
    fn command_of(
        &self,
        mpi: Library,
        way: Way,
        (ranks, program): (usize, &str),
        args: &[&str],
        pinned: bool,
    ) -> anyhow::Result<Command> {
        let (mut command, library) = match mpi {
            Library::Ours if self.hydra => (self.hydra()?, "rsd"),
            Library::Ours => (self.rsctl(way)?, "rsd"),
            Library::Mpich | Library::MpichOfi => (self.hydra()?, "mpich"),
            Library::OpenMpi => (self.mpirun(way)?, "openmpi"),
        };
        let program = &format!("./{program}-{library}");
        match (mpi, way) {
            (_, Way::Shared) | (Library::OpenMpi, Way::Tcp | Way::Nodes) => {}
            (Library::Ours, Way::Nodes) if !self.hydra => {}
            (Library::Ours, Way::Tcp | Way::Nodes) => drop(command.env("RSD_MPI_SHM", "off")),
            (Library::Mpich, Way::Tcp | Way::Nodes) => {
                command.envs([("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "tcp,self")]);
            }
            (Library::MpichOfi, Way::Tcp | Way::Nodes) => {
                command.envs([("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")]);
            }
        }
        if pinned {
            for (at, cpu) in self.cpus.iter().enumerate() {
                command.args(if at > 0 { &[":"][..] } else { &[] });
                command.args(["-n", "1", "taskset", "-c", cpu, program]).args(args);
            }
        } else {
            command.args(["-n", &ranks.to_string(), program]).args(args);
        }
        Ok(command)
    }

    fn rsctl(&self, way: Way) -> anyhow::Result<Command> {
        let mut command = self.stage.command("rsctl")?;
        match way {
            Way::Shared | Way::Tcp => command.args(["run", "--dvm", ONE_NODE, "--oversubscribe"]),
            Way::Nodes => command.args(["run", "--dvm", NODES[0], "--map-by", "node"]),
        };
        Ok(command)
    }

    fn hydra(&self) -> anyhow::Result<Command> {
        self.stage.command(places::peer("mpich")?.join("bin/mpiexec.hydra"))
    }

    fn mpirun(&self, way: Way) -> anyhow::Result<Command> {
        let mut command = self.stage.command(places::peer("openmpi")?.join("bin/mpirun"))?;
        command.args(["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]);
        if way != Way::Shared {
            command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
        }
        Ok(command)
    }
}

/// The prefix of rsd's library, built for release.
fn release_prefix() -> anyhow::Result<PathBuf> {
    Ok(prefix::stage(&places::target()?.join("release"))?)
}

/// The first two CPUs that this process may use and that do not share a core.
fn cpus_of_two_cores() -> anyhow::Result<[String; 2]> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("list the allowed CPUs")?;
    let mut cpus = list.trim().split(',').flat_map(|range| {
        let mut ends = range.split('-').map(|end| end.parse::<u32>().unwrap_or(0));
        let first = ends.next().unwrap_or(0);
        first..=ends.next().unwrap_or(first)
    });
    let core = |cpu: u32| {
        let topology = Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}/topology"));
        fs::read_to_string(topology.join("thread_siblings_list")).unwrap_or_else(|_| cpu.to_string())
    };
    let first = cpus.next().context("list the allowed CPUs")?;
    let second =
        cpus.find(|&cpu| core(cpu) != core(first)).context("find two cores: one core gives no useful figures")?;
    Ok([first.to_string(), second.to_string()])
}
