//! Detects members of a group that use different MPI libraries.
//!
//! Such libraries would not find each other, and their errors would not say why. A member's first requests show whether its
//! library is rsd's, which asks for the mapping by its own key, or another one. The step compares the members of one node when
//! they ask. Members of several nodes are compared in the first fence, in which each step reports its members' libraries, because
//! every library that gets this far enters one. A member that differs from earlier ones breaks the epoch.
//!
//! A process may finalize MPI and begin again as another program: only members that have begun equally often are compared.

use rsd_proto::pmi::mapping;

use super::dialect::{Asker, Reply, Request};
use super::exits::Fault;
use super::{Effect, Local, Step};
use crate::{Now, sentences};

/// The kind of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kin {
    Ours,
    Other,
}

/// What a member's requests have shown of its library since it last began.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) kin: Option<Kin>,
    /// How often the member has begun.
    begun: u32,
}

/// Whether the nodes of an epoch have compared their members' libraries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    #[default]
    Not,
    /// The fence in progress carries the libraries of this node's members.
    Sent,
    Done,
}

impl Kin {
    fn word(self) -> &'static str {
        match self {
            Kin::Ours => "ours",
            Kin::Other => "other",
        }
    }

    /// Returns the reason for a refusal if the library of `rank` is of the other kind.
    fn clash(self, rank: u32) -> String {
        sentences::member::libraries_differ(self == Kin::Ours, rank)
    }
}

impl Shown {
    fn note(&mut self, request: &Request) {
        match request {
            Request::Begin => *self = Shown { kin: None, begun: self.begun + 1 },
            Request::Get { key, .. } if key == mapping::AT_ONCE_KEY.as_bytes() => {
                self.kin.get_or_insert(Kin::Ours);
            }
            // rsd's library also asks for this key if the other key has no value.
            Request::Get { key, .. } if key == mapping::KEY.as_bytes() => {
                self.kin.get_or_insert(Kin::Other);
            }
            Request::Get { .. }
            | Request::Put { .. }
            | Request::Fence
            | Request::Ring { .. }
            | Request::PutOnNode { .. }
            | Request::GetOnNode { .. }
            | Request::Publish { .. }
            | Request::Lookup { .. }
            | Request::Unpublish { .. }
            | Request::Spawn(_)
            | Request::Abort { .. }
            | Request::Finalize => {}
        }
    }
}

impl Step {
    /// Checks a rank's request. Returns true if the rank is a member whose library differs from others of its node, and has been
    /// refused.
    pub(super) fn refuse_kin(&mut self, now: Now, asker: &Asker, request: &Request, out: &mut Vec<Effect>) -> bool {
        let Some(member) = &mut self.ranks[asker.local].member else { return false };
        let before = member.shown.kin;
        member.shown.note(request);
        let Shown { kin, begun } = member.shown;
        let Some(kin) = kin.filter(|_| before.is_none() && !self.ending.is_killing()) else { return false };
        let differs = |rank: &&super::Rank| {
            let shown = rank.member.as_ref().map(|member| &member.shown);
            shown.is_some_and(|shown| shown.begun == begun && shown.kin.is_some_and(|it| it != kin))
        };
        let Some(other) = self.ranks.iter().find(differs).map(|rank| rank.rank) else { return false };
        self.part_from(now, asker.local, Some(asker), kin.clash(other), out);
        true
    }

    /// Fails a member's last request; the epoch is over. The connection stays open until the step ends: MPICH 5 crashes if it is
    /// closed before its next request.
    fn part_from(&mut self, now: Now, local: Local, last: Option<&Asker>, why: String, out: &mut Vec<Effect>) {
        let told = Reply::Failed(format!("rank {} {why}", self.ranks[local].rank));
        let inside: Vec<_> = self.fence.waiting.extract_if(.., |waiting| waiting.local == local).collect();
        for asker in inside.iter().chain(last) {
            self.answer(asker, told.clone(), out);
        }
        let rank = &mut self.ranks[local];
        rank.verdict.fault.get_or_insert(Fault::Protocol(why));
        self.member_is_over(now, local, out);
    }

    /// Adds the libraries of this node's members to the first fence when all of them have entered it.
    pub(super) fn report_kin(&mut self) {
        if self.compared != Compared::Not || !self.has_members() || self.map.nodes().len() == 1 {
            return;
        }
        self.compared = Compared::Sent;
        let shown = self.ranks.iter().find_map(|rank| Some((rank.member.as_ref()?.shown.kin?, rank.rank)));
        let here = self.map.position(self.node);
        if let (Some((kin, rank)), Some(here)) = (shown, here) {
            // A few bytes; a store that has no room for them has failed already.
            let _ = self.kvs.put(key(here).into(), format!("{} {rank}", kin.word()).into_bytes().into());
        }
    }

    /// Compares the libraries after that fence. Returns true if they differ; then no member may continue.
    pub(super) fn finds_other_kin(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        if self.compared != Compared::Sent {
            return false;
        }
        let told = |node: usize| understand(self.kvs.get(key(node).as_bytes())?);
        let told: Vec<(u32, Kin)> = (0..self.map.nodes().len()).filter_map(told).collect();
        let first = told.iter().min_by_key(|(rank, _)| rank);
        let Some((first, kin)) = first.copied().filter(|(_, kin)| told.iter().any(|(_, it)| it != kin)) else {
            self.compared = Compared::Done;
            return false;
        };
        // Members that agree with the first wait until the head ends the epoch.
        let differs = |rank: &super::Rank| rank.member.as_ref().and_then(|it| it.shown.kin).filter(|it| *it != kin);
        let here = self.ranks.iter().enumerate().find_map(|(local, rank)| Some((local, differs(rank)?)));
        if let Some((local, kin)) = here {
            self.part_from(now, local, None, kin.clash(first), out);
        }
        true
    }
}

/// Returns the key of a node's report; ranks cannot put such a key.
fn key(node: usize) -> String {
    format!("PMI_rsd_kin_{node}")
}

fn understand(value: &[u8]) -> Option<(u32, Kin)> {
    let (word, rank) = str::from_utf8(value).ok()?.split_once(' ')?;
    let kin = [Kin::Ours, Kin::Other].into_iter().find(|kin| kin.word() == word)?;
    Some((rank.parse().ok()?, kin))
}
