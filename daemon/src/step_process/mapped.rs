//! Lists the libraries that a rank and its descendants have mapped, and which process managers these processes can reach, if the
//! kernel permits this step to see that.

use std::collections::BTreeSet;
use std::fs;

use nix::unistd::Pid;
use rsd_core::step::{LAUNCHERS, Mapped, MappedBy, Reach, matters};

/// The most processes to look at: a shell or two, and the program.
const PROCESSES_MAX: usize = 16;

/// Returns the mapped files for whose names [`matters`] is true. A process that has ended, or belongs to another user, counts as having
/// none.
pub(super) fn look(rank: Pid) -> Mapped {
    let (mut mapped, mut todo, mut seen) = (Vec::new(), vec![rank.as_raw()], 0);
    while let Some(pid) = todo.pop()
        && seen < PROCESSES_MAX
    {
        seen += 1;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if LAUNCHERS.contains(&comm.trim_end()) {
            continue;
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let files = maps.split(|byte| *byte == b'\n').filter_map(|line| {
            let path = str::from_utf8(&line[line.iter().position(|byte| *byte == b'/')?..]).ok()?;
            matters(path.rsplit('/').next()?).then_some(path)
        });
        let files: BTreeSet<&str> = files.collect();
        // Without the environment, it is not known whether the process can reach rsd.
        let everything = Some(Reach { pmi1: true, pmix: true });
        let reach = fs::read(format!("/proc/{pid}/environ")).map_or(everything, |environ| Reach::of(&environ));
        if !files.is_empty() {
            mapped.push(MappedBy { files: files.into_iter().map(str::to_owned).collect(), reach });
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        todo.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
    }
    Mapped(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_mpi_or_one_that_has_ended_has_mapped_no_mpi() {
        assert_eq!(look(Pid::this()), Mapped::default());
        assert_eq!(look(Pid::from_raw(i32::MAX)), Mapped::default());
    }
}
