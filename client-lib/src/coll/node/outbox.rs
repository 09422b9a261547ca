//! Non-blocking collectives on short data among processes of one node.
//!
//! A member *posts* its data where the others find them, and goes on. Those that need them read them when they look, so that no member has to
//! take part while others make progress: a broadcast is over for its root at once, and an allreduce for each member as soon as all have
//! started it. Each member combines for itself.
//!
//! ```text
//!  posts:    | member 0: 0 1 … 15 | member 1: 0 1 … 15 | …      marks as of blocking operations, 64 bytes each
//!  read:     | member 0 | member 1 | …                          how many operations it has read: a line each
//!  letters:  | member 0: 0 1 … 15 | …                           data that do not fit in a mark: 32 KiB each
//! ```
//!
//! Operation k uses the posts k modulo 16. A member posts it once all have read operation k - 16. Operations may end in any order; a member has
//! *read* k once it needs nothing more from k and all before. The oldest operation that a member has not read can always go on: the members that
//! it waits for have room for their posts. So operations in progress never wait for each other in a circle, whatever else their members do.
//!
//! Blocking operations of the same communicator have memory of their own ([`Node`]); only the sleepers are common to both.

use std::cell::Cell;
use std::collections::VecDeque;

use super::area::Area;
use super::mailboxes::{Awaited, Mailboxes};
use super::meeting::died;
use super::work::{REFUSED, Work, awaited, blocks, differ, disagrees, stamp};
use super::{Arrival, LETTER, Mark, Node, POSTS, REVOKED, SMALL, Shape};
use crate::coll::choice::Call;
use crate::coll::operands::Operands;
use crate::error::{MpiError, MpiResult};
use crate::memory::Room;
use crate::op::Reduction;
use crate::shared_memory::sync::{Ordering, writes};

/// The most bytes that a member combines: more of them, or from more members, are combined faster in a tree.
const COMBINED: u64 = 64 << 10;
/// The most bytes of a block that only one of two members gets: a longer one is read while it is sent, which takes less time for both together.
const PAIRED: usize = 4 << 10;
/// The most members: each may look at the posts of all.
const MEMBERS: u32 = 128;

/// One member's non-blocking operations in progress on a communicator.
pub struct Outbox {
    posts: Posts,
    /// The number of the oldest operation in `operations`, and how many are read.
    first: u64,
    read: u64,
    /// How many operations all members are known to have read.
    known: u64,
    operations: VecDeque<Operation>,
    ring: Box<dyn Fn() + Send>,
    /// How many of this process's threads have announced a sleep.
    asleep: u32,
}

/// The memory, as one member sees it.
struct Posts {
    area: Area,
    rank: u32,
    /// The number of the next post.
    next: u64,
}

/// An operation that was not over when it was started.
#[derive(Debug)]
struct Operation {
    call: Call,
    operands: Operands,
    reduction: Option<Reduction>,
    /// This member's arguments are invalid: it takes part without data.
    fault: Option<MpiError>,
    /// The awaited members before this one have posted.
    seen: Cell<u32>,
    /// Its result will not be asked for.
    is_forgotten: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It waits for room for its post.
    Waiting,
    Posted,
    Over(MpiResult),
    /// It is over, and its result has been taken or will not be asked for.
    Done,
}

/// What an operation does, on memory that the caller lends.
#[derive(Debug)]
struct Task<'a> {
    call: Call,
    operands: &'a Operands,
    reduction: Option<&'a Reduction>,
    fault: Option<&'a MpiError>,
    seen: &'a Cell<u32>,
}

/// What has become of an operation when it was started.
#[derive(Debug)]
pub enum Begun {
    /// It is over.
    Over(MpiResult),
    /// It goes on under this number.
    Pending(u64),
}

/// Whether a call can be posted by members of memory of this shape. All members get the same answer. `is_dense`: the elements have no holes.
fn fits(call: Call, shape: Shape, reduction: Option<&Reduction>, is_dense: bool) -> bool {
    let members = shape.members;
    let combines = |len: u64| {
        let can = is_dense && reduction.is_some_and(|it| it.commutes() && !it.calls_user());
        (can && len.saturating_mul(u64::from(members)) <= COMBINED).then_some(len)
    };
    let (block, is_one_way) = match call {
        Call::Barrier => return members <= MEMBERS,
        Call::Bcast { len: block, .. } | Call::Gather { block, .. } | Call::Scatter { block, .. } => {
            (Some(block), true)
        }
        Call::Allgather { block, .. } | Call::Alltoall { block, .. } => (Some(block), false),
        Call::Reduce { vector, .. } | Call::Exscan { vector, .. } => (combines(vector.len()), true),
        Call::Allreduce { vector, .. } | Call::Scan { vector, .. } => (combines(vector.len()), false),
        Call::ReduceScatterBlock { block, .. } => (combines(block.len()), false),
    };
    let longest = if is_one_way && members == 2 { PAIRED } else { LETTER }.min(shape.slot) as u64;
    let is_short = |block: u64| block > 0 && block.saturating_mul(blocks(call, members) as u64) <= longest;
    members <= MEMBERS && block.is_some_and(is_short)
}

impl Node {
    /// The outbox of the same memory for this member; `ring` wakes all members that sleep.
    pub fn outbox(&self, ring: Box<dyn Fn() + Send>) -> Outbox {
        let posts = Posts { area: self.area.clone(), rank: self.rank, next: 0 };
        Outbox { posts, first: 0, read: 0, known: 0, operations: VecDeque::new(), ring, asleep: 0 }
    }
}

impl Outbox {
    /// Whether [`Outbox::start`] accepts a call. All members get the same answer.
    pub fn fits(&self, call: Call, reduction: Option<&Reduction>, is_dense: bool) -> bool {
        fits(call, self.posts.shape(), reduction, is_dense)
    }

    /// Starts a call that [`Outbox::fits`]. If it is not over at once, its operands are taken. With a `fault`, this member has no data, and those
    /// that depend on it notice that.
    pub fn start(
        &mut self,
        call: Call,
        operands: &mut Operands,
        reduction: &mut Option<Reduction>,
        fault: Option<MpiError>,
    ) -> Begun {
        let fault = fault.or_else(|| operands.load().err());
        let number = self.first + self.operations.len() as u64;
        let is_next = !matches!(self.operations.back(), Some(Operation { stage: Stage::Waiting, .. }));
        let (mut stage, seen) = (Stage::Waiting, Cell::new(0));
        if is_next && (self.known + POSTS > number || self.sees_room(number)) {
            let (reduction, fault) = (reduction.as_ref(), fault.as_ref());
            let task = Task { call, operands, reduction, fault, seen: &seen };
            task.post(&mut self.posts, number);
            let result = task.is_there(&self.posts, number).then(|| task.finish(&self.posts, number));
            if let Some(result) = result {
                // A failure is for the call that asks for the result.
                let (kept, begun) = match result {
                    Err(error) if fault.is_none() => (Some(Stage::Over(Err(error))), Begun::Pending(number)),
                    result => (None, Begun::Over(result)),
                };
                self.has_ended_at_once(number, call, kept);
                return begun;
            }
            self.wake();
            stage = Stage::Posted;
        }
        let (operands, reduction) = (std::mem::take(operands), reduction.take());
        self.operations.push_back(Operation { call, operands, reduction, fault, seen, is_forgotten: false, stage });
        Begun::Pending(number)
    }

    /// After a new operation was posted and is over: most operations of most programs, for which nothing is stored, unless earlier ones are.
    fn has_ended_at_once(&mut self, number: u64, call: Call, kept: Option<Stage>) {
        if self.operations.is_empty() && kept.is_none() {
            self.first = number + 1;
        } else {
            self.operations.push_back(Operation::over(call, kept.unwrap_or(Stage::Done)));
        }
        if self.read == number {
            self.read = number + 1;
            self.publish_read();
        }
        self.wake();
    }

    /// Whether no operation is in progress, and no result remains to be taken.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The result of an operation, once it is over.
    pub fn take(&mut self, number: u64) -> Option<MpiResult> {
        let index = self.index(number)?;
        let stage = &mut self.operations[index].stage;
        let Stage::Over(_) = stage else { return None };
        let Stage::Over(result) = std::mem::replace(stage, Stage::Done) else { return None };
        self.forget_done();
        Some(result)
    }

    /// Declares that the result will not be asked for; the operation goes on.
    pub fn forget(&mut self, number: u64) {
        if let Some(index) = self.index(number) {
            self.operations[index].is_forgotten = true;
            let _ = self.take(number);
        }
    }

    /// Whether [`Outbox::take`] would return a result.
    pub fn is_over(&self, number: u64) -> bool {
        self.index(number).is_some_and(|index| matches!(self.operations[index].stage, Stage::Over(_)))
    }

    fn index(&self, number: u64) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (index < self.operations.len()).then_some(index)
    }

    /// How many operations are in progress.
    pub fn pending(&self) -> usize {
        self.operations.len() - (self.read - self.first).min(self.operations.len() as u64) as usize
    }

    /// Continues all operations; returns how many have ended.
    pub fn poll(&mut self) -> usize {
        let (mut ended, mut posted) = (0, false);
        for index in (self.read - self.first) as usize..self.operations.len() {
            let (number, broken) = (self.first + index as u64, self.posts.area.head().broken());
            let has_room = self.known + POSTS > number || self.sees_room(number);
            let operation = &mut self.operations[index];
            if let Stage::Waiting = operation.stage {
                if has_room {
                    operation.task().post(&mut self.posts, number);
                    operation.stage = Stage::Posted;
                    posted = true;
                } else if broken.is_none() {
                    break;
                }
            }
            let result = match (&operation.stage, broken) {
                (Stage::Over(_) | Stage::Done, _) => continue,
                (Stage::Posted, _) if operation.task().is_there(&self.posts, number) => {
                    operation.task().finish(&self.posts, number)
                }
                (Stage::Posted | Stage::Waiting, Some(rank)) => Err(died(rank)),
                (Stage::Posted | Stage::Waiting, None) => continue,
            };
            operation.end(result);
            ended += 1;
        }
        let before = self.read;
        while self.operations.get((self.read - self.first) as usize).is_some_and(Operation::is_over) {
            self.read += 1;
        }
        if self.read != before {
            self.publish_read();
            self.forget_done();
        }
        if posted || self.read != before {
            self.wake();
        }
        ended
    }

    /// The places of what is read are free.
    #[inline]
    fn publish_read(&self) {
        self.posts.area.read()[self.posts.rank as usize].0.store(self.read, Ordering::Release);
    }

    #[inline]
    fn wake(&self) {
        self.posts.area.head().wake(&self.ring);
    }

    /// Whether all have read the operation that used the place of this one before.
    #[cold]
    fn sees_room(&mut self, number: u64) -> bool {
        let all = self.posts.area.read().iter().map(|read| read.0.load(Ordering::Acquire));
        // Others that write nonsense there must not make it go back.
        self.known = all.min().unwrap_or(0).clamp(self.known, self.read.max(self.known));
        self.known + POSTS > number
    }

    /// Drops the oldest operations whose results have been taken.
    fn forget_done(&mut self) {
        while self.first < self.read && matches!(self.operations.front(), Some(Operation { stage: Stage::Done, .. })) {
            self.operations.pop_front();
            self.first += 1;
        }
    }

    /// Called before a sleep, after which [`Outbox::poll`] must be called once more, and again after the sleep.
    pub fn announce_sleep(&mut self, asleep: bool) {
        if !asleep && self.asleep == 0 {
            return;
        }
        self.asleep = if asleep { self.asleep + 1 } else { self.asleep - 1 };
        self.posts.area.head().announce_sleep(asleep);
    }

    /// Records that the communicator is revoked: operations that are not over fail.
    pub fn revoke(&self) {
        self.declare_broken(REVOKED);
    }

    /// Records that a member has died: operations that depend on members that have not posted fail.
    pub fn declare_broken(&self, rank: u32) {
        self.posts.area.head().declare_broken(rank);
        (self.ring)();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        while self.asleep > 0 {
            self.announce_sleep(false);
        }
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("rank", &self.posts.rank).field("read", &self.read).finish_non_exhaustive()
    }
}

impl Operation {
    /// One that was over at once.
    fn over(call: Call, stage: Stage) -> Self {
        let (operands, seen) = (Operands::default(), Cell::new(0));
        Self { call, operands, reduction: None, fault: None, seen, is_forgotten: false, stage }
    }

    fn task(&self) -> Task<'_> {
        let Self { call, operands, reduction, fault, seen, .. } = self;
        Task { call: *call, operands, reduction: reduction.as_ref(), fault: fault.as_ref(), seen }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_) | Stage::Done)
    }

    /// The user's memory is not used any more.
    fn end(&mut self, result: MpiResult) {
        self.stage = match self.is_forgotten {
            true => Stage::Done,
            false => Stage::Over(result),
        };
        (self.operands, self.reduction) = (Operands::default(), None);
    }
}

impl Task<'_> {
    fn post(&self, posts: &mut Posts, number: u64) {
        posts.next = number;
        match self.fault {
            None => _ = self.work(posts).leave(posts, stamp(self.call)),
            Some(_) => _ = posts.arrive(REFUSED, 0, false, |_| ()),
        }
    }

    fn work(&self, posts: &Posts) -> Work<'_> {
        Work::new(self.call, self.operands, self.reduction, None, posts.shape())
    }

    /// Whether the members that it waits for have posted.
    fn is_there(&self, posts: &Posts, number: u64) -> bool {
        let has_posted = |member: u32| posts.mark(number, member).number.load(Ordering::Acquire) > number;
        let end = match self.awaited(posts) {
            Awaited::None => return true,
            Awaited::One(member) => return has_posted(member),
            Awaited::Before(me) => me,
            Awaited::All => posts.size(),
        };
        let mut seen = self.seen.get();
        while seen < end && has_posted(seen) {
            seen += 1;
        }
        self.seen.set(seen);
        seen == end
    }

    fn awaited(&self, posts: &Posts) -> Awaited {
        if self.fault.is_some() { Awaited::None } else { awaited(self.call, posts.rank) }
    }

    /// Reads the data that it waited for.
    fn finish(&self, posts: &Posts, number: u64) -> MpiResult {
        if let Some(fault) = self.fault {
            return Err(fault.clone());
        }
        let own = stamp(self.call);
        if let Some(member) = posts.differing(number, self.awaited(posts), |stamp| differ(stamp, own)) {
            return Err(disagrees(posts, number, member));
        }
        self.work(posts).read_left(posts, number);
        self.operands.store()
    }
}

impl Posts {
    #[inline]
    fn mark(&self, number: u64, member: u32) -> &Mark {
        &self.area.posts()[(u64::from(member) * POSTS + number % POSTS) as usize]
    }
}

impl Mailboxes for Posts {
    fn shape(&self) -> Shape {
        self.area.shape()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn arrive(&mut self, stamp: u64, len: usize, _: bool, fill: impl FnOnce(Room<'_>)) -> (u64, Arrival) {
        let number = self.next;
        self.next += 1;
        let mark = self.mark(number, self.rank);
        let len = len.min(LETTER);
        if len > SMALL {
            let letter = self.area.letter(self.rank, number);
            writes(letter, len);
            // SAFETY: a member's own letter is used by no other member between the time when all have read the operation that used it before,
            // and the number of this one.
            fill(unsafe { Room::shared(letter, len) });
        } else if len > 0 {
            // SAFETY: as above.
            mark.data.with_mut(|data| fill(unsafe { Room::shared(data.cast(), len) }));
        }
        mark.stamp.store(stamp, Ordering::Relaxed);
        mark.number.store(number + 1, Ordering::Release);
        (number, Arrival::Wait)
    }

    fn with_data<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R {
        let len = len.min(LETTER);
        if len <= SMALL {
            let data = &self.mark(number, member).data;
            return data.with(|data| body(std::ptr::slice_from_raw_parts(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts(self.area.letter(member, number), len))
    }

    fn stamp(&self, number: u64, member: u32) -> u64 {
        self.mark(number, member).stamp.load(Ordering::Relaxed)
    }
}
