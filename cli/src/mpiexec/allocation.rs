//! The nodes that Slurm grants to the job in which this program runs, from the environment of salloc(1), sbatch(1) and srun(1).
//!
//! `mpiexec` without a daemon uses all of them: [`workers`](super::workers) starts daemons on the others. A program that salloc
//! started on a login node is on none of them; then ranks run only on the others.

use std::ffi::OsString;

use rsd_config::host::HostRef;
use rsd_config::hostlist;

/// The nodes of an allocation, in Slurm's order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    nodes: Vec<Node>,
    /// The node on which this program runs; None: a machine outside of the allocation.
    here: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// The ranks that Slurm grants on it; None: unknown.
    pub(super) slots: Option<u32>,
}

impl Allocation {
    /// Reads the environment. None: no allocation of Slurm, or its nodes are not named.
    pub(super) fn of(env: &[(OsString, OsString)]) -> Option<Allocation> {
        let value = |name: &str| env.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.to_str());
        value("SLURM_JOB_ID")?;
        let listed = hostlist::parse(value("SLURM_JOB_NODELIST")?).ok()?;
        let names = listed.into_iter().map(|entry| match entry.host {
            HostRef::Named(name) => Some(name),
            HostRef::Nth(_) | HostRef::Id(_) | HostRef::Labelled { .. } | HostRef::Idle(_) | HostRef::Excluded(_) => {
                None
            }
        });
        let names: Vec<String> = names.collect::<Option<_>>()?;
        let counts = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"].map(|name| value(name).map(counts));
        let granted = |at: usize| counts.iter().flatten().filter_map(|counts| counts.get(at).copied()).min();
        let own = value("SLURMD_NODENAME");
        let here = own.and_then(|own| names.iter().position(|name| name == own));
        let nodes = names.into_iter().enumerate().map(|(at, name)| Node { name, slots: granted(at) });
        Some(Allocation { nodes: nodes.collect(), here })
    }

    /// The node on which this program runs, if it is one of the allocation.
    pub(super) fn own(&self) -> Option<&Node> {
        self.here.map(|here| &self.nodes[here])
    }

    /// The names of all nodes.
    pub(super) fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// The nodes on which daemons must be started.
    pub(super) fn others(&self) -> Vec<Node> {
        let others = self.nodes.iter().enumerate().filter(|(at, _)| Some(*at) != self.here);
        others.map(|(_, node)| node.clone()).collect()
    }
}

/// `2(x3),1`: 2, 2, 2, 1. Stops at what it does not understand.
fn counts(text: &str) -> Vec<u32> {
    /// More nodes than any allocation has.
    const MOST: usize = 1 << 16;
    let mut all = Vec::new();
    for run in text.split(',') {
        let (count, nodes) = match run.split_once("(x") {
            Some((count, nodes)) => (count, nodes.strip_suffix(')').and_then(|nodes| nodes.parse().ok())),
            None => (run, Some(1)),
        };
        let (Ok(count), Some(nodes)) = (count.parse(), nodes) else { break };
        all.resize(all.len().saturating_add(nodes).min(MOST), count);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Option<Allocation> {
        Allocation::of(&pairs.iter().map(|(name, value)| (name.into(), value.into())).collect::<Vec<_>>())
    }

    fn node(name: &str, slots: Option<u32>) -> Node {
        Node { name: name.into(), slots }
    }

    #[test]
    fn an_allocation_has_the_nodes_and_tasks_that_slurm_names() {
        let env = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "c[08-10],gpu1"),
            ("SLURM_TASKS_PER_NODE", "2(x3),16"),
            ("SLURM_JOB_CPUS_PER_NODE", "8(x4)"),
        ];
        let login = of(&env).unwrap();
        assert_eq!((login.own(), login.others().len()), (None, 4));
        assert_eq!(login.names(), ["c08", "c09", "c10", "gpu1"]);
        let batch = of(&[&env[..], &[("SLURMD_NODENAME", "c08")]].concat()).unwrap();
        assert_eq!(batch.own(), Some(&node("c08", Some(2))));
        assert_eq!(batch.others(), [node("c09", Some(2)), node("c10", Some(2)), node("gpu1", Some(8))]);
        // A shell in an allocation of its own.
        let alone = of(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "c1"), ("SLURMD_NODENAME", "c1")]).unwrap();
        assert_eq!((alone.own(), alone.others()), (Some(&node("c1", None)), Vec::new()));
    }

    #[test]
    fn without_names_there_is_no_allocation() {
        assert_eq!(of(&[("SLURM_JOB_NODELIST", "c1")]), None);
        assert_eq!(of(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "3")]), None);
        for list in ["", "c[1", "+n2", "^c1", "c[1-2]r[1-"] {
            assert_eq!(of(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", list)]), None, "{list}");
        }
    }

    #[test]
    fn counts_are_understood_as_far_as_they_are_valid() {
        assert_eq!(counts("4(x2),3"), [4, 4, 3]);
        assert_eq!(counts("4,x,3"), [4]);
        assert_eq!(counts("4(x2"), [0; 0]);
        assert_eq!(counts("1(x99999999999)").len(), 1 << 16);
    }
}
