//! `--compat`: places ranks as other launchers do, including their defects.
//!
//! - [`openmpi5`]: Open MPI 5.0.11 (PRRTE 3.0.14).
//! - [`hydra`]: MPICH's Hydra 5.0.
//!
//! Both place one rank at a time, as those launchers do: O(ranks · cpus of a node) at worst. What they do not offer (`seq`,
//! `rankfile`, `pe-list`) follows rsd's own rule. GPUs per rank are refused.
//!
//! ```text
//! request ─▶ rules (defaults filled in) ─▶ ranks on nodes, each with an object ─▶ numbers ─▶ layout ─▶ Placement
//!                                              processor: a node's cpus, in a row
//! ```

pub(super) mod hydra;
mod layout;
pub(super) mod openmpi5;
mod processor;
#[cfg(test)]
mod tests;

use super::policy::{Compat, Directive, Policy, PolicyError};
use super::{NodeOffer, Obstacle, Placement, Request, try_place};
use crate::NodeId;

/// Whether the launchers do not offer the requested mapping, so that rsd's own rule applies.
fn is_silent(policy: &Policy) -> bool {
    match policy.map_by.directive {
        Some(Directive::Seq | Directive::Rankfile | Directive::PeList { .. }) => true,
        None | Some(Directive::Slot | Directive::Node | Directive::Object(_) | Directive::Ppr { .. }) => false,
    }
}

/// Places a request by rsd's own rule.
fn place_our_way(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Obstacle> {
    let mut request = request.clone();
    let compat = std::mem::replace(&mut request.policy.compat, Compat::Rsd);
    let mut placement = try_place(nodes, &request, head)?;
    placement.policy.compat = compat;
    Ok(placement)
}

/// A refusal of one sentence.
fn refuse(text: impl Into<String>) -> Obstacle {
    Obstacle::Policy(PolicyError { text: text.into() })
}

/// Refuses `--gpus-per-rank`, which neither launcher offers.
fn without_gpus(policy: &Policy) -> Result<(), Obstacle> {
    match policy.gpus_per_rank {
        0 => Ok(()),
        _ => Err(refuse("--gpus-per-rank cannot be used with --compat: omit one of them")),
    }
}
