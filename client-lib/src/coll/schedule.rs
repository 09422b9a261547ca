//! The steps of one rank in a collective operation, as data.
//!
//! A schedule is a list of steps. Sends and receives start at once, in the order of the list, and several are in flight until
//! the next [`Action::Wait`]; copies and reductions are done immediately. Memory is named by [`Slice`]s of packed bytes. Their
//! addresses are known to the [operands](super::operands), and a [run](super::run) executes the schedule. A schedule depends
//! only on the rank, the size and the arguments, so it can be reused.
//!
//! A function that builds a schedule guarantees this: messages between two ranks are sent in the order in which they are
//! received, no rank sends to itself, and between two waits no step reads what a receive writes or writes what a send reads.

/// A memory area that a schedule uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// The user's send buffer.
    Send,
    /// The user's receive buffer; for a broadcast, the buffer of the data.
    Recv,
    /// The user's send buffer for one rank, where each rank has its own place (`…v`, `…w`).
    SendTo(u32),
    /// The user's receive buffer for one rank, where each rank has its own place.
    RecvFrom(u32),
    /// Temporary memory during the operation: an index into [`Schedule::temporaries`].
    Temporary(u32),
}

/// A range of packed bytes of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The area.
    pub area: Area,
    /// The first byte.
    pub at: u64,
    /// The number of bytes.
    pub len: u64,
}

impl Slice {
    /// The first `len` bytes of an area.
    pub const fn all(area: Area, len: u64) -> Self {
        Self { area, at: 0, len }
    }

    /// `len` of its bytes, starting at `at`.
    #[must_use]
    pub const fn part(self, at: u64, len: u64) -> Self {
        Self { area: self.area, at: self.at + at, len }
    }

    /// Whether both contain the same byte.
    pub fn overlaps(self, other: Self) -> bool {
        self.area == other.area && self.at < other.at + other.len && other.at < self.at + self.len
    }
}

/// One step. Ranks are those of the communicator; in an intercommunicator, those of the union of both groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Starts a send.
    Send {
        /// The destination rank.
        to: u32,
        /// The bytes to send.
        from: Slice,
    },
    /// Starts a receive.
    Recv {
        /// The source rank.
        from: u32,
        /// Where to receive.
        into: Slice,
    },
    /// Copies between slices of the same length.
    Copy {
        /// The source.
        from: Slice,
        /// The destination.
        to: Slice,
    },
    /// Sets `right` to `left` op `right`, element by element; both have the same length.
    Combine {
        /// The first operand.
        left: Slice,
        /// The second operand and the result.
        right: Slice,
    },
    /// Waits until everything that was started is complete.
    Wait,
}

/// The steps of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    actions: Vec<Action>,
    temporaries: Vec<u64>,
    under_way: bool,
}

impl Schedule {
    /// The steps, in order. The last one is neither a send nor a receive.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The temporary memory in packed bytes: `temporaries()[i]` is the length of [`Area::Temporary`]`(i)`.
    pub fn temporaries(&self) -> &[u64] {
        &self.temporaries
    }

    /// Reserves temporary memory for the operation.
    pub fn temporary(&mut self, len: u64) -> Slice {
        self.temporaries.push(len);
        Slice::all(Area::Temporary((self.temporaries.len() - 1) as u32), len)
    }

    /// Sends these bytes; skipped if there are none, since the receiver knows this as well.
    pub fn send(&mut self, to: u32, from: Slice) {
        if from.len > 0 {
            self.send_even_none(to, from);
        }
    }

    /// Receives these bytes; skipped if there are none.
    pub fn recv(&mut self, from: u32, into: Slice) {
        if into.len > 0 {
            self.recv_even_none(from, into);
        }
    }

    /// Sends a message, even one without bytes.
    pub fn send_even_none(&mut self, to: u32, from: Slice) {
        self.actions.push(Action::Send { to, from });
        self.under_way = true;
    }

    /// Receives a message, even one without bytes.
    pub fn recv_even_none(&mut self, from: u32, into: Slice) {
        self.actions.push(Action::Recv { from, into });
        self.under_way = true;
    }

    /// Waits for what has been started, if anything has.
    pub fn wait(&mut self) {
        if self.under_way {
            self.actions.push(Action::Wait);
            self.under_way = false;
        }
    }

    /// Copies the bytes that both slices have. A copy that continues where the previous one ended is merged with it.
    pub fn copy(&mut self, from: Slice, to: Slice) {
        let len = from.len.min(to.len);
        if len == 0 || (from.area, from.at) == (to.area, to.at) {
            return;
        }
        if let Some(Action::Copy { from: last_from, to: last_to }) = self.actions.last_mut() {
            let goes_on = |last: &Slice, next: Slice| last.area == next.area && last.at + last.len == next.at;
            if goes_on(last_from, from) && goes_on(last_to, to) {
                last_from.len += len;
                last_to.len += len;
                return;
            }
        }
        self.actions.push(Action::Copy { from: from.part(0, len), to: to.part(0, len) });
    }

    /// Appends all steps of another schedule among the same ranks: its [`Area::Send`] begins at `send`, its [`Area::Recv`] at `recv`.
    pub fn append(&mut self, part: &Self, send: Slice, recv: Slice) {
        self.embed(part, |rank| rank, |area| if area == Area::Send { send } else { recv });
    }

    /// Appends all steps of another schedule, with its ranks mapped by `rank`; `place(area)` is where one of its areas
    /// begins, except for temporaries.
    pub fn embed(&mut self, part: &Self, rank: impl Fn(u32) -> u32, place: impl Fn(Area) -> Slice) {
        self.wait();
        let before = self.temporaries.len() as u32;
        let slice = |slice: Slice| match slice.area {
            Area::Temporary(index) => Slice { area: Area::Temporary(before + index), ..slice },
            area => place(area).part(slice.at, slice.len),
        };
        self.temporaries.extend(&part.temporaries);
        for step in &part.actions {
            match *step {
                Action::Send { to, from } => self.actions.push(Action::Send { to: rank(to), from: slice(from) }),
                Action::Recv { from, into } => self.actions.push(Action::Recv { from: rank(from), into: slice(into) }),
                // The two may be one now.
                Action::Copy { from, to } => self.copy(slice(from), slice(to)),
                Action::Combine { left, right } => self.combine(slice(left), slice(right)),
                Action::Wait => self.actions.push(Action::Wait),
            }
        }
    }

    /// Sets `right` to `left` op `right`.
    pub fn combine(&mut self, left: Slice, right: Slice) {
        debug_assert_eq!(left.len, right.len);
        if right.len > 0 {
            self.actions.push(Action::Combine { left, right });
        }
    }
}

/// The rank that a schedule is for, and the size. Ranks may be counted from another rank than 0, as if the communicator
/// were rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Here {
    /// This rank, counted from the first one.
    pub rank: u32,
    /// The number of ranks.
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

    /// The same view for another rank.
    #[must_use]
    pub fn at(self, rank: u32) -> Self {
        Self { rank, ..self }
    }

    /// The communicator's rank of the process that has this number here.
    pub fn peer(self, rank: u32) -> u32 {
        self.after(self.first, rank)
    }

    /// The rank `steps` after this one, modulo the size.
    pub fn next(self, steps: u32) -> u32 {
        self.after(self.rank, steps)
    }

    /// The rank `steps` before this one, modulo the size.
    pub fn back(self, steps: u32) -> u32 {
        self.after(self.rank, self.size - steps)
    }

    /// Both arguments are at most `size`, and `size` is at most half the range of a `u32`, since ranks are `int`s.
    fn after(self, rank: u32, steps: u32) -> u32 {
        let sum = rank + steps;
        if sum >= self.size { sum - self.size } else { sum }
    }
}

/// 1, 2, 4 … below `end`.
pub(super) fn powers_below(end: u32) -> impl DoubleEndedIterator<Item = u32> {
    (0..u32::BITS - end.saturating_sub(1).leading_zeros()).map(|bit| 1 << bit)
}

/// 1, `radix`, `radix`² … below `end`; the radix is at least 2.
pub(super) fn powers_of(radix: u32, end: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1), move |power: &u32| power.checked_mul(radix)).take_while(move |power| *power < end)
}

/// `power`, 2 `power` … below `radix` times `power` and below `end`.
pub(super) fn multiples_of(power: u32, radix: u32, end: u32) -> impl Iterator<Item = u32> {
    (1..radix).map_while(move |digit| digit.checked_mul(power)).take_while(move |multiple| *multiple < end)
}
