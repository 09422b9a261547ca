//! Members of one node that enter shared memory together.
//!
//! After MPICH or Intel MPI learns which ranks share its node (`PMI_process_mapping`), it waits for them in shared memory; some
//! versions do so without a barrier before. Only a signal could interrupt that wait, and rsd never signals members. So all
//! members of a node get the mapping at the same time, when the last of them has asked for it or has proceeded without it. If a
//! member can no longer arrive, the others get a failure instead, and their `MPI_Init` fails. rsd's own library does not wait in
//! shared memory; it asks by its own key and is answered at once.

use bytes::Bytes;
use rsd_proto::pmi::mapping;

use super::dialect::{Asker, Reply, Request};
use super::{Effect, Local, Step};

/// How far a member has proceeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// It has not asked for the mapping.
    #[default]
    Ahead,
    /// It has asked for the mapping and waits.
    Held(Asker),
    /// It has the mapping, or has proceeded without it.
    Past,
}

impl Step {
    /// Handles a rank's request for the mapping of ranks to nodes.
    pub(super) fn on_mapping_wanted(&mut self, asker: Asker, out: &mut Vec<Effect>) {
        match &mut self.ranks[asker.local].member {
            Some(member) if member.way != Way::Past => member.way = Way::Held(asker),
            Some(_) | None => {
                let reply = self.or_broken(Reply::Value(self.mapping()));
                return self.answer(&asker, reply, out);
            }
        }
        self.settle_mapping(out);
    }

    /// Notes a rank's request: most requests show that a member has proceeded without the mapping.
    pub(super) fn note_progress(&mut self, local: Local, request: &Request, out: &mut Vec<Effect>) {
        let goes_on = match request {
            Request::Begin => false,
            Request::Get { key, .. } => key == mapping::AT_ONCE_KEY.as_bytes(),
            Request::Put { .. }
            | Request::Fence
            | Request::Ring { .. }
            | Request::PutOnNode { .. }
            | Request::GetOnNode { .. }
            | Request::Publish { .. }
            | Request::Lookup { .. }
            | Request::Unpublish { .. }
            | Request::Spawn(_)
            | Request::Abort { .. }
            | Request::Finalize => true,
        };
        let Some(member) = self.ranks[local].member.as_mut().filter(|_| goes_on) else { return };
        if member.way == Way::Ahead {
            member.way = Way::Past;
            self.settle_mapping(out);
        }
    }

    /// Answers the waiting members if all have arrived or the epoch is broken.
    pub(super) fn settle_mapping(&mut self, out: &mut Vec<Effect>) {
        let ahead = |rank: &super::Rank| rank.member.as_ref().is_some_and(|member| member.way == Way::Ahead);
        if !self.ending.is_killing() && self.ranks.iter().any(ahead) {
            return;
        }
        let reply = self.or_broken(Reply::Value(self.mapping()));
        for local in 0..self.ranks.len() {
            let Some(member) = &mut self.ranks[local].member else { continue };
            if let Way::Held(asker) = member.way.clone() {
                member.way = Way::Past;
                self.answer(&asker, reply.clone(), out);
            }
        }
    }

    pub(super) fn mapping(&self) -> Option<Bytes> {
        mapping::format(&self.map.pmi_blocks()).map(Bytes::from)
    }

    /// Returns this reply, or a failure for a member of a broken epoch.
    pub(super) fn or_broken(&self, reply: Reply) -> Reply {
        if self.has_members() && self.ending.is_killing() { Reply::Failed(self.ending.why()) } else { reply }
    }
}
