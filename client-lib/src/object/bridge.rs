//! How two groups without a common communicator make one (MPI 5.0 §7.6.2): each group has a leader, and the leaders can
//! exchange messages.
//!
//! One attempt to agree on a context:
//!
//! 1. *proposing*: the members of each group learn the maximum of their words ([`Agreement`]);
//! 2. *crossing*: the leaders exchange these and, the first time, the names of their groups' members;
//! 3. *telling*, *listing*: each leader tells its group the maxima of both groups and the names of the other group's members.
//!
//! If any member brings foreign processes, members of one group may not know those of the other: then the bridge ends after the
//! first *telling*, and is retried when all have been introduced (`runtime::connect`).
//!
//! A leader that has failed crosses once more, to say so (*excusing*), if the other leader waits for that or will: so each
//! leader receives as many messages as it sends, and none is left over for the next bridge. This ends when the other leader
//! makes the call, or dies.
//!
//! *Telling* is an exchange as well, in which members other than the leader contribute zeros: so all members notice a failure,
//! as in any other exchange. The order of the groups in the union follows from the names of their first members. Cost:
//! 3⌈log₂ n⌉ + 2 consecutive messages for the first attempt.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::agree::{Circle, Exchange, Exchanged, Failure, Lent};
use super::context::{self, Agreement, Contexts, Next, Words};
use super::group::Group;
use super::names::{self, Names};
use super::parties::{Born, Parties};
use crate::abi::constants::{MPI_ERR_COMM, MPI_ERR_OTHER};
use crate::engine::{Engine, Envelope, Mode, Peer, Source, Started, TagMatch, Transport};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;

/// How a leader reaches the other leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// The context of their messages.
    pub context: u32,
    /// This process's rank there.
    pub rank: u32,
    /// The other leader's rank.
    pub from: u32,
    /// The other leader.
    pub to: Peer,
    /// From [`super::agree::tag`].
    pub tag: i32,
}

/// The contribution of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brings {
    /// Nothing that prevents the bridge.
    Nothing,
    /// Its group has members of other jobs, or the other leader is one: some members may not know each other.
    Foreign,
    /// It has failed, so no process will proceed.
    Failure(Failure),
}

/// One process's part.
#[derive(Debug)]
pub struct Bridge {
    circle: Circle,
    group: Arc<Group>,
    /// Present in a leader.
    crossing: Option<Crossing>,
    agreement: Agreement,
    /// Both groups, once the other one is known.
    parties: Option<Parties>,
    /// The words of both groups that this process knows: in the end, all.
    words: Words,
    /// Names of the other group's members: first at the leader, then everywhere.
    list: Vec<u64>,
    /// Why a leader could not cross.
    fault: Option<MpiError>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Proposing(Exchange),
    Crossing(Swap),
    Telling(Exchange),
    Listing(Exchange),
    /// A leader that has failed with this error.
    Excusing(Swap, MpiError),
}

/// A list of more words is rejected.
const LIST_MAX: u64 = 1 << 28;

impl Bridge {
    /// Starts a bridge; the circle is this process's group. A leader without a crossing must bring a failure.
    pub fn new(
        circle: Circle,
        group: Arc<Group>,
        crossing: Option<Crossing>,
        contexts: &mut Contexts,
        brings: Brings,
    ) -> Self {
        let failure = if let Brings::Failure(failure) = brings { Some(failure) } else { None };
        let (agreement, mut words) = Agreement::start(contexts, circle.salt(), failure);
        if brings == Brings::Foreign {
            words[2] = FOREIGN;
        }
        let stage = Stage::Proposing(Exchange::of_words(circle.clone(), &words));
        Self { circle, group, crossing, agreement, parties: None, words, list: Vec::new(), fault: None, stage }
    }

    /// Whether its messages use this context.
    pub fn uses(&self, context: u32) -> bool {
        self.circle.context == context || self.crossing.is_some_and(|crossing| crossing.context == context)
    }

    /// Advances; returns whether it moved and, if it is over, its result: `None` if the groups must be introduced first
    /// because a process brings foreign ones. Do not call it again after that.
    pub fn poll<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        contexts: &mut Contexts,
        names: &Names,
    ) -> (bool, Option<MpiResult<Option<Born>>>) {
        let mut moved = false;
        loop {
            let (turned, came) = match &mut self.stage {
                Stage::Proposing(exchange) | Stage::Telling(exchange) | Stage::Listing(exchange) => {
                    let before = exchange.distance();
                    let came = exchange.poll(engine);
                    (exchange.distance() > before, came.map(|came| came.map(words_of)))
                }
                Stage::Crossing(swap) | Stage::Excusing(swap, _) => (false, swap.poll(engine)),
            };
            moved |= turned;
            let Some(came) = came else { return (moved, None) };
            moved = true;
            match self.on_words(came, engine, contexts, names) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(born)) => return (true, Some(Ok(born))),
                Err(error) => {
                    self.agreement.give_up(contexts);
                    return (true, Some(Err(error)));
                }
            }
        }
    }

    /// Takes the next step; returns the result after the last one.
    fn on_words<T: Transport>(
        &mut self,
        came: MpiResult<Vec<u64>>,
        engine: &mut Engine<T>,
        contexts: &mut Contexts,
        names: &Names,
    ) -> MpiResult<Turn> {
        match (&self.stage, came) {
            (Stage::Excusing(_, error), _) => Err(error.clone()),
            (Stage::Crossing(_), came) => {
                self.on_crossed(came);
                self.stage = Stage::Telling(Exchange::of_words(self.circle.clone(), &self.own_words()));
                Ok(ControlFlow::Continue(()))
            }
            (Stage::Proposing(exchange), Err(error)) => {
                exchange.warn(engine, &error);
                self.excuse(error, true, engine)
            }
            (Stage::Telling(exchange) | Stage::Listing(exchange), Err(error)) => {
                exchange.warn(engine, &error);
                let goes_on = self.words[2] == FOREIGN || !self.agreement.ends_with(self.words);
                self.excuse(error, goes_on, engine)
            }
            (Stage::Proposing(_), Ok(came)) => {
                self.words = came.first_chunk().copied().unwrap_or(fails(Failure::Other));
                self.stage = match self.crossing {
                    Some(crossing) => {
                        let list =
                            if self.parties.is_none() { names.to_words(&self.group.members) } else { Vec::new() };
                        Stage::Crossing(Swap::start(crossing, self.words, list, engine))
                    }
                    // A leader that cannot cross has reported its failure; the other members' words are not needed.
                    None => Stage::Telling(Exchange::of_words(self.circle.clone(), &self.own_words())),
                };
                Ok(ControlFlow::Continue(()))
            }
            (Stage::Telling(_), Ok(came)) => {
                self.words = came.first_chunk().copied().unwrap_or(fails(Failure::Other));
                let len = came.last().copied().unwrap_or(0) as usize;
                if self.words[2] == FOREIGN {
                    self.agreement.give_up(contexts);
                    return Ok(ControlFlow::Break(None));
                }
                if self.parties.is_some() || self.words[2] != 0 {
                    return self.agree(engine, contexts);
                }
                self.list.resize(len, 0);
                self.stage = Stage::Listing(Exchange::of_words(self.circle.clone(), &self.list));
                Ok(ControlFlow::Continue(()))
            }
            (Stage::Listing(_), Ok(came)) => {
                self.parties = Some(both(&self.group, &came, names)?);
                self.agree(engine, contexts)
            }
        }
    }

    /// Fails; a leader first tells the other leader, if that crosses once more.
    fn excuse<T: Transport>(&mut self, error: MpiError, crosses: bool, engine: &mut Engine<T>) -> MpiResult<Turn> {
        let Some(crossing) = self.crossing.filter(|_| crosses) else { return Err(error) };
        let swap = Swap::start(crossing, fails(Failure::of(&error)), Vec::new(), engine);
        self.stage = Stage::Excusing(swap, error);
        Ok(ControlFlow::Continue(()))
    }

    /// A leader has received the other's message, or an error.
    fn on_crossed(&mut self, came: MpiResult<Vec<u64>>) {
        let first = self.parties.is_none();
        let came = came.map(|came| {
            let (words, list) = came.split_first_chunk::<3>()?;
            (!first || !list.is_empty() || words[2] != 0).then(|| (*words, list.to_vec()))
        });
        match came {
            Ok(Some((words, list))) => {
                self.words = std::array::from_fn(|at| self.words[at].max(words[at]));
                self.list = list;
            }
            Ok(None) => self.words = fails(Failure::Other),
            Err(error) => {
                self.words = fails(Failure::of(&error));
                self.fault = Some(error);
            }
        }
    }

    /// This process's contribution to *telling*.
    fn own_words(&self) -> [u64; 4] {
        let [a, b, c] = self.words;
        match self.crossing {
            Some(_) => [a, b, c, self.list.len() as u64],
            None => [0, 0, c, 0],
        }
    }

    fn agree<T: Transport>(&mut self, engine: &mut Engine<T>, contexts: &mut Contexts) -> MpiResult<Turn> {
        let next = self.agreement.on_words(contexts, self.words);
        match (next.map_err(|error| self.fault.take().unwrap_or(error))?, &self.parties) {
            (Next::Agreed(number), Some(parties)) => {
                let context = Contexts::context_of(number);
                parties.open(engine, context);
                Ok(ControlFlow::Break(Some(Born { context, parties: parties.clone() })))
            }
            (Next::Agreed(_), None) => Err(MpiError::new(MPI_ERR_OTHER, "the other group is unknown")),
            (Next::Exchange(words), _) => {
                self.words = words;
                self.stage = Stage::Proposing(Exchange::of_words(self.circle.clone(), &words));
                Ok(ControlFlow::Continue(()))
            }
        }
    }
}

/// The next action of a bridge after an exchange.
type Turn = ControlFlow<Option<Born>>;

/// Words that stop all processes.
fn fails(failure: Failure) -> Words {
    [0, 0, context::word_of(failure)]
}

/// The last of the words if a process brings foreign ones.
const FOREIGN: u64 = 1;

fn words_of(exchanged: Exchanged) -> Vec<u64> {
    match exchanged {
        Exchanged::Words(words) => words,
        Exchanged::Blocks(_) => Vec::new(),
    }
}

/// Both groups, in the order of their first members' names.
fn both(group: &Arc<Group>, list: &[u64], names: &Names) -> MpiResult<Parties> {
    let theirs = names.peers_of(list)?;
    let mine: HashSet<Peer> = group.members.iter().copied().collect();
    if theirs.is_empty() || theirs.iter().any(|peer| mine.contains(peer)) {
        return Err(MpiError::new(MPI_ERR_COMM, "the two groups of an intercommunicator have a common member"));
    }
    let first = names.to_words(&group.members[..1]);
    let local_first = first.as_slice() < &list[..names::WORDS];
    let theirs = Group { members: theirs.into(), rank: None, session: group.session };
    Ok(Parties::both(Arc::clone(group), Arc::new(theirs), local_first))
}

impl Crossing {
    fn send<T: Transport>(&self, engine: &mut Engine<T>, buffer: Buffer) -> Started {
        let envelope = Envelope { context: self.context, rank: self.rank, tag: self.tag };
        engine.send(envelope, self.to, Mode::Standard, buffer)
    }

    fn recv<T: Transport>(&self, engine: &mut Engine<T>, buffer: Buffer) -> Started {
        engine.recv(self.context, Source::Rank(self.from), TagMatch::Value(self.tag), buffer)
    }
}

/// The messages between two leaders: three words and the length of a list; then the list, if it is not empty.
#[derive(Debug)]
pub struct Swap {
    crossing: Crossing,
    outgoing: Vec<Lent>,
    incoming: Option<Lent>,
    /// Three words, then the list.
    came: Vec<u64>,
    failed: Option<MpiError>,
}

impl Swap {
    /// Starts to send and to receive.
    pub fn start<T: Transport>(crossing: Crossing, words: Words, list: Vec<u64>, engine: &mut Engine<T>) -> Self {
        let [a, b, c] = words;
        let mut outgoing = vec![Lent::start(bytes_of(&[a, b, c, list.len() as u64]), |it| crossing.send(engine, it))];
        if !list.is_empty() {
            outgoing.push(Lent::start(bytes_of(&list), |it| crossing.send(engine, it)));
        }
        let incoming = Some(Lent::start(bytes_of(&[0; 4]), |it| crossing.recv(engine, it)));
        Self { crossing, outgoing, incoming, came: Vec::new(), failed: None }
    }

    /// The other group's words and list, once they have arrived. Do not call it again after that.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>) -> Option<MpiResult<Vec<u64>>> {
        while let Some(incoming) = self.incoming.take() {
            match incoming.outcome(engine) {
                Err(pending) => {
                    self.incoming = Some(pending);
                    return None;
                }
                Ok((outcome, memory)) => match Failure::from_outcome(&outcome, memory.len()) {
                    None => self.on_message(&memory, engine),
                    Some(error) => self.failed = Some(error),
                },
            }
        }
        if let Some(error) = self.failed.take() {
            self.outgoing.drain(..).for_each(|sent| sent.leave(engine));
            return Some(Err(error));
        }
        for sent in std::mem::take(&mut self.outgoing) {
            match sent.outcome(engine) {
                Ok((outcome, _)) => self.failed = self.failed.take().or(outcome.error.map(|error| *error)),
                Err(pending) => self.outgoing.push(pending),
            }
        }
        match self.failed.take() {
            Some(error) => Some(Err(error)),
            None if self.outgoing.is_empty() => Some(Ok(std::mem::take(&mut self.came))),
            None => None,
        }
    }

    fn on_message<T: Transport>(&mut self, memory: &[u8], engine: &mut Engine<T>) {
        let words = memory.chunks_exact(8).filter_map(|it| it.try_into().ok().map(u64::from_ne_bytes));
        let is_head = self.came.is_empty();
        self.came.extend(words);
        if !is_head {
            return;
        }
        let len = self.came.pop().unwrap_or(0);
        if len > LIST_MAX {
            self.failed = Some(MpiError::other(format!("the other leader announced an invalid list of {len} words")));
        } else if len > 0 {
            let room = vec![0; len as usize * 8].into_boxed_slice();
            self.incoming = Some(Lent::start(room, |it| self.crossing.recv(engine, it)));
        }
    }
}

fn bytes_of(words: &[u64]) -> Box<[u8]> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_a_common_member_or_without_members_are_refused() {
        let names = Names::new(b"job", 4);
        let group = Arc::new(Group::new(vec![Peer(3), Peer(1)], Peer(1)));
        let both = |theirs: &[Peer]| both(&group, &names.to_words(theirs), &names);
        assert_eq!(both(&[Peer(2), Peer(1)]).unwrap_err().class, MPI_ERR_COMM);
        assert!(both(&[]).is_err());
        assert_eq!(both(&[Peer(2), Peer(0)]).unwrap().all().to_vec(), [2, 0, 3, 1].map(Peer));
        assert_eq!(both(&[Peer(0)]).unwrap().place(), 2);
    }
}
