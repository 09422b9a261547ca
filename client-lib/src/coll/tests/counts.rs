//! The algorithms cost what their documentation says.

use std::cell::OnceCell;

use super::super::choice::Algorithm as By;
use super::super::choice::algorithms::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan,
};
use super::super::layout::Layout;
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

fn case(kind: Kind, size: u32, how: By, count: u64, op: Op) -> Case {
    Case {
        kind,
        size,
        layout: Layout::apart(size),
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

        let (messages, bytes, rounds, _) = of(Kind::Barrier, By::Barrier(Barrier::Dissemination(2)));
        assert_eq!((messages, bytes, rounds), (n * ceil, 0, log as usize));
        let messages = of(Kind::Barrier, By::Barrier(Barrier::Root)).0;
        assert_eq!(messages, 2 * (n - 1));
        let (messages, bytes, ..) = of(Kind::Allgather, By::Allgather(Allgather::Root));
        assert!(messages == 2 * (n - 1) && bytes <= (n - 1) * n * block + n * block * ceil, "{size}: {bytes} bytes");
        let (messages, bytes, ..) = of(Kind::Bcast, By::Bcast(Bcast::Tree(2)));
        assert_eq!((messages, bytes), (n - 1, (n - 1) * block));
        let (_, _, rounds, most) =
            cost(&case(Kind::Bcast, size, By::Bcast(Bcast::ScatterAllgather), count * n, Op::Sum));
        assert!(most <= 2 * n * block + block && rounds as u64 <= ceil + n, "{size}: {rounds} rounds, {most} bytes");
        if size <= 5 {
            // Five segments: more ranks would not use the pipeline.
            let (_, bytes, rounds, most) = of(Kind::Bcast, By::Bcast(Bcast::Pipeline(1, 1 + block / 5)));
            assert_eq!((bytes, most), ((n - 1) * block, block));
            assert!(rounds <= 6);
        }
        for (kind, by) in [(Kind::Gather, By::Gather as fn(Gather) -> By), (Kind::Scatter, By::Scatter)] {
            let (messages, bytes, ..) = of(kind, by(Gather::Tree(2)));
            assert!(messages == n - 1 || messages == n, "{messages} messages");
            assert!(bytes <= n * block * ceil);
            let (messages, bytes, rounds, _) = of(kind, by(Gather::Linear));
            assert_eq!((messages, bytes, rounds), (n - 1, (n - 1) * block, 1));
        }
        for (how, steps) in [(Allgather::Logarithmic(2), ceil), (Allgather::Ring, n - 1)] {
            let (messages, bytes, rounds, most) = of(Kind::Allgather, By::Allgather(how));
            assert_eq!((messages, bytes, most), (n * steps, n * (n - 1) * block, (n - 1) * block));
            assert_eq!(rounds as u64, steps);
        }
        let (messages, bytes, rounds, most) = of(Kind::Allgather, By::Allgather(Allgather::Spread));
        assert_eq!((messages, bytes), (n * (n - 1), n * (n - 1) * block));
        assert_eq!((rounds, most), (usize::from(n > 1), (n - 1) * block));
        let (messages, _, rounds, most) = of(Kind::Alltoall, By::Alltoall(Alltoall::Bruck(2)));
        assert_eq!((messages, rounds), (n * ceil, log as usize));
        assert!(most <= ceil * (n / 2) * block);
        let (messages, bytes, rounds, _) = of(Kind::Alltoall, By::Alltoall(Alltoall::Spread(3)));
        assert_eq!((messages, bytes, rounds), (n * (n - 1), n * (n - 1) * block, (size as usize - 1).div_ceil(3)));

        // 33 × 16 elements.
        let (count, vector) = (528, 528 * 8);
        let of = |kind, how, op| cost(&case(kind, size, how, count, op));
        let power = 1 << floor;
        let (messages, bytes, ..) = of(Kind::Reduce, By::Reduce(Reduce::Tree(2)), Op::Compose);
        assert_eq!((messages, bytes), (n - u64::from(size < 3), (n - u64::from(size < 3)) * vector));
        let (messages, bytes, rounds, _) = of(Kind::Allreduce, By::Allreduce(Allreduce::Multiplying(2)), Op::Compose);
        assert_eq!(messages, power * floor + 2 * (n - power));
        assert_eq!(bytes, messages * vector);
        assert_eq!(rounds as u64, floor + 2 * odd);
        let halvings = [By::Reduce(Reduce::Halving), By::Allreduce(Allreduce::Halving)];
        for (kind, how) in [Kind::Reduce, Kind::Allreduce].into_iter().zip(halvings) {
            let (_, _, rounds, most) = of(kind, how, Op::Compose);
            assert!(rounds as u64 <= 2 * floor + 2 * odd, "{kind:?} {size}: {rounds} rounds");
            assert!(most <= (2 + odd) * vector);
        }
        let (_, bytes, rounds, _) = of(Kind::ReduceScatterBlock, By::ReduceScatter(ReduceScatter::Spread), Op::Compose);
        assert_eq!((bytes, rounds as u64), (n * (n - 1) * vector, n - 1));
        let halving = By::ReduceScatter(ReduceScatter::Halving);
        let (messages, bytes, rounds, most) = cost(&case(Kind::ReduceScatterBlock, size, halving, count, Op::Sum));
        assert_eq!((bytes, rounds as u64), (n * (n - 1) * 528 * 4, ceil));
        assert!(messages <= n * ceil && most <= n * 528 * 4, "{size}: {messages} messages, {most} bytes");
        let (messages, ..) = of(Kind::Scan, By::Scan(Scan::Doubling), Op::Compose);
        assert_eq!(messages, (0..log).map(|round| n - (1 << round)).sum::<u64>());
        let (_, _, rounds, _) = of(Kind::Exscan, By::Exscan(Scan::Doubling), Op::Compose);
        assert_eq!(rounds as u32, 1 + (size - 1).next_power_of_two().ilog2());

        // Radix 4, and the other ways to combine.
        let four = (0..).take_while(|power| 4_u64.pow(*power) < n).count();
        let rounds = of(Kind::Barrier, By::Barrier(Barrier::Dissemination(4)), Op::Sum).2;
        assert_eq!(rounds, four);
        let (messages, bytes, rounds, _) = of(Kind::Allgather, By::Allgather(Allgather::Logarithmic(4)), Op::Sum);
        assert_eq!((bytes, rounds), (n * (n - 1) * 528 * 6, four));
        assert!(messages <= n * 3 * four as u64);
        let (_, _, rounds, _) = of(Kind::Alltoall, By::Alltoall(Alltoall::Bruck(4)), Op::Sum);
        assert_eq!(rounds, four);
        for how in [Bcast::Tree(4), Bcast::Tree(33)] {
            assert_eq!(of(Kind::Bcast, By::Bcast(how), Op::Sum).0, n - 1);
        }
        let (_, _, rounds, most) = of(Kind::Bcast, By::Bcast(Bcast::ScatterBruck), Op::Sum);
        assert!(rounds as u64 <= 2 * ceil + 1 && most <= 2 * 528 * 6 + 64 * n, "{size}: {rounds} rounds, {most} bytes");
        let vector = 528 * 4;
        let (_, bytes, rounds, most) = of(Kind::Allreduce, By::Allreduce(Allreduce::Ring), Op::Sum);
        assert_eq!((bytes, rounds as u64), (2 * (n - 1) * vector, 2 * (n - 1)));
        assert!(most < 2 * vector);
        for (kind, how) in [
            (Kind::Allreduce, By::Allreduce(Allreduce::ScatterGather)),
            (Kind::Reduce, By::Reduce(Reduce::ScatterGather)),
        ] {
            let (_, _, rounds, most) = of(kind, how, Op::Sum);
            assert!(
                rounds as u64 <= 2 * ceil + 1 && most <= 2 * vector,
                "{kind:?} {size}: {rounds} rounds, {most} bytes"
            );
        }
        for (kind, how) in [
            (Kind::Reduce, By::Reduce(Reduce::Pipeline(vector / 4))),
            (Kind::Scan, By::Scan(Scan::Chain(vector / 4))),
            (Kind::Exscan, By::Exscan(Scan::Chain(vector / 4))),
        ] {
            let (_, bytes, _, most) = of(kind, how, Op::Sum);
            assert_eq!((bytes, most), ((n - 1) * vector, vector), "{kind:?} {size}");
        }
    }
}

#[test]
fn a_thousand_ranks_on_nodes_take_few_rounds() {
    for (nodes, each) in [(125, 8), (64, 16), (1000, 1)] {
        let layout = Layout::blocks(nodes, each);
        let n = layout.size();
        let rounds = |case: &Case| {
            let waits = |rank: u32| {
                let schedule = case.schedule(Here::new(rank, n));
                schedule.actions().iter().filter(|step| matches!(step, Action::Wait)).count()
            };
            [0, 1, n / 2, n - 1].map(waits).into_iter().max().unwrap_or(0)
        };
        for (kind, count) in
            [(Kind::Allgather, 11), (Kind::Bcast, 6000), (Kind::ReduceScatterBlock, 1), (Kind::Allreduce, 4000)]
        {
            let how = By::Barrier(Barrier::Leaders);
            let case = Case { how: None, layout: layout.clone(), ..case(kind, n, how, count, Op::Sum) };
            let rounds = rounds(&case);
            assert!(rounds <= 50, "{kind:?} of {nodes} × {each}: {rounds} rounds");
        }
    }
}

#[test]
fn ranks_that_share_processors_send_fewest_messages() {
    for size in 3..=33 {
        let of = |kind, is_crowded: bool| {
            let how = By::Barrier(Barrier::Root);
            let case = case(kind, size, how, 1, Op::Sum);
            cost(&Case { layout: Layout::apart(size).crowded(is_crowded), how: None, ..case }).0
        };
        let most = 2 * (u64::from(size) - 1);
        for kind in [Kind::Barrier, Kind::Allgather, Kind::Allgatherv, Kind::Allreduce, Kind::ReduceScatterBlock] {
            let (crowded, apart) = (of(kind, true), of(kind, false));
            assert!(crowded <= most && crowded <= apart, "{kind:?} of {size}: {crowded} messages, {apart} otherwise");
        }
        for kind in [Kind::Scan, Kind::Exscan] {
            assert_eq!(of(kind, true), u64::from(size) - 1, "{kind:?} of {size}");
        }
        assert!(of(Kind::Alltoall, true) <= of(Kind::Alltoall, false), "alltoall of {size}");
        // Two ranks on each node: they gather and broadcast, and the leaders take few messages, too.
        let case = case(Kind::Allgather, 2 * size, By::Barrier(Barrier::Root), 1, Op::Sum);
        let (messages, ..) = cost(&Case { layout: Layout::blocks(size, 2).crowded(true), how: None, ..case });
        let (size, log) = (u64::from(size), u64::from(size.next_power_of_two().ilog2()));
        assert!(messages <= 2 * size + size * log, "allgather of {size} nodes: {messages} messages");
    }
}
