//! A policy with its defaults filled in. It is the same for every node.
//!
//! | `--map-by`            | ranks take turns over      | `--rank-by` else | `--bind-to` else                    |
//! |-----------------------|----------------------------|------------------|-------------------------------------|
//! | nothing, `slot`       | –                          | `slot`           | a share of the node                 |
//! | `node`                | nodes                      | `node`           | a share of the node                 |
//! | an object             | such objects of their node | `fill`           | a share, its object's cores first   |
//! | `ppr:N:object`        | –                          | `slot`           | a share, its object's cores first   |
//! | `seq`, `rankfile`     | –                          | as listed        | a share; the cpus listed            |
//! | `pe-list=…`           | –                          | `slot`           | a share of the list; `ordered`: one |
//! | with `span`           | objects of all nodes       | `span`           |                                     |
//! | with `pe=N`           |                            |                  | N cpus                              |
//!
//! A share is always a default, by rules 6 and 7 of the module above. Everything else is explicit: it is either kept or the job
//! is refused.

use super::Request;
use super::policy::{BindTo, Directive, Policy, PolicyError, RankBy};
use super::topology::Kind;
use super::topology::word;

/// A policy, resolved.
#[derive(Debug, Clone)]
pub(super) struct Wants<'a> {
    /// Where ranks go.
    pub(super) directive: Directive,
    /// Whether objects of all nodes take turns.
    pub(super) span: bool,
    /// How they are numbered.
    pub(super) rank_by: RankBy,
    /// What counts as a cpu: a core or a thread.
    pub(super) cpu: Kind,
    /// What each rank is bound to.
    pub(super) binding: Binding,
    /// Whether ranks may share cpus.
    pub(super) overload: bool,
    /// Whether ranks that cannot be bound are left unbound.
    pub(super) lenient: bool,
    /// Whether there may be more ranks than slots.
    pub(super) oversubscribe: bool,
    /// Whether the head's node is excluded.
    pub(super) nolocal: bool,
    /// GPUs per rank.
    pub(super) gpus: u32,
    /// The policy as requested.
    pub(super) asked: &'a Policy,
}

/// The cpus or objects that a rank is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    /// Nothing.
    None,
    /// An equal share of its node's free cpus, if there is at least one each. The default.
    Share,
    /// An equal share of the cpus that the user listed.
    ListShare,
    /// This many cpus of its own.
    Cpus(u32),
    /// An object of its own.
    Object(Kind),
}

impl Wants<'_> {
    /// Resolves a request's policy, unless it contradicts itself.
    pub(super) fn of(request: &Request) -> Result<Wants<'_>, PolicyError> {
        let policy = &request.policy;
        let map_by = &policy.map_by;
        let directive = map_by.directive.clone().unwrap_or(Directive::Slot);
        let bound = policy.bind_to.and_then(|bind_to| bind_to.kind);
        // A list's cpus are of the kind that the mapping sets, whatever ranks are bound to.
        let names_cpus = matches!(directive, Directive::PeList { .. } | Directive::Rankfile);
        let bound_to_threads = bound == Some(Kind::Thread) && !names_cpus;
        let by_thread = map_by.hwtcpus || directive == Directive::Object(Kind::Thread) || bound_to_threads;
        let cpu = if by_thread { Kind::Thread } else { Kind::Core };
        let listed = matches!(directive, Directive::PeList { .. });
        let binding = match (policy.bind_to, map_by.pe) {
            (Some(BindTo { kind: None, .. }), _) => Binding::None,
            (Some(BindTo { kind: Some(kind), .. }), Some(pe)) if kind != cpu => {
                return Err(two_bindings(kind, pe, cpu));
            }
            (Some(_) | None, Some(pe)) => Binding::Cpus(pe.max(1)),
            (Some(BindTo { kind: Some(kind), .. }), None) => Binding::Object(kind),
            (None, None) if matches!(directive, Directive::PeList { ordered: true, .. }) => Binding::Cpus(1),
            (None, None) if listed => Binding::ListShare,
            (None, None) => Binding::Share,
        };
        if let (Directive::Seq | Directive::Rankfile, Some(_)) = (&directive, policy.rank_by) {
            let text = "seq and rankfile number the ranks themselves: omit --rank-by";
            return Err(PolicyError { text: text.into() });
        }
        let rank_by = match directive {
            Directive::Seq | Directive::Rankfile => RankBy::Slot,
            _ if map_by.span => RankBy::Span,
            Directive::Node => RankBy::Node,
            Directive::Object(_) => RankBy::Fill,
            Directive::Slot | Directive::Ppr { .. } | Directive::PeList { .. } => RankBy::Slot,
        };
        Ok(Wants {
            directive,
            span: map_by.span,
            rank_by: policy.rank_by.unwrap_or(rank_by),
            cpu,
            binding,
            overload: policy.bind_to.is_some_and(|bind_to| bind_to.overload_allowed),
            lenient: binding == Binding::Share || policy.bind_to.is_some_and(|bind_to| bind_to.if_supported),
            oversubscribe: request.oversubscribe && map_by.oversubscribe != Some(false),
            nolocal: map_by.nolocal,
            gpus: policy.gpus_per_rank,
            asked: policy,
        })
    }

    /// The kind of object that ranks are mapped to; absent: none below the node.
    pub(super) fn mapped_kind(&self) -> Option<Kind> {
        match self.directive {
            Directive::Object(kind) => Some(kind),
            Directive::Ppr { per, .. } => per,
            Directive::Slot | Directive::Node | Directive::Seq | Directive::Rankfile | Directive::PeList { .. } => None,
        }
    }

    /// How many cpus a node must have for each rank; absent: ranks do not depend on cpus.
    pub(super) fn cpus_each(&self) -> Option<u32> {
        let listed = matches!(self.directive, Directive::PeList { .. });
        match self.binding {
            _ if self.overload || self.lenient => None,
            Binding::Cpus(each) => Some(each),
            Binding::ListShare => Some(1),
            Binding::Object(_) if listed => Some(1),
            Binding::None | Binding::Share | Binding::Object(_) => None,
        }
    }

    /// Whether the user requested a binding.
    pub(super) fn is_explicit(&self) -> bool {
        match self.binding {
            Binding::None => false,
            Binding::Share => self.directive == Directive::Rankfile,
            Binding::ListShare | Binding::Cpus(_) | Binding::Object(_) => true,
        }
    }

    /// Whether nodes take turns, of one rank or of one rank per object.
    pub(super) fn nodes_take_turns(&self) -> bool {
        match self.directive {
            Directive::Node => true,
            Directive::Object(_) => self.span,
            Directive::Slot
            | Directive::Ppr { .. }
            | Directive::Seq
            | Directive::Rankfile
            | Directive::PeList { .. } => false,
        }
    }

    /// The policy as it was applied. `bound`: some rank is bound.
    pub(super) fn resolved(&self, bound: bool) -> Policy {
        let mut policy = self.asked.clone();
        policy.map_by.directive = Some(self.directive.clone());
        policy.rank_by = Some(self.rank_by);
        let by_default =
            BindTo { kind: bound.then_some(self.cpu), overload_allowed: false, if_supported: bound && self.lenient };
        policy.bind_to = policy.bind_to.or(Some(by_default));
        policy
    }
}

fn two_bindings(kind: Kind, pe: u32, cpu: Kind) -> PolicyError {
    let (each, other, name) = (word(cpu), word(kind), kind.name());
    let plural = if pe == 1 { "" } else { "s" };
    PolicyError {
        text: format!(
            "pe={pe} gives each rank {pe} {each}{plural}, but --bind-to {name} gives it a {other}: omit one of them, or use \
             --bind-to {}",
            cpu.name()
        ),
    }
}
