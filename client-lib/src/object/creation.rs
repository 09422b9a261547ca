//! Communicators in the making: from the call that all members make to a group and a context of their own.
//!
//! A [`Creation`] is a state machine that the library's progress carries on, so that `MPI_Comm_idup` is the same as
//! `MPI_Comm_dup` but for who waits. Where members do not know each other (`MPI_Comm_split`), all tell all their colour and
//! key first, and with it the context that they propose ([`Agreement`]): most often that is the only exchange.

use std::sync::Arc;

use super::agree::{Circle, Exchange, Exchanged};
use super::context::{Agreement, Contexts, Next, Words};
use super::group::Group;
use crate::abi::CommHandle;
use crate::engine::{Engine, Peer, Transport};
use crate::error::{MpiError, MpiResult};

/// What a creation came to.
#[derive(Debug)]
pub struct Born {
    /// The first of its two contexts; both are open.
    pub context: u32,
    /// Its members, this process among them.
    pub group: Arc<Group>,
}

/// One communicator that is being made.
#[derive(Debug)]
pub struct Creation {
    stage: Stage,
    /// The communicator that was promised to the user already, by `MPI_Comm_idup`.
    pub promised: Option<CommHandle>,
    /// Nobody will ask what it came to.
    pub forgotten: bool,
}

#[derive(Debug)]
enum Stage {
    /// All tell their colours; `agreement` if this process has one.
    Sorting { exchange: Exchange, colour: Option<Colour>, agreement: Option<Agreement>, me: Peer },
    /// The members of the new communicator agree on its context.
    Agreeing { exchange: Exchange, agreement: Agreement, group: Arc<Group> },
    /// It is over: none if this process is not in it.
    Over(MpiResult<Option<Born>>),
}

/// Members of one colour get one communicator; not negative.
pub type Colour = i32;

/// What a member says of itself in `MPI_Comm_split`: colour (-1 for none), key, proposed number.
const BLOCK: usize = 12;

impl Creation {
    /// A communicator of the members of a circle, which all know that they are in it. With `fails`, this process cannot go
    /// on, and none will.
    pub fn of_group(circle: Circle, group: Arc<Group>, contexts: &mut Contexts, fails: bool) -> Self {
        let (agreement, words) = Agreement::start(contexts, salt(&circle), fails);
        let stage = Stage::Agreeing { exchange: Exchange::of_words(circle, words), agreement, group };
        Self { stage, promised: None, forgotten: false }
    }

    /// A communicator for each colour, with ranks in the order of keys; `me` is this process.
    pub fn by_colour(circle: Circle, colour: Option<Colour>, key: i32, me: Peer, contexts: &mut Contexts) -> Self {
        let agreement = colour.map(|_| Agreement::start(contexts, salt(&circle), false));
        let mut block = [0; BLOCK];
        let (agreement, number) = agreement.map_or((None, 0), |(agreement, words)| (Some(agreement), words[0] as u32));
        block[..4].copy_from_slice(&colour.unwrap_or(-1).to_ne_bytes());
        block[4..8].copy_from_slice(&key.to_ne_bytes());
        block[8..].copy_from_slice(&number.to_ne_bytes());
        let exchange = Exchange::of_blocks(circle, &block);
        Self { stage: Stage::Sorting { exchange, colour, agreement, me }, promised: None, forgotten: false }
    }

    /// Whether its messages go on this collective context.
    pub fn uses(&self, context: u32) -> bool {
        match &self.stage {
            Stage::Sorting { exchange, .. } | Stage::Agreeing { exchange, .. } => exchange.circle().context == context,
            Stage::Over(_) => false,
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Sorting { .. } | Stage::Agreeing { .. } => false,
            Stage::Over(_) => true,
        }
    }

    /// Once it is over: the context of the communicator, if there is one.
    pub fn context(&self) -> Option<u32> {
        match &self.stage {
            Stage::Over(Ok(Some(born))) => Some(born.context),
            Stage::Sorting { .. } | Stage::Agreeing { .. } | Stage::Over(_) => None,
        }
    }

    /// What it came to, if it is over.
    pub fn into_result(self) -> Option<MpiResult<Option<Born>>> {
        match self.stage {
            Stage::Sorting { .. } | Stage::Agreeing { .. } => None,
            Stage::Over(result) => Some(result),
        }
    }

    /// Gets on; whether it moved.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>, contexts: &mut Contexts) -> bool {
        let mut moved = false;
        loop {
            let (exchange, agreement) = match &mut self.stage {
                Stage::Sorting { exchange, agreement, .. } => (exchange, agreement.as_mut()),
                Stage::Agreeing { exchange, agreement, .. } => (exchange, Some(agreement)),
                Stage::Over(_) => return moved,
            };
            let before = exchange.distance();
            let Some(exchanged) = exchange.poll(engine) else { return moved | (exchange.distance() > before) };
            moved = true;
            match exchanged {
                Ok(exchanged) => self.go_on(exchanged, engine, contexts),
                Err(error) => {
                    exchange.warn(engine);
                    if let Some(agreement) = agreement {
                        agreement.give_up(contexts);
                    }
                    self.stage = Stage::Over(Err(error));
                }
            }
        }
    }

    /// To the next stage, or once more.
    fn go_on<T: Transport>(&mut self, exchanged: Exchanged, engine: &mut Engine<T>, contexts: &mut Contexts) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over(Ok(None)));
        let (circle, mut agreement, group, words) = match (stage, exchanged) {
            (
                Stage::Sorting { exchange, colour: Some(colour), agreement: Some(agreement), me },
                Exchanged::Blocks(blocks),
            ) => {
                let (circle, group, words) = of_colour(exchange.circle(), colour, me, &blocks);
                (circle, agreement, group, words)
            }
            (Stage::Agreeing { exchange, agreement, group }, Exchanged::Words(words)) => {
                (exchange.circle().clone(), agreement, group, words)
            }
            // Without a colour there is nothing more to do.
            (Stage::Sorting { .. } | Stage::Agreeing { .. } | Stage::Over(_), _) => return,
        };
        self.stage = match agreement.on_words(contexts, words) {
            Err(error) => Stage::Over(Err(error)),
            Ok(Next::Exchange(words)) => {
                Stage::Agreeing { exchange: Exchange::of_words(circle, words), agreement, group }
            }
            Ok(Next::Agreed(number)) => {
                let context = Contexts::context_of(number);
                engine.open(context, Arc::clone(&group.members));
                engine.open(context + 1, Arc::clone(&group.members));
                Stage::Over(Ok(Some(Born { context, group })))
            }
        };
    }
}

/// Alike in all members, and different for different operations under way.
fn salt(circle: &Circle) -> u64 {
    (u64::from(circle.context) << 32) | u64::from(circle.tag as u32)
}

/// Those of one colour: how they talk among themselves, their group, and what they propose together.
fn of_colour(all: &Circle, colour: Colour, me: Peer, blocks: &[u8]) -> (Circle, Arc<Group>, Words) {
    let mut chosen = Vec::new();
    let mut words = [0; 3];
    for (place, block) in blocks.chunks_exact(BLOCK).enumerate() {
        let number = |at: usize| i32::from_ne_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        if number(0) == colour {
            chosen.push((number(4), all.rank(place as u32)));
            let proposed = u64::from(number(8) as u32);
            words = [words[0].max(proposed), words[1].max(!proposed), 0];
        }
    }
    chosen.sort_unstable();
    let ranks: Arc<[u32]> = chosen.iter().map(|(_, rank)| *rank).collect();
    let group = Group::new(ranks.iter().map(|rank| all.members[*rank as usize]).collect::<Vec<_>>(), me);
    let place = group.rank.unwrap_or(0);
    (Circle { ranks: Some(ranks), place, ..all.clone() }, Arc::new(group), words)
}

/// By what a creation under way is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationId(u64);

/// Those under way, a few at most.
#[derive(Debug, Default)]
pub struct Creations {
    under_way: Vec<(CreationId, Creation)>,
    count: u64,
}

impl Creations {
    /// Begins one; it goes on with [`Creations::poll`].
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

    /// Gets on with all; whether any moved.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>, contexts: &mut Contexts) -> bool {
        let turns = self.under_way.iter_mut().map(|(_, creation)| creation.poll(engine, contexts));
        turns.fold(false, |moved, one| moved | one)
    }

    /// Those that are over, to be told of; what nobody asks for is forgotten then.
    pub fn settle(&mut self, mut tell: impl FnMut(&Creation)) {
        self.under_way.retain(|(_, creation)| {
            if creation.is_over() {
                tell(creation);
            }
            !(creation.is_over() && creation.forgotten)
        });
    }

    /// It goes on, but nobody will ask what it came to.
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

    /// Whether one's messages go on this collective context.
    pub fn use_context(&self, context: u32) -> bool {
        self.under_way.iter().any(|(_, creation)| creation.uses(context))
    }
}

/// The ranks in `parent` of a group's members; an error of class `MPI_ERR_GROUP` if one is not there.
pub fn ranks_in_parent(group: &Group, parent: &Group) -> MpiResult<Arc<[u32]>> {
    let ranks: Option<Arc<[u32]>> = group.ranks_in(parent).collect();
    ranks.ok_or_else(|| MpiError::group("the group is not within that of the communicator"))
}

#[cfg(test)]
mod tests;
