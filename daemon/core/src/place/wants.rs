//! What a policy comes to once its defaults are filled in: the same for every node.
//!
//! | asked of `--map-by`   | ranks take turns over      | `--rank-by` else | `--bind-to` else                    |
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
//! A share is never asked for: it is what R6 and R7 of the module above leave of a default. All else is explicit: it is kept,
//! or refused.

use super::Request;
use super::bind::word;
use super::policy::{BindTo, Directive, Policy, PolicyError, RankBy};
use super::topology::Kind;

/// A policy, resolved.
#[derive(Debug, Clone)]
pub(super) struct Wants<'a> {
    /// Where ranks go.
    pub(super) directive: Directive,
    /// Objects take turns over all nodes.
    pub(super) span: bool,
    /// How they are numbered.
    pub(super) rank_by: RankBy,
    /// What is called a cpu: a core or a thread.
    pub(super) cpu: Kind,
    /// What each rank is bound to.
    pub(super) binding: Binding,
    /// Ranks may share cpus.
    pub(super) overload: bool,
    /// Where a binding cannot be, there is none.
    pub(super) lenient: bool,
    /// There may be more ranks than slots.
    pub(super) oversubscribe: bool,
    /// Nothing on the head's node.
    pub(super) nolocal: bool,
    /// GPUs of each rank.
    pub(super) gpus: u32,
    /// As it was asked.
    pub(super) asked: &'a Policy,
}

/// What a rank is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    /// Nothing.
    None,
    /// An equal share of its node's free cpus, if there is one each; as nothing was asked.
    Share,
    /// The same, of the cpus that the user listed.
    ListShare,
    /// So many cpus of its own.
    Cpus(u32),
    /// An object of its own.
    Object(Kind),
}

impl Wants<'_> {
    /// Of a request, unless it contradicts itself.
    pub(super) fn of(request: &Request) -> Result<Wants<'_>, PolicyError> {
        let policy = &request.policy;
        let map_by = &policy.map_by;
        let directive = map_by.directive.clone().unwrap_or(Directive::Slot);
        let bound = policy.bind_to.and_then(|bind_to| bind_to.kind);
        // Listed cpus are what the mapping calls so, whatever ranks are bound to.
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
            let text =
                "seq and rankfile say which rank goes where, so ranks are not numbered anew; leave out --rank-by";
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

    /// How many cpus a node must have for each rank that it takes; absent: it takes them without.
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

    /// Whether the user asked to be bound.
    pub(super) fn is_explicit(&self) -> bool {
        match self.binding {
            Binding::None => false,
            Binding::Share => self.directive == Directive::Rankfile,
            Binding::ListShare | Binding::Cpus(_) | Binding::Object(_) => true,
        }
    }

    /// Whether nodes take turns, one rank or one row of objects each.
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
            "pe={pe} gives each rank {pe} {each}{plural}, and --bind-to {name} a {other}; leave one of them out, or say \
             --bind-to {}",
            cpu.name()
        ),
    }
}
