//! The description of a job, which every client is sent when it starts: its size and the time to make it grow with the number of ranks,
//! not faster. `cargo test -p rsd-core --test=pmix costs -- --nocapture` prints the figures.

use std::time::{Duration, Instant};

use rsd_proto::pmix::{Codec, Request};

use crate::bench::{job, job_with};

/// The jobs whose growth is measured: all ranks on one node.
const RANKS: [u32; 3] = [64, 256, 1024];

/// The bytes of a description, the shortest time until a client of a new job has it, and until the next client has it.
fn cost(ranks: &[u32], codec: Codec) -> (usize, Duration, Duration) {
    const TAG: u32 = 1;
    let mut shortest = [Duration::MAX; 2];
    let mut bytes = 0;
    for _ in 0..5 {
        // The other nodes' steps cost nothing here.
        let mut node = job_with(ranks, |_| {}).swap_remove(0);
        for (rank, shortest) in shortest.iter_mut().enumerate() {
            let client = node.connect(rank as u32, codec);
            let start = Instant::now();
            node.ask(client, TAG, &Request::JobInfo);
            *shortest = start.elapsed().min(*shortest);
            bytes = node.answer_bytes(client, TAG).expect("an answer at once");
        }
    }
    (bytes, shortest[0], shortest[1])
}

#[test]
fn the_description_of_a_job_costs_its_ranks() {
    for codec in [Codec::V3, Codec::V41] {
        let told = |name: &str, ranks: u32, (bytes, first, next): (usize, Duration, Duration)| {
            let each = bytes as f64 / f64::from(ranks);
            println!(
                "{codec:?}, {name}: {bytes} bytes, {each:.0} for each rank; encoded in {first:?}, again in {next:?}"
            );
        };
        let costs = RANKS.map(|ranks| (ranks, cost(&[ranks], codec)));
        costs.iter().for_each(|(ranks, cost)| told(&format!("{ranks} ranks on one node"), *ranks, *cost));
        told("64 ranks on 16 nodes", 64, cost(&[4; 16], codec));
        for pair in costs.windows(2) {
            let [(few, least), (many, most)] = [pair[0], pair[1]];
            let growth = f64::from(many) / f64::from(few);
            assert!(most.0 as f64 <= 1.1 * growth * least.0 as f64, "{least:?} with {few} ranks, {most:?} with {many}");
            // Far less than the square; time varies with the machine.
            let slack = 3.0 * growth * least.1.as_secs_f64();
            assert!(most.1.as_secs_f64() < slack, "{least:?} with {few} ranks, {most:?} with {many}");
            assert!(most.2 <= most.1, "a second client costs no new description: {most:?}");
        }
    }
}

/// The descriptions of all clients of a node are one.
#[test]
fn all_clients_of_a_node_are_sent_the_same_bytes() {
    let mut node = job(&[8]).swap_remove(0);
    let sizes: Vec<_> = (0..8)
        .map(|rank| {
            let client = node.connect(rank, Codec::V41);
            node.ask(client, 1, &Request::JobInfo);
            node.answer_bytes(client, 1)
        })
        .collect();
    assert!(sizes[0].is_some() && sizes.windows(2).all(|pair| pair[0] == pair[1]), "{sizes:?}");
}
