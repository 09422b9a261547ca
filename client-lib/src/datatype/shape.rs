//! The places of packed bytes, relative to an address: a small tree of loops and lists, merged as far as possible.
//!
//! A vector of a million blocks is one node, and so is an array of structures. No state is kept between two visits: the place
//! of a packed byte is found each time, by one division per loop and one binary search per list.
//!
//! Depth is bounded, so recursion is safe: a list never contains a list directly, and each loop at least doubles the size,
//! which has 63 bits. Offsets wrap: `construct` has checked that those of all bytes fit.

use std::sync::Arc;

/// Packed bytes and their places.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// The offset from the address.
    pub(super) offset: isize,
    /// Packed bytes.
    pub(super) size: usize,
    /// The number of contiguous runs; `usize::MAX` if there are more.
    runs: usize,
    /// `None` if the bytes are contiguous.
    tree: Option<Arc<Tree>>,
}

#[derive(Debug)]
enum Tree {
    /// `inner` repeated `count` times, `stride` bytes apart.
    Repeat { count: usize, stride: isize, inner: Shape },
    /// Many runs of the same length.
    Equal { len: usize, offsets: Box<[isize]> },
    /// Runs of several lengths, or few runs.
    Runs { runs: Box<[Run]>, span: usize },
    /// Subtrees.
    Parts(Box<[Part]>),
}

/// Contiguous bytes.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) offset: isize,
    /// The number of packed bytes before it.
    pub(super) at: usize,
    pub(super) len: usize,
}

/// A list this short is visited run by run over many elements, if these do not overlap, and not element by element.
const FEW: usize = 32;

#[derive(Debug)]
struct Part {
    /// The number of packed bytes before it.
    at: usize,
    shape: Shape,
}

/// Receives the runs of bytes in packed order; returns false to stop.
pub(super) trait Visitor {
    /// `len` contiguous bytes.
    fn run(&mut self, address: *mut u8, len: usize) -> bool;

    /// `count` runs of `len` bytes, `stride` bytes apart.
    fn strided(&mut self, address: *mut u8, stride: isize, len: usize, count: usize) -> bool {
        (0..count).all(|index| self.run(address.wrapping_offset(stride.wrapping_mul(index as isize)), len))
    }

    /// `count` elements of these runs, `stride` bytes apart, which do not overlap. Their order is free, because each
    /// run's packed bytes are known: they are `size` bytes after those of the previous element.
    fn crossed(&mut self, address: *mut u8, stride: isize, runs: &[Run], size: usize, count: usize) -> bool {
        let _ = size;
        (0..count).all(|index| {
            let address = address.wrapping_offset(stride.wrapping_mul(index as isize));
            runs.iter().all(|run| self.run(address.wrapping_offset(run.offset), run.len))
        })
    }

    /// Runs of `len` bytes at these offsets.
    fn scattered(&mut self, address: *mut u8, offsets: &[isize], len: usize) -> bool {
        offsets.iter().all(|offset| self.run(address.wrapping_offset(*offset), len))
    }
}

impl Shape {
    /// No bytes.
    pub(super) const EMPTY: Self = Self { offset: 0, size: 0, runs: 0, tree: None };

    /// `size` contiguous bytes.
    pub(super) const fn bytes(size: usize) -> Self {
        Self { offset: 0, size, runs: if size > 0 { 1 } else { 0 }, tree: None }
    }

    /// Whether the bytes are contiguous.
    #[inline]
    pub(super) fn is_contiguous(&self) -> bool {
        self.tree.is_none()
    }

    /// The same shape, `by` bytes further on.
    pub(super) fn moved(&self, by: isize) -> Self {
        Self { offset: self.offset.wrapping_add(by), ..self.clone() }
    }

    /// The shape repeated `count` times, `stride` bytes apart; the total size must fit an `isize`.
    pub(super) fn repeat(&self, count: usize, stride: isize) -> Self {
        if count == 0 || self.size == 0 {
            return Self::EMPTY;
        }
        if count == 1 {
            return self.clone();
        }
        let size = self.size * count;
        let runs = self.runs.saturating_mul(count);
        let (count, stride, inner) = match self.tree.as_deref() {
            None if stride == self.size as isize => return Self { size, ..self.clone() },
            Some(Tree::Repeat { count: inner_count, stride: inner_stride, inner })
                if inner_stride.checked_mul(*inner_count as isize) == Some(stride) =>
            {
                (count * inner_count, *inner_stride, inner.clone())
            }
            _ => (count, stride, Self { offset: 0, ..self.clone() }),
        };
        Self { offset: self.offset, size, runs, tree: Some(Arc::new(Tree::Repeat { count, stride, inner })) }
    }

    /// Visits all bytes, as if placed at this address.
    pub(super) fn visit_all<V: Visitor>(&self, address: *mut u8, visitor: &mut V) -> bool {
        let address = address.wrapping_offset(self.offset);
        match self.tree.as_deref() {
            None => visitor.run(address, self.size),
            Some(Tree::Repeat { count, stride, inner }) => inner.visit_times(*count, *stride, address, visitor),
            Some(Tree::Equal { len, offsets }) => visitor.scattered(address, offsets, *len),
            Some(Tree::Runs { runs, .. }) => {
                runs.iter().all(|run| visitor.run(address.wrapping_offset(run.offset), run.len))
            }
            Some(Tree::Parts(parts)) => parts.iter().all(|part| part.shape.visit_all(address, visitor)),
        }
    }

    /// Visits packed bytes `from` to `to`; at least one.
    pub(super) fn visit<V: Visitor>(&self, address: *mut u8, from: usize, to: usize, visitor: &mut V) -> bool {
        if from == 0 && to == self.size {
            return self.visit_all(address, visitor);
        }
        let address = address.wrapping_offset(self.offset);
        match self.tree.as_deref() {
            None => visitor.run(address.wrapping_add(from), to - from),
            Some(Tree::Repeat { stride, inner, .. }) => inner.visit_repeated(*stride, address, from, to, visitor),
            Some(Tree::Equal { len, offsets }) => visit_equal(*len, offsets, address, from, to, visitor),
            Some(Tree::Runs { runs, .. }) => {
                let first = runs.partition_point(|run| run.at + run.len <= from);
                runs[first..].iter().take_while(|run| run.at < to).all(|run| {
                    let (from, to) = (from.max(run.at) - run.at, to.min(run.at + run.len) - run.at);
                    visitor.run(address.wrapping_offset(run.offset).wrapping_add(from), to - from)
                })
            }
            Some(Tree::Parts(parts)) => {
                let first = parts.partition_point(|part| part.at + part.shape.size <= from);
                parts[first..].iter().take_while(|part| part.at < to).all(|part| {
                    let (from, to) = (from.max(part.at) - part.at, to.min(part.at + part.shape.size) - part.at);
                    part.shape.visit(address, from, to, visitor)
                })
            }
        }
    }

    /// Visits packed bytes `from` to `to` of this shape repeated endlessly, `stride` bytes apart.
    pub(super) fn visit_repeated<V: Visitor>(
        &self,
        stride: isize,
        address: *mut u8,
        from: usize,
        to: usize,
        visitor: &mut V,
    ) -> bool {
        let element = |index: usize| address.wrapping_offset(stride.wrapping_mul(index as isize));
        let (mut index, within) = (from / self.size, from % self.size);
        let mut left = to - from;
        if within > 0 {
            let len = left.min(self.size - within);
            if !self.visit(element(index), within, within + len, visitor) {
                return false;
            }
            left -= len;
            index += 1;
        }
        let whole = left / self.size;
        if whole > 0 && !self.visit_times(whole, stride, element(index), visitor) {
            return false;
        }
        let rest = left % self.size;
        rest == 0 || self.visit(element(index + whole), 0, rest, visitor)
    }

    #[inline]
    fn visit_times<V: Visitor>(&self, count: usize, stride: isize, address: *mut u8, visitor: &mut V) -> bool {
        match self.tree.as_deref() {
            None => return visitor.strided(address.wrapping_offset(self.offset), stride, self.size, count),
            Some(Tree::Runs { runs, span }) if runs.len() <= FEW && stride.unsigned_abs() >= *span => {
                return visitor.crossed(address.wrapping_offset(self.offset), stride, runs, self.size, count);
            }
            Some(_) => {}
        }
        (0..count).all(|index| self.visit_all(address.wrapping_offset(stride.wrapping_mul(index as isize)), visitor))
    }
}

fn visit_equal<V: Visitor>(
    len: usize,
    offsets: &[isize],
    address: *mut u8,
    from: usize,
    to: usize,
    visitor: &mut V,
) -> bool {
    let mut cut = |index: usize, from: usize, to: usize| {
        visitor.run(address.wrapping_offset(offsets[index]).wrapping_add(from), to - from)
    };
    let (mut first, last) = (from / len, to / len);
    if !from.is_multiple_of(len) {
        let end = if first == last { to % len } else { len };
        if !cut(first, from % len, end) {
            return false;
        }
        if first == last {
            return true;
        }
        first += 1;
    }
    if !visitor.scattered(address, &offsets[first..last], len) {
        return false;
    }
    let rest = to % len;
    rest == 0 || visitor.run(address.wrapping_offset(offsets[last]), rest)
}

/// Concatenates shapes in packed order.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    parts: Vec<Shape>,
}

impl Sequence {
    /// Adds a shape, at its offset.
    pub(super) fn push(&mut self, shape: Shape) {
        if shape.size == 0 {
            return;
        }
        if let Some(last) = self.parts.last_mut()
            && last.is_contiguous()
            && shape.is_contiguous()
            && last.offset.wrapping_add(last.size as isize) == shape.offset
        {
            last.size += shape.size;
            return;
        }
        self.parts.push(shape);
    }

    /// Returns the concatenation; the total size must fit an `isize`. Lists of few runs become lists of runs, lists of
    /// lists one list.
    pub(super) fn finish(mut self) -> Shape {
        if self.parts.len() <= 1 {
            return self.parts.pop().unwrap_or(Shape::EMPTY);
        }
        let size = self.parts.iter().map(|shape| shape.size).sum();
        let runs = self.parts.iter().fold(0usize, |sum, shape| sum.saturating_add(shape.runs));
        if runs <= 2 * self.parts.len() + 32 {
            return flat(&self.parts, size);
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut at = 0;
        for shape in self.parts {
            if let Some(Tree::Parts(list)) = shape.tree.as_deref() {
                parts.extend(list.iter().map(|part| Part { at: at + part.at, shape: part.shape.moved(shape.offset) }));
                at += shape.size;
            } else {
                let before = at;
                at += shape.size;
                parts.push(Part { at: before, shape });
            }
        }
        Shape { offset: 0, size, runs, tree: Some(Arc::new(Tree::Parts(parts.into()))) }
    }
}

/// As one list of runs.
fn flat(parts: &[Shape], size: usize) -> Shape {
    struct Flat(Vec<Run>, usize);

    impl Visitor for Flat {
        fn run(&mut self, address: *mut u8, len: usize) -> bool {
            let offset = address.addr() as isize;
            match self.0.last_mut() {
                Some(last) if last.offset.wrapping_add(last.len as isize) == offset => last.len += len,
                _ => self.0.push(Run { offset, at: self.1, len }),
            }
            self.1 += len;
            true
        }
    }

    let mut flat = Flat(Vec::with_capacity(parts.len()), 0);
    for shape in parts {
        shape.visit_all(std::ptr::null_mut(), &mut flat);
    }
    let runs = flat.0;
    let (offset, len) = (runs[0].offset, runs[0].len);
    if runs.len() == 1 {
        return Shape { offset, ..Shape::bytes(len) };
    }
    let count = runs.len();
    let tree = if count > FEW && runs.iter().all(|run| run.len == len) {
        Tree::Equal { len, offsets: runs.iter().map(|run| run.offset).collect() }
    } else {
        let start = runs.iter().map(|run| run.offset).min().unwrap_or(0);
        let end = runs.iter().map(|run| run.offset.wrapping_add(run.len as isize)).max().unwrap_or(0);
        Tree::Runs { runs: runs.into(), span: end.wrapping_sub(start) as usize }
    };
    Shape { offset: 0, size, runs: count, tree: Some(Arc::new(tree)) }
}
