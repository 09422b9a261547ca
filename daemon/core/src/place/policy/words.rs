//! The words of policies: their meanings, the accepted forms, and answers to other launchers' words that have no meaning here.

use super::super::topology::Kind;
use super::wrong::Word;
use super::{Compat, Directive, MemBind, RankBy};

pub(super) const MAP_BY: &str = "\
slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package, ppr:N:OBJECT, seq, rankfile, pe-list=CPUS
  then any of :pe=N :span :nolocal :hwtcpus :corecpus :oversubscribe :nooversubscribe (and :ordered after pe-list)";
pub(super) const RANK_BY: &str = "slot, node, fill (each object filled before the next), span (one per object in turn)";
pub(super) const BIND_TO: &str = "\
none, hwthread, core, l1cache, l2cache, l3cache, numa, package
  then any of :overload-allowed :no-overload :if-supported";
pub(super) const MEM_BIND: &str = "none, local (only near memory), preferred (near memory first), interleave";
pub(super) const COMPAT: &str = "rsd, openmpi5, hydra";
pub(super) const PPR: &str =
    "ppr:N:OBJECT, where OBJECT is node, package, numa, l3cache, l2cache, l1cache, core or hwthread";
pub(super) const PE_LIST: &str = "pe-list=0,2,4-7, in ascending or any other order, each cpu once";

/// Words and their meanings. The first word of a meaning is the canonical one.
pub(super) const OBJECTS: [(&str, Kind); 14] = [
    ("package", Kind::Package),
    ("numa", Kind::Numa),
    ("l3cache", Kind::L3),
    ("l2cache", Kind::L2),
    ("l1cache", Kind::L1),
    ("core", Kind::Core),
    ("hwthread", Kind::Thread),
    ("socket", Kind::Package),
    ("skt", Kind::Package),
    ("l3", Kind::L3),
    ("l2", Kind::L2),
    ("l1", Kind::L1),
    ("hwt", Kind::Thread),
    ("pu", Kind::Thread),
];
pub(super) const DIRECTIVES: [(&str, Directive); 4] =
    [("slot", Directive::Slot), ("node", Directive::Node), ("seq", Directive::Seq), ("rankfile", Directive::Rankfile)];
pub(super) const MODIFIERS: [&str; 6] = ["span", "nolocal", "hwtcpus", "corecpus", "oversubscribe", "nooversubscribe"];
pub(super) const RANKINGS: [(&str, RankBy); 4] =
    [("slot", RankBy::Slot), ("node", RankBy::Node), ("fill", RankBy::Fill), ("span", RankBy::Span)];
pub(super) const MEMORIES: [(&str, MemBind); 5] = [
    ("none", MemBind::None),
    ("local", MemBind::Local),
    ("preferred", MemBind::Preferred),
    ("interleave", MemBind::Interleave),
    ("prefer", MemBind::Preferred),
];
pub(super) const COMPATS: [(&str, Compat); 6] = [
    ("rsd", Compat::Rsd),
    ("openmpi5", Compat::OpenMpi5),
    ("hydra", Compat::Hydra),
    ("ompi5", Compat::OpenMpi5),
    ("openmpi", Compat::OpenMpi5),
    ("mpich", Compat::Hydra),
];

/// Words of other launchers that have no meaning here, or a different one, with the answer to each.
pub(super) const MAP_ANSWERS: [(&str, &str); 12] = [
    ("board", "write `package`"),
    ("machine", "write `node` for one rank per node in turn, `slot` for node after node"),
    ("dist", "write `numa`, or --gpus-per-rank N for ranks near their GPUs"),
    ("gpu", "write --gpus-per-rank N: ranks are then placed near their GPUs"),
    ("device=gpu", "write --gpus-per-rank N: ranks are then placed near their GPUs"),
    ("block", "write `slot`"),
    ("cyclic", "write `node`"),
    ("byslot", "write `slot`"),
    ("bynode", "write `node`"),
    ("rr", "write `node` for one rank per node in turn"),
    ("ppr", "it needs a number and an object"),
    ("pe-list", "it needs cpus: `pe-list=0,2,4-7`"),
];
pub(super) const MODIFIER_ANSWERS: [(&str, &str); 7] = [
    ("inherit", "omit it: a job inherits no placement"),
    ("noinherit", "omit it: a job inherits no placement"),
    ("overload-allowed", "it belongs to --bind-to"),
    ("if-supported", "it belongs to --bind-to"),
    ("pe", "it needs a number: `pe=2`"),
    ("file", "it needs a name: `file=NAME`"),
    ("ordered", "it belongs to `pe-list=…`"),
];
pub(super) const BIND_ANSWERS: [(&str, &str); 8] = [
    ("board", "write `package`"),
    ("machine", "write `none`: a rank may then run on all of its node"),
    ("rr", "write `hwthread`, or `core`"),
    ("user", "write --map-by pe-list=0,2,4-7:ordered with `core` here"),
    ("cpu-list", "write --map-by pe-list=0,2,4-7:ordered with `core` here"),
    ("cpulist", "write --map-by pe-list=0,2,4-7:ordered with `core` here"),
    ("gpu", "write --gpus-per-rank N: ranks then run near their GPUs"),
    ("node", "write `none`: a rank may then run on all of its node"),
];
pub(super) const MEM_ANSWERS: [(&str, &str); 4] = [
    ("rank", "write `local` with --bind-to numa"),
    ("firsttouch", "write `none`: the kernel allocates on first touch"),
    ("numa", "write `local`"),
    ("bind", "write `local`"),
];
pub(super) const COMPAT_ANSWERS: [(&str, &str); 4] = [
    ("openmpi4", "only Open MPI 5 is known: write `openmpi5`"),
    ("ompi4", "only Open MPI 5 is known: write `openmpi5`"),
    ("slurm", "omit it: rsd fills nodes as `--distribution=block` does"),
    ("prrte", "write `openmpi5`"),
];

/// The meaning of a word, ignoring case.
pub(super) fn find<T: Clone>(table: &[(&str, T)], word: &Word<'_>) -> Option<T> {
    table.iter().find(|(name, _)| word.text.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
}

/// The words of a table.
pub(super) fn names<'a, T>(table: &'a [(&'a str, T)]) -> impl Iterator<Item = &'a str> {
    table.iter().map(|(name, _)| *name)
}
