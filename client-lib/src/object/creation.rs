//! Communicators in the making: from the call that all members make to a group and a context.
//!
//! A [`Creation`] is a state machine that the library's progress advances, so that `MPI_Comm_idup` and `MPI_Comm_dup` differ
//! only in where the caller waits. If members do not know the group in advance (`MPI_Comm_split`), they first exchange their
//! colours and keys, and with them the contexts that they propose ([`Agreement`]): usually that is the only exchange. Two
//! groups without a common communicator use a [`Bridge`].

use std::sync::Arc;

use super::agree::{Circle, Exchange, Exchanged, Failure};
use super::bridge::{Bridge, Brings, Crossing};
use super::context::{Agreement, Contexts, Next, Words};
use super::group::Group;
use super::names::Names;
use super::parties::{Born, Parties};
use crate::abi::CommHandle;
use crate::engine::{Engine, Peer, Transport};
use crate::error::{MpiError, MpiResult};

/// One communicator in the making.
#[derive(Debug)]
pub struct Creation {
    stage: Stage,
    /// The communicator that `MPI_Comm_idup` has already promised to the user.
    pub promised: Option<CommHandle>,
    /// The result will not be asked for.
    pub forgotten: bool,
}

#[derive(Debug)]
enum Stage {
    /// All members exchange their colours; `agreement` if this process has one.
    Sorting { exchange: Exchange, colour: Option<Colour>, agreement: Option<Agreement>, me: Peer, sorts: Sorts },
    /// The members of the new communicator agree on its context.
    Agreeing { exchange: Exchange, agreement: Agreement, parties: Parties },
    /// Two groups that do not know each other make an intercommunicator.
    Bridging(Box<Bridge>),
    /// It is over: `None` if this process is not in it, or two groups must be introduced to each other first.
    Over(MpiResult<Option<Born>>),
}

/// The form of the communicator that the members of one colour get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sorts {
    /// One group.
    One,
    /// Two groups: those among the first so many of the circle, and the others. `None` if one of them is empty.
    Two(u32),
}

/// Members of one colour get one communicator; not negative.
pub type Colour = i32;

/// A member's block in `MPI_Comm_split`: colour (-1 for none), key, proposed number.
const BLOCK: usize = 12;

impl Creation {
    /// A communicator of the members of a circle, all of which know that they are in it. With `fails`, this process has
    /// failed, so none will proceed.
    pub fn of_all(circle: Circle, parties: impl Into<Parties>, contexts: &mut Contexts, fails: bool) -> Self {
        let failure = fails.then_some(Failure::Other);
        let (agreement, words) = Agreement::start(contexts, circle.salt(), failure);
        let exchange = Exchange::of_words(circle, &words);
        Self::at(Stage::Agreeing { exchange, agreement, parties: parties.into() })
    }

    /// An intercommunicator of this group, whose members are the circle, and another one; see [`Bridge::new`].
    pub fn between(
        circle: Circle,
        group: Arc<Group>,
        crossing: Option<Crossing>,
        contexts: &mut Contexts,
        brings: Brings,
    ) -> Self {
        Self::at(Stage::Bridging(Box::new(Bridge::new(circle, group, crossing, contexts, brings))))
    }

    fn at(stage: Stage) -> Self {
        Self { stage, promised: None, forgotten: false }
    }

    /// A communicator for each colour, with ranks in the order of keys; `me` is this process.
    pub fn by_colour(
        circle: Circle,
        colour: Option<Colour>,
        key: i32,
        me: Peer,
        sorts: Sorts,
        contexts: &mut Contexts,
    ) -> Self {
        let agreement = colour.map(|_| Agreement::start(contexts, circle.salt(), None));
        let mut block = [0; BLOCK];
        let (agreement, number) = agreement.map_or((None, 0), |(agreement, words)| (Some(agreement), words[0] as u32));
        block[..4].copy_from_slice(&colour.unwrap_or(-1).to_ne_bytes());
        block[4..8].copy_from_slice(&key.to_ne_bytes());
        block[8..].copy_from_slice(&number.to_ne_bytes());
        let exchange = Exchange::of_blocks(circle, &block);
        Self::at(Stage::Sorting { exchange, colour, agreement, me, sorts })
    }

    /// Whether its messages use this collective context.
    pub fn uses(&self, context: u32) -> bool {
        match &self.stage {
            Stage::Sorting { exchange, .. } | Stage::Agreeing { exchange, .. } => exchange.circle().context == context,
            Stage::Bridging(bridge) => bridge.uses(context),
            Stage::Over(_) => false,
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Sorting { .. } | Stage::Agreeing { .. } | Stage::Bridging(_) => false,
            Stage::Over(_) => true,
        }
    }

    /// Once it is over: the context of the communicator, if there is one.
    pub fn context(&self) -> Option<u32> {
        match &self.stage {
            Stage::Over(Ok(Some(born))) => Some(born.context),
            Stage::Sorting { .. } | Stage::Agreeing { .. } | Stage::Bridging(_) | Stage::Over(_) => None,
        }
    }

    /// The result, if it is over.
    pub fn into_result(self) -> Option<MpiResult<Option<Born>>> {
        match self.stage {
            Stage::Sorting { .. } | Stage::Agreeing { .. } | Stage::Bridging(_) => None,
            Stage::Over(result) => Some(result),
        }
    }

    /// Advances; returns whether it moved.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>, contexts: &mut Contexts, names: &Names) -> bool {
        let mut moved = false;
        loop {
            let (exchange, agreement) = match &mut self.stage {
                Stage::Sorting { exchange, agreement, .. } => (exchange, agreement.as_mut()),
                Stage::Agreeing { exchange, agreement, .. } => (exchange, Some(agreement)),
                Stage::Bridging(bridge) => {
                    let (moved, result) = bridge.poll(engine, contexts, names);
                    if let Some(result) = result {
                        self.stage = Stage::Over(result);
                    }
                    return moved;
                }
                Stage::Over(_) => return moved,
            };
            let before = exchange.distance();
            let Some(exchanged) = exchange.poll(engine) else { return moved | (exchange.distance() > before) };
            moved = true;
            match exchanged {
                Ok(exchanged) => self.go_on(exchanged, engine, contexts),
                Err(error) => {
                    exchange.warn(engine, &error);
                    if let Some(agreement) = agreement {
                        agreement.give_up(contexts);
                    }
                    self.stage = Stage::Over(Err(error));
                }
            }
        }
    }

    /// Continues to the next stage, or repeats the current one.
    fn go_on<T: Transport>(&mut self, exchanged: Exchanged, engine: &mut Engine<T>, contexts: &mut Contexts) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over(Ok(None)));
        let (circle, mut agreement, parties, words) = match (stage, exchanged) {
            (
                Stage::Sorting { exchange, colour: Some(colour), agreement: Some(mut agreement), me, sorts },
                Exchanged::Blocks(blocks),
            ) => match of_colour(exchange.circle(), colour, me, sorts, &blocks) {
                Some((circle, parties, words)) => (circle, agreement, parties, words),
                // No member on the other side has this colour.
                None => return agreement.give_up(contexts),
            },
            (Stage::Agreeing { exchange, agreement, parties }, Exchanged::Words(words)) => {
                (exchange.circle().clone(), agreement, parties, words.first_chunk().copied().unwrap_or_default())
            }
            // Without a colour there is nothing more to do.
            (Stage::Sorting { .. } | Stage::Agreeing { .. } | Stage::Bridging(_) | Stage::Over(_), _) => return,
        };
        self.stage = match agreement.on_words(contexts, words) {
            Err(error) => Stage::Over(Err(error)),
            Ok(Next::Exchange(words)) => {
                Stage::Agreeing { exchange: Exchange::of_words(circle, &words), agreement, parties }
            }
            Ok(Next::Agreed(number)) => {
                let context = Contexts::context_of(number);
                parties.open(engine, context);
                Stage::Over(Ok(Some(Born { context, parties })))
            }
        };
    }
}

/// The members of one colour: their circle, their group or groups, and what they propose together; `None` if they are
/// to be two groups, and one of these is empty.
fn of_colour(all: &Circle, colour: Colour, me: Peer, sorts: Sorts, blocks: &[u8]) -> Option<(Circle, Parties, Words)> {
    let mut chosen = Vec::new();
    let mut words = [0; 3];
    for (place, block) in (0_u32..).zip(blocks.chunks_exact(BLOCK)) {
        let number = |at: usize| i32::from_ne_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        if number(0) == colour {
            let is_second = matches!(sorts, Sorts::Two(first) if place >= first);
            chosen.push((is_second, number(4), all.rank(place)));
            let proposed = u64::from(number(8) as u32);
            words = [words[0].max(proposed), words[1].max(!proposed), 0];
        }
    }
    chosen.sort_unstable();
    let ranks: Arc<[u32]> = chosen.iter().map(|(_, _, rank)| *rank).collect();
    let first = chosen.iter().filter(|(is_second, ..)| !is_second).count();
    let peers: Vec<Peer> = ranks.iter().map(|rank| all.members[*rank as usize]).collect();
    let group = |peers: &[Peer]| Arc::new(Group::new(peers, me));
    let parties = match sorts {
        Sorts::One => Parties::from(group(&peers)),
        Sorts::Two(_) if first == 0 || first == peers.len() => return None,
        Sorts::Two(_) => {
            let (one, two) = (group(&peers[..first]), group(&peers[first..]));
            let is_first = one.rank.is_some();
            let (local, remote) = if is_first { (one, two) } else { (two, one) };
            Parties::both(local, remote, is_first)
        }
    };
    Some((Circle { ranks: Some(ranks), place: parties.place(), ..all.clone() }, parties, words))
}

/// Identifies a creation in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationId(u64);

/// The creations in progress, usually few.
#[derive(Debug, Default)]
pub struct Creations {
    under_way: Vec<(CreationId, Creation)>,
    count: u64,
}

impl Creations {
    /// Starts a creation; [`Creations::poll`] advances it.
    pub fn begin(&mut self, creation: Creation) -> CreationId {
        let id = CreationId(self.count);
        self.count += 1;
        self.under_way.push((id, creation));
        id
    }

    /// Whether there is none, not even one that is over and not taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Advances all; returns whether any moved.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>, contexts: &mut Contexts, names: &Names) -> bool {
        let turns = self.under_way.iter_mut().map(|(_, creation)| creation.poll(engine, contexts, names));
        turns.fold(false, |moved, one| moved | one)
    }

    /// Passes those that are over to `tell`; drops those whose result will not be asked for.
    pub fn settle(&mut self, mut tell: impl FnMut(&Creation)) {
        self.under_way.retain(|(_, creation)| {
            if creation.is_over() {
                tell(creation);
            }
            !(creation.is_over() && creation.forgotten)
        });
    }

    /// Declares that the result will not be asked for; the creation continues.
    pub fn forget(&mut self, id: CreationId) {
        if let Some((_, creation)) = self.under_way.iter_mut().find(|(it, _)| *it == id) {
            creation.forgotten = true;
        }
    }

    /// Whether it is over.
    pub fn is_over(&self, id: CreationId) -> bool {
        self.under_way.iter().any(|(it, creation)| *it == id && creation.is_over())
    }

    /// Takes one that is over.
    pub fn take(&mut self, id: CreationId) -> Option<Creation> {
        let at = self.under_way.iter().position(|(it, creation)| *it == id && creation.is_over())?;
        Some(self.under_way.swap_remove(at).1)
    }

    /// Whether a creation's messages use this collective context.
    pub fn use_context(&self, context: u32) -> bool {
        self.under_way.iter().any(|(_, creation)| creation.uses(context))
    }
}

/// The ranks in `parent` of a group's members; fails with class `MPI_ERR_GROUP` if one is not there.
pub fn ranks_in_parent(group: &Group, parent: &Group) -> MpiResult<Arc<[u32]>> {
    let ranks: Option<Arc<[u32]>> = group.ranks_in(parent).collect();
    ranks.ok_or_else(|| MpiError::group("the group is not a subset of the communicator's group"))
}

#[cfg(test)]
mod tests;
