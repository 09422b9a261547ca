//! What a process does by itself to the memory of members on its node: no other process is asked, and a member that computes delays none.
//!
//! Memory that the window has made is on the board, which all members of the node have mapped. Memory of the user is reached through the
//! kernel (`process_vm_readv`), if that is permitted. Locks are words on the board. A member that waits for one, or for the others at a fence,
//! sleeps as in any other wait: before that it counts itself among the sleepers and looks once more, and a process that changes something
//! wakes all sleepers.

use std::os::fd::OwnedFd;

use super::board::{Board, Head, RANGE};
use super::combine::{Accumulate, Combination, Place, Site, unreachable_memory};
use crate::coll::node::Permit;
use crate::error::MpiResult;
use crate::memory::Buffer;
use crate::shared_memory::cma;
use crate::shared_memory::sync::{Ordering, fence, fence_after_rmw};
use crate::transport::Watched;

/// The members of the node, as this process sees them.
#[derive(Debug)]
pub struct Near {
    board: Board,
    /// This member's rank in the window, and its place on the node.
    rank: u32,
    place: u32,
    /// `reach[rank]`.
    reach: Box<[Reach]>,
    /// How many members are on the node.
    members: u32,
    /// Whether single elements are guarded by the hardware.
    by_elements: bool,
    /// How many meetings this member has arrived at.
    meetings: u64,
    /// `seen[rank]`.
    seen: Box<[Seen]>,
    bell: Option<Bell>,
    /// On this member's card: only kept.
    _word: Box<u64>,
}

/// What this process has seen of a member's signs.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    posts: u32,
    completions: u32,
}

/// How this process reaches a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// Its place on the board, if it is on this node.
    pub place: Option<u32>,
    /// Its memory, if this process can use it.
    pub memory: Option<Memory>,
}

/// Memory of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The process in which the address is valid.
    pub place: Place,
    /// The address of the first byte.
    pub address: usize,
}

/// Wakes the members that sleep; a limited number of windows have one, without which locks and fences are messages.
#[derive(Debug)]
pub struct Bell {
    /// An eventfd of all members.
    pub descriptor: OwnedFd,
    /// Ends this process's sleep.
    pub watched: Watched,
    /// Counts.
    pub permit: Permit,
}

impl Near {
    /// The view of the member of this rank. If it has a bell, all members on the node must have it.
    pub fn new(
        board: Board,
        rank: u32,
        reach: Box<[Reach]>,
        by_elements: bool,
        bell: Option<Bell>,
        word: Box<u64>,
    ) -> Self {
        let seen = vec![Seen::default(); reach.len()].into();
        let place = reach[rank as usize].place.unwrap_or(0);
        let members = reach.iter().filter(|reach| reach.place.is_some()).count() as u32;
        Self { board, rank, place, reach, members, by_elements, meetings: 0, seen, bell, _word: word }
    }

    /// The memory on the board.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The memory of a member, if this process can use it.
    #[inline]
    pub fn memory(&self, target: u32) -> Option<Memory> {
        self.reach[target as usize].memory
    }

    /// Copies all bytes of a buffer to a member's memory: `to` has addresses of the process that owns it.
    #[inline]
    pub fn put(memory: Memory, from: &Buffer, to: &Buffer) -> MpiResult {
        match memory.place {
            Place::Here => {
                from.copy_all(to);
                Ok(())
            }
            Place::In(pid) => {
                cma::copy(pid, cma::Way::Write, (from, 0), (to, 0), from.len()).map_err(|_| unreachable_memory())
            }
        }
    }

    /// As [`Near::put`], from the member's memory.
    #[inline]
    pub fn get(memory: Memory, into: &Buffer, from: &Buffer) -> MpiResult {
        match memory.place {
            Place::Here => {
                from.copy_all(into);
                Ok(())
            }
            Place::In(pid) => {
                cma::copy(pid, cma::Way::Read, (into, 0), (from, 0), into.len()).map_err(|_| unreachable_memory())
            }
        }
    }

    /// Goes on with an accumulate on a member's memory; `None` if another process is in the way.
    ///
    /// # Safety
    ///
    /// As for [`Accumulate::advance`].
    pub unsafe fn accumulate(&self, target: u32, memory: Memory, work: &mut Accumulate<'_>) -> Option<MpiResult> {
        let seat = self.board.seat(self.reach[target as usize].place?);
        let Memory { place, address: base } = memory;
        // SAFETY: the caller's promise.
        unsafe { work.advance(Site { place, seat, base, rank: self.rank, by_elements: self.by_elements }) }
    }

    /// A whole accumulate on elements without holes that are mapped here, if they are guarded by one word and no process is in the way.
    ///
    /// # Safety
    ///
    /// As for [`Combination::run`], but for the guard.
    #[inline]
    pub unsafe fn accumulate_at_once(
        &self,
        target: u32,
        combination: &Combination,
        data: *const u8,
        before: *mut u8,
        at: *mut u8,
        len: usize,
    ) -> Option<()> {
        let Reach { place, memory } = &self.reach[target as usize];
        let offset = at.addr().wrapping_sub(memory.as_ref()?.address);
        if self.by_elements || offset % RANGE + len > RANGE {
            return None;
        }
        let _taken = self.board.seat((*place)?).take_range(offset, self.rank)?;
        // SAFETY: the caller's promise, and the word of the range.
        unsafe { combination.run(data, before, at, len) };
        Some(())
    }

    /// As [`Near::accumulate`], on this process's own memory for a member on another node.
    ///
    /// # Safety
    ///
    /// As for [`Accumulate::advance`].
    pub(super) unsafe fn accumulate_here(&self, base: usize, work: &mut Accumulate<'_>) -> Option<MpiResult> {
        let seat = self.board.seat(self.place);
        // SAFETY: the caller's promise.
        unsafe { work.advance(Site { place: Place::Here, seat, base, rank: self.rank, by_elements: self.by_elements }) }
    }

    // --- locks ---

    /// The member's place, if its lock is taken on the board.
    #[inline]
    pub fn lock_of(&self, target: u32) -> Option<u32> {
        self.reach[target as usize].place.filter(|_| self.bell.is_some() || self.members == 1)
    }

    /// Whether members lock, post and complete on the board.
    pub fn waits(&self) -> bool {
        self.members > 0 && (self.bell.is_some() || self.members == 1)
    }

    /// Takes a lock, if it is free.
    #[inline]
    pub fn try_lock(&self, place: u32, alone: bool) -> bool {
        self.board.seat(place).lock.0.try_take(self.rank, alone)
    }

    /// Before and after a wait for a lock alone.
    pub fn want(&self, place: u32, wants: bool) {
        self.board.seat(place).lock.0.want(wants);
    }

    /// Releases a lock.
    #[inline]
    pub fn unlock(&self, place: u32) {
        self.board.seat(place).lock.0.release(self.rank);
        fence_after_rmw();
        self.wake();
    }

    /// As [`Near::try_lock`], the own lock for a member that asks by message.
    pub(super) fn try_lock_for(&self, origin: u32, alone: bool) -> bool {
        self.board.seat(self.place).lock.0.try_take(origin, alone)
    }

    /// As [`Near::unlock`].
    pub(super) fn unlock_for(&self, origin: u32) {
        self.board.seat(self.place).lock.0.release(origin);
        fence_after_rmw();
        self.wake();
    }

    /// As [`Near::want`], the own lock for a member that has asked by message.
    pub(super) fn want_own(&self, wants: bool) {
        self.want(self.place, wants);
    }

    // --- meetings ---

    /// Whether all members of a window of this size meet on the board.
    pub fn meets(&self) -> bool {
        self.members as usize == self.reach.len() && (self.bell.is_some() || self.members == 1)
    }

    /// Arrives at the next meeting; returns its number.
    #[inline]
    pub fn arrive(&mut self) -> u64 {
        self.meetings += 1;
        let head = self.board.head();
        let arrived = head.arrived.0.fetch_add(1, Ordering::AcqRel) + 1;
        if arrived == u64::from(self.members) * self.meetings {
            head.met.0.swap(self.meetings, Ordering::AcqRel);
            fence_after_rmw();
            self.wake();
        }
        self.meetings
    }

    /// Whether all have arrived.
    #[inline]
    pub fn has_met(&self, number: u64) -> bool {
        self.board.head().met.0.load(Ordering::Acquire) >= number
    }

    // --- post, start, complete, wait ---

    /// Permits a member to use this process's memory; returns false if it must be told by message.
    pub fn post(&self, origin: u32) -> bool {
        let Some(place) = self.lock_of(origin) else { return false };
        self.board.sign(self.place, place).posted.fetch_add(1, Ordering::AcqRel);
        fence_after_rmw();
        self.wake();
        true
    }

    /// Whether all members of a list that post on the board have permitted this process to use their memory; if so, it counts as seen.
    pub fn take_posts(&mut self, targets: &[u32]) -> bool {
        let Self { board, place: own, seen, reach, .. } = self;
        let here = || targets.iter().filter_map(|target| Some((*target as usize, reach[*target as usize].place?)));
        let count = |place| board.sign(place, *own).posted.load(Ordering::Acquire);
        let all = here().all(|(target, place)| count(place) != seen[target].posts);
        if all {
            here().for_each(|(target, _)| seen[target].posts = seen[target].posts.wrapping_add(1));
        }
        all
    }

    /// Declares that the use of a member's memory is over; returns false if it must be told by message.
    pub fn complete(&self, target: u32) -> bool {
        let Some(place) = self.lock_of(target) else { return false };
        self.board.sign(place, self.place).completed.fetch_add(1, Ordering::AcqRel);
        fence_after_rmw();
        self.wake();
        true
    }

    /// Whether a member has declared on the board that its use of this process's memory is over.
    #[inline]
    pub(super) fn has_completed(&self, origin: u32) -> bool {
        let Some(place) = self.lock_of(origin) else { return false };
        let completed = self.board.sign(self.place, place).completed.load(Ordering::Acquire);
        completed != self.seen[origin as usize].completions
    }

    /// It counts as seen.
    pub(super) fn take_completion(&mut self, origin: u32) {
        let seen = &mut self.seen[origin as usize].completions;
        *seen = seen.wrapping_add(1);
    }

    // --- sleep ---

    /// Before a sleep, after which everything that is waited for must be checked once more, and after the sleep.
    pub fn announce_sleep(&self, asleep: bool) {
        let sleepers = &self.head().sleepers.0;
        if asleep {
            sleepers.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        } else {
            sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Wakes the members that sleep. Called after something was changed, and a full barrier.
    #[inline]
    fn wake(&self) {
        if self.head().sleepers.0.load(Ordering::Relaxed) != 0 {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // It fails only if the bell was never read.
            let _ = nix::unistd::write(&bell.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Tells the others that a member is lost: they may wait for it.
    pub(super) fn declare_broken(&self) {
        if self.head().broken.0.swap(1, Ordering::AcqRel) == 0 {
            self.ring();
        }
    }

    /// Whether a member of the node knows of a loss.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.head().broken.0.load(Ordering::Relaxed) != 0
    }

    fn head(&self) -> &Head {
        self.board.head()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::os::fd::AsFd;

    use super::super::board::Shape;
    use super::*;

    /// Two members' views of one board, without bells: as if each were alone in waiting.
    fn pair() -> [Near; 2] {
        let shape = Shape { members: 2, bytes: 0 };
        let (one, fd) = Board::create(shape).unwrap();
        let two = Board::open(fd.as_fd(), shape).unwrap();
        let reach = || (0..2).map(|place| Reach { place: Some(place), memory: None }).collect();
        [(one, 0), (two, 1)].map(|(board, rank)| Near::new(board, rank, reach(), false, None, Box::default()))
    }

    #[test]
    fn members_meet_as_often_as_they_like() {
        let [mut one, mut two] = pair();
        for _ in 0..3 {
            let number = one.arrive();
            assert!(!one.has_met(number));
            assert!(two.arrive() == number && two.has_met(number) && one.has_met(number));
        }
        // Without bells, members meet by messages.
        assert!(!one.meets() && one.lock_of(1).is_none());
    }

    #[test]
    fn a_lock_is_one_for_all_members() {
        let [one, two] = pair();
        assert!(one.try_lock(0, true) && !two.try_lock(0, false) && two.try_lock(1, true));
        one.unlock(0);
        assert!(two.try_lock(0, false) && one.try_lock(0, false));
    }

    #[test]
    fn a_loss_is_known_to_all_members() {
        let [one, two] = pair();
        assert!(!one.is_broken());
        two.declare_broken();
        assert!(one.is_broken());
    }
}
