//! Finds the node that a user names.

use super::hosts::{Meaning, entries};
use super::refusal::no_node;
use super::{Host, NodeOffer, Refusal};
use crate::NodeId;

/// Returns the node that one word of a host list names, or why it names none or several.
///
/// # Errors
/// [`Refusal::UnknownHost`], [`Refusal::AmbiguousHost`] or [`Refusal::NoSuchPlace`].
pub fn find(nodes: &[NodeOffer], word: &str, head: NodeId) -> Result<NodeId, Refusal> {
    let host = Host { name: word.to_owned(), slots: None, max_slots: None, source: "NODE".to_owned() };
    let names_one = matches!(Meaning::of(word), Meaning::Named(_) | Meaning::Nth(_) | Meaning::Id(_));
    match entries(nodes, std::slice::from_ref(&host), head) {
        Ok(found) if names_one && found.len() == 1 => Ok(nodes[found[0].0].id),
        Ok(_) | Err(_) => Err(no_node(nodes, head, host)),
    }
}
