//! How a call is executed over the shared memory, and how its blocks are cut into operations. All members come to the same answers.

use super::Shape;
use crate::coll::choice::Call;
use crate::coll::halving::Vector;
use crate::op::Reduction;

/// How a call is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through slots: [`super::Work`].
    Slots,
    /// Directly from memory to memory: [`super::Pull`].
    Pull,
}

/// The longest block for all members that goes through slots in pieces, unless two members read it ([`READ_FROM`]). A piece that all members read is still in the
/// cache; two copies then take a third of the time of one copy by the kernel (measured with 2 to 16 members on two
/// cores).
const PIECED: u64 = 4 << 20;

/// The longest block for a single member that goes through slots. Each byte of a longer one is read only once, and the
/// pieces for each member become short.
pub(super) const PIECED_FOR_EACH: u64 = 64 << 10;

/// Longer blocks from one of two members to the other go as messages, if members can read each other's memory: one copy, or two at the same
/// time, instead of two in turn (in an alltoall of different lengths, each reads such a block from the other's memory). A root that only sends is done with the slot at once, so there slots pay for longer blocks.
pub(super) const PAIRED: u64 = 4 << 10;
const PAIRED_FROM_ROOT: u64 = 8 << 10;

/// From this many bytes on, each of two members reads the other's block from its memory in an allgather or alltoall, which was measured to be faster wherever
/// their cores are.
const READ_FROM: u64 = 32 << 10;

/// From this many bytes on, two members combine vectors as they read them from each other's memory, with one copy by the kernel. The call takes
/// less time from 32 KiB on, a quarter of it if their cores are far from each other. But then each member's next write to its vector has to take every
/// line back, and for shorter vectors that costs more than was won. (In slots, it is the copy that takes lines back, many at a time.)
const COMBINED_FROM: u64 = 1 << 20;

/// The same for what each member gets in a reduce-scatter: of its own part, the other one takes nothing.
const SCATTERED_FROM: u64 = 128 << 10;

/// The longest vector of which a member keeps its result until all have read its own, because it would overwrite that.
const KEPT: u64 = 16 << 20;

/// From this many bytes on, each member combines a slice of a vector; the last one to arrive combines a shorter one alone, which
/// needs one wait less.
const SLICED: u64 = 16 << 10;

/// Of members that have cores of their own, each combines a slice also from this many bytes of all vectors together on: that is less than
/// [`SLICED`] for each of more than 16 members. 16 members on 16 processors were measured to need so many.
const ALONE: u64 = 16 * SLICED;

/// In an allreduce of more than 16 members, from 64 KiB on: the line moves that are counted (`growth`) say that slices pay from much less than
/// 256 KiB on. Not in a reduce: in slices, all members wait for all, otherwise only the root does.
const ALONE_OF_MANY: u64 = 4 * SLICED;

/// In a scan, where each member combines what those before it have left, n members combine n²/2 vectors. In slices, they combine n, and each of these
/// is written and read once more; but each member waits for all, twice, and not only for those before it. With 8 and with 16 members on two cores,
/// that was measured to be faster from so many bytes on. (A longer vector goes in pieces, for which all wait for all anyway.)
const PREFIXED: u64 = 64 << 10;
const PREFIXED_MEMBERS: u32 = 8;

/// Bytes of what is combined at a time where a scan's results replace its operands: so few that they stay in the core's first cache.
pub(super) const PART: usize = 4096;

/// Whether each member combines a slice of the vectors.
#[inline(always)]
pub(super) fn is_sliced(call: Call, Shape { members, slot, in_groups }: Shape) -> bool {
    let (len, alone) = match call {
        Call::Allreduce { vector, .. } if members > 16 => (vector.len(), ALONE_OF_MANY),
        Call::Allreduce { vector, .. } | Call::Reduce { vector, .. } => (vector.len(), ALONE),
        Call::Barrier | Call::Bcast { .. } | Call::Gather { .. } | Call::Scatter { .. } => return false,
        Call::Allgather { .. } | Call::Alltoall { .. } | Call::ReduceScatterBlock { .. } => return false,
        Call::Scan { vector, .. } | Call::Exscan { vector, .. } => {
            let is_long = vector.len() >= PREFIXED.min(slot as u64);
            return members >= PREFIXED_MEMBERS && is_long && vector.unit <= PART as u64;
        }
    };
    let is_long = len >= SLICED.min(slot as u64);
    members > 2 && (is_long || in_groups && len * u64::from(members) >= alone)
}

/// How to execute a call over memory with slots of `room` bytes, among members that can or cannot read each other's
/// memory (`pulls`); `faster` has a bit for each `class` in which reading it is faster. `None` if it needs messages. All members get the same answer.
pub fn way(
    call: Call,
    size: u32,
    room: usize,
    pulls: bool,
    faster: u32,
    reduction: Option<&Reduction>,
    is_dense: bool,
) -> Option<Way> {
    if size < 2 {
        return None;
    }
    let (room, members) = (room as u64, u64::from(size));
    let in_pieces = |len: u64, most: u64| match len {
        0 => None,
        len if len <= most => Some(Way::Slots),
        _ => pulls.then_some(Way::Pull),
    };
    // A user function must be called with nothing locked; elements with holes are combined in the user's own memory.
    let combines = |len: u64, unit: u64, members: u64| {
        let can = is_dense && unit * members <= room && reduction.is_some_and(|it| it.commutes() && !it.calls_user());
        (can && len > 0).then_some(Way::Slots)
    };
    let combined_by_two = |vector: Vector, members, from: u64, in_place: bool| {
        let slots = combines(vector.len(), vector.unit, members)?;
        let is_kept = in_place && vector.len() > KEPT;
        Some(if pulls && size == 2 && vector.len() >= from && !is_kept { Way::Pull } else { slots })
    };
    if pulls && class(call, size).is_some_and(|class| faster >> class & 1 == 1) {
        return match call {
            Call::Reduce { vector, .. } => combines(vector.len(), vector.unit, 1).map(|_slots| Way::Pull),
            _moved => Some(Way::Pull),
        };
    }
    if size == 2 && pulls {
        match call {
            call if between_two(call) => return None,
            Call::Allgather { block, .. } | Call::Alltoall { block, .. } if block >= READ_FROM => {
                return Some(Way::Pull);
            }
            _ => {}
        }
    }
    match call {
        Call::Barrier => Some(Way::Slots),
        Call::Bcast { len, .. } => (0 < len && len <= 16 * room).then_some(Way::Slots),
        Call::Gather { block, .. } => (0 < block && block <= PIECED).then_some(Way::Slots),
        // A longer block is copied once if it is sent as a message.
        Call::Scatter { block, .. } => (0 < block && block < PIECED_FOR_EACH / 2).then_some(Way::Slots),
        Call::Allgather { block, .. } => in_pieces(block, PIECED),
        Call::Alltoall { block, .. } if 0 < block && block <= room / 64 && block * (members - 1) <= room => {
            Some(Way::Slots)
        }
        Call::Alltoall { block, .. } => {
            let pieces = 16 * share(room as usize, size) as u64;
            let most = if !pulls { PIECED } else { PIECED_FOR_EACH.min(pieces) };
            in_pieces(block, most)
        }
        Call::Reduce { vector, .. } | Call::Scan { vector, .. } | Call::Exscan { vector, .. } => {
            combines(vector.len(), vector.unit, 1)
        }
        Call::Allreduce { vector, in_place, .. } => combined_by_two(vector, 1, COMBINED_FROM, in_place),
        Call::ReduceScatterBlock { block, in_place, .. } => combined_by_two(block, members, SCATTERED_FROM, in_place),
    }
}

/// Whether two members exchange messages in this call.
fn between_two(call: Call) -> bool {
    match call {
        Call::Bcast { len: block, .. } | Call::Scatter { block, .. } => block > PAIRED_FROM_ROOT,
        Call::Reduce { vector, .. } | Call::Exscan { vector, .. } => vector.len() > PAIRED,
        Call::Gather { block, .. } => block > PAIRED,
        Call::Barrier
        | Call::Allgather { .. }
        | Call::Alltoall { .. }
        | Call::Allreduce { .. }
        | Call::ReduceScatterBlock { .. }
        | Call::Scan { .. } => false,
    }
}

/// The number of bytes of the longest block that goes through a slot in a call whose blocks have different lengths: at most `most`.
pub(super) fn uneven(size: u32, pulls: bool, most: usize) -> usize {
    if size == 2 && pulls { most.min(PAIRED_FROM_ROOT as usize) } else { most }
}

/// The number of classes of calls for which the faster way is found by measuring.
pub(super) const CLASSES: usize = BCASTS as usize + 7;

/// The class of a call for which slots and pulls are nearly equal: which of them is faster depends on where the members run. Between
/// distant cores, each cache line costs so much that the kernel's single copy is faster; what several members read from one slot
/// comes from the cache.
pub(super) fn class(call: Call, size: u32) -> Option<u32> {
    const SHORTEST: u64 = 16 << 10;
    const LONGEST_BCAST: u64 = 1 << 20;
    let doublings = |len: u64| (len / SHORTEST).checked_ilog2();
    match call {
        Call::Allgather { block, .. } if size == 2 => (SHORTEST..READ_FROM).contains(&block).then_some(0),
        Call::Alltoall { block, .. } if size == 2 => (SHORTEST..READ_FROM).contains(&block).then_some(1),
        // 16, 32 and 64 KiB.
        Call::Alltoall { block, .. } if block <= PIECED_FOR_EACH => Some(2 + doublings(block)?),
        // From 16, 32, 64 KiB and so on, up to 4 MiB or as long as they can go through slots. A root in place keeps the result of a reduce apart, and the
        // others do not know whether it is.
        Call::Gather { block, .. } if size > 2 && block <= PIECED => Some(GATHERS + doublings(block)?),
        Call::Reduce { vector, .. } if size > 2 && vector.len() <= KEPT => {
            Some(REDUCES + doublings(vector.len().min(PIECED))?)
        }
        Call::Bcast { len, .. } if size > 2 && len <= LONGEST_BCAST => Some(BCASTS + doublings(len)?),
        _ => None,
    }
}

/// The first classes of gathers, of reduces and of broadcasts.
const GATHERS: u32 = 5;
const REDUCES: u32 = GATHERS + 9;
const BCASTS: u32 = REDUCES + 9;

/// The class of the same function for blocks of half the length.
pub(super) fn shorter(class: u32) -> Option<u32> {
    let is_shortest = [GATHERS, REDUCES, BCASTS].contains(&class);
    (class > GATHERS && !is_shortest).then(|| class - 1)
}

/// The part of a member's slot for each other member.
pub(super) fn share(room: usize, members: u32) -> usize {
    let share = room / (members as usize - 1);
    // Pieces begin at cache lines.
    if share >= 64 { share & !63 } else { share }
}

/// The pieces of a block, one for each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// The length of the longest block.
    block: usize,
    piece: usize,
    /// Bytes of an element; 1 if nothing is combined.
    pub(super) unit: usize,
    /// Each member combines a slice of each piece, in the operation after the one that brings the piece.
    pub(super) is_sliced: bool,
}

impl Cut {
    /// For a call over memory of this shape, for which [`way()`] returned [`Way::Slots`].
    pub(super) fn of(call: Call, shape: Shape) -> Self {
        let Shape { members: size, slot: room, .. } = shape;
        let whole = |block: u64| Self { block: block as usize, piece: room, unit: 1, is_sliced: false };
        // Nothing is divided for a block that fits: this is on the way of every short call.
        let for_each = |block: u64, count: u32| match block.saturating_mul(u64::from(count)) <= room as u64 {
            true => Self { piece: (block as usize).max(1), ..whole(block) },
            false => Self { piece: share(room, count + 1), ..whole(block) },
        };
        let elements = |vector: Vector, cut: Self| {
            let unit = vector.unit.max(1) as usize;
            let piece = if cut.is_whole() { cut.piece } else { cut.piece - cut.piece % unit };
            Self { piece, unit, ..cut }
        };
        match call {
            Call::Barrier => whole(0),
            Call::Bcast { len, .. } => whole(len),
            Call::Gather { block, .. } | Call::Allgather { block, .. } => whole(block),
            Call::Scatter { block, .. } | Call::Alltoall { block, .. } => for_each(block, size - 1),
            Call::Reduce { vector, .. }
            | Call::Allreduce { vector, .. }
            | Call::Scan { vector, .. }
            | Call::Exscan { vector, .. } => {
                Self { is_sliced: is_sliced(call, shape), ..elements(vector, whole(vector.len())) }
            }
            Call::ReduceScatterBlock { block, .. } => {
                let is_whole = block.len().saturating_mul(u64::from(size)) <= room as u64;
                let piece = if is_whole { block.len() as usize } else { room / size as usize };
                elements(block, Self { piece, ..whole(block.len()) })
            }
        }
    }

    /// The length of the longest block.
    pub(super) fn block(self) -> usize {
        self.block
    }

    /// The number of operations that the call takes.
    pub(super) fn operations(self) -> usize {
        let pieces = if self.is_whole() { 1 } else { self.block.div_ceil(self.piece) };
        pieces + usize::from(self.is_sliced)
    }

    /// Whether the whole block goes in one piece.
    pub(super) fn is_whole(self) -> bool {
        self.block <= self.piece
    }

    /// The bytes (offset, length) of a block of `len` bytes that an operation brings; none if it is past the end.
    pub(super) fn piece_of(self, len: usize, operation: usize) -> (usize, usize) {
        let at = operation.saturating_mul(self.piece).min(len);
        (at, self.piece.min(len - at))
    }

    /// The bytes of the longest block that an operation brings.
    pub(super) fn piece(self, operation: usize) -> (usize, usize) {
        self.piece_of(self.block, operation)
    }
}

/// The bytes (offset, length) of `len` bytes that a member combines: whole elements, and whole cache lines where it can be.
pub(super) fn slice(len: usize, unit: usize, member: u32, members: u32) -> (usize, usize) {
    const LINE: usize = 64;
    let unit = if LINE.is_multiple_of(unit) { LINE } else { unit.max(1) };
    let each = len.div_ceil(unit).div_ceil(members as usize) * unit;
    let at = (member as usize * each).min(len);
    (at, each.min(len - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_everything_once_and_never_cut_an_element() {
        for (len, unit) in [(48, 8), (64, 8), (65_536, 8), (65_520, 12), (12, 12), (1000, 1), (4096, 128), (96, 16)] {
            for members in [3, 4, 7, 16, 100] {
                let mut end = 0;
                for member in 0..members {
                    let (at, part) = slice(len, unit, member, members);
                    assert_eq!((at, at % unit, part % unit), (end, 0, 0), "{len} {unit} {member} of {members}");
                    end += part;
                }
                assert_eq!(end, len);
            }
        }
    }
}
