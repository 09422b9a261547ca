//! The nodes that may stand by to become the head, and which head this is.
//!
//! A standby gets the key of the DVM's authority, so only nodes that the administrator has named may be one. Where they will be the head
//! goes to all nodes, which look there when the head does not answer.
//!
//! A head's epoch is in its journal. The shell of a standby that takes over adds the next one, with a proof that only the authority's key
//! can make. A head with an epoch above 0 runs on another machine than the first one did, and never beside the first head's steps.

use std::collections::BTreeMap;

use rsd_proto::v1::{HeadEpoch, KeptStandby, NodeInfo, kept};

use super::{Head, offers};
use crate::between::{Order, Outputs};
use crate::calls::{Answer, Caller, Refused, StandbyCall, exit};
use crate::contract::HEAD;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, sentences};

/// The nodes that may stand by, each as it will be as a head.
#[derive(Debug, Default)]
pub(super) struct Standbys {
    allowed: BTreeMap<NodeId, NodeInfo>,
}

impl Standbys {
    pub(super) fn kept(&self) -> impl Iterator<Item = KeptStandby> + '_ {
        self.allowed.iter().map(|(node, head)| KeptStandby { node: *node, head: Some(head.clone()) })
    }
}

impl Head {
    pub(super) fn on_standby_call(
        &mut self,
        caller: Caller,
        call: StandbyCall,
        out: &mut Outputs<Order>,
    ) -> Result<Answer, Refused> {
        match call {
            StandbyCall::List => {}
            StandbyCall::Allow { .. } if !caller.is_admin => {
                let text = "only root decides which nodes may stand by for the head of a DVM that serves all users";
                return Err(Refused::new(exit::NOT_PERMITTED, text));
            }
            StandbyCall::Allow { node, forbid } => {
                // A node that is forbidden may have left.
                let known = self.standbys.allowed.iter().find(|(_, head)| head.name == node).map(|(id, _)| *id);
                let id = match known.filter(|_| forbid) {
                    Some(id) => id,
                    None => offers::find(&self.nodes, &self.ledger, &node)?,
                };
                match forbid {
                    true => self.forbid_standby(id),
                    false if id == HEAD => {
                        let text =
                            "the head needs no permission to be the head: name another node (rsctl nodes lists them)";
                        return Err(Refused::new(exit::USAGE, text));
                    }
                    false if self.standbys.allowed.contains_key(&id) => {}
                    false => {
                        let info = self.nodes.get(id).map(|node| node.info.clone()).unwrap_or_default();
                        self.allow_standby(id, NodeInfo { listen: String::new(), ..super::journal::shortened(&info) });
                    }
                }
                self.reign(out);
            }
            StandbyCall::StandsBy { node, listen, daemon_listen } => {
                let name = self.nodes.name(node);
                let Some(known) = self.standbys.allowed.get(&node) else {
                    return Err(Refused::new(exit::NOT_PERMITTED, sentences::may_not_stand_by(&name)));
                };
                let info = self.nodes.get(node).map_or(known, |node| &node.info);
                let head = NodeInfo { listen, daemon_listen, ..super::journal::shortened(info) };
                if *known != head {
                    self.allow_standby(node, head);
                    self.reign(out);
                }
            }
        }
        Ok(Answer::Standbys(self.standbys.kept().collect()))
    }

    fn allow_standby(&mut self, node: NodeId, head: NodeInfo) {
        self.keep(kept::What::Standby(KeptStandby { node, head: Some(head.clone()) }));
        self.standbys.allowed.insert(node, head);
    }

    /// A node may no longer stand by.
    pub(super) fn forbid_standby(&mut self, node: NodeId) {
        if self.standbys.allowed.remove(&node).is_some() {
            self.keep(kept::What::StandbyGone(node));
        }
    }

    pub(super) fn restore_reign(&mut self, epoch: HeadEpoch, standbys: Vec<KeptStandby>, out: &mut Outputs<Order>) {
        self.epoch = epoch;
        let standbys = standbys.into_iter().filter_map(|standby| Some((standby.node, standby.head?)));
        self.standbys.allowed = standbys.collect();
        self.reign(out);
    }

    /// Has the nodes told which head this is, and where its standbys are.
    fn reign(&self, out: &mut Outputs<Order>) {
        let standbys = self.standbys.allowed.values().filter(|head| !head.listen.is_empty()).cloned().collect();
        out.send_message(Order::Reign { epoch: self.epoch.clone(), standbys });
    }

    /// Whether a job has had ranks on the machine of an earlier head. Its step is not here, and must not be started again.
    pub(super) fn is_left_behind(&self, job: JobId, map: &TaskMap) -> bool {
        self.epoch.number > 0 && map.count_on(HEAD) > 0 && !self.own_steps.contains(&job)
    }
}
