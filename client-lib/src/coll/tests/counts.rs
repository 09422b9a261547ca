//! The algorithms cost what their documentation says.

use std::cell::OnceCell;

use super::super::schedule::{Action, Here, Schedule};
use super::case::{Case, Kind};
use super::fold::Op;

/// Messages and bytes that all ranks send, the most rounds of one rank, and the most bytes sent by one rank.
fn cost(case: &Case) -> (u64, u64, usize, u64) {
    let schedules: Vec<Schedule> = (0..case.size).map(|rank| case.schedule(Here::new(rank, case.size))).collect();
    let sent = |schedule: &Schedule| -> (u64, u64) {
        schedule.actions().iter().fold((0, 0), |(messages, bytes), step| match step {
            Action::Send { from, .. } => (messages + 1, bytes + from.len),
            _ => (messages, bytes),
        })
    };
    let waits = |schedule: &Schedule| schedule.actions().iter().filter(|step| matches!(step, Action::Wait)).count();
    (
        schedules.iter().map(|schedule| sent(schedule).0).sum(),
        schedules.iter().map(|schedule| sent(schedule).1).sum(),
        schedules.iter().map(waits).max().unwrap_or(0),
        schedules.iter().map(|schedule| sent(schedule).1).max().unwrap_or(0),
    )
}

fn case(kind: Kind, size: u32, how: usize, count: u64, op: Op) -> Case {
    Case {
        kind,
        size,
        root: size / 3,
        in_place: false,
        count,
        uneven: false,
        op,
        holes: [false; 2],
        how: Some(how),
        user: false,
        seed: 1,
        prefixes: OnceCell::new(),
    }
}

#[test]
fn algorithms_cost_what_their_documentation_says() {
    for size in 2..=33_u32 {
        let n = u64::from(size);
        let log = size.next_power_of_two().ilog2();
        let (ceil, floor) = (u64::from(log), u64::from(size.ilog2()));
        let odd = u64::from(!size.is_power_of_two());
        // 128 elements of 6 bytes for each rank.
        let (count, block) = (128, 128 * 6);
        let of = |kind, how| cost(&case(kind, size, how, count, Op::Sum));

        let (messages, bytes, rounds, _) = of(Kind::Barrier, 0);
        assert_eq!((messages, bytes, rounds), (n * ceil, 0, log as usize));
        let (messages, bytes, ..) = of(Kind::Bcast, 0);
        assert_eq!((messages, bytes), (n - 1, (n - 1) * block));
        let (_, _, rounds, most) = cost(&case(Kind::Bcast, size, 1, count * n, Op::Sum));
        assert!(most <= 2 * n * block + block && rounds as u64 <= ceil + n, "{size}: {rounds} rounds, {most} bytes");
        if size <= 5 {
            // Five segments: more ranks would not use the pipeline.
            let (_, bytes, rounds, most) = of(Kind::Bcast, 2);
            assert_eq!((bytes, most), ((n - 1) * block, block));
            assert!(rounds <= 6);
        }
        for kind in [Kind::Gather, Kind::Scatter] {
            let (messages, bytes, ..) = of(kind, 0);
            assert!(messages == n - 1 || messages == n, "{messages} messages");
            assert!(bytes <= n * block * ceil);
            let (messages, bytes, rounds, _) = of(kind, 1);
            assert_eq!((messages, bytes, rounds), (n - 1, (n - 1) * block, 1));
        }
        for (how, steps) in [(0, ceil), (1, n - 1), (2, ceil)] {
            let (messages, bytes, rounds, most) = of(Kind::Allgather, how);
            assert_eq!((messages, bytes, most), (n * steps, n * (n - 1) * block, (n - 1) * block));
            assert_eq!(rounds as u64, steps);
        }
        let (messages, _, rounds, most) = of(Kind::Alltoall, 0);
        assert_eq!((messages, rounds), (n * ceil, log as usize));
        assert!(most <= ceil * (n / 2) * block);
        let (messages, bytes, rounds, _) = of(Kind::Alltoall, 1);
        assert_eq!((messages, bytes, rounds), (n * (n - 1), n * (n - 1) * block, (size as usize - 1).div_ceil(3)));

        // 33 × 16 elements.
        let (count, vector) = (528, 528 * 8);
        let of = |kind, how, op| cost(&case(kind, size, how, count, op));
        let power = 1 << floor;
        let (messages, bytes, ..) = of(Kind::Reduce, 0, Op::Compose);
        assert_eq!((messages, bytes), (n - u64::from(size < 3), (n - u64::from(size < 3)) * vector));
        let (messages, bytes, rounds, _) = of(Kind::Allreduce, 0, Op::Compose);
        assert_eq!(messages, power * floor + 2 * (n - power));
        assert_eq!(bytes, messages * vector);
        assert_eq!(rounds as u64, floor + 2 * odd);
        for kind in [Kind::Reduce, Kind::Allreduce] {
            let (_, _, rounds, most) = of(kind, 1, Op::Compose);
            assert!(rounds as u64 <= 2 * floor + 2 * odd, "{kind:?} {size}: {rounds} rounds");
            assert!(most <= (2 + odd) * vector);
        }
        let (_, bytes, rounds, _) = of(Kind::ReduceScatterBlock, 2, Op::Compose);
        assert_eq!((bytes, rounds as u64), (n * (n - 1) * vector, n - 1));
        if odd == 0 {
            let (messages, bytes, ..) = cost(&case(Kind::ReduceScatterBlock, size, 1, count, Op::Sum));
            assert_eq!((messages, bytes), (n * floor, n * (n - 1) * 528 * 4));
        }
        let (messages, ..) = of(Kind::Scan, 0, Op::Compose);
        assert_eq!(messages, (0..log).map(|round| n - (1 << round)).sum::<u64>());
        let (_, _, rounds, _) = of(Kind::Exscan, 0, Op::Compose);
        assert_eq!(rounds as u32, 1 + (size - 1).next_power_of_two().ilog2());
    }
}
