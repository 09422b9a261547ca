//! What one rank does in a collective operation, as data.
//!
//! A schedule is a list of steps. Sends and receives start at once, in the order of the list, and several are under way until the
//! next [`Step::Wait`]; copies and reductions are done where they stand. Memory is named by [`Slice`]s of packed bytes, of
//! which nobody here knows the address: that is the [operands'](super::operands) affair, and carrying it out is the
//! [run's](super::run). A schedule depends on the rank, the size and the arguments alone, so it can be used again.
//!
//! What builds a schedule promises: messages between two ranks are sent in the order in which they are received, no rank
//! sends to itself, and between two waits no step reads what a receive writes, nor writes what a send reads.

/// Memory that a schedule speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// What the user sends.
    Send,
    /// What the user receives; for a broadcast, what is broadcast.
    Recv,
    /// What the user sends to one rank, where each has its own place (`…v`, `…w`).
    SendTo(u32),
    /// What the user receives from one rank, where each has its own place.
    RecvFrom(u32),
    /// Memory for the time of the operation: an index into [`Schedule::temporaries`].
    Temporary(u32),
}

/// Packed bytes of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Of which.
    pub area: Area,
    /// The first.
    pub at: u64,
    /// How many.
    pub len: u64,
}

impl Slice {
    /// The first `len` bytes of an area.
    pub const fn all(area: Area, len: u64) -> Self {
        Self { area, at: 0, len }
    }

    /// `len` of its bytes, from `at` on.
    #[must_use]
    pub const fn part(self, at: u64, len: u64) -> Self {
        Self { area: self.area, at: self.at + at, len }
    }

    /// Whether there is a byte that both have.
    pub fn overlaps(self, other: Self) -> bool {
        self.area == other.area && self.at < other.at + other.len && other.at < self.at + self.len
    }
}

/// One thing to do. Ranks are of the communicator; of an intercommunicator, they count all of both groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Starts to send.
    Send {
        /// To this rank.
        to: u32,
        /// These bytes.
        from: Slice,
    },
    /// Starts to receive.
    Recv {
        /// From this rank.
        from: u32,
        /// Into this place.
        into: Slice,
    },
    /// Copies; both are of one length.
    Copy {
        /// From here.
        from: Slice,
        /// To here.
        to: Slice,
    },
    /// Makes `right` what `left` op `right` is, element by element; both are of one length.
    Combine {
        /// The first operand.
        left: Slice,
        /// The second operand and the result.
        right: Slice,
    },
    /// Waits until all that has been started is over.
    Wait,
}

/// The steps of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Step>,
    temporaries: Vec<u64>,
    under_way: bool,
}

impl Schedule {
    /// The steps, in order. The last one is no send or receive.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How many packed bytes of memory are needed: `temporaries()[i]` for [`Area::Temporary`]`(i)`.
    pub fn temporaries(&self) -> &[u64] {
        &self.temporaries
    }

    /// Memory for the time of the operation.
    pub fn temporary(&mut self, len: u64) -> Slice {
        self.temporaries.push(len);
        Slice::all(Area::Temporary((self.temporaries.len() - 1) as u32), len)
    }

    /// Sends these bytes; nothing if there are none, since the receiver knows that as well.
    pub fn send(&mut self, to: u32, from: Slice) {
        if from.len > 0 {
            self.send_even_none(to, from);
        }
    }

    /// Receives these bytes; nothing if there are none.
    pub fn recv(&mut self, from: u32, into: Slice) {
        if into.len > 0 {
            self.recv_even_none(from, into);
        }
    }

    /// Sends a message, even one without bytes.
    pub fn send_even_none(&mut self, to: u32, from: Slice) {
        self.steps.push(Step::Send { to, from });
        self.under_way = true;
    }

    /// Receives a message, even one without bytes.
    pub fn recv_even_none(&mut self, from: u32, into: Slice) {
        self.steps.push(Step::Recv { from, into });
        self.under_way = true;
    }

    /// Waits for what has been started, if anything.
    pub fn wait(&mut self) {
        if self.under_way {
            self.steps.push(Step::Wait);
            self.under_way = false;
        }
    }

    /// Copies as many bytes as both have. A copy that goes on where the one before it ended becomes one with it.
    pub fn copy(&mut self, from: Slice, to: Slice) {
        let len = from.len.min(to.len);
        if len == 0 || (from.area, from.at) == (to.area, to.at) {
            return;
        }
        if let Some(Step::Copy { from: last_from, to: last_to }) = self.steps.last_mut() {
            let goes_on = |last: &Slice, next: Slice| last.area == next.area && last.at + last.len == next.at;
            if goes_on(last_from, from) && goes_on(last_to, to) {
                last_from.len += len;
                last_to.len += len;
                return;
            }
        }
        self.steps.push(Step::Copy { from: from.part(0, len), to: to.part(0, len) });
    }

    /// Does all that another schedule does, whose ranks are others here; `place(area)` is where an area of it begins, unless
    /// it is a temporary one.
    pub fn embed(&mut self, part: &Self, rank: impl Fn(u32) -> u32, place: impl Fn(Area) -> Slice) {
        self.wait();
        let before = self.temporaries.len() as u32;
        let slice = |slice: Slice| match slice.area {
            Area::Temporary(index) => Slice { area: Area::Temporary(before + index), ..slice },
            area => place(area).part(slice.at, slice.len),
        };
        self.temporaries.extend(&part.temporaries);
        self.steps.extend(part.steps.iter().map(|step| match *step {
            Step::Send { to, from } => Step::Send { to: rank(to), from: slice(from) },
            Step::Recv { from, into } => Step::Recv { from: rank(from), into: slice(into) },
            Step::Copy { from, to } => Step::Copy { from: slice(from), to: slice(to) },
            Step::Combine { left, right } => Step::Combine { left: slice(left), right: slice(right) },
            Step::Wait => Step::Wait,
        }));
    }

    /// Makes `right` what `left` op `right` is.
    pub fn combine(&mut self, left: Slice, right: Slice) {
        debug_assert_eq!(left.len, right.len);
        if right.len > 0 {
            self.steps.push(Step::Combine { left, right });
        }
    }
}

/// Who a schedule is for. Ranks may be counted from another than the first one, as if the communicator were turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Here {
    /// This rank, counted from the first one.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    first: u32,
}

impl Here {
    /// Rank `rank` of `size`.
    pub const fn new(rank: u32, size: u32) -> Self {
        Self { rank, size, first: 0 }
    }

    /// Counts from `first` on.
    #[must_use]
    pub fn counted_from(self, first: u32) -> Self {
        let rank = if self.rank >= first { self.rank - first } else { self.rank + (self.size - first) };
        Self { rank, size: self.size, first }
    }

    /// Another one, counted likewise.
    #[must_use]
    pub fn at(self, rank: u32) -> Self {
        Self { rank, ..self }
    }

    /// The communicator's rank of the one that has this number here.
    pub fn peer(self, rank: u32) -> u32 {
        self.after(self.first, rank)
    }

    /// `steps` ranks further on, going round.
    pub fn next(self, steps: u32) -> u32 {
        self.after(self.rank, steps)
    }

    /// `steps` ranks back, going round.
    pub fn back(self, steps: u32) -> u32 {
        self.after(self.rank, self.size - steps)
    }

    /// Both at most `size`, and `size` at most half of what a `u32` holds, as ranks are `int`s.
    fn after(self, rank: u32, steps: u32) -> u32 {
        let sum = rank + steps;
        if sum >= self.size { sum - self.size } else { sum }
    }
}

/// 1, 2, 4 … below `end`.
pub(super) fn powers_below(end: u32) -> impl DoubleEndedIterator<Item = u32> {
    (0..u32::BITS - end.saturating_sub(1).leading_zeros()).map(|bit| 1 << bit)
}
