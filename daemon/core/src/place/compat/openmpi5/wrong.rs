//! Explains why these rules cannot place a job, and what would help.

use super::super::{place_our_way, refuse};
use super::attempt;
use crate::NodeId;
use crate::place::policy::{BindTo, Directive, Policy};
use crate::place::topology::Kind;
use crate::place::{NodeOffer, Obstacle, Request};

/// Why an attempt failed.
pub(super) enum Failure {
    /// The same as with any rule.
    Obstacle(Obstacle),
    /// There are free slots, but these rules do not find them.
    Unplaced {
        app: usize,
        asked: u32,
        placed: u32,
        /// The kind of object that ranks are bound to.
        bind: Option<Kind>,
    },
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Failure {
        Failure::Obstacle(obstacle)
    }
}

impl Failure {
    /// Turns the failure into an obstacle. If another binding or the end of other jobs would help, the general refusal suggests it;
    /// else another mapping is tried here.
    pub(super) fn explain(self, nodes: &[NodeOffer], request: &Request, head: NodeId) -> Obstacle {
        let (app, asked, placed, bind) = match self {
            Failure::Obstacle(obstacle) => return obstacle,
            Failure::Unplaced { app, asked, placed, bind } => (app, asked, placed, bind),
        };
        let program = if request.apps.len() > 1 { format!(" for program {}", app + 1) } else { String::new() };
        let bound = bind.map_or(String::new(), |kind| format!(" (--bind-to {})", kind.name()));
        let mut text = format!("{asked} ranks requested{program}, Open MPI 5.0.11 places only {placed}{bound}");
        let with = |change: &dyn Fn(&mut Policy)| {
            let mut request = request.clone();
            change(&mut request.policy);
            attempt(nodes, &request, head).is_ok()
        };
        let unbound = BindTo { kind: None, overload_allowed: false, if_supported: false };
        if with(&|policy| policy.bind_to = Some(unbound)) {
            return Obstacle::Taken { text };
        }
        let mut fixes = Vec::new();
        if with(&|policy| policy.map_by.directive = Some(Directive::Slot)) {
            fixes.push("--map-by slot");
        }
        if place_our_way(nodes, request, head).is_ok() {
            fixes.push("omit --compat");
        }
        if !fixes.is_empty() {
            text.push_str(&format!("\nfix{}:  {}", if fixes.len() > 1 { " one of" } else { "" }, fixes.join("  |  ")));
        }
        refuse(text)
    }
}
