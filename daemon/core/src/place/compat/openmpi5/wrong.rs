//! Why these rules place nothing, and what would help.

use super::super::{place_our_way, refuse};
use super::attempt;
use crate::NodeId;
use crate::place::policy::{BindTo, Directive, Policy};
use crate::place::{NodeOffer, Obstacle, Request};

/// What an attempt ran into.
pub(super) enum Failure {
    /// As with any rule.
    Obstacle(Obstacle),
    /// Slots there are, but not as these rules go about it.
    Unplaced {
        asked: u32,
        placed: u32,
        /// Defaults filled in.
        policy: Box<Policy>,
    },
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Failure {
        Failure::Obstacle(obstacle)
    }
}

impl Failure {
    /// The words, and those fixes that work.
    pub(super) fn explain(self, nodes: &[NodeOffer], request: &Request, head: NodeId) -> Obstacle {
        let (asked, placed, policy) = match self {
            Failure::Obstacle(obstacle) => return obstacle,
            Failure::Unplaced { asked, placed, policy } => (asked, placed, policy),
        };
        let bound = policy.bind_to.and_then(|bind| bind.kind).map_or("none", |kind| kind.name());
        let mut text = format!(
            "{asked} ranks asked; Open MPI 5.0.11 finds room for {placed} of them, bound to {bound}, and refuses"
        );
        let fixes = fixes(nodes, request, head, &policy);
        if !fixes.is_empty() {
            text.push_str(&format!("\nfix{}:  {}", if fixes.len() > 1 { " one of" } else { "" }, fixes.join("  |  ")));
        }
        refuse(text)
    }
}

fn fixes(nodes: &[NodeOffer], request: &Request, head: NodeId, policy: &Policy) -> Vec<String> {
    let changed = |change: &dyn Fn(&mut Policy)| {
        let mut request = request.clone();
        change(&mut request.policy);
        request
    };
    let unbound = BindTo { kind: None, overload_allowed: false, if_supported: false };
    let mut fixes = Vec::new();
    let mut offer = |text: String, request: Request| {
        if attempt(nodes, &request, head).is_ok() {
            fixes.push(text);
        }
    };
    if let Some(kind) = policy.bind_to.and_then(|bind| bind.kind) {
        let shared = BindTo { kind: Some(kind), overload_allowed: true, ..unbound };
        offer("--bind-to none".into(), changed(&|policy| policy.bind_to = Some(unbound)));
        offer(format!("--bind-to {}:overload-allowed", kind.name()), changed(&|policy| policy.bind_to = Some(shared)));
    }
    offer("--map-by slot".into(), changed(&|policy| policy.map_by.directive = Some(Directive::Slot)));
    if place_our_way(nodes, request, head).is_ok() {
        fixes.push("leave --compat out".into());
    }
    fixes
}
