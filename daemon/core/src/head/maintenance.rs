//! Calls that change a node: `rsctl node drain`, `resume`, `label` and `remove`.

use rsd_proto::v1::{self as wire, NodeEvent, NodeInfo, RemoveNode, change_node_request::Change, down, kept};

use super::marks::Marks;
use super::{Head, offers};
use crate::NodeId;
use crate::between::{Order, Outputs};
use crate::calls::{Caller, Refused, exit};
use crate::contract::HEAD;
use crate::sentences;

impl Head {
    /// Changes a node; returns its new state.
    pub(super) fn change_node(
        &mut self,
        caller: Caller,
        request: wire::ChangeNodeRequest,
        out: &mut Outputs<Order>,
    ) -> Result<NodeInfo, Refused> {
        if !caller.is_admin {
            let text = "only root changes the nodes of a DVM that serves all users";
            return Err(Refused::new(exit::NOT_PERMITTED, text));
        }
        let node = offers::find(&self.nodes, &self.ledger, &request.node)?;
        let mut marks = self.nodes.marks(node);
        let (event, text) = match request.change {
            Some(Change::Drain(drained)) => {
                marks.drained = drained;
                (if drained { NodeEvent::Drained } else { NodeEvent::Resumed }, String::new())
            }
            Some(Change::Label(change)) => {
                marks.change_labels(change)?;
                let labels = marks.labels.iter().map(|(key, value)| format!("{key}={value}"));
                (NodeEvent::Labelled, labels.collect::<Vec<_>>().join(" "))
            }
            Some(Change::Remove(remove)) => return self.remove_node(node, &remove, out),
            None => return Err(Refused::new(exit::USAGE, "the request does not say what to change")),
        };
        if marks != self.nodes.marks(node) {
            self.feed.node(node, &self.nodes.name(node), event, text);
        }
        self.keep(kept::What::Node(marks.kept(node)));
        self.nodes.mark(node, marks);
        self.queue.try_again = true;
        Ok(self.node_info(node))
    }

    fn node_info(&self, node: NodeId) -> NodeInfo {
        let info = self.nodes.info(node, self.ledger.in_use(node));
        info.map(|info| self.ledger.shown(info)).unwrap_or_default()
    }

    /// Forgets a node that is gone, or stops the daemon of one that is there.
    fn remove_node(
        &mut self,
        node: NodeId,
        remove: &RemoveNode,
        out: &mut Outputs<Order>,
    ) -> Result<NodeInfo, Refused> {
        let (info, name) = (self.node_info(node), self.nodes.name(node));
        if node == HEAD {
            return Err(Refused::new(exit::USAGE, format!("{name} is the head: rsd stop stops the DVM")));
        }
        if self.nodes.is_away(node) {
            self.lose_nodes(&[node], NodeEvent::Lost, sentences::node_removed, out);
        } else if !remove.stop {
            let text = format!("{name} is connected: rsctl node remove {name} --stop stops its daemon and removes it");
            return Err(Refused::new(exit::USAGE, text));
        } else {
            let busy = self.jobs.on_nodes(&[node]);
            if !busy.is_empty() && !remove.force {
                let jobs = busy.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                let text = format!(
                    "{name} runs ranks of {} {jobs}: rsctl node drain {name} --wait, or use --force",
                    if busy.len() == 1 { "job" } else { "jobs" }
                );
                return Err(Refused::new(exit::USAGE, text));
            }
            out.order(down::Body::Leave(wire::Leave { node }));
        }
        self.keep(kept::What::Node(Marks::default().kept(node)));
        self.nodes.mark(node, Marks::default());
        self.forbid_standby(node);
        Ok(info)
    }
}
