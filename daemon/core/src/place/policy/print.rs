//! The canonical text of each policy, which [`super::parse`] reads back as the same value.

use std::fmt::{self, Display, Formatter};

use super::{BindTo, Compat, Directive, MapBy, MemBind, RankBy};

impl Display for MapBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut ordered = false;
        match &self.directive {
            None => {}
            Some(Directive::Slot) => f.write_str("slot")?,
            Some(Directive::Node) => f.write_str("node")?,
            Some(Directive::Object(kind)) => f.write_str(kind.name())?,
            Some(Directive::Ppr { count, per }) => write!(f, "ppr:{count}:{}", per.map_or("node", |kind| kind.name()))?,
            Some(Directive::Seq) => f.write_str("seq")?,
            Some(Directive::Rankfile) => f.write_str("rankfile")?,
            Some(Directive::PeList { cpus, ordered: in_order }) => {
                f.write_str("pe-list=")?;
                write_list(f, cpus)?;
                ordered = *in_order;
            }
        }
        if let Some(pe) = self.pe {
            write!(f, ":pe={pe}")?;
        }
        let flags = [
            (ordered, "ordered"),
            (self.span, "span"),
            (self.nolocal, "nolocal"),
            (self.hwtcpus, "hwtcpus"),
            (self.oversubscribe == Some(true), "oversubscribe"),
            (self.oversubscribe == Some(false), "nooversubscribe"),
        ];
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| write!(f, ":{word}"))
    }
}

/// Writes `0,2,4-7`, in the order given.
fn write_list(f: &mut Formatter<'_>, cpus: &[u32]) -> fmt::Result {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            Some(_) | None => runs.push((*cpu, *cpu)),
        }
    }
    for (at, (first, last)) in runs.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        match first == last {
            true => write!(f, "{comma}{first}")?,
            false => write!(f, "{comma}{first}-{last}")?,
        }
    }
    Ok(())
}

impl Display for RankBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RankBy::Slot => "slot",
            RankBy::Node => "node",
            RankBy::Fill => "fill",
            RankBy::Span => "span",
        })
    }
}

impl Display for BindTo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.map_or("none", |kind| kind.name()))?;
        let flags = [(self.overload_allowed, "overload-allowed"), (self.if_supported, "if-supported")];
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| write!(f, ":{word}"))
    }
}

impl Display for MemBind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemBind::None => "none",
            MemBind::Local => "local",
            MemBind::Preferred => "preferred",
            MemBind::Interleave => "interleave",
        })
    }
}

impl Display for Compat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compat::Rsd => "rsd",
            Compat::OpenMpi5 => "openmpi5",
            Compat::Hydra => "hydra",
        })
    }
}
