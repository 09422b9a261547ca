//! The basic datatypes of an element, in order: the type map without its places (MPI 5.0 §5.1).
//!
//! Needed where bytes are not enough: to count received elements, to convert to `external32`, to decide what can be
//! accumulated. Repetitions are counted, not listed. As in `shape`, depth is bounded because each level repeats the one below.

use std::sync::Arc;

use super::element::Element;

/// Basic datatypes in order.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    runs: Arc<[Run]>,
    /// Packed bytes.
    size: usize,
    /// The number of basic elements; `usize::MAX` if there are more.
    elements: usize,
}

#[derive(Debug, Clone)]
struct Run {
    count: usize,
    unit: Unit,
    /// The number of packed bytes before it.
    at: usize,
    /// The number of basic elements before it.
    index: usize,
}

#[derive(Debug, Clone)]
enum Unit {
    Basic(Element),
    Nested(Signature),
}

impl Unit {
    fn size(&self) -> usize {
        match self {
            Self::Basic(element) => element.size(),
            Self::Nested(signature) => signature.size,
        }
    }

    fn elements(&self) -> usize {
        match self {
            Self::Basic(_) => 1,
            Self::Nested(signature) => signature.elements,
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Basic(one), Self::Basic(other)) => one == other,
            (Self::Nested(one), Self::Nested(other)) => Arc::ptr_eq(&one.runs, &other.runs),
            (Self::Basic(_), Self::Nested(_)) | (Self::Nested(_), Self::Basic(_)) => false,
        }
    }
}

impl Run {
    fn size(&self) -> usize {
        self.unit.size() * self.count
    }

    fn elements(&self) -> usize {
        self.unit.elements().saturating_mul(self.count)
    }
}

/// Concatenates signatures.
#[derive(Debug, Default)]
pub(super) struct Parts {
    runs: Vec<Run>,
}

impl Parts {
    /// Adds one basic element.
    pub(super) fn push_basic(&mut self, element: Element) {
        self.add(1, Unit::Basic(element));
    }

    /// Adds a signature `count` times.
    pub(super) fn push(&mut self, signature: &Signature, count: usize) {
        match &*signature.runs {
            _ if count == 0 => {}
            [] => {}
            [run] => self.add(run.count * count, run.unit.clone()),
            _ => self.add(count, Unit::Nested(signature.clone())),
        }
    }

    fn add(&mut self, count: usize, unit: Unit) {
        match self.runs.last_mut() {
            Some(last) if last.unit.is(&unit) => last.count += count,
            _ => self.runs.push(Run { count, unit, at: 0, index: 0 }),
        }
    }

    /// Returns the concatenation; the total size must fit an `isize`.
    pub(super) fn finish(self) -> Signature {
        let mut parts = Self::default();
        for run in self.runs {
            match run.unit {
                Unit::Nested(inner) if run.count == 1 => {
                    inner.runs.iter().for_each(|run| parts.add(run.count, run.unit.clone()));
                }
                unit => parts.add(run.count, unit),
            }
        }
        let (mut size, mut elements) = (0, 0usize);
        for run in &mut parts.runs {
            (run.at, run.index) = (size, elements);
            size += run.size();
            elements = elements.saturating_add(run.elements());
        }
        Signature { runs: parts.runs.into(), size, elements }
    }
}

impl Signature {
    /// Packed bytes of one element.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The number of basic elements of one element.
    pub(super) fn elements(&self) -> usize {
        self.elements
    }

    /// The basic datatype that all of it consists of, if there is only one.
    pub(super) fn uniform(&self) -> Option<Element> {
        match &*self.runs {
            [Run { unit: Unit::Basic(element), .. }] => Some(*element),
            _ => None,
        }
    }

    /// The number of basic elements in the first `bytes` packed bytes; `None` if they end within one.
    pub(super) fn elements_in(&self, bytes: usize) -> Option<usize> {
        if bytes == 0 || self.size == 0 {
            return (bytes == 0).then_some(0);
        }
        let whole = (bytes / self.size).saturating_mul(self.elements);
        let rest = bytes % self.size;
        if rest == 0 {
            return Some(whole);
        }
        let run = &self.runs[self.runs.partition_point(|run| run.at + run.size() <= rest)];
        let within = rest - run.at;
        let inner = match &run.unit {
            Unit::Basic(element) => within.is_multiple_of(element.size()).then(|| within / element.size())?,
            Unit::Nested(signature) => signature.elements_in(within)?,
        };
        Some(whole.saturating_add(run.index).saturating_add(inner))
    }

    /// The number of packed bytes of the first `elements` basic elements; `None` if it overflows, or if there are no
    /// elements.
    pub(super) fn bytes_of(&self, elements: usize) -> Option<usize> {
        if elements == 0 || self.elements == 0 {
            return (elements == 0).then_some(0);
        }
        let whole = (elements / self.elements).checked_mul(self.size)?;
        let rest = elements % self.elements;
        if rest == 0 {
            return Some(whole);
        }
        let run = &self.runs[self.runs.partition_point(|run| run.index.saturating_add(run.elements()) <= rest)];
        let within = rest - run.index;
        let inner = match &run.unit {
            Unit::Basic(element) => within * element.size(),
            Unit::Nested(signature) => signature.bytes_of(within)?,
        };
        whole.checked_add(run.at)?.checked_add(inner)
    }

    /// Lists the basic elements in order, as runs of one kind; stops if `visit` returns false.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(Element, usize) -> bool) -> bool {
        self.runs.iter().all(|run| match &run.unit {
            Unit::Basic(element) => visit(*element, run.count),
            Unit::Nested(signature) => (0..run.count).all(|_| signature.visit(visit)),
        })
    }

    /// The number of bytes in `external32`; `None` if it overflows.
    pub(super) fn external_size(&self) -> Option<usize> {
        self.runs.iter().try_fold(0usize, |sum, run| {
            let unit = match &run.unit {
                Unit::Basic(element) => element.external_size(),
                Unit::Nested(signature) => signature.external_size()?,
            };
            sum.checked_add(unit.checked_mul(run.count)?)
        })
    }
}
