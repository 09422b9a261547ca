//! The simplest message carrier: once both the send and the receive exist, it copies from one buffer to the other at
//! some later time.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::run::{Courier, Sent};
use super::world::{Dice, Fabric};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;

/// Sender, receiver and tag.
type Channel = (u32, u32, i32);

#[derive(Debug, Default)]
struct Queue {
    sends: VecDeque<(u64, Buffer)>,
    receives: VecDeque<(u64, Buffer)>,
}

#[derive(Debug)]
pub(super) struct Net {
    queues: HashMap<Channel, Queue>,
    /// Channels with both a send and a receive.
    ready: Vec<Channel>,
    done: HashMap<u64, MpiResult<u64>>,
    next: u64,
    /// How many messages were sent.
    pub(super) messages: u64,
    /// How many bytes.
    pub(super) bytes: u64,
    dice: Dice,
    dead: HashSet<u32>,
}

impl Net {
    pub(super) fn new(_size: u32, seed: u64) -> Self {
        Self {
            queues: HashMap::new(),
            ready: Vec::new(),
            done: HashMap::new(),
            next: 0,
            messages: 0,
            bytes: 0,
            dice: Dice::new(seed),
            dead: HashSet::new(),
        }
    }

    /// A rank dies: no further message comes from it or reaches it.
    pub(super) fn kill(&mut self, rank: u32) {
        self.dead.insert(rank);
        for ((from, to, _), queue) in &mut self.queues {
            if *from == rank || *to == rank {
                for (id, _) in queue.sends.drain(..).chain(queue.receives.drain(..)) {
                    self.done.insert(id, Err(lost(rank)));
                }
            }
        }
        self.ready.retain(|(from, to, _)| *from != rank && *to != rank);
    }

    fn add(&mut self, channel: Channel, send: Option<Buffer>, receive: Option<Buffer>) -> Sent<u64> {
        for rank in [channel.0, channel.1] {
            if self.dead.contains(&rank) {
                return Sent::Over(Err(lost(rank)));
            }
        }
        self.next += 1;
        let id = self.next;
        let queue = self.queues.entry(channel).or_default();
        let had_both = !queue.sends.is_empty() && !queue.receives.is_empty();
        if let Some(buffer) = send {
            self.messages += 1;
            self.bytes += buffer.len() as u64;
            queue.sends.push_back((id, buffer));
        }
        if let Some(buffer) = receive {
            queue.receives.push_back((id, buffer));
        }
        if !had_both && !queue.sends.is_empty() && !queue.receives.is_empty() {
            self.ready.push(channel);
        }
        // Sometimes the message is copied at once.
        if self.dice.below(4) == 0 && self.ready.last() == Some(&channel) {
            self.ready.pop();
            self.transfer(channel);
        }
        match self.done.remove(&id) {
            Some(result) => Sent::Over(result),
            None => Sent::Pending(id),
        }
    }

    fn transfer(&mut self, channel: Channel) {
        let queue = self.queues.get_mut(&channel).expect("a channel that is ready has a queue");
        let (send, from) = queue.sends.pop_front().expect("a channel that is ready has a send");
        let (receive, to) = queue.receives.pop_front().expect("a channel that is ready has a receive");
        let both = from.len().min(to.len());
        from.part(0, both).copy_all(&to.part(0, both));
        let result = if from.len() > to.len() { Err(MpiError::truncate("too long")) } else { Ok(both as u64) };
        self.done.insert(receive, result);
        self.done.insert(send, Ok(from.len() as u64));
        if !queue.sends.is_empty() && !queue.receives.is_empty() {
            self.ready.push(channel);
        }
    }
}

fn lost(rank: u32) -> MpiError {
    MpiError::proc_aborted(format!("rank {rank} is dead"))
}

/// One rank's end of the net.
pub(super) struct End<'a> {
    net: &'a mut Net,
    rank: u32,
}

impl Courier for End<'_> {
    type Id = u64;

    fn send(&mut self, to: u32, tag: i32, buffer: Buffer) -> Sent<u64> {
        self.net.add((self.rank, to, tag), Some(buffer), None)
    }

    fn recv(&mut self, from: u32, tag: i32, buffer: Buffer) -> Sent<u64> {
        self.net.add((from, self.rank, tag), None, Some(buffer))
    }

    fn take_word(&mut self, from: u32, tag: i32) -> bool {
        let queue = self.net.queues.get_mut(&(from, self.rank, tag));
        let Some((send, _)) = queue.and_then(|queue| queue.sends.pop_front()) else { return false };
        self.net.done.insert(send, Ok(0));
        true
    }

    fn take(&mut self, id: u64) -> Option<MpiResult<u64>> {
        self.net.done.remove(&id)
    }
}

impl Fabric for Net {
    const PATIENCE: usize = 1_000;
    type Id = u64;
    type Courier<'a> = End<'a>;

    fn courier(&mut self, rank: u32) -> End<'_> {
        End { net: self, rank }
    }

    fn stir(&mut self, dice: &mut Dice) -> bool {
        if self.ready.is_empty() {
            return false;
        }
        let turn = dice.below(self.ready.len() as u64) as usize;
        let channel = self.ready.swap_remove(turn);
        self.transfer(channel);
        true
    }

    fn assert_empty(&mut self) {
        let left: Vec<_> =
            self.queues.iter().filter(|(_, queue)| !queue.sends.is_empty() || !queue.receives.is_empty()).collect();
        assert!(left.is_empty(), "left over: {left:?}");
        assert!(self.done.is_empty(), "never taken: {:?}", self.done);
    }
}
