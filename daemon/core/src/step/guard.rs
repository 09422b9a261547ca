//! Fails jobs whose ranks do not know of each other: if a program's MPI library cannot use rsd's process manager, its n processes run as
//! n worlds of one, print the same result n times, and exit with 0.
//!
//! A rank that has used its process manager, in whichever dialect, is not alone. For the others, in a job of several ranks that was not
//! submitted with `--allow-singletons`:
//!
//! - While no rank of this step has used its process manager, the step looks a few times, at growing intervals, at the libraries that a
//!   rank has mapped and at the environment that their process was started with. What a look finds counts when a rank of the program
//!   exits with 0, and ends the job from [`FIRM`] on: a program that only prints its version has ended by then.
//! - When a rank exits with 0, the libraries that its program would load are examined, so short programs are covered too.
//!
//! A process is *alone* if its MPI library asks for a process manager that it cannot reach: another one than rsd (Cray MPICH, an Open
//! MPI older than 4), or rsd's without its variables (`env -i`, a container). A library that reaches rsd would have used it in
//! `MPI_Init`, so a silent process with such a library has not called that, and nothing is wrong. With a library that cannot reach
//! rsd, nothing shows whether a process that has ended had called `MPI_Init`. It counts as alone, unless its arguments request only
//! help or the version. Missed are: a short program behind a wrapper that changes the environment or is a script, and an MPI library that
//! is linked into the program itself, except Open MPI.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::exits::Fault;
use super::{Effect, Local, Phase, Status, Step};
use crate::Now;

/// The times of the looks after the start: programs map the libraries they are linked against at once, interpreters when they
/// import.
const LOOKS: [Duration; 6] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    FIRM,
    Duration::from_millis(1500),
    Duration::from_secs(5),
    Duration::from_secs(20),
];
/// From this look on, a finding ends the job at once.
const FIRM: Duration = Duration::from_millis(400);

/// Arguments with which a program only prints something about itself.
const HELP: [&[u8]; 7] = [b"--help", b"-help", b"-h", b"--version", b"-version", b"-V", b"--usage"];

const SIGTERM: i32 = 15;

/// The state of the checks.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Whether ranks may not run alone.
    is_on: bool,
    /// Whether the ranks' environment leads PMIx clients to rsd.
    offers_pmix: bool,
    /// When the ranks were started; None: no further look is due.
    started: Option<Duration>,
    looks: usize,
    /// The rank at which the last look was.
    looked_at: Option<Local>,
    /// What the last look has found: the program, and why its processes are alone.
    seen: Option<(usize, String)>,
    /// Why the processes of a program are alone, by what it would load.
    linked: BTreeMap<usize, Option<String>>,
    /// The programs that are being examined for that.
    examined: BTreeSet<usize>,
}

impl Guard {
    fn due(&self) -> Option<Duration> {
        Some(self.started? + *LOOKS.get(self.looks)?)
    }
}

impl Step {
    /// Begins the checks when the ranks are being started. `offers_pmix`: their environment leads PMIx clients to rsd.
    pub(super) fn begin_guard(&mut self, now: Now, offers_pmix: bool) {
        self.guard.is_on = self.map.size() > 1 && !self.launch_spec().allow_singletons;
        self.guard.offers_pmix = offers_pmix;
        self.guard.started = self.guard.is_on.then_some(now.mono);
    }

    pub(super) fn guard_deadline(&self) -> Option<Duration> {
        self.guard.due()
    }

    pub(super) fn settle_guard(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.guard.due().is_none_or(|at| at > now.mono) {
            return;
        }
        self.guard.looks += 1;
        let running = self.ranks.iter().position(|rank| rank.phase == Phase::Running);
        let is_silent = !self.ranks.iter().any(|rank| rank.pmi.has_spoken()) && !self.ending.is_killing();
        self.guard.looked_at = running.filter(|_| is_silent);
        match self.guard.looked_at {
            Some(local) => out.push(Effect::Look(local)),
            None => self.guard.started = None,
        }
    }

    /// Handles the result of a look.
    pub(super) fn on_mapped(&mut self, now: Now, mapped: &Mapped, out: &mut Vec<Effect>) {
        let Some(local) = self.guard.looked_at.take() else { return };
        let app = self.ranks[local].app;
        let found = mapped.0.iter().find_map(|process| Some((process, alone(&process.files, process.reach?)?)));
        let offers_pmix = self.guard.offers_pmix;
        self.guard.seen = found.map(|(process, library)| (app, self.sentence(&library, process.reach, offers_pmix)));
        let is_firm = LOOKS.get(self.guard.looks.saturating_sub(1)).is_none_or(|at| *at >= FIRM);
        if let Some((_, why)) = self.guard.seen.clone().filter(|_| is_firm && self.may_be_alone(app)) {
            self.guard.started = None;
            let verdict = &mut self.ranks[local].verdict;
            verdict.fault.get_or_insert(Fault::Alone(why));
            verdict.kill_at.get_or_insert(now.mono + self.tuning.kill_grace);
            out.push(Effect::Signal(local, SIGTERM));
        }
    }

    /// Checks a rank that has ended without using its process manager. Returns true if its program must be examined first: the report of
    /// its exit waits for [`Step::on_links`].
    pub(super) fn check_alone(&mut self, local: Local, out: &mut Vec<Effect>) -> bool {
        let rank = &self.ranks[local];
        let is_silent = rank.phase == Phase::Exited(Status::Exited(0)) && !rank.pmi.has_spoken();
        let app = rank.app;
        if !self.guard.is_on || !is_silent || rank.verdict.was_told || !self.may_be_alone(app) {
            return false;
        }
        let seen = self.guard.seen.as_ref().filter(|(of, _)| *of == app).map(|(_, why)| why);
        let why = match (seen, self.guard.linked.get(&app)) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(why)) => why.clone(),
            (None, None) => {
                let is_new = self.guard.examined.insert(app);
                out.extend(is_new.then_some(Effect::FindLinks(app)));
                return true;
            }
        };
        if let Some(why) = why {
            self.ranks[local].verdict.fault.get_or_insert(Fault::Alone(why));
        }
        false
    }

    /// Handles what a program would load.
    pub(super) fn on_links(&mut self, now: Now, app: usize, links: &Links, out: &mut Vec<Effect>) {
        let reach = Reach { pmi1: true, pmix: self.guard.offers_pmix };
        let library = match &links.within {
            Some((file, major)) => {
                let asks = if *major < 4 { Asks::Other(OLD_PMIX) } else { Asks::Pmix };
                Some(Library { name: "Open MPI", file: file.clone(), asks }).filter(|library| !library.reaches(reach))
            }
            None => alone(&links.files, reach),
        };
        let why = library.map(|library| self.sentence(&library, Some(reach), self.guard.offers_pmix));
        self.guard.linked.insert(app, why);
        for local in 0..self.ranks.len() {
            if self.ranks[local].app == app {
                self.report_exit_if_known(now, local, out);
            }
        }
    }

    /// Returns whether a program is not one that starts ranks itself, and is not asked for its help or version.
    fn may_be_alone(&self, app: usize) -> bool {
        let Some(app) = self.launch_spec().apps.get(app) else { return false };
        let program = app.argv.first().map(|program| String::from_utf8_lossy(program)).unwrap_or_default();
        let is_launcher = LAUNCHERS.contains(&file_name(&program));
        !is_launcher && !app.argv.iter().skip(1).any(|word| HELP.contains(&&word[..]))
    }

    /// Says that the processes of a program are alone, why, and what to do.
    fn sentence(&self, library: &Library, reach: Option<Reach>, offers_pmix: bool) -> String {
        let Library { name, file, asks } = library;
        let speaks = if offers_pmix { "PMI-1 and PMIx" } else { "PMI-1" };
        let removed = "when it started (env -i, sudo or a container may have removed";
        let keep = "keep the variables that rsd sets (PMI*, RSD_*)";
        let build = "build it with another MPI (rsd's mpicc, MPICH, Intel MPI, Open MPI 4 or 5), start it with its own launcher";
        let (why, advice) = match asks {
            Asks::Pmi1 => (format!("but neither PMI_FD nor PMI_PORT was in its environment {removed} them)"), keep),
            Asks::Pmix if offers_pmix && !reach.is_some_and(|reach| reach.pmix) => {
                (format!("but no PMIX_SERVER_URI was in its environment {removed} it)"), keep)
            }
            Asks::Pmix => (format!("which asks for PMIx, and rsd speaks {speaks} here"), build),
            Asks::Other(other) => (format!("which asks for {other}, and rsd speaks {speaks}"), build),
        };
        let size = self.map.size();
        let (library, dir) = (file_name(file), file.strip_suffix(file_name(file)).unwrap_or_default());
        let dir = dir.trim_end_matches('/');
        format!(
            "the program uses {name} ({library} in {dir}), {why}, so each of the {size} processes runs alone, as rank 0 of 1; \
             {advice}, or, if this is intended, use --allow-singletons"
        )
    }
}

/// What an MPI library asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Pmi1,
    /// PMIx 3.2 or later.
    Pmix,
    /// A process manager that rsd is not.
    Other(&'static str),
}

/// The MPI library of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Library {
    name: &'static str,
    /// Its path.
    file: String,
    asks: Asks,
}

impl Library {
    fn reaches(&self, reach: Reach) -> bool {
        match self.asks {
            Asks::Pmi1 => reach.pmi1,
            Asks::Pmix => reach.pmix,
            Asks::Other(_) => false,
        }
    }
}

const OLD_PMIX: &str = "its own launcher or an older PMIx";
const CRAY: &str = "the PMI of Cray's launcher";

/// Returns the MPI library among these files if it cannot reach rsd from this environment.
fn alone(files: &[String], reach: Reach) -> Option<Library> {
    library(files).filter(|library| !library.reaches(reach))
}

fn library(files: &[String]) -> Option<Library> {
    let find = |start: &str| files.iter().find(|file| file_name(file).starts_with(start));
    let of = |name, file: &String, asks| Some(Library { name, file: file.clone(), asks });
    // Open MPI before 2.0 gives its library MPICH's name, so a second library identifies it.
    let open_mpi = find("libmpi.so.40").or_else(|| find("libmpi.so.20"));
    let open_mpi = open_mpi.or_else(|| find("libmpi.so").filter(|_| find("libopen-pal.so").is_some()));
    if let Some(file) = open_mpi {
        return of("Open MPI", file, if is_before_4(file_name(file)) { Asks::Other(OLD_PMIX) } else { Asks::Pmix });
    }
    if let Some(file) = find("libmpi_cray.so").or_else(|| find("libmpi_gnu")) {
        return of("Cray MPICH", file, Asks::Other(CRAY));
    }
    let mpi = files.iter().find(|file| is_mpi(file_name(file)))?;
    of("an MPI", mpi, if find("libpmix.so").is_some() { Asks::Pmix } else { Asks::Pmi1 })
}

/// Returns whether a file is the library of an Open MPI before 4.0, which is `libmpi.so.40.20`.
fn is_before_4(file: &str) -> bool {
    let mut numbers = file.trim_start_matches("libmpi.so.").split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(..40), _) => true,
        (Some(40), Some(minor)) => minor < 20,
        (Some(_) | None, _) => false,
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What a rank and the processes below it have mapped, process by process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapped(pub Vec<MappedBy>);

/// What a process has mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappedBy {
    /// The paths of the mapped files whose names [`matters`] selects.
    pub files: Vec<String>,
    /// Which process managers its environment leads to; None: it may run alone.
    pub reach: Option<Reach>,
}

/// What a program would load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// The paths of the files whose names [`matters`] selects.
    pub files: Vec<String>,
    /// If Open MPI is linked into the program itself: the program's path, and Open MPI's major version.
    pub within: Option<(String, u32)>,
}

/// The process managers that a process can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// One that speaks PMI-1.
    pub pmi1: bool,
    /// One that speaks PMIx.
    pub pmix: bool,
}

impl Reach {
    /// Returns what the environment leads to that a process was started with; None if it shows that the process may run alone. A program
    /// that has overwritten its environment with a title counts as reaching everything.
    pub fn of(environ: &[u8]) -> Option<Reach> {
        let mut reach = Reach { pmi1: false, pmix: false };
        if environ.is_empty() {
            return Some(reach);
        }
        for variable in environ.strip_suffix(b"\0").unwrap_or(environ).split(|byte| *byte == 0) {
            let is = |name: &&[u8]| variable.starts_with(name);
            if !variable.contains(&b'=') {
                return Some(Reach { pmi1: true, pmix: true });
            }
            if [&b"RSD_MPI_SINGLETON=allow"[..], b"RSD_MPI_SINGLETON=alone"].iter().any(is) {
                return None;
            }
            reach.pmi1 |= [&b"PMI_FD="[..], b"PMI_PORT=", b"RSD_JOIN="].iter().any(is);
            reach.pmix |= variable.starts_with(b"PMIX_SERVER_URI");
        }
        Some(reach)
    }
}

/// Returns whether a mapped file that [`matters`] is an MPI library.
fn is_mpi(file: &str) -> bool {
    ["libmpi", OURS_AS_BUILT].iter().any(|start| file.starts_with(start))
}

/// The file name of our library before it is installed, as the kernel reports it.
const OURS_AS_BUILT: &str = "librsd_mpi.so";

/// Returns whether a mapped file's name can matter here.
pub fn matters(file: &str) -> bool {
    ["libmpi", OURS_AS_BUILT, "libopen-pal.so", "libpmix.so"].iter().any(|start| file.starts_with(start))
}

/// Programs that start ranks themselves: rsd does not check the processes below them.
pub const LAUNCHERS: [&str; 8] = ["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "orted", "prterun", "prted", "srun"];

#[cfg(test)]
mod tests {
    use super::*;

    const PMI1: Reach = Reach { pmi1: true, pmix: false };
    const NEITHER: Reach = Reach { pmi1: false, pmix: false };
    const BOTH: Reach = Reach { pmi1: true, pmix: true };

    fn paths(files: &[&str]) -> Vec<String> {
        files.iter().for_each(|file| assert!(matters(file) != file.starts_with("libc"), "{file}"));
        files.iter().map(|file| format!("/opt/mpi/{file}")).collect()
    }

    #[test]
    fn the_environment_shows_which_process_managers_a_process_reaches() {
        for lost in [&b""[..], b"A=1\0", b"PMI_RANK=1\0PMI_SIZE=4\0", b"PATH=/bin\0RSD_MPI_SINGLETON=refuse"] {
            assert_eq!(Reach::of(lost), Some(NEITHER), "{}", lost.escape_ascii());
        }
        for known in [&b"PMI_FD=3\0"[..], b"A=1\0PMI_PORT=a:1\0", b"RSD_JOIN=actors\0A=1"] {
            assert_eq!(Reach::of(known), Some(PMI1), "{}", known.escape_ascii());
        }
        for both in [&b"PMI_FD=3\0PMIX_SERVER_URI41=a\0"[..], b"my title\0A=1\0", b"A=1\0\0\0"] {
            assert_eq!(Reach::of(both), Some(BOTH), "{}", both.escape_ascii());
        }
        assert_eq!(Reach::of(b"A=1\0RSD_MPI_SINGLETON=allow\0"), None);
    }

    #[test]
    fn libraries_that_cannot_reach_rsd_are_recognised() {
        let open_mpi = ["libc.so.6", "libmpi.so.40.30.4"];
        let is_alone = |files: &[&str]| [NEITHER, PMI1, BOTH].map(|reach| alone(&paths(files), reach).is_some());
        for (files, expected) in [
            (&open_mpi[..], [true, true, false]),
            (&["libmpi.so.40"], [true, true, false]),
            (&["libmpi.so.80.0.0"], [true, false, false]),
            (&["libmpi.so.40.10.2", "libopen-pal.so.40.10.2"], [true; 3]),
            (&["libopen-pal.so.13", "libmpi.so.12.0.2"], [true; 3]),
            (&["libmpi.so.20.10.1"], [true; 3]),
            (&["libmpi_cray.so.12"], [true; 3]),
            (&["libmpi.so.12.5.0", "libpmix.so.2.9"], [true, true, false]),
            (&["libmpi.so.12.5.0"], [true, false, false]),
            (&["libmpich.so.12"], [true, false, false]),
            (&["libmpi_abi.so.1"], [true, false, false]),
            (&["libopen-pal.so.40"], [false; 3]),
            (&["libc.so.6"], [false; 3]),
            (&[], [false; 3]),
        ] {
            assert_eq!(is_alone(files), expected, "{files:?}");
        }
        assert_eq!(alone(&paths(&open_mpi), PMI1).map(|it| it.file), Some("/opt/mpi/libmpi.so.40.30.4".to_owned()));
    }
}
