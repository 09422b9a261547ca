//! What a collective call is, in words: members whose words differ have not called the same (`RSD_MPI_CHECK`).
//!
//! The words contain all that must be alike at all members: function, root, operation, and the basic datatypes of what each member
//! contributes or gets. Lengths that only some members know (`MPI_Gatherv` and the like) are not among them.

use std::fmt::Write;

use super::Way;
use super::plan::{Plan, Varied, What};
use crate::coll::Call;
use crate::coll::node::Uneven;
use crate::coll::operands::Memory;
use crate::error::MpiResult;
use crate::object::check::Ring;
use crate::op::Builtin;
use crate::runtime::{Guard, State};

/// Compares a call with that of the previous member; a blocking call waits for it.
#[cold]
pub(super) fn compare(guard: &mut Guard<'_>, name: &str, plan: &Plan, way: Way) -> MpiResult {
    let text = describe(guard, name, plan, way);
    let members = &plan.members;
    let tag = guard.comms.get_mut(plan.comm)?.next_compared();
    let ring =
        Ring { comm: plan.comm, context: members.context, members: &members.peers, rank: members.here.rank, tag };
    guard.compare(&ring, &text, way == Way::Blocking)
}

fn describe(state: &State, name: &str, plan: &Plan, way: Way) -> String {
    let mut text = match way {
        Way::Blocking => format!("MPI_{name}"),
        Way::Nonblocking => format!("MPI_I{}", name.to_lowercase()),
        Way::Persistent => format!("MPI_{name}_init"),
    };
    let is_inter = state.comms.get(plan.comm).is_ok_and(|comm| comm.remote().is_some());
    if is_inter {
        // The groups name different roots, and pass different lengths.
        return text;
    }
    if let What::Call(call) = plan.what {
        let operands = &plan.operands;
        let either = if operands.recv.is_empty() { &operands.send } else { &operands.recv };
        text += &match call {
            Call::Barrier => String::new(),
            Call::Bcast { root, len } => format!(" with root {root}, {}", data(&operands.recv, len)),
            Call::Gather { root, block, .. } => format!(" with root {root}, {} of each rank", data(either, block)),
            Call::Scatter { root, block, .. } => {
                let memory = if operands.send.is_empty() { &operands.recv } else { &operands.send };
                format!(" with root {root}, {} for each rank", data(memory, block))
            }
            Call::Allgather { block, in_place } => {
                format!(" of {} of each rank{}", data(&operands.recv, block), everywhere(in_place))
            }
            Call::Alltoall { block, in_place } => {
                format!(" of {} for each rank{}", data(&operands.recv, block), everywhere(in_place))
            }
            Call::Reduce { root, vector, .. } => {
                format!(" with root {root}, {}", data(either, vector.count * vector.unit))
            }
            Call::Allreduce { vector, in_place, .. } => {
                format!(" of {}{}", data(either, vector.count * vector.unit), everywhere(in_place))
            }
            Call::Scan { vector, .. } | Call::Exscan { vector, .. } => {
                format!(" of {}", data(either, vector.count * vector.unit))
            }
            Call::ReduceScatterBlock { block, in_place, .. } => {
                format!(" of {} for each rank{}", data(either, block.count * block.unit), everywhere(in_place))
            }
        };
    }
    match &plan.what {
        What::Uneven(Uneven::Gather { root, .. } | Uneven::Scatter { root, .. }) => {
            let _ = write!(text, " with root {root}");
        }
        What::Varied(Varied::Allgather { in_place, .. }) => {
            let lens = plan.operands.recv_from.iter().map(|buffer| buffer.len() as u64);
            text += &format!(" of {}{}", lengths(lens), everywhere(*in_place));
        }
        What::Varied(Varied::ReduceScatter { parts, .. }) => {
            text += &format!(" of {}", lengths(parts.iter().map(|part| part.1)));
        }
        What::Call(_) | What::Uneven(Uneven::Alltoall { .. }) | What::Schedule(_) => {}
    }
    if let Some(op) = plan.op {
        text += &match Builtin::of(op) {
            Some(op) => format!(" with {}", op.name()),
            None => " with an operation of the program".to_owned(),
        };
    }
    text
}

/// The total length of all blocks, and a digest of the length of each.
fn lengths(lens: impl Iterator<Item = u64>) -> String {
    let (mut total, mut digest) = (0_u64, 0_u64);
    for len in lens {
        total = total.saturating_add(len);
        digest = (digest ^ len).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    format!("{total} bytes in blocks whose lengths have the digest {:06x}", digest >> 40)
}

/// `MPI_IN_PLACE`, where all ranks pass it or none.
fn everywhere(in_place: bool) -> &'static str {
    if in_place { " in place" } else { "" }
}

/// So many bytes at the beginning of the memory.
fn data(memory: &Memory, len: u64) -> String {
    match len {
        0 => "0 bytes".to_owned(),
        _ => format!("{len} bytes of {}", memory.sign(len).canonical()),
    }
}
