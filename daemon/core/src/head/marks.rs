//! What users have said about nodes: drained or not, and labels.
//!
//! A node's marks belong to its id. They outlive restarts of the node and of the head, and end when the node is removed.

use std::collections::BTreeMap;

use rsd_proto::v1::{KeptNode, Label, LabelNode};

use crate::NodeId;
use crate::calls::{Refused, exit};

/// The longest key or value of a label, in bytes, and the most labels of a node.
const LABEL_BYTES_MAX: usize = 63;
const LABELS_MAX: usize = 64;

/// What users have said about a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) drained: bool,
    pub(super) labels: BTreeMap<String, String>,
}

impl Marks {
    pub(super) fn of(kept: KeptNode) -> Marks {
        let labels = kept.labels.into_iter().map(|label| (label.key, label.value));
        Marks { drained: kept.drained, labels: labels.collect() }
    }

    pub(super) fn kept(&self, node: NodeId) -> KeptNode {
        KeptNode { node, drained: self.drained, labels: self.labels() }
    }

    pub(super) fn labels(&self) -> Vec<Label> {
        self.labels.iter().map(|(key, value)| Label { key: key.clone(), value: value.clone() }).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Marks::default()
    }

    pub(super) fn change_labels(&mut self, change: LabelNode) -> Result<(), Refused> {
        for key in change.delete {
            self.labels.remove(&key);
        }
        for Label { key, value } in change.set {
            if let Some(wrong) = [&key, &value].into_iter().find(|word| !fits(word)) {
                let text = format!(
                    "invalid label {key}={value}: `{wrong}` must have 1 to {LABEL_BYTES_MAX} letters, digits, dots, dashes, \
                     underscores and slashes"
                );
                return Err(Refused::new(exit::USAGE, text));
            }
            self.labels.insert(key, value);
        }
        if self.labels.len() > LABELS_MAX {
            return Err(Refused::new(exit::USAGE, format!("a node has at most {LABELS_MAX} labels")));
        }
        Ok(())
    }
}

fn fits(word: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    (1..=LABEL_BYTES_MAX).contains(&word.len()) && word.chars().all(fits)
}
