//! What `RSD_MPI_CHECK` keeps: by which call each object was made, and the comparisons of collective calls that are under way.
//!
//! The members of a communicator form a ring: each sends a text that describes its call to the next member, and compares the text of the
//! previous one with its own. If two members call something different, so do two neighbours, and the second of them notices. Cost: one
//! message from each member.

use std::collections::HashMap;

use super::agree::Lent;
use super::table::Objects;
use crate::abi::CommHandle;
use crate::engine::{Engine, Envelope, Mode, Peer, Source, TagMatch, Transport};
use crate::error::{MpiError, MpiResult};

/// The records of a process that checks.
#[derive(Debug, Default)]
pub struct Check {
    /// By kind and handle: the function that has made the object.
    makers: HashMap<(&'static str, usize), &'static str>,
    /// Comparisons under way.
    pending: Vec<Comparison>,
    started: u64,
    /// The function that the program has called last.
    pub calling: Option<&'static str>,
}

/// A kind of objects, and all of them.
pub type Kind<'a> = (&'static str, &'a dyn Objects);

/// The handles that the next object of each kind will get.
pub type Next = Vec<usize>;

impl Check {
    /// Notes that this function has made the objects which have these handles by now.
    pub fn note(&mut self, kinds: &[Kind<'_>], next: &Next, function: &'static str) {
        for ((kind, objects), handle) in kinds.iter().zip(next) {
            if objects.has(*handle) {
                self.makers.insert((kind, *handle), function);
            }
        }
    }

    /// The function that has made an object.
    pub fn maker(&self, kind: &'static str, handle: usize) -> &'static str {
        self.makers.get(&(kind, handle)).copied().unwrap_or("an unknown function")
    }

    /// Starts to compare a call with that of the previous member.
    pub fn start<T: Transport>(&mut self, engine: &mut Engine<T>, ring: &Ring<'_>, text: &str) {
        self.started += 1;
        self.pending.extend(Comparison::start(engine, ring, text));
    }

    /// How many comparisons were started.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Whether all comparisons on this context are over.
    pub fn is_over(&self, context: u32) -> bool {
        self.pending.iter().all(|comparison| comparison.context != context)
    }

    /// Whether the result of all comparisons is known, although [`Check::poll`] has not been called.
    pub fn is_known<T: Transport>(&self, engine: &Engine<T>) -> bool {
        self.pending.iter().all(|comparison| comparison.theirs.is_over(engine))
    }

    /// Looks at the comparisons that are under way; returns the first difference.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>) -> MpiResult {
        let mut result = Ok(());
        for comparison in std::mem::take(&mut self.pending) {
            match comparison.poll(engine) {
                Ok(over) => result = result.and(over),
                Err(pending) => self.pending.push(pending),
            }
        }
        result
    }
}

/// The comparison of a call with that of the previous member.
#[derive(Debug)]
struct Comparison {
    comm: CommHandle,
    context: u32,
    mine: String,
    rank: u32,
    from: u32,
    theirs: Lent,
}

/// The members of a communicator, for a comparison.
#[derive(Debug)]
pub struct Ring<'a> {
    /// Its handle.
    pub comm: CommHandle,
    /// Its collective context.
    pub context: u32,
    /// All members.
    pub members: &'a [Peer],
    /// This process's place among them.
    pub rank: u32,
    /// The tag of this comparison.
    pub tag: i32,
}

/// Longer descriptions are cut.
const TEXT_MAX: usize = 200;

impl Comparison {
    /// Starts to compare; `None` if there is no other member.
    fn start<T: Transport>(engine: &mut Engine<T>, ring: &Ring<'_>, text: &str) -> Option<Self> {
        let size = ring.members.len() as u32;
        if size < 2 {
            return None;
        }
        let mut mine = text.to_owned();
        mine.truncate((0..=TEXT_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
        let envelope = Envelope { context: ring.context, rank: ring.rank, tag: ring.tag };
        let to = ring.members[((ring.rank + 1) % size) as usize];
        let sent = Lent::start(mine.as_bytes().into(), |buffer| engine.send(envelope, to, Mode::Standard, buffer));
        sent.leave(engine);
        let from = (ring.rank + size - 1) % size;
        let (source, tag) = (Source::Rank(from), TagMatch::Value(ring.tag));
        let theirs = Lent::start(vec![0; TEXT_MAX].into(), |buffer| engine.recv(ring.context, source, tag, buffer));
        Some(Self { comm: ring.comm, context: ring.context, mine, rank: ring.rank, from, theirs })
    }

    /// Whether the calls are alike; the value itself if that is not known yet.
    fn poll<T: Transport>(self, engine: &mut Engine<T>) -> Result<MpiResult, Self> {
        let Self { comm, context, mine, rank, from, theirs } = self;
        match theirs.outcome(engine) {
            Err(theirs) => Err(Self { comm, context, mine, rank, from, theirs }),
            // The call itself reports what has become of the other member.
            Ok((outcome, _)) if outcome.error.is_some() => Ok(Ok(())),
            Ok((outcome, bytes)) => {
                let theirs = String::from_utf8_lossy(&bytes[..outcome.bytes as usize]).into_owned();
                Ok(if theirs == mine { Ok(()) } else { Err(different(rank, &mine, from, &theirs).on(comm)) })
            }
        }
    }
}

#[cold]
fn different(rank: u32, mine: &str, from: u32, theirs: &str) -> MpiError {
    MpiError::other(format!("unmatched collective calls: rank {rank} calls {mine}, and rank {from} calls {theirs}"))
}
