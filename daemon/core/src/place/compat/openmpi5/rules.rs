//! The request with this release's defaults filled in.

use super::super::processor::Unit;
use super::super::refuse;
use crate::place::policy::{BindTo, Compat, Directive, MapBy, Policy, RankBy};
use crate::place::topology::Kind;
use crate::place::{NodeOffer, Obstacle, Request};

/// Where ranks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Slot,
    Node,
    Object(Kind),
    /// Absent kind: per node.
    Ppr(u32, Option<Kind>),
}

impl Map {
    pub(super) fn object(self) -> Option<Kind> {
        match self {
            Map::Slot | Map::Node | Map::Ppr(_, None) => None,
            Map::Object(kind) | Map::Ppr(_, Some(kind)) => Some(kind),
        }
    }

    fn directive(self) -> Directive {
        match self {
            Map::Slot => Directive::Slot,
            Map::Node => Directive::Node,
            Map::Object(kind) => Directive::Object(kind),
            Map::Ppr(count, per) => Directive::Ppr { count, per },
        }
    }
}

/// The part of the rules that is known before ranks are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    pub(super) map: Map,
    pub(super) span: bool,
    /// Cpus per rank, 1 or more.
    pub(super) pe: u32,
    /// Whether threads were requested as cpus.
    pub(super) threads: bool,
    /// What counts as a cpu.
    pub(super) unit: Unit,
    pub(super) rank: RankBy,
    pub(super) oversubscribe: bool,
    /// Whether all cores have one thread.
    single: bool,
}

impl Mapping {
    pub(super) fn resolve(nodes: &[NodeOffer], request: &Request) -> Result<Mapping, Obstacle> {
        let asked = &request.policy.map_by;
        let pe = asked.pe.unwrap_or(1);
        let map = match asked.directive {
            Some(Directive::Slot) => Map::Slot,
            Some(Directive::Node) => Map::Node,
            Some(Directive::Object(kind)) => Map::Object(kind),
            Some(Directive::Ppr { count, per }) => Map::Ppr(count, per),
            // rsd's own rule places the other directives.
            None | Some(Directive::Seq | Directive::Rankfile | Directive::PeList { .. }) => {
                match request.policy.bind_to {
                    _ if pe > 1 => Map::Slot,
                    Some(bind) => bind.kind.map_or(Map::Slot, Map::Object),
                    None => Map::Object(Kind::Core),
                }
            }
        };
        let threads = asked.hwtcpus || map == Map::Object(Kind::Thread);
        let rank = request.policy.rank_by.unwrap_or(match map {
            Map::Slot => RankBy::Slot,
            Map::Node => RankBy::Node,
            Map::Object(_) | Map::Ppr(..) if asked.span => RankBy::Span,
            Map::Object(_) => RankBy::Fill,
            Map::Ppr(..) => RankBy::Slot,
        });
        let mapping = Mapping {
            map,
            span: asked.span,
            pe,
            threads,
            unit: match request.policy.bind_to.and_then(|bind| bind.kind) {
                Some(Kind::Core) if pe > 1 => Unit::Core,
                Some(Kind::Thread) if pe > 1 => Unit::Thread,
                _ if threads => Unit::Thread,
                _ => Unit::Core,
            },
            rank,
            oversubscribe: asked.oversubscribe.unwrap_or(request.oversubscribe),
            single: nodes
                .first()
                .is_some_and(|node| node.topology.objects(Kind::Core).iter().all(|core| core.threads.len() == 1)),
        };
        mapping.check().map(|()| mapping)
    }

    fn check(&self) -> Result<(), Obstacle> {
        if matches!(self.rank, RankBy::Fill | RankBy::Span) && self.map.object().is_none() {
            return Err(refuse(
                "Open MPI 5.0.11 numbers ranks by fill or span only when they are mapped by an object: \
                 use --map-by package, or another --rank-by",
            ));
        }
        let one_cpu = match self.map {
            Map::Object(Kind::Thread) => true,
            Map::Object(Kind::Core) => !self.threads || self.single,
            Map::Object(_) | Map::Slot | Map::Node | Map::Ppr(..) => false,
        };
        if self.pe > 1 && one_cpu {
            return Err(refuse(format!(
                "Open MPI 5.0.11 cannot give {} cpus per rank when it maps by one cpu: map by slot, or by a larger object",
                self.pe
            )));
        }
        Ok(())
    }
}

/// Everything that decides where ranks go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) mapping: Mapping,
    /// Absent: ranks are not bound.
    pub(super) bind: Option<Kind>,
    /// Whether ranks may share cpus.
    pub(super) overload: bool,
    /// Whether a job is refused if a rank cannot be bound.
    pub(super) required: bool,
    /// Whether the binding was requested; then it is never dropped.
    pub(super) explicit: bool,
}

impl Rules {
    /// `ranks`: how many the job has in all.
    pub(super) fn resolve(mapping: Mapping, request: &Request, ranks: u64) -> Result<Rules, Obstacle> {
        let asked = request.policy.bind_to;
        let bind = match asked {
            Some(BindTo { kind: Some(Kind::Core), .. }) if mapping.single => Some(Kind::Thread),
            Some(bind) => bind.kind,
            None => default_binding(&mapping, request.policy.map_by.pe, ranks),
        };
        upwards(&mapping, bind)?;
        if mapping.pe > 1 && asked.is_some() && !matches!(bind, Some(Kind::Core | Kind::Thread)) {
            return Err(refuse(format!(
                "Open MPI 5.0.11 binds ranks with {} cpus each to cpus: use --bind-to core or hwthread, or omit --bind-to",
                mapping.pe
            )));
        }
        Ok(Rules {
            mapping,
            bind: if mapping.pe > 1 { Some(mapping.unit.kind()) } else { bind },
            overload: asked.is_some_and(|bind| bind.overload_allowed),
            required: asked.is_some_and(|bind| !bind.if_supported),
            explicit: asked.is_some() || mapping.pe > 1,
        })
    }

    /// Whether other jobs may not use its ranks' threads.
    pub(super) fn is_exclusive(&self, request: &Request) -> bool {
        self.bind.is_some() && request.policy.bind_to.is_some() && !self.overload
    }

    /// The policy that is reported to the user.
    pub(super) fn policy(&self, request: &Request) -> Policy {
        let mapping = &self.mapping;
        Policy {
            map_by: MapBy { directive: Some(mapping.map.directive()), ..request.policy.map_by.clone() },
            rank_by: Some(mapping.rank),
            bind_to: Some(BindTo {
                kind: match (self.bind, request.policy.bind_to) {
                    (Some(Kind::Thread), Some(BindTo { kind: Some(Kind::Core), .. })) => Some(Kind::Core),
                    (bind, _) => bind,
                },
                overload_allowed: self.overload,
                if_supported: !self.required,
            }),
            compat: Compat::OpenMpi5,
            ..request.policy.clone()
        }
    }
}

fn default_binding(mapping: &Mapping, pe: Option<u32>, ranks: u64) -> Option<Kind> {
    match mapping.map.object() {
        _ if mapping.oversubscribe => None,
        _ if pe.is_some() => Some(mapping.unit.kind()),
        Some(kind) => Some(kind),
        None if ranks > 2 => Some(Kind::Numa),
        None if mapping.single => Some(Kind::Thread),
        None => Some(mapping.unit.kind()),
    }
}

/// Refuses a binding to an object larger than the one that ranks are mapped by.
fn upwards(mapping: &Mapping, bind: Option<Kind>) -> Result<(), Obstacle> {
    // If all cores have one thread, core and thread are the same.
    let depth = |kind| if kind == Kind::Core && mapping.single { Kind::Thread } else { kind };
    match (mapping.map.object(), bind) {
        (Some(object), Some(bind)) if depth(object) > depth(bind) => Err(refuse(format!(
            "Open MPI 5.0.11 cannot bind to a {} ranks mapped by {}: map by {} or larger, or bind to {} or smaller",
            bind.name(),
            object.name(),
            bind.name(),
            object.name()
        ))),
        _ => Ok(()),
    }
}
