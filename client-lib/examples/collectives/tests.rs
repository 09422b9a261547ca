//! The tables are up to date and good.

use rsd_mpi::coll::choice::Algorithm;
use rsd_mpi::coll::{Here, Layout};

use crate::clock::{World, time};
use crate::grid::{Cell, KINDS, Kind, algorithms, cells};
use crate::machine::{ETHERNET, MACHINES, Machine};
use crate::record::{read, rounded};
use crate::search::{Outcome, STEPS, simulate};
use crate::{fitted, table};

const RECORD: &str = include_str!("../../../tests/bench/collectives/times.csv");
const TABLES: &str = include_str!("../../src/coll/choice/modelled.rs");

#[test]
fn the_tables_are_those_of_the_recorded_times() {
    assert!(table::module(&fitted(&read(RECORD))) == TABLES, "out of date: run cargo xtask bench collectives");
}

#[test]
fn the_recorded_times_are_those_of_the_schedules() {
    let rows = read(RECORD);
    let mut compared = 0;
    for (machine, row) in rows.iter().skip(5).step_by(23).filter(|(_, row)| row.cell.ranks() <= 600) {
        for (how, outcome) in algorithms(row.cell.kind).into_iter().zip(&row.outcomes) {
            let Outcome::Takes(recorded) = *outcome else { continue };
            let Outcome::Takes(now) = simulate(machine, &row.cell, how, 30_000) else { continue };
            assert_eq!(
                rounded(now),
                recorded as u64,
                "{how:?} of {:?} on {}: run cargo xtask bench collectives",
                row.cell,
                machine.name
            );
            compared += 1;
        }
    }
    assert!(compared > 300, "only {compared} compared");
}

#[test]
fn the_choice_takes_at_most_half_longer_than_the_fastest_algorithm() {
    let mut compared = 0;
    for kind in KINDS {
        for cell in cells(kind).iter().filter(|cell| cell.nodes > 1 && cell.ranks() <= 18) {
            compared += MACHINES.into_iter().map(|machine| good(machine, cell, 1.5)).sum::<u32>();
        }
    }
    assert!(compared > 500, "only {compared} compared");
}

#[test]
fn between_the_cells_of_the_search_the_choice_takes_at_most_twice_as_long() {
    for kind in KINDS {
        for (nodes, each) in [(8, 1), (3, 3), (6, 4)] {
            for bytes in [700, 9_000, 200_000, 3_000_000] {
                let cell = Cell { kind, nodes, each, bytes };
                if cell.is_real() {
                    for machine in MACHINES {
                        good(machine, &cell, 2.0);
                    }
                }
            }
        }
    }
}

/// Asserts that the choice does not take so many times as long as any algorithm; returns with how many it was compared.
fn good(machine: &Machine, cell: &Cell, most: f64) -> u32 {
    let run = |how: Algorithm| simulate(machine, cell, how, 60_000).time();
    let chosen = cell.call().algorithm(&Layout::blocks(cell.nodes, cell.each));
    let Some(taken) = run(chosen) else { return 0 };
    let mut compared = 0;
    for how in algorithms(cell.kind) {
        let Some(time) = run(how) else { continue };
        assert!(
            taken <= most * time,
            "{cell:?} on {}: {chosen:?} takes {taken:.0} ns, {how:?} {time:.0}",
            machine.name
        );
        compared += 1;
    }
    compared
}

#[test]
fn one_node_stands_for_all_if_they_do_the_same() {
    for kind in [Kind::Barrier, Kind::Allgather, Kind::Alltoall, Kind::Allreduce, Kind::ReduceScatter] {
        let (layout, cell) = (Layout::blocks(8, 4), Cell { kind, nodes: 8, each: 4, bytes: 4096 });
        for how in algorithms(kind) {
            let schedule = |rank: u32| cell.call().by(how, Here::new(rank, 32), &layout);
            let [folded, whole] = [World::Folded, World::Whole].map(|world| time(&ETHERNET, &layout, world, schedule));
            let (folded, whole) = (folded.expect("they do the same"), whole.expect("all are there"));
            assert!((folded / whole - 1.0).abs() < 0.1, "{how:?}: {folded} instead of {whole} ns");
        }
    }
}

#[test]
fn a_message_takes_what_the_machine_says() {
    let bytes = 4096.0;
    let cell = Cell { kind: Kind::Bcast, nodes: 2, each: 1, bytes: 4096 };
    let Outcome::Takes(took) = simulate(&ETHERNET, &cell, algorithms(Kind::Bcast)[0], STEPS) else {
        panic!("two ranks are few")
    };
    let (link, gap) = (ETHERNET.outside, ETHERNET.gap);
    let least = link.send + link.latency + link.recv + bytes / link.core;
    assert!(took >= least && took < least + gap + 100.0, "{took} instead of {least} ns");
}
