//! Detects ranks that do not know of each other: if a program's MPI library asks for another process manager than rsd, its n
//! processes run as n worlds of one, and print the same result n times.
//!
//! While no rank of a job has used PMI, the step looks a few times, at growing intervals, at the libraries that a rank of the
//! first node has mapped. If they belong to such an MPI, or to any MPI in a process whose environment no longer leads to rsd
//! (`env -i`, a container), the step notifies the user once. Programs without MPI are left alone. Two cases are missed: programs
//! that end before the first look, and libraries linked into the program itself.

use std::time::Duration;

use super::{Effect, Phase, Step};
use crate::Now;

/// The times of the looks after the start: programs map the libraries they are linked against at once, interpreters when they
/// import.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1500),
    Duration::from_secs(5),
    Duration::from_secs(20),
];

/// An MPI that does not ask rsd.
struct Foreign {
    name: &'static str,
    /// Prefixes of the names of files that it maps; it maps all of them. The notice names the first.
    maps: &'static [&'static str],
    asks: &'static str,
}

/// Open MPI before 2.0 gives its library MPICH's name, so a second library identifies it; later versions have other numbers.
const FOREIGN: [Foreign; 4] = [
    Foreign { name: "Open MPI 1", maps: &["libmpi.so.12", "libopen-pal.so"], asks: "the daemons of its own launcher" },
    Foreign { name: "Open MPI 2", maps: &["libmpi.so.20", "libopen-pal.so"], asks: "PMIx before version 3" },
    Foreign { name: "Cray MPICH", maps: &["libmpi_cray.so"], asks: "the PMI of Cray's launcher" },
    Foreign { name: "Cray MPICH", maps: &["libmpi_gnu"], asks: "the PMI of Cray's launcher" },
];

/// The state of the looks.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// When the ranks were started; None: no further look is due.
    started: Option<Duration>,
    looks: usize,
}

impl Guard {
    fn due(&self) -> Option<Duration> {
        Some(self.started? + *LOOKS.get(self.looks)?)
    }
}

impl Step {
    /// Begins the looks when the ranks are being started.
    pub(super) fn begin_guard(&mut self, now: Now) {
        let several = self.map.size() > 1;
        if several && self.ranks.first().is_some_and(|rank| rank.rank == 0) {
            self.guard.started = Some(now.mono);
        }
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
        match running.filter(|_| !self.ranks.iter().any(|rank| rank.pmi.has_spoken())) {
            Some(local) => out.push(Effect::Look(local)),
            None => self.guard.started = None,
        }
    }

    /// Handles the result of a look.
    pub(super) fn on_mapped(&mut self, mapped: &Mapped, out: &mut Vec<Effect>) {
        if self.guard.started.is_none() {
            return;
        }
        let alone = format!("so each of the {} processes is likely to run alone, as rank 0 of 1", self.map.size());
        let text = match (foreign(&mapped.files), &mapped.lost) {
            (Some((Foreign { name, asks, .. }, file)), _) => format!(
                "the program uses {name} ({file}), which asks for {asks}; rsd speaks PMI-1 and PMIx, {alone}. Build it with \
                 an MPI that speaks one of these (rsd's mpicc, MPICH, Intel MPI, Open MPI 4.1 or 5), or start it with its own \
                 launcher"
            ),
            (None, Some(file)) => format!(
                "the program uses an MPI ({file}), but neither PMI_FD nor PMI_PORT was in its environment when it started \
                 (env -i, sudo or a container may have removed them), {alone}. Keep the variables that rsd sets (PMI_*, RSD_*); \
                 if this is intended, set RSD_MPI_SINGLETON=allow"
            ),
            (None, None) => return,
        };
        self.guard.started = None;
        self.notify_user(text, out);
    }
}

/// The files that a rank and the processes below it have mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The names of the mapped files that [`matters`] selects.
    pub files: Vec<String>,
    /// One of them in a process that [`has_lost_us`]: an MPI library that will not find rsd.
    pub lost: Option<String>,
}

/// Returns whether the environment that a process was started with does not name its process manager, without a sign that this is
/// intended. Returns false if the program has overwritten its environment with a title.
pub fn has_lost_us(environ: &[u8]) -> bool {
    const KNOWN: [&[u8]; 5] =
        [b"PMI_FD=", b"PMI_PORT=", b"RSD_JOIN=", b"RSD_MPI_SINGLETON=allow", b"RSD_MPI_SINGLETON=alone"];
    let mut variables = environ.strip_suffix(b"\0").unwrap_or(environ).split(|byte| *byte == 0);
    environ.is_empty()
        || variables.all(|variable| variable.contains(&b'=') && !KNOWN.iter().any(|known| variable.starts_with(known)))
}

fn foreign(files: &[String]) -> Option<(&'static Foreign, &str)> {
    let mapped = |start: &str| files.iter().find(|file| file.starts_with(start)).map(String::as_str);
    let known = FOREIGN.iter().find(|known| known.maps.iter().all(|start| mapped(start).is_some()))?;
    Some((known, mapped(known.maps.first()?)?))
}

/// Returns whether a mapped file that [`matters`] is an MPI library.
pub fn is_mpi(file: &str) -> bool {
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

    fn name_of(files: &[&str]) -> Option<(&'static str, String)> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        files.iter().for_each(|file| assert!(matters(file) != file.starts_with("libc")));
        foreign(&files).map(|(known, file)| (known.name, file.to_owned()))
    }

    #[test]
    fn an_emptied_environment_is_recognised() {
        for lost in [&b""[..], b"A=1\0", b"PMI_RANK=1\0PMI_SIZE=4\0", b"PATH=/bin\0RSD_MPI_SINGLETON=refuse"] {
            assert!(has_lost_us(lost), "{}", lost.escape_ascii());
        }
        for known in [
            &b"PMI_FD=3\0"[..],
            b"A=1\0PMI_PORT=a:1\0",
            b"RSD_JOIN=actors\0A=1",
            b"RSD_MPI_SINGLETON=allow\0",
            b"my title\0A=1\0",
            b"A=1\0\0\0",
        ] {
            assert!(!has_lost_us(known), "{}", known.escape_ascii());
        }
    }

    #[test]
    fn libraries_that_ask_another_process_manager_are_recognised() {
        let open_mpi = |file: &str| Some(("Open MPI 1", file.to_owned()));
        assert_eq!(name_of(&["libopen-pal.so.13", "libmpi.so.12.0.2"]), open_mpi("libmpi.so.12.0.2"));
        assert_eq!(name_of(&["libmpi_cray.so.12"]).map(|(name, _)| name), Some("Cray MPICH"));
        // These ask rsd, some of them late.
        for files in [
            &["libmpi.so.12.5.0"][..],
            &["libmpich.so.12"],
            &["libmpi_abi.so.1"],
            &["libmpi.so.40.30.4", "libopen-pal.so.40"],
            &["libmpi.so.12.5.0", "libpmix.so.2.9"],
            &["libc.so.6"],
            &[],
        ] {
            assert_eq!(name_of(files), None, "{files:?}");
        }
    }
}
