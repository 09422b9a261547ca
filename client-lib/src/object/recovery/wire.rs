//! The notes of recoveries as bytes: words of 32 bits in the machine's order, as in frames.
//!
//! ```text
//! revoke:   0
//! report:   1 round value n value leader        n: 1 if it has accepted the second value
//! propose:  2 round value
//! accept:   3 round
//! decide:   4 round value
//! value:    flags flags largest smallest set set
//! set:      length place …                      or, if that is shorter, 2^32 - 1 and a bit for each member
//! ```
//!
//! The longest note of n members has about n / 2 bytes, so 65,000 members fit the shortest limit of a frame (32 KiB).

use std::collections::BTreeSet;

use crate::object::agreement::{Place, Said, Value};

/// A note about a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Letter {
    /// It is revoked.
    Revoke,
    /// Something of an agreement.
    Said { round: u32, said: Said },
}

const BITS: u32 = u32::MAX;

impl Letter {
    /// The bytes, for a communicator of `size` members.
    pub(super) fn encode(&self, size: u32) -> Vec<u8> {
        let mut words = Vec::new();
        match self {
            Self::Revoke => words.push(0),
            Self::Said { round, said } => match said {
                Said::Report { own, accepted } => {
                    words.extend([1, *round]);
                    put_value(&mut words, own, size);
                    words.push(u32::from(accepted.is_some()));
                    if let Some((leader, value)) = accepted {
                        put_value(&mut words, value, size);
                        words.push(*leader);
                    }
                }
                Said::Propose(value) => {
                    words.extend([2, *round]);
                    put_value(&mut words, value, size);
                }
                Said::Accept => words.extend([3, *round]),
                Said::Decide(value) => {
                    words.extend([4, *round]);
                    put_value(&mut words, value, size);
                }
            },
        }
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }

    /// The note, if the bytes are one for a communicator of `size` members.
    pub(super) fn decode(bytes: &[u8], size: u32) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let mut words = words.iter().map(|word| u32::from_ne_bytes(*word));
        let words = &mut words;
        let kind = words.next()?;
        let letter = if kind == 0 {
            Self::Revoke
        } else {
            let round = words.next()?;
            let said = match kind {
                1 => {
                    let own = value(words, size)?;
                    let accepted = match words.next()? {
                        0 => None,
                        _ => {
                            let value = value(words, size)?;
                            Some((words.next().filter(|leader| *leader < size)?, value))
                        }
                    };
                    Said::Report { own, accepted }
                }
                2 => Said::Propose(value(words, size)?),
                3 => Said::Accept,
                4 => Said::Decide(value(words, size)?),
                _ => return None,
            };
            Self::Said { round, said }
        };
        words.next().is_none().then_some(letter)
    }
}

fn put_value(words: &mut Vec<u32>, value: &Value, size: u32) {
    words.extend([value.flags[0] as u32, value.flags[1] as u32, value.largest, value.smallest]);
    for set in [&value.failed, &value.acknowledged] {
        let bits = size.div_ceil(32);
        if set.len() <= bits as usize {
            words.push(set.len() as u32);
            words.extend(set);
        } else {
            words.push(BITS);
            let word =
                |at: u32| (0..32).filter(|bit| set.contains(&(at * 32 + bit))).fold(0, |word, bit| word | 1 << bit);
            words.extend((0..bits).map(word));
        }
    }
}

fn value(words: &mut impl Iterator<Item = u32>, size: u32) -> Option<Value> {
    let flags = [words.next()? as i32, words.next()? as i32];
    let (largest, smallest) = (words.next()?, words.next()?);
    let (failed, acknowledged) = (set(words, size)?, set(words, size)?);
    Some(Value { flags, largest, smallest, failed, acknowledged })
}

fn set(words: &mut impl Iterator<Item = u32>, size: u32) -> Option<BTreeSet<Place>> {
    let mut set = BTreeSet::new();
    match words.next()? {
        BITS => {
            for at in 0..size.div_ceil(32) {
                let word = words.next()?;
                set.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| at * 32 + bit));
            }
        }
        len => {
            for _ in 0..len {
                set.insert(words.next()?);
            }
        }
    }
    set.iter().all(|place| *place < size).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(size: u32, failed: u32, acknowledged: u32) -> Value {
        let (failed, acknowledged) = ((0..failed).collect(), (size - acknowledged..size).collect());
        Value { flags: [-5, !0], largest: 7, smallest: 3, failed, acknowledged }
    }

    #[test]
    fn a_note_decodes_to_what_was_encoded_and_no_part_of_it_does() {
        for size in [1, 31, 32, 33, 100] {
            let (none, all) = (some(size, 0, 0), some(size, size, size));
            let round = u32::MAX;
            let said = [
                Said::Report { own: none.clone(), accepted: None },
                Said::Report { own: all.clone(), accepted: Some((size - 1, none)) },
                Said::Propose(all.clone()),
                Said::Accept,
                Said::Decide(some(size, 1, size)),
            ];
            let letters = said.map(|said| Letter::Said { round, said });
            for letter in letters.into_iter().chain([Letter::Revoke]) {
                let bytes = letter.encode(size);
                assert_eq!(Letter::decode(&bytes, size).as_ref(), Some(&letter));
                for end in 0..bytes.len() {
                    assert_eq!(Letter::decode(&bytes[..end], size), None, "{letter:?} to {end}");
                }
            }
            assert_eq!(Letter::decode(&Letter::Said { round, said: Said::Propose(all) }.encode(size), size - 1), None);
        }
    }

    #[test]
    fn the_longest_note_of_many_members_fits_a_frame() {
        let size = 60_000;
        let value = some(size, size, size);
        let said = Said::Report { own: value.clone(), accepted: Some((0, value)) };
        assert!(Letter::Said { round: 0, said }.encode(size).len() <= 32 << 10);
    }
}
