//! Explores all interleavings of a few operations. The data lie beside the numbers, where loom sees each read and
//! write.

#![cfg(loom)]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::work::stamp;
use super::*;
use crate::coll::choice::Call;
use crate::coll::halving::Vector;
use crate::coll::operands::{Memory as Lent, Operands};
use crate::memory::Buffer;

struct Memory {
    head: Head,
    marks: Vec<Mark>,
    packs: Vec<Pack>,
    posts: Vec<Mark>,
    read: Vec<Line<AtomicU64>>,
    bell: Arc<Bell>,
}

/// For each member, whether it has been woken since its last sleep: a lost wake-up is a deadlock.
struct Bell {
    rung: Mutex<Vec<bool>>,
    woken: Condvar,
}

// SAFETY: as for the memory of an area; loom checks here that the protocol guards every access.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(members: u32) -> Arc<Self> {
        let done =
            || Done { number: AtomicU64::new(0), verdict: AtomicU64::new(0), result: UnsafeCell::new([0; SMALL]) };
        let round = || Round { arrivals: Line(AtomicU64::new(0)), done: Line(done()) };
        let mark = || Mark { number: AtomicU64::new(0), stamp: AtomicU64::new(0), data: UnsafeCell::new([0; SMALL]) };
        Arc::new(Self {
            head: Head {
                broken: Line(AtomicU32::new(0)),
                sleepers: Line(AtomicU32::new(0)),
                rounds: std::array::from_fn(|_| round()),
                groups: std::array::from_fn(|_| Groups::new()),
            },
            marks: (0..u64::from(members) * DEPTH).map(|_| mark()).collect(),
            packs: (0..4 * DEPTH).map(|_| UnsafeCell::new([0; PACKED])).collect(),
            posts: (0..u64::from(members) * POSTS).map(|_| mark()).collect(),
            read: (0..members).map(|_| Line(AtomicU64::new(0))).collect(),
            bell: Arc::new(Bell { rung: Mutex::new(vec![false; members as usize]), woken: Condvar::new() }),
        })
    }

    fn node(&self, rank: u32) -> Node {
        self.node_of(rank, true)
    }

    fn node_of(&self, rank: u32, in_groups: bool) -> Node {
        let members = self.marks.len() as u32 / DEPTH as u32;
        let shape = Shape { members, slot: 4096, in_groups };
        let area = Area::over(&self.head, &self.marks, &self.packs, &self.posts, &self.read, shape);
        Node::new(area, rank, self.ring())
    }

    fn ring(&self) -> Box<dyn Fn() + Send> {
        let bell = Arc::clone(&self.bell);
        Box::new(move || {
            bell.rung.lock().unwrap().fill(true);
            bell.woken.notify_all();
        })
    }

    /// As [`Memory::wait`], for an outbox.
    fn wait_on<R>(&self, outbox: &mut Outbox, rank: u32, mut end: impl FnMut(&mut Outbox) -> Option<R>) -> R {
        loop {
            outbox.poll();
            if let Some(result) = end(outbox) {
                return result;
            }
            outbox.announce_sleep(true);
            if outbox.poll() == 0 {
                let mut rung = self.bell.rung.lock().unwrap();
                while !rung[rank as usize] {
                    rung = self.bell.woken.wait(rung).unwrap();
                }
                rung[rank as usize] = false;
            }
            outbox.announce_sleep(false);
        }
    }

    /// Waits as a process does that sleeps at once.
    fn wait(&self, node: &mut Node, mut is_there: impl FnMut(&mut Node) -> bool) {
        while !is_there(node) {
            node.announce_sleep(true);
            if is_there(node) {
                node.announce_sleep(false);
                return;
            }
            let mut rung = self.bell.rung.lock().unwrap();
            while !rung[node.rank as usize] {
                rung = self.bell.woken.wait(rung).unwrap();
            }
            rung[node.rank as usize] = false;
            drop(rung);
            node.announce_sleep(false);
        }
    }
}

/// In each of some operations every member leaves data and reads the data of all members.
fn all_get_all(memory: &Arc<Memory>, rank: u32, operations: u8) {
    let mut node = memory.node(rank);
    for operation in 0..operations {
        memory.wait(&mut node, |node| node.has_room(true));
        let (number, arrival) = node.arrive(7, 1, false, |slot| slot.put(0, [10 * operation + rank as u8]));
        let sum = |node: &Node| -> u8 {
            // SAFETY: left by members that have arrived.
            (0..node.size()).map(|member| node.with_data(number, member, 1, |data| unsafe { *data.cast::<u8>() })).sum()
        };
        if let Arrival::Last { .. } = arrival {
            let all = sum(&node);
            // SAFETY: only the last member writes it.
            node.with_result(number, 1, |result| unsafe { *result.cast::<u8>() = all });
            node.finish(number, 0);
        }
        memory.wait(&mut node, |node| node.all_arrived(number));
        let expected: u8 = (0..node.size() as u8).map(|member| 10 * operation + member).sum();
        if node.is_counted() {
            // SAFETY: written before all have arrived.
            assert_eq!(node.with_result_of(number, 1, |result| unsafe { *result.cast::<u8>() }), expected);
        } else {
            assert_eq!(sum(&node), expected);
        }
    }
}

/// In each of some operations one member leaves data for the others and does not wait for them.
fn first_sends(memory: &Arc<Memory>, rank: u32, operations: u8) {
    let mut node = memory.node(rank);
    for operation in 0..operations {
        memory.wait(&mut node, |node| node.has_room(true));
        let len = usize::from(rank == 0);
        let (number, arrival) = node.arrive(7, len, rank == 0, |slot| slot.put(0, [operation]));
        if let Arrival::Last { .. } = arrival {
            node.finish(number, 0);
        }
        if rank > 0 {
            memory.wait(&mut node, |node| node.has_arrived(number, 0));
            // SAFETY: left by a member that has arrived.
            assert_eq!(node.with_data(number, 0, 1, |data| unsafe { *data.cast::<u8>() }), operation);
        }
    }
}

/// In each of some operations every member leaves data that are packed, and reads those of all members there.
fn all_get_packs(memory: &Arc<Memory>, rank: u32, operations: u8) {
    let mut node = memory.node(rank);
    let stamp = stamp(Call::Allgather { block: 1, in_place: false });
    for operation in 0..operations {
        memory.wait(&mut node, |node| node.has_room(true));
        let (number, arrival) = node.arrive(stamp, 1, false, |slot| slot.put(0, [10 * operation + rank as u8]));
        if let Arrival::Last { .. } = arrival {
            node.finish(number, 0);
        }
        memory.wait(&mut node, |node| node.all_arrived(number));
        for member in 0..node.size() {
            assert_eq!(pack(&node, number, member), 10 * operation + member as u8);
        }
    }
}

/// In each of some operations every member reads the data of those before it, for which alone it waits.
fn all_get_those_before(memory: &Arc<Memory>, rank: u32, operations: u8) {
    let mut node = memory.node(rank);
    let stamp = stamp(Call::Scan { vector: Vector { count: 1, unit: 1 }, in_place: false });
    for operation in 0..operations {
        memory.wait(&mut node, |node| node.has_room(true));
        let (number, arrival) = node.arrive(stamp, 1, true, |slot| slot.put(0, [10 * operation + rank as u8]));
        if let Arrival::Last { .. } = arrival {
            node.finish(number, 0);
        }
        memory.wait(&mut node, |node| node.have_arrived_before(number, rank));
        assert_eq!(node.differing_before(number, rank, stamp, |one, other| one != other), None);
        for member in 0..rank {
            let left = match member < node.prefix.members {
                true => pack(&node, number, member),
                // SAFETY: left by a member that has arrived.
                false => node.with_data(number, member, 1, |data| unsafe { *data.cast::<u8>() }),
            };
            assert_eq!(left, 10 * operation + member as u8);
        }
    }
}

/// The byte of a member that is packed.
fn pack(node: &Node, number: u64, member: u32) -> u8 {
    // SAFETY: packed before this member could know that its group is complete.
    node.area.packs(number)[member as usize].with(|pack| unsafe { *pack.cast::<u8>() })
}

/// Barriers of members that share cores: the first member ends each.
fn all_meet(memory: &Arc<Memory>, rank: u32, operations: u8) {
    let mut node = memory.node_of(rank, false);
    for operation in 0..operations {
        memory.wait(&mut node, |node| node.has_room(true));
        let (number, arrival) = node.arrive(7, 1, false, |slot| slot.put(0, [10 * operation + rank as u8]));
        node.end_barrier(number, arrival, 7);
        memory.wait(&mut node, |node| node.all_arrived(number));
        assert_eq!(node.verdict(number), 0);
        for member in 0..node.size() {
            // SAFETY: left by a member that has arrived.
            let left = node.with_data(number, member, 1, |data| unsafe { *data.cast::<u8>() });
            assert_eq!(left, 10 * operation + member as u8);
        }
    }
}

/// Non-blocking operations: all are started, then their results are taken. Each member posts a byte and reads those of all.
fn all_post(memory: &Arc<Memory>, rank: u32, operations: u8) {
    let mut outbox = memory.node(rank).outbox(memory.ring());
    let size = memory.read.len();
    let mut bytes: Vec<(Vec<u8>, Vec<u8>)> =
        (0..operations).map(|operation| (vec![10 * operation + rank as u8], vec![0; size])).collect();
    let mut begun = Vec::new();
    for (own, all) in &mut bytes {
        let lend = |bytes: &mut Vec<u8>| {
            let base = bytes.as_mut_ptr();
            // SAFETY: the bytes outlive the operation.
            Lent::new(base, unsafe { Buffer::contiguous(base, bytes.len()) })
        };
        let mut operands = Operands { send: lend(own), recv: lend(all), ..Operands::default() };
        let call = Call::Allgather { block: 1, in_place: false };
        begun.push(outbox.start(call, &mut operands, &mut None, None));
    }
    for begun in begun {
        match begun {
            Begun::Over(result) => assert_eq!(result, Ok(())),
            Begun::Pending(number) => assert_eq!(memory.wait_on(&mut outbox, rank, |it| it.take(number)), Ok(())),
        }
    }
    for (operation, (_, all)) in bytes.iter().enumerate() {
        assert!(all.iter().enumerate().all(|(member, byte)| usize::from(*byte) == 10 * operation + member), "{all:?}");
    }
}

fn model(members: u32, operations: u8, body: fn(&Arc<Memory>, u32, u8)) {
    model_of(members, operations, if members == 2 { 3 } else { 2 }, body);
}

/// As [`model`], for at most so many preemptions.
fn model_of(members: u32, operations: u8, preemptions: usize, body: fn(&Arc<Memory>, u32, u8)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let memory = Memory::new(members);
        let others: Vec<_> = (1..members)
            .map(|rank| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || body(&memory, rank, operations))
            })
            .collect();
        body(&memory, 0, operations);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn loom_two_members_post_for_each_other() {
    model(2, 3, all_post);
}

#[test]
fn loom_three_members_post_for_each_other() {
    model(3, 1, all_post);
}

#[test]
fn loom_two_members_get_each_others_data() {
    model(2, 3, all_get_all);
}

#[test]
fn loom_three_members_get_each_others_data() {
    model(3, 2, all_get_all);
}

#[test]
fn loom_three_members_get_what_is_packed() {
    model(3, 3, all_get_packs);
}

#[test]
fn loom_three_members_get_the_data_of_those_before_them() {
    model(3, 2, all_get_those_before);
}

/// The third operation uses the memory of the first one, in which a member that is preempted may still read. With two preemptions, this takes
/// minutes.
#[test]
fn loom_three_members_get_the_data_of_those_before_them_where_others_were() {
    model_of(3, 3, 1, all_get_those_before);
}

#[test]
fn loom_two_members_get_the_first_members_data() {
    model(2, 4, first_sends);
}

#[test]
fn loom_three_members_get_the_first_members_data() {
    model(3, 3, first_sends);
}

#[test]
fn loom_three_members_that_share_cores_meet() {
    model(3, 2, all_meet);
}
