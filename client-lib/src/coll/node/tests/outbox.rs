//! Non-blocking calls of members in threads.

use super::*;
use crate::abi::constants::MPI_ERR_PROC_ABORTED;

/// A call in progress, and the memory that it uses.
struct Open {
    begun: Option<Begun>,
    call: Call,
    _send: Vec<u32>,
    recv: Vec<u32>,
    after: Vec<u32>,
}

fn outbox(node: &Node) -> Outbox {
    node.outbox(Box::new(|| ()))
}

fn start(outbox: &mut Outbox, call: Call, mut send: Vec<u32>, mut recv: Vec<u32>, after: Vec<u32>) -> Open {
    let mut operands = Operands { send: lend(&mut send), recv: lend(&mut recv), ..Operands::default() };
    let begun = Some(outbox.start(call, &mut operands, &mut Some(sum()), None));
    Open { begun, call, _send: send, recv, after }
}

/// Waits for a call.
fn end(outbox: &mut Outbox, open: &mut Open) -> MpiResult {
    match open.begun.take() {
        Some(Begun::Over(result)) => result,
        Some(Begun::Pending(number)) => until(|| {
            outbox.poll();
            outbox.take(number)
        }),
        None => panic!("it has ended before"),
    }
}

#[test]
fn calls_end_in_any_order_and_a_member_may_be_far_ahead() {
    for members in [2, 3, 5, 16] {
        let (counts, _) = together(members, |node| {
            let (mut outbox, mut open) = (outbox(node), Vec::new());
            let mut random = u64::from(node.rank) + 7;
            let mut next = |below: usize| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (random >> 33) as usize % below
            };
            let mut count = 0;
            for operation in 0..if members == 16 { 300 } else { 1500 } {
                let (call, send, recv, after) = call(operation, node.rank, members);
                if !outbox.fits(call, Some(&sum()), true) {
                    continue;
                }
                count += 1;
                open.push(start(&mut outbox, call, send, recv, after));
                // More than there are places, and now and then none.
                let most = [40, 3, 1, 20][operation as usize / 100 % 4];
                while open.len() > next(most) {
                    let mut one = open.swap_remove(next(open.len()));
                    assert_eq!(end(&mut outbox, &mut one), Ok(()), "{:?}", one.call);
                    assert!(one.recv == one.after, "{:?} on {} of {members}", one.call, node.rank);
                }
                if operation % 50 == 0 {
                    // A member that waits in a blocking call goes on with the others.
                    let nothing = Operands::default();
                    let mut barrier = Work::new(Call::Barrier, &nothing, None, None, node.shape());
                    let result = until(|| {
                        outbox.poll();
                        barrier.poll(node)
                    });
                    assert_eq!(result, Ok(()));
                }
            }
            for mut one in open.drain(..).rev() {
                assert_eq!(end(&mut outbox, &mut one), Ok(()));
                assert!(one.recv == one.after);
            }
            assert!(outbox.is_empty() && outbox.pending() == 0);
            count
        });
        assert!(counts.iter().all(|count| *count == counts[0] && *count > 100), "{counts:?}");
    }
}

#[test]
fn a_root_that_only_sends_is_done_at_once_and_waits_when_it_is_too_far_ahead() {
    together(2, |node| {
        let mut outbox = outbox(node);
        let mut calls: Vec<Open> = Vec::new();
        if node.rank == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        for operation in 0..3 * POSTS as u32 {
            let data = vec![operation; 20];
            let recv = if node.rank == 0 { data.clone() } else { vec![0; 20] };
            calls.push(start(&mut outbox, Call::Bcast { root: 0, len: 80 }, vec![], recv, data));
        }
        if node.rank == 0 {
            let at_once = calls.iter().take_while(|one| matches!(one.begun, Some(Begun::Over(Ok(()))))).count();
            assert!(at_once >= POSTS as usize, "{at_once}");
        }
        for one in calls.iter_mut().rev() {
            assert_eq!(end(&mut outbox, one), Ok(()));
            assert_eq!(one.recv, one.after);
        }
    });
}

#[test]
fn different_calls_and_invalid_arguments_are_noticed_by_those_that_depend_on_them() {
    for refuses in [false, true] {
        let (results, _) = together(3, |node| {
            let mut outbox = outbox(node);
            let call = Call::Allgather { block: 4, in_place: false };
            if node.rank == 1 && refuses {
                let fault = Some(MpiError::count("negative"));
                let begun = outbox.start(call, &mut Operands::default(), &mut None, fault);
                assert!(matches!(begun, Begun::Over(Err(_))), "{begun:?}");
                return Err(MpiError::count("negative"));
            }
            let call = if node.rank == 1 { Call::Barrier } else { call };
            let mut one = start(&mut outbox, call, vec![0; 1], vec![0; 3], vec![]);
            end(&mut outbox, &mut one)
        });
        let text = |rank: usize| results[rank].as_ref().unwrap_err().text.clone();
        let expected = if refuses { "rank 1 abandoned this operation" } else { "rank 1 called a different" };
        assert!(text(0).starts_with(expected) && text(2).starts_with(expected), "{results:?}");
    }
}

#[test]
fn after_the_death_of_a_member_only_calls_that_depend_on_it_fail() {
    let (results, _) = together(3, |node| {
        let mut outbox = outbox(node);
        if node.rank == 2 {
            return (Ok(()), Ok(()));
        }
        let mut sent = start(&mut outbox, Call::Bcast { root: 0, len: 4 }, vec![], vec![7; 1], vec![]);
        let mut all = start(&mut outbox, Call::Barrier, vec![], vec![], vec![]);
        let sent = end(&mut outbox, &mut sent);
        if node.rank == 0 {
            outbox.declare_broken(2);
        }
        (sent, end(&mut outbox, &mut all))
    });
    for (sent, all) in &results[..2] {
        assert_eq!(sent, &Ok(()));
        assert_eq!(all.as_ref().unwrap_err().class, MPI_ERR_PROC_ABORTED);
    }
}

#[test]
fn a_post_and_room_for_one_wake_a_sleeping_member() {
    let rung = Arc::new(AtomicUsize::new(0));
    let (_, _) = together(2, |node| {
        let rung = Arc::clone(&rung);
        let mut outbox = node.outbox(Box::new(move || _ = rung.fetch_add(1, Order::Relaxed)));
        outbox.announce_sleep(true);
        let mut one = start(&mut outbox, Call::Barrier, vec![], vec![], vec![]);
        assert_eq!(end(&mut outbox, &mut one), Ok(()));
        outbox.announce_sleep(false);
    });
    assert!(rung.load(Order::Relaxed) > 0);
}
