//! What a user may ask of placement and binding, as values. Its text forms, both ways: `FromStr` and `Display`;
//! what travels between processes is the text.
//!
//! The grammar, in any case of letters:
//!
//! ```text
//! map-by    = [directive] { ":" modifier }
//! directive = "slot" | "node" | object | "ppr:" N ":" (object | "node") | "seq" | "rankfile" | "pe-list=" cpus
//! modifier  = "pe=" N | "span" | "nolocal" | "hwtcpus" | "corecpus" | "oversubscribe" | "nooversubscribe"
//!           | "ordered"   with pe-list        | "file=" FILE   with seq and rankfile, and only as an option
//! rank-by   = "slot" | "node" | "fill" | "span"
//! bind-to   = ("none" | object) { ":" ("overload-allowed" | "no-overload" | "if-supported") }
//! mem-bind  = "none" | "local" | "preferred" | "interleave"
//! compat    = "rsd" | "openmpi5" | "hydra"
//! object    = "hwthread" | "core" | "l1cache" | "l2cache" | "l3cache" | "numa" | "package"
//! ```
//!
//! Directives and modifiers are Open MPI 5's; what is synonymous elsewhere (`socket`, `l3`, `hwt`, `prefer`) is read and never
//! written. An empty text is the default.

mod map_by;
mod parse;
mod print;
mod words;
mod wrong;

use super::topology::Kind;
pub use map_by::MapByOption;
pub use wrong::PolicyError;

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

#[cfg(test)]
mod tests;
