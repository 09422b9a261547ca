//! Counts for tests which cache lines of a shared memory move between the cores of its members, each of which has a core of its own.
//!
//! The members run in one thread, in turn. Every access of the real code is reported ([`on_access`]): atomics and cells report themselves
//! ([`super::sync`]), and what is copied is reported where it is copied. The caches are those of a textbook (MESI, without limits): a read
//! needs a copy of the line, a write needs the only one. Getting it is a *move*, everything else costs nothing. Prefetches are not seen.
//!
//! Each member has a clock that counts moves. A member makes its moves one after the other. A line can be moved to one writer at a time, to
//! readers at the same time, and to all only once the write before is done. So the latest clock is the longest chain of moves of which each
//! waits for the one before. Moves of one member that a processor has in flight at the same time count as if it had not.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic;
use std::sync::atomic::Ordering;

const LINE_BYTES: usize = 64;

/// The most members: each has a bit.
pub(crate) const MOST: usize = u128::BITS as usize;

/// What a member does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What has moved since [`begin`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// All moves of all lines.
    pub all: u64,
    /// Those of the member that had the most.
    pub member: u64,
    /// Those of the line that had the most to members that wrote to it: they follow each other.
    pub line: u64,
    /// The longest chain.
    pub chain: u64,
}

impl Moves {
    /// The greater of each number.
    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            all: self.all.max(other.all),
            member: self.member.max(other.member),
            line: self.line.max(other.line),
            chain: self.chain.max(other.chain),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// A bit for each member that has a copy.
    copies: u128,
    /// Whether the only copy may be written to.
    is_owned: bool,
    /// Moves to writers since [`begin`], and when the last one ended.
    writers: u64,
    written: u64,
    /// The number of the [`begin`] to which these two belong.
    turn: u64,
}

#[derive(Debug)]
struct Traffic {
    /// Where each member sees the memory.
    views: Vec<Range<usize>>,
    lines: Vec<Line>,
    member: usize,
    turn: u64,
    clocks: Vec<u64>,
    moves: Vec<u64>,
    most: u64,
}

thread_local! {
    static TRAFFIC: RefCell<Option<Traffic>> = const { RefCell::new(None) };
}

/// Counts from now on in this thread, for members that see a memory in these places.
pub(crate) fn watch(views: Vec<Range<usize>>) {
    assert!(views.len() <= MOST, "{} members", views.len());
    let len = views.iter().map(|view| view.len()).max().unwrap_or(0);
    let none = vec![0; views.len()];
    let lines = vec![Line::default(); len.div_ceil(LINE_BYTES)];
    let traffic = Traffic { views, lines, member: 0, turn: 0, clocks: none.clone(), moves: none, most: 0 };
    TRAFFIC.set(Some(traffic));
}

/// From now on this member runs.
pub(crate) fn run(member: usize) {
    with(|traffic| traffic.member = member);
}

/// Counts from zero.
pub(crate) fn begin() {
    with(|traffic| {
        traffic.turn += 1;
        traffic.most = 0;
        traffic.clocks.fill(0);
        traffic.moves.fill(0);
    });
}

/// What has moved since [`begin`].
pub(crate) fn moves() -> Moves {
    let mut moves = Moves::default();
    with(|traffic| {
        let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
        moves = Moves {
            all: traffic.moves.iter().sum(),
            member: most(&traffic.moves),
            line: traffic.most,
            chain: most(&traffic.clocks),
        };
    });
    moves
}

/// Counts no more.
pub(crate) fn end() {
    TRAFFIC.set(None);
}

fn with(body: impl FnOnce(&mut Traffic)) {
    TRAFFIC.with_borrow_mut(|traffic| body(traffic.as_mut().expect("`watch` comes first")));
}

/// The member that runs reads or writes `len` bytes at an address; nothing happens if it lies elsewhere.
pub(crate) fn on_access(address: usize, len: usize, access: Access) {
    TRAFFIC.with_borrow_mut(|traffic| {
        if let Some(traffic) = traffic
            && let Some(view) = traffic.views.get(traffic.member).filter(|view| view.contains(&address) && len > 0)
        {
            let at = address - view.start;
            for line in at / LINE_BYTES..=(at + len - 1) / LINE_BYTES {
                traffic.touch(line, access);
            }
        }
    });
}

impl Traffic {
    fn touch(&mut self, line: usize, access: Access) {
        let (line, own) = (&mut self.lines[line], 1 << self.member);
        let has_it = match access {
            Access::Read => line.copies & own != 0,
            Access::Write => line.is_owned && line.copies == own,
        };
        if has_it {
            return;
        }
        if line.turn != self.turn {
            (line.writers, line.written, line.turn) = (0, 0, self.turn);
        }
        let clock = &mut self.clocks[self.member];
        *clock = line.written.max(*clock) + 1;
        self.moves[self.member] += 1;
        match access {
            Access::Read => (line.copies, line.is_owned) = (line.copies | own, false),
            Access::Write => {
                (line.copies, line.is_owned) = (own, true);
                line.written = *clock;
                line.writers += 1;
                self.most = self.most.max(line.writers);
            }
        }
    }
}

/// The numbers of members in the tables.
pub(crate) const NUMBERS: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];

/// What a row shows.
type Row = (&'static str, fn(&Moves) -> u64);

/// A table of what moves, for each of [`NUMBERS`], and of the growth from the one before the last to the last.
#[derive(Debug)]
pub(crate) struct Table(String);

impl Default for Table {
    fn default() -> Self {
        let numbers: String = NUMBERS.iter().map(|number| format!(" {number} |")).collect();
        Self(format!("| members | |{numbers} growth |\n|---|---|{}", "--:|".repeat(NUMBERS.len() + 1) + "\n"))
    }
}

impl Table {
    pub(crate) fn row(&mut self, name: &str, count: impl FnMut(u32) -> Moves) {
        let moves = NUMBERS.map(count);
        let rows: [Row; 4] = [
            ("longest chain", |moves| moves.chain),
            ("one member", |moves| moves.member),
            ("one line, to writers", |moves| moves.line),
            ("all", |moves| moves.all),
        ];
        for (at, (what, of)) in rows.into_iter().enumerate() {
            let cells: String = moves.iter().map(|moves| format!(" {} |", of(moves))).collect();
            let [.., before, last] = moves.map(|moves| of(&moves) as f64);
            let name = if at == 0 { name } else { "" };
            self.0 += &format!("| {name} | {what} |{cells} {:.2} |\n", last / before.max(1.0));
        }
    }

    /// Compares it with the one that is checked in, or writes that anew, if the environment names the folder.
    #[track_caller]
    pub(crate) fn check(&self, checked_in: &str, file: &str) {
        match std::env::var_os("RSD_GROWTH_INTO") {
            Some(folder) => std::fs::write(std::path::Path::new(&folder).join(file), &self.0).expect("a folder"),
            None => assert!(self.0 == checked_in, "{file} is out of date: run cargo xtask bench growth\n{}", self.0),
        }
    }
}

/// Atomics as those of the standard library, each of whose uses is reported. A comparison that fails needs the line as one that succeeds.
macro_rules! reporting {
    ($name:ident, $word:ty) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) const fn new(word: $word) -> Self {
                Self(atomic::$name::new(word))
            }

            fn report(&self, access: Access) -> &atomic::$name {
                on_access(self.0.as_ptr().addr(), size_of::<$word>(), access);
                &self.0
            }

            pub(crate) fn load(&self, order: Ordering) -> $word {
                self.report(Access::Read).load(order)
            }

            pub(crate) fn store(&self, word: $word, order: Ordering) {
                self.report(Access::Write).store(word, order);
            }

            pub(crate) fn swap(&self, word: $word, order: Ordering) -> $word {
                self.report(Access::Write).swap(word, order)
            }

            pub(crate) fn fetch_add(&self, word: $word, order: Ordering) -> $word {
                self.report(Access::Write).fetch_add(word, order)
            }

            pub(crate) fn fetch_sub(&self, word: $word, order: Ordering) -> $word {
                self.report(Access::Write).fetch_sub(word, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                from: $word,
                to: $word,
                then: Ordering,
                or: Ordering,
            ) -> Result<$word, $word> {
                self.report(Access::Write).compare_exchange(from, to, then, or)
            }
        }
    };
}

reporting!(AtomicU32, u32);
reporting!(AtomicU64, u64);

impl AtomicU64 {
    pub(crate) fn compare_exchange_weak(&self, from: u64, to: u64, then: Ordering, or: Ordering) -> Result<u64, u64> {
        self.report(Access::Write).compare_exchange_weak(from, to, then, or)
    }
}

mod tests {
    use super::*;

    #[test]
    fn a_line_moves_to_each_reader_at_once_and_to_each_writer_in_turn() {
        let words = [const { AtomicU64::new(0) }; 64];
        let start = words.as_ptr().addr().next_multiple_of(LINE_BYTES);
        let word = &words[(start - words.as_ptr().addr()) / 8];
        watch(vec![start..start + 2 * LINE_BYTES; 4]);
        let counted = |body: &dyn Fn()| {
            begin();
            body();
            moves()
        };
        let each = |body: &dyn Fn()| {
            (0..4).for_each(|member| {
                run(member);
                body();
            });
        };
        let add = || _ = word.fetch_add(1, Ordering::Relaxed);
        assert_eq!(counted(&|| each(&add)), Moves { all: 4, member: 1, line: 4, chain: 4 });
        // The last one has the only copy.
        assert_eq!(counted(&add), Moves::default());
        let look = || _ = word.load(Ordering::Relaxed);
        assert_eq!(counted(&|| each(&look)), Moves { all: 3, member: 1, line: 0, chain: 1 });
        assert_eq!(counted(&|| each(&look)), Moves::default());
        // Its copy becomes the only one, then all read what it has written.
        let published = counted(&|| {
            add();
            each(&look);
        });
        assert_eq!(published, Moves { all: 4, member: 1, line: 1, chain: 2 });
        end();
    }
}
