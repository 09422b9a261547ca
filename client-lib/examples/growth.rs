//! `growth OPERATION BYTES MEMBERS first|last`: a collective over the memory of one node, for the members of one process, one after the other,
//! so that none of them waits. `cargo xtask bench growth` runs it under valgrind's callgrind, which counts the instructions of [`counted`]:
//! those of the first member to arrive, or of the last one, in one call once the memory has been used.

#![expect(unsafe_code, reason = "lends its own vectors")]

use std::os::fd::AsFd;

use rsd_mpi::abi::constants::{MPI_SUM, MPI_UINT32_T};
use rsd_mpi::abi::{DatatypeHandle, OpHandle};
use rsd_mpi::coll::node::{Area, Brief, Met, Node, Shape, Work, fits};
use rsd_mpi::coll::operands::Operands;
use rsd_mpi::coll::{Call, Vector};
use rsd_mpi::datatype::{Datatype, Element};
use rsd_mpi::error::MpiResult;
use rsd_mpi::memory::Buffer;
use rsd_mpi::object::ops::Ops;
use rsd_mpi::op::{Reduction, loop_for};

const SLOT: usize = 64 << 10;
/// Calls until each line has been used.
const WARM: usize = 33;

/// Continues a member's call.
type Poll<'a> = Box<dyn FnMut(&mut Node) -> Option<MpiResult> + 'a>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, bytes, members, which] = &arguments[..] else { panic!("growth OPERATION BYTES MEMBERS first|last") };
    let (bytes, members): (usize, u32) = (bytes.parse().expect("bytes"), members.parse().expect("members"));
    let shape = Shape { members, slot: SLOT, in_groups: true };
    let (area, fd) = Area::create(shape).expect("an area");
    drop(area);
    let node = |rank| Node::new(Area::open(fd.as_fd(), shape).expect("the same area"), rank, Box::new(|| ()));
    let mut nodes: Vec<Node> = (0..members).map(node).collect();
    let blocks = if matches!(&**name, "allgather" | "alltoall") { members as usize } else { 1 };
    let (mut send, mut recv) = (vec![1; blocks * bytes], vec![0; blocks * bytes]);
    let one = if which == "first" { 0 } else { members as usize - 1 };
    for counts in std::iter::repeat_n(None, WARM).chain([Some(one)]) {
        call((name, bytes), &mut nodes, [&mut send, &mut recv], counts);
    }
}

/// All members make a call; what `one` does is counted.
fn call((name, bytes): (&str, usize), nodes: &mut [Node], [send, recv]: [&mut [u8]; 2], one: Option<usize>) {
    // SAFETY: the vectors outlive the call; members run in turn and nothing looks at what they get.
    let lend = |bytes: &mut [u8]| unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    let operands = Operands::new(lend(send), lend(recv));
    let (from, to, reduction) = (send.as_ptr(), recv.as_mut_ptr(), sum());
    let poll = |node: &Node| -> Poll<'_> { poll_of(name, bytes, node, &operands, &reduction, from, to) };
    let mut polls: Vec<Option<Poll<'_>>> = nodes.iter().map(|node| Some(poll(node))).collect();
    while polls.iter().any(Option::is_some) {
        for (rank, (poll, node)) in polls.iter_mut().zip(nodes.iter_mut()).enumerate() {
            let Some(again) = poll else { continue };
            let result = if one == Some(rank) { counted(again, node) } else { again(node) };
            if let Some(result) = result {
                result.expect("the call succeeds");
                *poll = None;
            }
        }
    }
}

#[inline(never)]
fn counted(poll: &mut Poll<'_>, node: &mut Node) -> Option<MpiResult> {
    poll(node)
}

/// As in a job: each kind of short calls has its own copy of the code.
fn poll_of<'a>(
    name: &str,
    bytes: usize,
    node: &Node,
    operands: &'a Operands,
    reduction: &'a Reduction,
    send: *const u8,
    recv: *mut u8,
) -> Poll<'a> {
    let (root, block, in_place, commutes) = (0, bytes as u64, false, true);
    let vector = Vector { count: block / 4, unit: 4 };
    let mut met = Met::default();
    macro_rules! brief {
        ($function:literal, $call:expr, $send:expr, $kernel:expr) => {{
            if fits($call, node.shape()) {
                return Box::new(move |node| {
                    // SAFETY: the operands have the memory of the call.
                    let brief = unsafe { Brief::<$function>::new($call, $send, recv, $kernel) };
                    brief.poll(node, &mut met)
                });
            }
            $call
        }};
    }
    let call = match name {
        "barrier" => brief!(1, Call::Barrier, send, None),
        "bcast" => brief!(2, Call::Bcast { root, len: block }, recv, None),
        "allgather" => brief!(3, Call::Allgather { block, in_place }, send, None),
        "alltoall" => brief!(4, Call::Alltoall { block, in_place }, send, None),
        _ => {
            let kernel = loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_UINT32_T));
            brief!(5, Call::Allreduce { vector, commutes, in_place }, send, kernel)
        }
    };
    let mut work = Work::new(call, operands, Some(reduction), None, node.shape());
    Box::new(move |node| work.poll(node))
}

fn sum() -> Reduction {
    let element = Element::of(DatatypeHandle(MPI_UINT32_T)).expect("a basic datatype");
    let op = Ops::default().resolve(OpHandle(MPI_SUM)).expect("a predefined operation");
    Reduction::new(&op, Datatype::predefined(element), element.handle()).expect("they go together")
}
