//! Lists the libraries that a rank and its descendants have mapped, and whether these processes can find rsd, if the kernel
//! permits this step to see that.

use std::collections::BTreeSet;
use std::fs;

use nix::unistd::Pid;
use rsd_core::step::{LAUNCHERS, Mapped, has_lost_us, is_mpi, matters};

/// The most processes to look at: a shell or two, and the program.
const PROCESSES_MAX: usize = 16;

/// Returns the mapped files for which [`matters`] is true. A process that has ended, or belongs to another user, counts as having
/// none.
pub(super) fn look(rank: Pid) -> Mapped {
    let (mut files, mut lost, mut todo, mut seen) = (BTreeSet::new(), None, vec![rank.as_raw()], 0);
    while let Some(pid) = todo.pop()
        && seen < PROCESSES_MAX
    {
        seen += 1;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if LAUNCHERS.contains(&comm.trim_end()) {
            continue;
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let names = maps.split(|byte| *byte == b'\n').filter_map(|line| {
            let at = line.iter().rposition(|byte| *byte == b'/')?;
            str::from_utf8(&line[at + 1..]).ok().filter(|name| matters(name))
        });
        let here: BTreeSet<&str> = names.collect();
        if let Some(mpi) = here.iter().find(|name| is_mpi(name))
            && fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| has_lost_us(&environ))
        {
            lost = Some((*mpi).to_owned());
        }
        files.extend(here.into_iter().map(str::to_owned));
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        todo.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
    }
    Mapped { files: files.into_iter().collect(), lost }
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
