//! Placement and binding policies as values. `FromStr` and `Display` convert from and to text; the text form is what travels
//! between processes.
//!
//! The grammar, which ignores case:
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
//! Directives and modifiers are Open MPI 5's. Synonyms of other launchers (`socket`, `l3`, `hwt`, `prefer`) are accepted and
//! never printed. An empty text is the default.

mod map_by;
mod parse;
mod print;
mod words;
mod wrong;

use super::topology::Kind;
pub use map_by::MapByOption;
pub use wrong::PolicyError;

/// A job's placement options other than its hosts. The default sets none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// `--map-by`.
    pub map_by: MapBy,
    /// `--rank-by`; absent: follows from the mapping.
    pub rank_by: Option<RankBy>,
    /// `--bind-to`; absent: follows from the mapping, and never makes a job fail.
    pub bind_to: Option<BindTo>,
    /// `--mem-bind`; absent: the kernel's default, which is local to the first touch.
    pub mem_bind: Option<MemBind>,
    /// `--compat`: whose rules to follow.
    pub compat: Compat,
    /// `--gpus-per-rank`; 0: GPUs are ignored.
    pub gpus_per_rank: u32,
}

/// `--map-by`: where ranks go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapBy {
    /// Absent: by slot.
    pub directive: Option<Directive>,
    /// `pe=N`: cpus (cores, or threads with `hwtcpus`) per rank; 1 or more.
    pub pe: Option<u32>,
    /// `span`: objects of all nodes take turns as if they were on one machine.
    pub span: bool,
    /// `nolocal`: the head's node is excluded.
    pub nolocal: bool,
    /// `hwtcpus`: a cpu is a hardware thread, not a core; also when slots are counted on nodes that set none.
    pub hwtcpus: bool,
    /// `oversubscribe` or `nooversubscribe`; absent: [`Request::oversubscribe`](super::Request::oversubscribe) decides.
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
    /// `ppr:N:object`: N ranks on each object.
    Ppr {
        /// Ranks per object.
        count: u32,
        /// The kind of object; absent: the node.
        per: Option<Kind>,
    },
    /// `seq`: rank i goes to the i-th entry of the host list.
    Seq,
    /// `rankfile`: a file lists each rank's host and cpus.
    Rankfile,
    /// `pe-list=0,2,4-7`: only these cpus of each node.
    PeList {
        /// Cpus by logical index: cores, or threads with `hwtcpus`.
        cpus: Vec<u32>,
        /// `ordered`: the first rank takes the first cpu, and so on.
        ordered: bool,
    },
}

/// `--rank-by`: how placed ranks are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// Node by node, in placing order.
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
    /// `if-supported`: ranks that cannot be bound are left unbound.
    pub if_supported: bool,
}

/// `--mem-bind`: the NUMA nodes that a rank's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemBind {
    /// The kernel's default.
    None,
    /// Only the NUMA nodes of the rank's cpus.
    Local,
    /// The NUMA nodes of the rank's cpus first.
    Preferred,
    /// In turn over the NUMA nodes of the rank's cpus, or over all of the node if it is unbound.
    Interleave,
}

/// Whose placement rules are followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compat {
    /// rsd's own.
    #[default]
    Rsd,
    /// Those of Open MPI 5.0 (PRRTE 3.0), including its defects.
    OpenMpi5,
    /// Those of MPICH's Hydra.
    Hydra,
}

#[cfg(test)]
mod tests;
