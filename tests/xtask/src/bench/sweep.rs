//! `cargo xtask bench mpi --sweep`: compares MPI libraries at every size, with every kind of call (`tests/bench/mpi/sweep.c`).
//!
//! A job measures one kind with one number of ranks. The contenders run it in turn, round after round, and every cell is compared with the
//! better of the other libraries in the same round, or with the processors at the same distance, where the program can measure that. A round during which the host took more than [`STOLEN`] of the processors' time is
//! repeated. What was measured is appended to a file, so that a sweep can be made in parts; tables and heat maps are drawn from the file, for
//! each machine (`--machine`) apart.

mod cells;
mod heat;
mod tables;

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::machine;
use super::mpi::{Bench, Library, Way};
use super::turns::{Run, timed_after, turns};
use crate::places;
use crate::programs;
use crate::setup;
use crate::stage::Stage;

const HOW: &str = "cargo xtask bench mpi --sweep [--only KIND,...] [--np 2,4,8,16] [--way shared,tcp,nodes] [--longest BYTES] \
     [--rounds N] [--ms MILLISECONDS] [--noisy] [--again] [--fresh] [--draw] [--machine NAME]";

/// The kinds of `sweep.c`, and whether they are between pairs of ranks.
const KINDS: [(&str, bool); 36] = [
    ("latency", true),
    ("latency cold", true),
    ("one way x1", true),
    ("one way x16", true),
    ("one way x64", true),
    ("one way cold x16", true),
    ("both ways x1", true),
    ("both ways x16", true),
    ("both ways x64", true),
    ("barrier", false),
    ("bcast", false),
    ("bcast from all", false),
    ("gather", false),
    ("gatherv", false),
    ("scatter", false),
    ("scatterv", false),
    ("allgather", false),
    ("allgatherv", false),
    ("alltoall", false),
    ("alltoallv", false),
    ("alltoallw", false),
    ("reduce", false),
    ("allreduce", false),
    ("reduce_scatter_block", false),
    ("reduce_scatter", false),
    ("scan", false),
    ("exscan", false),
    ("ibarrier", false),
    ("ibcast", false),
    ("igather", false),
    ("iscatter", false),
    ("iallgather", false),
    ("ialltoall", false),
    ("ireduce", false),
    ("iallreduce", false),
    ("ireduce_scatter_block", false),
];

/// The share of the processors' time that the host may take from a round.
const STOLEN: f64 = 0.02;
/// How often a round is repeated for that.
const REPEATS: usize = 2;
/// A job that takes longer counts as hung; what it has printed counts.
const DEADLINE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);

/// Pairs of ranks are measured with these numbers of ranks at most: more say nothing new on few cores.
const MOST_PAIRED: usize = 8;
/// One rank for each of the daemons that [`Bench`] starts for [`Way::Nodes`]; and MPICH's ranks, which poll, take seconds for a
/// call if there are more.
const MOST_OVER_TCP: usize = 4;

struct Wanted {
    kinds: Vec<(&'static str, bool)>,
    ranks: Vec<usize>,
    ways: Vec<Way>,
    longest: u64,
    rounds: usize,
    ms: u64,
    noisy: bool,
    /// The rounds that the record has of the same cells are replaced.
    again: bool,
    fresh: bool,
    draw: bool,
    machine: Option<String>,
}

fn wanted(args: &[OsString]) -> anyhow::Result<Wanted> {
    let mut wanted = Wanted {
        kinds: KINDS.to_vec(),
        ranks: vec![2, 4, 8, 16],
        ways: vec![Way::Shared, Way::Tcp],
        longest: 16 << 20,
        rounds: 3,
        ms: 20,
        noisy: false,
        again: false,
        fresh: false,
        draw: false,
        machine: None,
    };
    let mut words = args.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let mut value = || words.next().context(HOW);
        match &*word {
            "--sweep" => {}
            "--only" => {
                let list = value()?;
                let names: Vec<&str> = list.split(',').collect();
                wanted.kinds = KINDS.into_iter().filter(|(kind, _)| names.contains(kind)).collect();
                anyhow::ensure!(wanted.kinds.len() == names.len(), "unknown kind in {list:?}: {HOW}");
            }
            "--np" => {
                let numbers: Result<_, _> = value()?.split(',').map(str::parse).collect();
                wanted.ranks = numbers.context(HOW)?;
            }
            "--way" => {
                let way = |name: &str| Way::ALL.into_iter().find(|way| way.name() == name).context(HOW);
                wanted.ways = value()?.split(',').map(way).collect::<anyhow::Result<_>>()?;
            }
            "--longest" => wanted.longest = value()?.parse().context(HOW)?,
            "--rounds" => wanted.rounds = value()?.parse().context(HOW)?,
            "--ms" => wanted.ms = value()?.parse().context(HOW)?,
            "--noisy" => wanted.noisy = true,
            "--again" => wanted.again = true,
            "--fresh" => wanted.fresh = true,
            "--draw" => wanted.draw = true,
            "--machine" => {
                let name = value()?;
                let is_word = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-');
                anyhow::ensure!(
                    is_word && !name.is_empty(),
                    "the machine's name may have letters, digits and -: {HOW}"
                );
                wanted.machine = Some(name.into_owned());
            }
            _ => bail!(HOW),
        }
    }
    Ok(wanted)
}

/// The file with everything that was measured, and the folder of the tables and heat maps. Those of another machine lie beside.
fn places_of(machine: Option<&str>) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (target, folder) = (places::target()?, places::root().join("tests/bench/sweep"));
    Ok(match machine {
        None => (target.join("sweep.jsonl"), folder),
        Some(name) => (target.join(format!("sweep-{name}.jsonl")), folder.join(name)),
    })
}

/// `cargo xtask bench mpi --sweep`.
pub(super) fn bench(args: &[OsString]) -> anyhow::Result<()> {
    let wanted = wanted(args)?;
    let (record, into) = places_of(wanted.machine.as_deref())?;
    if wanted.fresh && record.exists() {
        fs::remove_file(&record)?;
    }
    if !wanted.draw {
        setup::setup(&[])?;
        measure(&wanted, &record)?;
    }
    let cells =
        cells::read(&fs::read_to_string(&record).with_context(|| {
            format!("read {} (--draw needs a sweep: run it without --draw first)", record.display())
        })?)?;
    fs::create_dir_all(&into)?;
    let maps = heat::write(&cells, &into)?;
    tables::write(&cells, &maps, &into)?;
    println!("{}", tables::summary(&cells));
    Ok(())
}

impl Wanted {
    /// Whether a line of a record is of a cell that is measured.
    fn measures(&self, line: &str) -> bool {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        // `bcast, no barrier` is of the kind `bcast`.
        let kind = line["figure"].as_str().and_then(|figure| figure.split(", ").next());
        let ranks = line["np"].as_u64().unwrap_or_default() as usize;
        self.kinds.iter().any(|(known, _)| Some(*known) == kind)
            && self.ways.iter().any(|way| line["way"] == way.name())
            && self.ranks.contains(&ranks)
            && line["noisy"] == self.noisy
    }
}

fn measure(wanted: &Wanted, record: &PathBuf) -> anyhow::Result<()> {
    let stage = Stage::set("bench-sweep", programs::build()?)?;
    let bench = Bench::build_program(stage, "sweep")?;
    let machine = machine()?;
    let sizes = odd_sizes(wanted.longest);
    println!("{machine}; besides powers of two: {sizes:?} bytes");
    if wanted.again && record.exists() {
        let before = fs::read_to_string(record)?;
        let kept: String = before.split_inclusive('\n').filter(|line| !wanted.measures(line)).collect();
        fs::write(record, kept)?;
    }
    let mut file = fs::File::options().create(true).append(true).open(record)?;
    writeln!(file, "{}", serde_json::json!({"machine": machine, "noisy": wanted.noisy}))?;
    let neighbour = if wanted.noisy { Some(Neighbour::start()?) } else { None };
    for &way in &wanted.ways {
        for &(kind, paired) in &wanted.kinds {
            for &ranks in &wanted.ranks {
                if paired && ranks > MOST_PAIRED || way != Way::Shared && ranks > MOST_OVER_TCP {
                    continue;
                }
                let ms = wanted.ms.to_string();
                let args: Vec<String> = [kind.to_owned(), ms, wanted.longest.to_string()]
                    .into_iter()
                    .chain(sizes.iter().map(u64::to_string))
                    .collect();
                let job = Job { bench: &bench, way, ranks, args, noisy: wanted.noisy };
                eprintln!("{} {kind}, {ranks} ranks", way.name());
                job.rounds(wanted.rounds, &mut file)?;
            }
        }
    }
    drop(neighbour);
    bench.end()
}

/// Three sizes that nobody has chosen: they follow from the day.
fn odd_sizes(longest: u64) -> Vec<u64> {
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let mut state = day;
    let mut random = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    [(33, 1 << 10), (1 << 10, 64 << 10), (64 << 10, 4 << 20)]
        .map(|(from, to)| (from + random() % (to - from)) | 1)
        .into_iter()
        .filter(|&bytes| bytes <= longest)
        .collect()
}

struct Job<'a> {
    bench: &'a Bench,
    way: Way,
    ranks: usize,
    args: Vec<String>,
    noisy: bool,
}

impl Job<'_> {
    /// Runs rounds of the job and appends what they print; up to twice as many while some cell cannot be compared.
    fn rounds(&self, rounds: usize, file: &mut fs::File) -> anyhow::Result<()> {
        let mut all = String::new();
        for round in 0..2 * rounds {
            if round >= rounds && cells::read(&all)?.unlike == 0 {
                break;
            }
            let lines = self.round()?;
            file.write_all(lines.as_bytes())?;
            all += &lines;
        }
        Ok(())
    }

    /// Runs the job once with each contender and returns what they print; again if the host took too much time.
    fn round(&self) -> anyhow::Result<String> {
        let contenders = self.bench.contenders(self.way);
        for again in 0..=REPEATS {
            let before = Stolen::now()?;
            let mut lines = String::new();
            let name = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
            let order = usize::from(name % 2 == 1);
            for (_, at) in turns(contenders.len(), order + 1).skip(order * contenders.len()) {
                lines += &self.run(contenders[at], name)?;
            }
            let stolen = Stolen::now()?.share_since(&before);
            if stolen <= STOLEN || again == REPEATS {
                return Ok(lines);
            }
            eprintln!("  again: the host took {:.1} % of the time", stolen * 1e2);
        }
        Ok(String::new())
    }

    fn run(&self, mpi: Library, round: u128) -> anyhow::Result<String> {
        let path = self.bench.dir().join("printed");
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut command = self.bench.command(mpi, self.way, self.ranks, &args)?;
        let run = timed_after(PAUSE, command.stdout(Stdio::from(fs::File::create(&path)?)), DEADLINE)?;
        let ended = match run {
            Run::Took(_) => None,
            Run::Hung => Some("hung"),
            Run::Failed => Some("failed"),
        };
        if let Some(ended) = ended {
            eprintln!("  {} {ended}", mpi.name());
        }
        let mut lines = String::new();
        for line in fs::read_to_string(&path)?.lines() {
            let Ok(serde_json::Value::Object(mut cell)) = serde_json::from_str(line) else { continue };
            cell.insert("round".to_owned(), round.to_string().into());
            cell.insert("way".to_owned(), self.way.name().into());
            cell.insert("noisy".to_owned(), self.noisy.into());
            cell.insert("mpi".to_owned(), mpi.name().into());
            lines += &serde_json::Value::Object(cell).to_string();
            lines.push('\n');
        }
        Ok(lines)
    }
}

/// Programs that use up one of every two processors, each in an endless loop.
struct Neighbour(Vec<Child>);

impl Neighbour {
    fn start() -> anyhow::Result<Self> {
        let count = std::thread::available_parallelism()?.get().div_ceil(2);
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().context("start a busy loop");
        Ok(Self((0..count).map(|_| busy()).collect::<anyhow::Result<_>>()?))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only if the loop has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processors' time, in clock ticks (proc(5), `/proc/stat`).
struct Stolen {
    stolen: u64,
    all: u64,
}

impl Stolen {
    fn now() -> anyhow::Result<Self> {
        const STEAL: usize = 7;
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
        // The last two columns are contained in the first two.
        Ok(Self { stolen: ticks.get(STEAL).copied().unwrap_or(0), all: ticks.iter().take(STEAL + 1).sum() })
    }

    fn share_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_again_replaces_the_same_cells_and_no_others() {
        let args = ["--only", "bcast", "--np", "2", "--way", "shared", "--again"].map(OsString::from);
        let wanted = wanted(&args).unwrap();
        let line = |figure: &str, np: u32, way: &str, noisy: bool| {
            serde_json::json!({"figure": figure, "np": np, "way": way, "noisy": noisy}).to_string()
        };
        assert!(wanted.again && wanted.measures(&line("bcast", 2, "shared", false)));
        assert!(wanted.measures(&line("bcast, no barrier", 2, "shared", false)));
        for other in [
            line("bcast from all", 2, "shared", false),
            line("bcast", 4, "shared", false),
            line("bcast", 2, "tcp", false),
            line("bcast", 2, "shared", true),
            r#"{"machine":"2 CPUs","noisy":false}"#.to_owned(),
        ] {
            assert!(!wanted.measures(&other), "{other}");
        }
    }
}
