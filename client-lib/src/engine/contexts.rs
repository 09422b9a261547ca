//! The open contexts by number; the numbers are small unless there are very many communicators.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::state::Context;

/// Contexts below this number are found by index, the others by hash.
const NEAR: u32 = 1024;

/// The contexts of a process.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    dense: Vec<Option<Context>>,
    sparse: HashMap<u32, Context, BuildHasherDefault<NumberHasher>>,
}

impl Contexts {
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Context> {
        match self.dense.get(number as usize) {
            Some(context) => context.as_ref(),
            None => self.sparse.get(&number),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Context> {
        match self.dense.get_mut(number as usize) {
            Some(context) => context.as_mut(),
            None => self.sparse.get_mut(&number),
        }
    }

    pub(super) fn insert(&mut self, number: u32, context: Context) {
        if number >= NEAR {
            self.sparse.insert(number, context);
            return;
        }
        let at = number as usize;
        if at >= self.dense.len() {
            self.dense.resize_with(at + 1, || None);
        }
        self.dense[at] = Some(context);
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Context> {
        match self.dense.get_mut(number as usize) {
            Some(context) => context.take(),
            None => self.sparse.remove(&number),
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Context> {
        self.dense.iter().flatten().chain(self.sparse.values())
    }

    /// The open contexts with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Context)> {
        let dense = self.dense.iter_mut().enumerate();
        let dense = dense.filter_map(|(number, context)| Some((number as u32, context.as_mut()?)));
        dense.chain(self.sparse.iter_mut().map(|(number, context)| (*number, context)))
    }

    #[cfg(test)]
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Context> {
        self.dense.iter_mut().flatten().chain(self.sparse.values_mut())
    }
}

/// Spreads small numbers; no process can choose them to collide.
#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::Kind;
    use super::*;

    #[test]
    fn a_context_is_found_by_its_number_however_large() {
        let mut contexts = Contexts::default();
        let numbers = [0, 5, NEAR - 1, NEAR, u32::MAX];
        for number in numbers {
            assert!(contexts.get(number).is_none());
            contexts.insert(number, Context::new([].into(), Kind::User));
        }
        assert_eq!(contexts.values_mut().count(), numbers.len());
        for number in numbers {
            assert!(contexts.get(number).is_some() && contexts.get_mut(number).is_some());
            assert!(contexts.remove(number).is_some() && contexts.remove(number).is_none());
        }
        assert!(contexts.get(1).is_none() && contexts.get(NEAR + 1).is_none());
    }
}
