//! What a user may ask of placement and binding, as values. Its text forms, both ways: `FromStr` and `Display`; what travels
//! between processes is the text.

use super::topology::Kind;

/// Everything that a job says of placement besides its hosts. The default asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// `--map-by`.
    pub map_by: MapBy,
    /// `--rank-by`; absent: follows from the mapping.
    pub rank_by: Option<RankBy>,
    /// `--bind-to`; absent: follows from the mapping, and never fails.
    pub bind_to: Option<BindTo>,
    /// `--mem-bind`; absent: the kernel's default, local to where a rank first touches.
    pub mem_bind: Option<MemBind>,
    /// Whose historical answers are wanted.
    pub compat: Compat,
    /// `--gpus-per-rank`; 0: GPUs play no part.
    pub gpus_per_rank: u32,
}

/// `--map-by`: where ranks go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapBy {
    /// Absent: by slot.
    pub directive: Option<Directive>,
    /// `pe=N`: cpus (cores, or threads with `hwtcpus`) per rank; 1 or more.
    pub pe: Option<u32>,
    /// `span`: objects of all nodes are dealt out as if they were of one machine.
    pub span: bool,
    /// `nolocal`: nothing on the head's node.
    pub nolocal: bool,
    /// `hwtcpus`: a cpu is a hardware thread, not a core; also for counting slots of nodes that do not say.
    pub hwtcpus: bool,
    /// `oversubscribe` or `nooversubscribe`; absent: the setting decides.
    pub oversubscribe: Option<bool>,
}

/// The first word of `--map-by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directive {
    /// Node by node, filling slots.
    Slot,
    /// One rank per node in turn.
    Node,
    /// Object by object in turn within each node; over all nodes with `span`.
    Object(Kind),
    /// `ppr:N:object`: N ranks on each; absent kind: on each node.
    Ppr {
        /// Ranks per object.
        count: u32,
        /// Of which kind; absent: the node.
        per: Option<Kind>,
    },
    /// `seq`: rank i goes to the i-th entry of the host list.
    Seq,
    /// `rankfile`: each rank's host and cpus are listed.
    Rankfile,
    /// `pe-list=0,2,4-7`: only these cpus of each node.
    PeList {
        /// Cpus by logical index: cores, or threads with `hwtcpus`.
        cpus: Vec<u32>,
        /// `ordered`: rank after rank takes cpu after cpu.
        ordered: bool,
    },
}

/// `--rank-by`: how placed ranks are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// Node by node, in the order of placing.
    Slot,
    /// One per node in turn.
    Node,
    /// Object by object, each filled before the next.
    Fill,
    /// One per object in turn, over all nodes.
    Span,
}

/// `--bind-to`: the cpus that a rank may run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindTo {
    /// Absent: `none`.
    pub kind: Option<Kind>,
    /// `overload-allowed`: ranks may share cpus.
    pub overload_allowed: bool,
    /// `if-supported`: where it cannot be done, go on without.
    pub if_supported: bool,
}

/// `--mem-bind`: the NUMA nodes that a rank's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemBind {
    /// The kernel's default.
    None,
    /// Only those of the rank's cpus.
    Local,
    /// Those of the rank's cpus first.
    Preferred,
    /// In turn over all NUMA nodes that the rank's cpus belong to, or all of the node when unbound.
    Interleave,
}

/// Whose rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compat {
    /// Ours.
    #[default]
    Rsd,
    /// Open MPI 5.0 (PRRTE 3.0), with what it gets wrong.
    OpenMpi5,
    /// MPICH's Hydra.
    Hydra,
}

/// A word of a policy that nobody knows, or that does not fit there. The text names it and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PolicyError {
    /// For people.
    pub text: String,
}

impl std::str::FromStr for MapBy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<MapBy, PolicyError> {
        let lower = text.to_ascii_lowercase();
        let mut words = lower.split(':');
        let directive = match words.next().unwrap_or_default() {
            "" => None,
            "slot" => Some(Directive::Slot),
            "node" => Some(Directive::Node),
            other => return Err(PolicyError { text: format!("there is no mapping by {other}") }),
        };
        let mut map_by = MapBy { directive, ..MapBy::default() };
        for word in words {
            match word {
                "oversubscribe" => map_by.oversubscribe = Some(true),
                "nooversubscribe" => map_by.oversubscribe = Some(false),
                other => return Err(PolicyError { text: format!("there is no modifier {other}") }),
            }
        }
        Ok(map_by)
    }
}

impl std::fmt::Display for MapBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.directive {
            Some(Directive::Node) => f.write_str("node")?,
            _ => f.write_str("slot")?,
        }
        match self.oversubscribe {
            Some(true) => f.write_str(":oversubscribe"),
            Some(false) => f.write_str(":nooversubscribe"),
            None => Ok(()),
        }
    }
}
