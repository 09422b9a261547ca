//! The ring of a job's ranks (Slurm's `PMIX_Ring`): each rank gives a value to either neighbour and gets one of each. It is a fence that
//! carries the values which must reach another node; so it takes 2(N−1) messages.

use bytes::{BufMut, Bytes, BytesMut};

use super::dialect::{Asker, Reply};
use super::held::Then;
use super::{Effect, Local, Step};
use crate::Now;
use crate::kvs::Known;

impl Step {
    /// Puts a rank's values under a key that no rank can put, and enters the fence.
    pub(super) fn enter_ring(&mut self, now: Now, asker: Asker, left: &[u8], right: &[u8], out: &mut Vec<Effect>) {
        let rank = self.ranks[asker.local].rank;
        let (before, after) = self.neighbours(rank);
        let is_here = |rank: u32| self.map.node_of(rank) == Some(self.node);
        let (key, value) = (key(rank), given(self.fence.number, left, right));
        let stored = match is_here(before) && is_here(after) {
            true => self.kvs.keep(key, value),
            false => self.kvs.put(key, value),
        };
        if let Err(error) = stored {
            return self.on_protocol_fault(now, asker.local, format!("cannot enter the ring: {error}"), out);
        }
        self.enter_fence(now, asker, out);
    }

    /// Answers a rank after the fence with this number, once what its neighbours gave is here.
    pub(super) fn answer_ring(&mut self, now: Now, asker: Asker, fence: u64, out: &mut Vec<Effect>) {
        match self.of_ring(asker.local, fence) {
            Ok(reply) => self.answer(&asker, reply, out),
            Err(key) => self.fetch(now, key, None, Then::Ring { asker, fence }, out),
        }
    }

    /// Returns the answer, or a key that must be fetched first.
    fn of_ring(&self, local: Local, fence: u64) -> Result<Reply, Bytes> {
        let rank = self.ranks[local].rank;
        let (before, after) = self.neighbours(rank);
        let find = |rank| match self.kvs.find(&key(rank)) {
            Known::Value(given) => Ok(understand(&given, fence)),
            Known::Absent => Ok(None),
            Known::Elsewhere => Err(key(rank)),
        };
        Ok(match (find(before)?, find(after)?) {
            (Some((_, left)), Some((right, _))) => Reply::Neighbours { rank, left, right },
            (None, _) | (_, None) => Reply::Refused("a neighbour has entered a fence instead of the ring".into()),
        })
    }

    fn neighbours(&self, rank: u32) -> (u32, u32) {
        let size = self.map.size();
        ((rank + size - 1) % size, (rank + 1) % size)
    }
}

fn key(rank: u32) -> Bytes {
    format!("PMI_rsd_ring_{rank}").into()
}

/// What a rank gives in the fence with this number: the number, the length of the first value, both values.
fn given(fence: u64, left: &[u8], right: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(16 + left.len() + right.len());
    bytes.put_u64(fence);
    bytes.put_u64(left.len() as u64);
    bytes.put_slice(left);
    bytes.put_slice(right);
    bytes.freeze()
}

/// Returns both values if they were given in this fence.
fn understand(given: &Bytes, fence: u64) -> Option<(Bytes, Bytes)> {
    let number = |at: usize| Some(u64::from_be_bytes(given.get(at..at + 8)?.try_into().ok()?));
    let left = usize::try_from(number(8)?).ok().filter(|left| *left <= given.len() - 16)?;
    (number(0)? == fence).then(|| (given.slice(16..16 + left), given.slice(16 + left..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_understood_only_in_the_fence_in_which_they_were_given() {
        let bytes = given(3, b"to the left", b"");
        assert_eq!(understand(&bytes, 3), Some(("to the left".into(), Bytes::new())));
        assert_eq!(understand(&bytes, 4), None);
        for cut in [0, 8, 15, 16] {
            assert_eq!(understand(&bytes.slice(..cut), 3), None, "{cut}");
        }
    }
}
