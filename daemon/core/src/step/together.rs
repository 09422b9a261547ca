//! Members of one node that enter shared memory together.
//!
//! After MPICH or Intel MPI learns which ranks share its node (`PMI_process_mapping`), it waits for them in shared memory; some
//! versions do so without a barrier before. Only a signal could interrupt that wait, and rsd never signals members. So all
//! members of a node get the mapping at the same time, when the last of them has asked for it or has proceeded without it. If a
//! member can no longer arrive, the others get a failure instead, and their `MPI_Init` fails. rsd's own library does not wait in
//! shared memory; it asks by its own key and is answered at once.

use rsd_proto::pmi::mapping;
use rsd_proto::pmi::v1::{Reply, Request};

use super::pmi::reply_to;
use super::{Effect, Local, Step};

/// How far a member has proceeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// It has not asked for the mapping.
    #[default]
    Ahead,
    /// It has asked for the mapping and waits.
    Held,
    /// It has the mapping, or has proceeded without it.
    Past,
}

impl Step {
    /// Handles a rank's request for the mapping of ranks to nodes.
    pub(super) fn on_mapping_wanted(&mut self, local: Local, out: &mut Vec<Effect>) {
        let told = self.mapping();
        match &mut self.ranks[local].member {
            Some(member) if member.way != Way::Past => member.way = Way::Held,
            Some(_) | None => return reply_to(local, &self.or_broken(Reply::GetResult(told)), out),
        }
        self.settle_mapping(out);
    }

    /// Notes a rank's request: most requests show that a member has proceeded without the mapping.
    pub(super) fn note_progress(&mut self, local: Local, request: &Request, out: &mut Vec<Effect>) {
        let goes_on = match request {
            Request::InitAck { .. }
            | Request::Init { .. }
            | Request::GetMaxes
            | Request::GetAppnum
            | Request::GetMyKvsname
            | Request::GetUniverseSize
            | Request::CreateKvs
            | Request::DestroyKvs { .. }
            | Request::GetByIdx { .. }
            | Request::Unknown { .. } => false,
            Request::Get { key, .. } => key == mapping::AT_ONCE_KEY.as_bytes(),
            Request::Put { .. }
            | Request::BarrierIn { .. }
            | Request::PublishName { .. }
            | Request::LookupName { .. }
            | Request::UnpublishName { .. }
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
        let reply = self.or_broken(Reply::GetResult(self.mapping()));
        for (local, rank) in self.ranks.iter_mut().enumerate() {
            if let Some(member) = rank.member.as_mut().filter(|member| member.way == Way::Held) {
                member.way = Way::Past;
                reply_to(local, &reply, out);
            }
        }
    }

    pub(super) fn mapping(&self) -> Option<Vec<u8>> {
        mapping::format(&self.map.pmi_blocks()).map(String::into_bytes)
    }

    /// Returns this reply, or a failure for a member of a broken epoch.
    pub(super) fn or_broken(&self, reply: Reply) -> Reply {
        if self.has_members() && self.ending.is_killing() { Reply::Failed(self.ending.why()) } else { reply }
    }
}
