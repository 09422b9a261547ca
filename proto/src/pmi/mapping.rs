//! The mapping of ranks to nodes: the value of the key `PMI_process_mapping`.
//!
//! The mapping is written in the one form that every client reads: `(vector,(A,N,P),…)`, where nodes A to A+N-1 get P consecutive
//! ranks each. Node ids count from 0 in the order of their first ranks, and the blocks cover every rank: MPICH 4 and Intel MPI fail
//! on gaps, and Intel MPI expands a list that must be repeated wrongly.
//!
//! Both dialects are read, because other launchers write the newer one: `[…]xN` for repeated blocks, a bare id for one rank,
//! and the old rule that a list that is too short starts again.

use std::collections::HashMap;
use std::fmt::Write;

/// The key of the mapping.
pub const KEY: &str = "PMI_process_mapping";
/// The key of the same mapping for clients that must not wait for the other ranks of their node as soon as they have it: all
/// members of a group get the usual mapping together. Only rsd's server has this key.
pub const AT_ONCE_KEY: &str = "PMI_rsd_mapping";

/// Consecutive nodes with the same number of consecutive ranks each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The first node's id.
    pub first_node: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of ranks on each.
    pub ranks_per_node: u32,
}

/// The limit for the text: the longest value that clients up to MPICH 4.1 read.
pub const MAPPING_MAX: usize = 1023;

/// Writes the mapping of blocks with any node ids. `None` if it would be longer than [`MAPPING_MAX`] or if it has no rank; without
/// a mapping, clients compare host names. Cost: one pass over the blocks' nodes.
pub fn format(blocks: &[Block]) -> Option<String> {
    let mut text = String::from("(vector");
    for Block { first_node, nodes, ranks_per_node } in compress(blocks) {
        write!(text, ",({first_node},{nodes},{ranks_per_node})").expect("writing to a string cannot fail");
        if text.len() >= MAPPING_MAX {
            return None;
        }
    }
    text.push(')');
    (text.len() > "(vector)".len()).then_some(text)
}

/// Returns the node of each of `size` ranks. After the last block, the list starts again with the first block that begins at node
/// 0. Fails if the list must start again but has no such block, or if the blocks have no ranks.
pub fn expand(blocks: &[Block], size: u32) -> Result<Vec<u32>, MappingError> {
    let size = size as usize;
    let again = blocks.iter().position(|block| block.first_node == 0).map_or(&[][..], |first| &blocks[first..]);
    let mut nodes = Vec::with_capacity(size);
    nodes.extend(nodes_of(blocks).take(size));
    while nodes.len() < size {
        let before = nodes.len();
        nodes.extend(nodes_of(again).take(size - before));
        if nodes.len() == before {
            return Err(MappingError::TooShort { ranks: before, size });
        }
    }
    Ok(nodes)
}

/// Parses the blocks of a mapping in either dialect, limited to those that `size` ranks need.
pub fn parse(text: &str, size: u32) -> Result<Vec<Block>, MappingError> {
    let mut parser = Parser { text, at: 0, ranks_left: u64::from(size) };
    parser.expect("(")?;
    parser.expect("vector")?;
    let mut blocks = Vec::new();
    while parser.eat(",") {
        parser.item(&mut blocks)?;
    }
    parser.expect(")")?;
    if parser.at == text.len() { Ok(blocks) } else { Err(parser.malformed("the end")) }
}

/// Why a mapping is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The text is not a mapping.
    #[error("invalid process mapping: expected {expected} at byte {at}")]
    Malformed {
        /// The expected text.
        expected: &'static str,
        /// The byte offset.
        at: usize,
    },
    /// The blocks cover fewer ranks than requested, and the list cannot start again.
    #[error("invalid process mapping: it covers {ranks} of {size} ranks")]
    TooShort {
        /// Ranks covered.
        ranks: usize,
        /// Ranks requested.
        size: usize,
    },
}

fn nodes_of(blocks: &[Block]) -> impl Iterator<Item = u32> {
    blocks.iter().flat_map(|block| {
        let node = move |index| block.first_node.saturating_add(index);
        (0..block.nodes).flat_map(move |index| (0..block.ranks_per_node).map(move |_| node(index)))
    })
}

/// Renumbers nodes in the order of their first ranks and merges blocks where possible.
fn compress(blocks: &[Block]) -> Vec<Block> {
    let mut ids = HashMap::new();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for block in blocks.iter().filter(|block| block.ranks_per_node > 0) {
        for index in 0..block.nodes {
            let fresh = ids.len() as u32;
            let node = *ids.entry(block.first_node.saturating_add(index)).or_insert(fresh);
            match runs.last_mut() {
                Some((last, ranks)) if *last == node => *ranks += block.ranks_per_node,
                Some(_) | None => runs.push((node, block.ranks_per_node)),
            }
        }
    }
    let mut joined: Vec<Block> = Vec::new();
    for (node, ranks_per_node) in runs {
        match joined.last_mut() {
            Some(last) if last.first_node + last.nodes == node && last.ranks_per_node == ranks_per_node => {
                last.nodes += 1
            }
            Some(_) | None => joined.push(Block { first_node: node, nodes: 1, ranks_per_node }),
        }
    }
    joined
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The number of ranks that no block covers yet; at 0, further blocks are checked but not kept.
    ranks_left: u64,
}

impl Parser<'_> {
    /// `(A,N,P)`, `A`, or `[item,…]xN`.
    fn item(&mut self, blocks: &mut Vec<Block>) -> Result<(), MappingError> {
        if !self.eat("[") {
            let block = self.block()?;
            self.keep(block, blocks);
            return Ok(());
        }
        let mut repeated = vec![self.block()?];
        while self.eat(",") {
            repeated.push(self.block()?);
        }
        self.expect("]")?;
        self.expect("x")?;
        for _ in 0..self.positive("a count")? {
            if self.ranks_left == 0 {
                break;
            }
            repeated.iter().for_each(|block| self.keep(*block, blocks));
        }
        Ok(())
    }

    fn block(&mut self) -> Result<Block, MappingError> {
        if !self.eat("(") {
            return Ok(Block { first_node: self.number("a node id")?, nodes: 1, ranks_per_node: 1 });
        }
        let first_node = self.number("a node id")?;
        self.expect(",")?;
        let nodes = self.positive("a number of nodes")?;
        self.expect(",")?;
        let ranks_per_node = self.positive("a number of ranks")?;
        self.expect(")")?;
        Ok(Block { first_node, nodes, ranks_per_node })
    }

    fn keep(&mut self, block: Block, blocks: &mut Vec<Block>) {
        if self.ranks_left > 0 {
            self.ranks_left = self.ranks_left.saturating_sub(u64::from(block.nodes) * u64::from(block.ranks_per_node));
            blocks.push(block);
        }
    }

    fn positive(&mut self, expected: &'static str) -> Result<u32, MappingError> {
        let malformed = self.malformed(expected);
        let number = self.number(expected)?;
        if number == 0 { Err(malformed) } else { Ok(number) }
    }

    fn number(&mut self, expected: &'static str) -> Result<u32, MappingError> {
        let digits = self.text[self.at..].bytes().take_while(u8::is_ascii_digit).count();
        let number = self.text[self.at..self.at + digits].parse().map_err(|_| self.malformed(expected))?;
        self.at += digits;
        Ok(number)
    }

    fn expect(&mut self, token: &'static str) -> Result<(), MappingError> {
        if self.eat(token) { Ok(()) } else { Err(self.malformed(token)) }
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn malformed(&self, expected: &'static str) -> MappingError {
        MappingError::Malformed { expected, at: self.at }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(of: &[(u32, u32, u32)]) -> Vec<Block> {
        of.iter().map(|&(first_node, nodes, ranks_per_node)| Block { first_node, nodes, ranks_per_node }).collect()
    }

    fn nodes(text: &str, size: u32) -> Result<Vec<u32>, MappingError> {
        expand(&parse(text, size)?, size)
    }

    #[test]
    fn mappings_are_written_in_the_form_that_every_client_reads() {
        let vectors = [
            (vec![(0, 2, 4)], Some("(vector,(0,2,4))")),
            (vec![(0, 1, 4), (1, 1, 4)], Some("(vector,(0,2,4))")),
            (vec![(0, 2, 1), (0, 2, 1)], Some("(vector,(0,2,1),(0,2,1))")),
            (vec![(0, 1, 3), (1, 1, 1)], Some("(vector,(0,1,3),(1,1,1))")),
            (vec![(0, 1, 1), (0, 1, 2)], Some("(vector,(0,1,3))")),
            (vec![(5, 1, 2), (3, 1, 2)], Some("(vector,(0,2,2))")),
            (vec![(7, 1, 1)], Some("(vector,(0,1,1))")),
            (vec![(0, 1, 2), (1, 1, 0), (2, 1, 2)], Some("(vector,(0,2,2))")),
            (vec![(0, 3, 0)], None),
        ];
        for (of, text) in vectors {
            assert_eq!(format(&blocks(&of)).as_deref(), text, "{of:?}");
        }
    }

    #[test]
    fn a_mapping_is_never_longer_than_old_clients_can_read() {
        let uneven = |nodes| (0..nodes).map(|node| Block { first_node: node, nodes: 1, ranks_per_node: 1 + node % 2 });
        let longest = (1..500).filter_map(|nodes| format(&uneven(nodes).collect::<Vec<_>>())).next_back().unwrap();
        assert!(longest.len() <= MAPPING_MAX && longest.len() > MAPPING_MAX - 10, "{}", longest.len());
        assert_eq!(format(&uneven(500).collect::<Vec<_>>()), None);
        assert_eq!(format(&blocks(&[(0, 100_000, 64)])).as_deref(), Some("(vector,(0,100000,64))"));
    }

    #[test]
    fn both_dialects_are_read() {
        let vectors = [
            ("(vector,(0,2,1))", vec![0, 1, 0, 1]),
            ("(vector,[(0,2,1)]x2)", vec![0, 1, 0, 1]),
            ("(vector,0,1,0,1)", vec![0, 1, 0, 1]),
            ("(vector,(0,2,1),(0,2,1))", vec![0, 1, 0, 1]),
            ("(vector,(0,1,3),(1,1,1))", vec![0, 0, 0, 1]),
            ("(vector,(5,1,2),(3,1,2))", vec![5, 5, 3, 3]),
            ("(vector,[0,(1,1,1)]x1,2,2)", vec![0, 1, 2, 2]),
            ("(vector,(3,1,1),(0,2,1))", vec![3, 0, 1, 0]),
            ("(vector,[(0,2,1)]x4294967295)", vec![0, 1, 0, 1]),
            ("(vector,(0,4294967295,4294967295))", vec![0, 0, 0, 0]),
        ];
        for (text, expected) in vectors {
            assert_eq!(nodes(text, 4), Ok(expected), "{text}");
        }
        assert_eq!(nodes("(vector,(1,1,2))", 4), Err(MappingError::TooShort { ranks: 2, size: 4 }));
        assert_eq!(nodes("(vector)", 1), Err(MappingError::TooShort { ranks: 0, size: 1 }));
    }

    #[test]
    fn an_invalid_mapping_is_refused_at_its_first_wrong_byte() {
        let vectors = [
            ("garbage", "(", 0),
            ("", "(", 0),
            ("(vector,(0,2,1)", ")", 15),
            ("(vector,(0,2,1)) ", "the end", 16),
            ("(vector,(0,0,1))", "a number of nodes", 11),
            ("(vector,(0,1,0))", "a number of ranks", 13),
            ("(vector,(-1,1,1))", "a node id", 9),
            ("(vector,(0,1,4294967296))", "a number of ranks", 13),
            ("(vector,[(0,2,1)])", "x", 17),
            ("(vector,[(0,2,1)]x0)", "a count", 18),
            ("(vector,[[0]x1]x1)", "a node id", 9),
            ("(vector,)", "a node id", 8),
        ];
        for (text, expected, at) in vectors {
            assert_eq!(parse(text, 4), Err(MappingError::Malformed { expected, at }), "{text}");
        }
    }

    fn renumbered(nodes: &[u32]) -> Vec<u32> {
        let mut order: Vec<u32> = Vec::new();
        let id = |node: &u32| {
            order.iter().position(|other| other == node).unwrap_or_else(|| {
                order.push(*node);
                order.len() - 1
            }) as u32
        };
        nodes.iter().map(id).collect()
    }

    proptest! {
        #[test]
        fn parsing_a_formatted_mapping_gives_the_same_nodes(of in prop::collection::vec((0u32..20, 0u32..6, 0u32..6), 0..30)) {
            let blocks = blocks(&of);
            let placed: Vec<u32> = nodes_of(&blocks).collect();
            match format(&blocks) {
                Some(text) => {
                    prop_assert!(text.len() <= MAPPING_MAX);
                    prop_assert_eq!(nodes(&text, placed.len() as u32), Ok(renumbered(&placed)));
                }
                None => prop_assert!(placed.is_empty()),
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(\\(vector)?[]\\[(),x0-9é]{0,40}", size in 0u32..100) {
            if let Ok(blocks) = parse(&text, size) {
                prop_assert!(blocks.len() <= size as usize);
            }
        }
    }
}
