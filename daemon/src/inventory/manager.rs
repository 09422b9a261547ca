//! The number of ranks that a batch system (Slurm, PBS, LSF) grants this node, from the environment of its job.
//!
//! It counts only if the daemon runs inside an allocation and on the node that the variables describe, because a shell may carry
//! the variables to other machines. Names and forms: sbatch(1), qsub(1B), LSF's environment variable reference.

/// Returns the number of ranks that the batch system grants this node, and the variable that says so.
pub(super) fn word(env: &dyn Fn(&str) -> Option<String>, hostname: &str) -> Option<(u32, &'static str)> {
    [slurm(env, hostname), pbs(env), lsf(env, hostname)].into_iter().flatten().min_by_key(|(slots, _)| *slots)
}

fn slurm(env: &dyn Fn(&str) -> Option<String>, hostname: &str) -> Option<(u32, &'static str)> {
    env("SLURM_JOB_ID")?;
    if !same_host(&env("SLURMD_NODENAME")?, hostname) {
        return None;
    }
    let index = env("SLURM_NODEID").and_then(|index| index.parse().ok()).unwrap_or(0);
    let tasks = env("SLURM_TASKS_PER_NODE").and_then(|text| tasks_on(&text, index));
    let cpus = env("SLURM_CPUS_ON_NODE").and_then(|text| text.parse().ok());
    let words = [(tasks, "SLURM_TASKS_PER_NODE"), (cpus, "SLURM_CPUS_ON_NODE")];
    words.into_iter().filter_map(|(slots, name)| Some((slots?, name))).min_by_key(|(slots, _)| *slots)
}

/// `2(x3),1`: two tasks on each of nodes 0 to 2, one on node 3.
fn tasks_on(text: &str, index: u32) -> Option<u32> {
    let mut behind = 0u32;
    for run in text.split(',') {
        let (tasks, nodes) = match run.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (run, 1),
        };
        behind = behind.saturating_add(nodes);
        if index < behind {
            return tasks.parse().ok();
        }
    }
    None
}

/// PBS counts for the node where the job's script runs; elsewhere it sets nothing.
fn pbs(env: &dyn Fn(&str) -> Option<String>) -> Option<(u32, &'static str)> {
    env("PBS_JOBID")?;
    Some((env("NCPUS")?.parse().ok()?, "NCPUS"))
}

/// `hostA 4 hostB 2`.
fn lsf(env: &dyn Fn(&str) -> Option<String>, hostname: &str) -> Option<(u32, &'static str)> {
    env("LSB_JOBID")?;
    let hosts = env("LSB_MCPU_HOSTS")?;
    let words: Vec<&str> = hosts.split_whitespace().collect();
    let ours = words.chunks_exact(2).find(|pair| same_host(pair[0], hostname))?;
    Some((ours[1].parse().ok()?, "LSB_MCPU_HOSTS"))
}

/// Compares up to the first dot: one of the names may be fully qualified.
fn same_host(a: &str, b: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    short(a) == short(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(hostname: &str, vars: &[(&str, &str)]) -> Option<(u32, &'static str)> {
        let env = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        word(&env, hostname)
    }

    #[test]
    fn slurm_counts_tasks_of_this_node_or_its_cpus() {
        let vars = [
            ("SLURM_JOB_ID", "7"),
            ("SLURMD_NODENAME", "c2"),
            ("SLURM_NODEID", "2"),
            ("SLURM_TASKS_PER_NODE", "4(x2),3"),
            ("SLURM_CPUS_ON_NODE", "8"),
        ];
        assert_eq!(said("c2.cluster", &vars), Some((3, "SLURM_TASKS_PER_NODE")));
        assert_eq!(said("c3", &vars), None, "another node");
        assert_eq!(said("c2", &vars[1..]), None, "no allocation");
        let cpus = [vars[0], vars[1], ("SLURM_TASKS_PER_NODE", "16"), ("SLURM_CPUS_ON_NODE", "8")];
        assert_eq!(said("c2", &cpus), Some((8, "SLURM_CPUS_ON_NODE")));
        assert_eq!(said("c2", &[vars[0], vars[1], ("SLURM_TASKS_PER_NODE", "4(x")]), None);
    }

    #[test]
    fn tasks_are_counted_in_runs() {
        assert_eq!([0, 1, 2, 3].map(|index| tasks_on("4(x2),3", index)), [Some(4), Some(4), Some(3), None]);
        assert_eq!(tasks_on("16", 0), Some(16));
    }

    #[test]
    fn pbs_and_lsf_variables_are_read_too() {
        assert_eq!(said("n", &[("PBS_JOBID", "1.pbs"), ("NCPUS", "6")]), Some((6, "NCPUS")));
        assert_eq!(said("n", &[("NCPUS", "6")]), None);
        let lsf = [("LSB_JOBID", "1"), ("LSB_MCPU_HOSTS", "m 4 n 2")];
        assert_eq!((said("n", &lsf), said("o", &lsf)), (Some((2, "LSB_MCPU_HOSTS")), None));
    }
}
