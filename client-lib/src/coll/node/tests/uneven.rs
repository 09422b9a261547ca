//! Calls whose blocks differ in length.

use super::*;

/// The lengths, in words, of the members' blocks: some empty, some longer than a slot.
fn uneven(operation: u64, members: u32) -> Vec<u64> {
    let room = SLOT as u64 / 4;
    let lens = [0, 1, 12, 13, 40, room / u64::from(members), room - 1, room, room + 3, 5 * room / 2];
    // Every other operation has short blocks alone.
    let kinds = if operation % 4 < 2 { 5 } else { lens.len() as u64 };
    (0..u64::from(members)).map(|member| lens[((operation * 7 + member * 3) % kinds) as usize]).collect()
}

#[test]
fn blocks_of_different_lengths_are_gathered_at_all() {
    for members in [2, 3, 7] {
        together(members, |node| {
            for operation in 0..60 {
                let (me, lens) = (node.rank, uneven(operation, members));
                let mut own = words(operation, me, 0, lens[me as usize]);
                let mut blocks: Vec<Vec<u32>> = lens.iter().map(|len| vec![0; *len as usize]).collect();
                let in_place = operation % 3 == 0;
                if in_place {
                    blocks[me as usize].clone_from(&own);
                }
                let longest = 4 * lens.iter().copied().max().unwrap();
                if longest == 0 {
                    continue;
                }
                let call = Call::Allgather { block: longest, in_place };
                let recv_from = blocks.iter_mut().map(|words| lend(words).buffer).collect();
                let operands = Operands { send: lend(&mut own), recv_from, ..Operands::default() };
                let from = |member: u32| {
                    let buffer = &operands.recv_from[member as usize];
                    (buffer.as_contiguous().unwrap(), buffer.len())
                };
                let own = if in_place { from(me).0 } else { operands.send.buffer.as_contiguous().unwrap() };
                // SAFETY: the operands are lent for longer.
                let brief = unsafe { VariedBrief::new(own, from, node) };
                match (operation % 2, brief) {
                    (0, Some(brief)) if (operation / 2 + u64::from(me)) % 2 == 0 => {
                        let mut met = Met::default();
                        let ended = std::iter::from_fn(|| Some(brief.poll(node, &mut met))).flatten().next();
                        assert_eq!(ended, Some(Ok(())));
                    }
                    (0, _) => assert_eq!(wait(&mut Work::new(call, &operands, None, None, node.shape()), node), Ok(())),
                    _ => assert_eq!(pulls::pull(call, &operands, node), Ok(true)),
                }
                for (from, block) in (0..).zip(&blocks) {
                    assert!(*block == words(operation, from, 0, lens[from as usize]), "of {from}, {operation}");
                }
            }
        });
    }
}

#[test]
fn parts_of_different_lengths_are_combined() {
    for members in [2, 3, 7] {
        together(members, |node| {
            for operation in 0..60 {
                let (me, counts) = (node.rank, uneven(operation, members));
                let mut end = 0;
                let parts: Vec<(u64, u64)> = counts
                    .iter()
                    .map(|count| {
                        end += 4 * count;
                        (end - 4 * count, 4 * count)
                    })
                    .collect();
                let longest = counts.iter().copied().max().unwrap();
                if longest == 0 {
                    continue;
                }
                let block = Vector { count: longest, unit: 4 };
                let call = Call::ReduceScatterBlock { block, commutes: true, in_place: false };
                let mut own = words(operation, me, 0, end / 4);
                let mut result = vec![0; counts[me as usize] as usize];
                let operands = Operands { send: lend(&mut own), recv: lend(&mut result), ..Operands::default() };
                let sum = sum();
                let kernel = crate::op::loop_for(OpHandle(MPI_SUM), DatatypeHandle(MPI_UINT32_T)).unwrap();
                let (send, recv) = (&operands.send.buffer, &operands.recv.buffer);
                let (send, recv) = (send.as_contiguous().unwrap(), recv.as_contiguous().unwrap());
                let count = |member: u32| counts[member as usize] as usize;
                // SAFETY: the operands are lent for longer.
                let brief = unsafe { PartsBrief::new(send, recv, kernel, 4, count, node) };
                match brief.filter(|_| (operation + u64::from(me)) % 3 > 0) {
                    Some(brief) => {
                        let mut met = Met::default();
                        let ended = std::iter::from_fn(|| Some(brief.poll(node, &mut met))).flatten().next();
                        assert_eq!(ended, Some(Ok(())));
                    }
                    None => {
                        let mut work = Work::new(call, &operands, Some(&sum), Some(&parts), node.shape());
                        assert_eq!(wait(&mut work, node), Ok(()));
                    }
                }
                let first = (parts[me as usize].0 / 4) as usize;
                for (at, word) in result.iter().enumerate() {
                    let expected: u32 = (0..members).map(|from| words(operation, from, 0, end / 4)[first + at]).sum();
                    assert_eq!(*word, expected, "{at} at {me} of {members}, {operation}");
                }
            }
        });
    }
}

/// The bytes that one member has for another one: of different lengths, some longer than a slot if `long`.
fn block(operation: u64, from: u32, to: u32, long: bool) -> Vec<u32> {
    let lens = [0, 1, 2, 13, 40, 7, 100, 3 * SLOT as u64 / 4];
    let kinds = if long { 8 } else { 7 };
    words(operation, from, to, lens[((operation * 5 + u64::from(from) * 3 + u64::from(to)) % kinds) as usize])
}

fn end(mut work: UnevenWork<'_>, node: &mut Node) -> (MpiResult<Rest>, Option<MpiError>) {
    let result = until(|| work.poll(node));
    (result, work.into_fault())
}

/// Executes a call in the way of a short one, if `is_brief` and it begins as one, and otherwise, or if it turns out to be unusual, in the
/// other.
fn end_either(
    call: Uneven,
    operands: &Operands,
    is_brief: bool,
    node: &mut Node,
) -> (MpiResult<Rest>, Option<MpiError>) {
    let block = |buffer: &Buffer| (buffer.as_contiguous().unwrap_or(std::ptr::null_mut()), buffer.len());
    let to = |member: u32| match call {
        Uneven::Gather { .. } => block(&operands.send.buffer),
        _ => operands.send_to.get(member as usize).map_or((std::ptr::null_mut(), 0), block),
    };
    let from = |member: u32| match call {
        Uneven::Scatter { .. } => block(&operands.recv.buffer),
        _ => operands.recv_from.get(member as usize).map_or((std::ptr::null_mut(), 0), block),
    };
    // SAFETY: the operands are lent for longer.
    let brief = unsafe { UnevenBrief::new(call, to, from, node) };
    if let Some(brief) = brief.filter(|_| is_brief) {
        let mut met = Met::default();
        match until(|| brief.poll(node, &mut met)) {
            Ok(true) => return (Ok(Rest::Nothing), None),
            Ok(false) => {}
            Err(error) => return (Err(error), None),
        }
    }
    end(UnevenWork::new(call, operands, node), node)
}

fn lend_all(blocks: &mut [Vec<u32>]) -> Box<[Buffer]> {
    blocks.iter_mut().map(|words| lend(words).buffer).collect()
}

/// One alltoall, with the result and the words that were received and expected. If `long`, some blocks are longer than a slot.
fn exchange(
    operation: u64,
    in_place: bool,
    long: bool,
    node: &mut Node,
) -> (MpiResult<Rest>, Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let (me, members) = (node.rank, node.size());
    // In place, two members have blocks of one length for each other. Every third operation, one member has short blocks alone.
    let of = |from: u32, to: u32| {
        let (low, high) = if in_place { (from.min(to), from.max(to)) } else { (from, to) };
        let long = long && (in_place || !operation.is_multiple_of(3) || from > 0);
        words(operation, from, to, block(operation, low, high, long).len() as u64)
    };
    let mut send: Vec<Vec<u32>> = (0..members).map(|to| of(me, to)).collect();
    let after: Vec<Vec<u32>> = (0..members).map(|from| of(from, me)).collect();
    let mut recv: Vec<Vec<u32>> = after.iter().map(|words| vec![0; words.len()]).collect();
    if in_place {
        recv.clone_from(&send);
        send.clear();
    }
    let operands = Operands { send_to: lend_all(&mut send), recv_from: lend_all(&mut recv), ..Operands::default() };
    let is_brief = !in_place && !(operation + u64::from(me)).is_multiple_of(3);
    let (result, fault) = end_either(Uneven::Alltoall { in_place }, &operands, is_brief, node);
    assert_eq!(fault, None);
    (result, recv, after)
}

#[test]
fn members_exchange_blocks_whose_lengths_only_two_of_them_know() {
    for members in [2, 3, 7] {
        together(members, |node| {
            for operation in 0..60 {
                let (result, got, expected) = exchange(operation, operation % 4 == 3, false, node);
                assert_eq!(result, Ok(Rest::Nothing));
                assert!(got == expected, "{operation} at {} of {members}", node.rank);
            }
        });
    }
}

#[test]
fn members_read_long_blocks_from_each_other_whichever_of_them_has_any() {
    for members in [2, 3, 7] {
        together(members, |node| {
            node.pull(true);
            for operation in 0..60 {
                let (result, got, expected) = exchange(operation, operation % 4 == 3, true, node);
                assert_eq!(result, Ok(Rest::Nothing));
                assert!(got == expected, "{operation} at {} of {members}", node.rank);
            }
            assert!(node.pulls());
        });
    }
}

#[test]
fn if_one_member_cannot_be_read_all_send_messages_and_blocks_in_place_are_as_before() {
    for in_place in [false, true] {
        together(3, |node| {
            node.pull(true);
            if node.rank == 0 {
                // Nothing has this pid, and this member has a long block for the last one.
                node.pid = i32::MAX as u32;
            }
            let (result, got, expected) = exchange(1, in_place, true, node);
            assert_eq!((result, node.pulls()), (Ok(Rest::All), false));
            let before = |from: u32| match in_place {
                true => words(1, node.rank, from, got[from as usize].len() as u64),
                false => expected[from as usize].clone(),
            };
            assert!(!in_place || (0..3).all(|from| from == node.rank || got[from as usize] == before(from)));
            // Those that are short enough go on through slots.
            let mut send = vec![words(2, node.rank, 9, 3); 3];
            let mut recv = vec![vec![0; 3]; 3];
            let operands =
                Operands { send_to: lend_all(&mut send), recv_from: lend_all(&mut recv), ..Operands::default() };
            let ended = end_either(Uneven::Alltoall { in_place: false }, &operands, false, node);
            assert_eq!(ended, (Ok(Rest::Nothing), None));
            assert!((0..3).all(|from| recv[from as usize] == words(2, from, 9, 3)));
        });
    }
}

#[test]
fn a_member_that_has_nothing_to_give_goes_the_same_way_as_the_one_that_has() {
    for (members, pulls) in [(2, false), (2, true), (3, false), (3, true)] {
        for bytes in [4096, 4100, 8192, 32_768, 32_772, 40_000, 65_528, 65_532, 200_000] {
            let (results, _) = together_with(64 << 10, members, |node| {
                node.pull(pulls);
                let count = |from: u32, to: u32| if (from, to) == (1, 0) { bytes / 4 } else { 0 };
                let mut send: Vec<_> = (0..members).map(|to| words(1, node.rank, to, count(node.rank, to))).collect();
                let mut recv: Vec<_> = (0..members).map(|from| vec![0; count(from, node.rank) as usize]).collect();
                let operands =
                    Operands { send_to: lend_all(&mut send), recv_from: lend_all(&mut recv), ..Operands::default() };
                let (result, fault) = end_either(Uneven::Alltoall { in_place: false }, &operands, true, node);
                assert_eq!(fault, None);
                if result == Ok(Rest::Nothing) && node.rank == 0 {
                    assert!(recv[1] == words(1, 1, 0, count(1, 0)), "{bytes}");
                }
                result.unwrap()
            });
            let expected =
                if pulls || bytes <= 32_768 || members == 2 && bytes < 65_532 { Rest::Nothing } else { Rest::All };
            assert!(results.iter().all(|result| *result == expected), "{bytes} of {members}, {pulls}: {results:?}");
        }
    }
}

#[test]
fn blocks_that_do_not_fit_are_left_to_messages() {
    for members in [2, 3, 7] {
        together(members, |node| {
            let me = node.rank;
            for operation in 0..60 {
                let root = (operation % u64::from(members)) as u32;
                let mut own = block(operation, me, 9, true);
                let mut recv: Vec<Vec<u32>> = match me == root {
                    true => (0..members).map(|from| vec![0; block(operation, from, 9, true).len()]).collect(),
                    false => Vec::new(),
                };
                let operands = Operands { send: lend(&mut own), recv_from: lend_all(&mut recv), ..Operands::default() };
                let is_brief = (operation + u64::from(me)) % 3 > 0;
                let ended = end_either(Uneven::Gather { root, in_place: false }, &operands, is_brief, node);
                let is_long = |member: &u32| block(operation, *member, 9, true).len() > SLOT / 4;
                let rest: Vec<u32> =
                    (0..members).filter(|it| *it != root && (me == root || *it == me) && is_long(it)).collect();
                let expected = if rest.is_empty() { Rest::Nothing } else { Rest::Of(rest) };
                assert_eq!(ended, (Ok(expected), None));
                for (from, got) in (0..).zip(&recv) {
                    assert!(from != root && is_long(&from) || *got == block(operation, from, 9, true));
                }

                let mut send: Vec<Vec<u32>> = match me == root {
                    true => (0..members).map(|to| block(operation, 11, to, true)).collect(),
                    false => Vec::new(),
                };
                let after = block(operation, 11, me, true);
                let mut got = vec![0; after.len()];
                let operands = Operands { recv: lend(&mut got), send_to: lend_all(&mut send), ..Operands::default() };
                let (result, fault) = end_either(Uneven::Scatter { root, in_place: false }, &operands, is_brief, node);
                let is_long = |member: &u32| block(operation, 11, *member, true).len() > SLOT / 4;
                assert_eq!(fault, None);
                match result.unwrap() {
                    Rest::Nothing => assert!(me == root || got == after, "{operation} at {me}"),
                    Rest::Of(rest) => assert!(!rest.is_empty() && rest.iter().all(is_long), "{rest:?}"),
                    Rest::All => panic!("a scatter is never left to messages as a whole"),
                }
            }
        });
    }
}

#[test]
fn a_block_of_another_length_is_an_error_at_its_receiver_alone() {
    for is_brief in [false, true] {
        let (results, _) = together(3, |node| {
            let me = node.rank;
            let mut send: Vec<Vec<u32>> =
                (0..3).map(|to| words(1, me, to, if (me, to) == (0, 2) { 5 } else { 4 })).collect();
            let mut recv: Vec<Vec<u32>> = vec![vec![0; 4]; 3];
            let operands =
                Operands { send_to: lend_all(&mut send), recv_from: lend_all(&mut recv), ..Operands::default() };
            let (result, fault) = end_either(Uneven::Alltoall { in_place: false }, &operands, is_brief, node);
            assert_eq!((result, &recv[1]), (Ok(Rest::Nothing), &words(1, 1, me, 4)));
            fault.map(|fault| fault.text.into_owned())
        });
        assert_eq!(results, [None, None, Some("the block from rank 0 has 20 bytes; 16 were expected".to_owned())]);
    }
}

#[test]
fn a_member_that_leaves_garbage_leads_no_other_out_of_its_slot() {
    for garbage in [0, 64, u64::from(u32::MAX)] {
        let (results, _) = together(2, |node| {
            if node.rank == 1 {
                // It claims a block of 1 MiB, in a slot of 4 KiB.
                let stamp = crate::coll::node::uneven::stamp(Uneven::Alltoall { in_place: false }, garbage);
                node.arrive(stamp, 8, false, |slot| slot.put(0, (1_u64 << 20).to_ne_bytes()));
                return true;
            }
            let mut recv = vec![vec![7_u32; 2], vec![7; 1 << 18]];
            let mut send = vec![vec![1_u32; 2], vec![1; 2]];
            let operands =
                Operands { send_to: lend_all(&mut send), recv_from: lend_all(&mut recv), ..Operands::default() };
            // It may bring anything into its memory, but ends.
            let _ = end_either(Uneven::Alltoall { in_place: false }, &operands, true, node);
            recv[1][2048..].iter().all(|word| *word == 7)
        });
        assert_eq!(results, [true, true], "{garbage}");
    }
}

/// One member calls something else; the others have long blocks, which go as messages.
fn beside_another_call(rooted: Uneven, node: &mut Node) -> (MpiResult<Rest>, Option<MpiError>) {
    if node.rank == 2 {
        let (call, operands) = (Call::Barrier, Operands::default());
        let ended = wait(&mut Work::new(call, &operands, None, None, node.shape()), node);
        return (ended.map(|()| Rest::Nothing), None);
    }
    let (mut own, mut all) = (vec![node.rank; SLOT], vec![vec![7; SLOT]; 3]);
    let blocks = |all: &mut [Vec<u32>]| if node.rank == 0 { lend_all(all) } else { [].into() };
    let operands = match rooted {
        Uneven::Gather { .. } => Operands { send: lend(&mut own), recv_from: blocks(&mut all), ..Operands::default() },
        _ => Operands { recv: lend(&mut own), send_to: blocks(&mut all), ..Operands::default() },
    };
    end(UnevenWork::new(rooted, &operands, node), node)
}

#[test]
fn a_member_that_calls_something_else_does_not_keep_the_others_from_their_long_blocks() {
    let (root, in_place) = (0, false);
    for rooted in [Uneven::Gather { root, in_place }, Uneven::Scatter { root, in_place }] {
        let (results, _) = together(3, |node| beside_another_call(rooted, node));
        let [(root, fault), (member, none), (other, _)] = &results[..] else { unreachable!("three members") };
        // Otherwise one of these two would wait for the other one's message forever.
        assert_eq!((root, member, none), (&Ok(Rest::Of(vec![1])), &Ok(Rest::Of(vec![1])), &None));
        let text = "rank 2 called a different collective function, or passed a different length or root";
        assert_eq!(fault.as_ref().unwrap().text, text);
        assert!(other.is_err());
    }
}
