//! Distributed graphs: each process knows its own edges (MPI 5.0 §8.5.4).

use std::ffi::c_int;

use super::{ints, put_all, with_topology, without};
use crate::abi::constants::{MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY};
use crate::abi::{CommHandle, InfoHandle};
use crate::api::args::{self, check_place, elements, put};
use crate::api::coll::between_all;
use crate::error::{MpiError, MpiResult};
use crate::object::comm::Communicator;
use crate::object::topology::{Edges, Topology};
use crate::runtime::Runtime;

/// `MPI_Dist_graph_create_adjacent`. No hints are known, and ranks keep their order.
pub unsafe fn dist_graph_create_adjacent(
    rt: &Runtime,
    comm_old: CommHandle,
    indegree: c_int,
    sources: *const c_int,
    sourceweights: *const c_int,
    outdegree: c_int,
    destinations: *const c_int,
    destweights: *const c_int,
    info: InfoHandle,
    _reorder: c_int,
    comm_dist_graph: *mut CommHandle,
) -> MpiResult {
    check_place(comm_dist_graph)?;
    let mut guard = rt.lock();
    let parent = guard.comms.get(comm_old)?;
    parent.must_be_intra()?;
    guard.infos.hints(info)?;
    // SAFETY: the caller's promise.
    let edges = unsafe {
        let (sources, of_sources) = ends(parent, indegree, sources, sourceweights, "sources")?;
        let (destinations, of_destinations) = ends(parent, outdegree, destinations, destweights, "destinations")?;
        let weights = match (of_sources, of_destinations) {
            (Some(of_sources), Some(of_destinations)) => Some((of_sources, of_destinations)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(MpiError::arg("MPI_UNWEIGHTED must be passed for both directions or for none"));
            }
        };
        Edges { sources, destinations, weights }
    };
    let places: Vec<u32> = (0..parent.group().size()).collect();
    let made = with_topology(&mut guard, comm_old, &places, Topology::Distributed(edges))?;
    // SAFETY: the caller's promise.
    unsafe { put(comm_dist_graph, made) }
}

/// `MPI_Dist_graph_create`: every process may name any edges, and tells both ends of each. Neighbours are in the order of the ranks that
/// named them. Cost: two exchanges among all.
pub unsafe fn dist_graph_create(
    rt: &Runtime,
    comm_old: CommHandle,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights: *const c_int,
    info: InfoHandle,
    _reorder: c_int,
    comm_dist_graph: *mut CommHandle,
) -> MpiResult {
    check_place(comm_dist_graph)?;
    let mut guard = rt.lock();
    let parent = guard.comms.get(comm_old)?;
    parent.must_be_intra()?;
    guard.infos.hints(info)?;
    let size = parent.group().size();
    // SAFETY: the caller's promise.
    let named = unsafe { named_edges(parent, n, sources, degrees, destinations, weights)? };
    let mut told: Vec<Vec<i32>> = vec![vec![i32::from(named.are_weighted)]; size as usize];
    for (source, destination, weight) in named.edges {
        told[source as usize].extend([0, destination as i32, weight]);
        told[destination as usize].extend([1, source as i32, weight]);
    }
    let heard = between_all(&mut guard, comm_old, &told)?;
    let mut edges = Edges::default();
    let (mut of_sources, mut of_destinations) = (Vec::new(), Vec::new());
    // A process that names no edges does not say whether they have weights.
    let are_weighted = heard.iter().any(|words| words.len() > 1 && words[0] == 1);
    for words in &heard {
        for edge in words[1..].chunks_exact(3) {
            let (ends, weights) = match edge[0] {
                0 => (&mut edges.destinations, &mut of_destinations),
                _ => (&mut edges.sources, &mut of_sources),
            };
            ends.push(edge[1].unsigned_abs());
            weights.push(edge[2]);
        }
    }
    // Without an edge here, what this process has passed decides.
    let is_alone = edges.sources.is_empty() && edges.destinations.is_empty();
    edges.weights = (are_weighted || (is_alone && named.are_weighted)).then_some((of_sources, of_destinations));
    let places: Vec<u32> = (0..size).collect();
    let made = with_topology(&mut guard, comm_old, &places, Topology::Distributed(edges))?;
    // SAFETY: the caller's promise.
    unsafe { put(comm_dist_graph, made) }
}

/// `MPI_Dist_graph_neighbors_count`.
pub unsafe fn dist_graph_neighbors_count(
    rt: &Runtime,
    comm: CommHandle,
    indegree: *mut c_int,
    outdegree: *mut c_int,
    weighted: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let edges = edges_of(guard.comms.get(comm)?)?;
    // SAFETY: the caller's promise.
    unsafe {
        put(indegree, edges.sources.len() as c_int)?;
        put(outdegree, edges.destinations.len() as c_int)?;
        put(weighted, c_int::from(edges.weights.is_some()))
    }
}

/// `MPI_Dist_graph_neighbors`: the first so many of each.
pub unsafe fn dist_graph_neighbors(
    rt: &Runtime,
    comm: CommHandle,
    maxindegree: c_int,
    sources: *mut c_int,
    sourceweights: *mut c_int,
    maxoutdegree: c_int,
    destinations: *mut c_int,
    destweights: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let edges = edges_of(guard.comms.get(comm)?)?;
    let (of_sources, of_destinations) = edges.weights.clone().unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe {
        put_all(sources, maxindegree, &ints(&edges.sources), "sources")?;
        put_all(destinations, maxoutdegree, &ints(&edges.destinations), "destinations")?;
        if !is_weightless(sourceweights) {
            put_all(sourceweights, maxindegree, &of_sources, "sources")?;
        }
        if !is_weightless(destweights) {
            put_all(destweights, maxoutdegree, &of_destinations, "destinations")?;
        }
    }
    Ok(())
}

/// Ranks and, unless there are none, their weights.
unsafe fn ends(
    parent: &Communicator,
    degree: c_int,
    ranks: *const c_int,
    weights: *const c_int,
    what: &str,
) -> MpiResult<(Vec<u32>, Option<Vec<i32>>)> {
    // SAFETY: the caller's promise.
    let ranks = unsafe { elements(degree, ranks, what)? };
    let ranks = ranks.iter().map(|rank| args::rank(parent, *rank)).collect::<MpiResult<_>>()?;
    // SAFETY: the caller's promise.
    Ok((ranks, unsafe { weights_of(degree, weights)? }))
}

/// The weights; `None` for `MPI_UNWEIGHTED`.
unsafe fn weights_of(count: c_int, weights: *const c_int) -> MpiResult<Option<Vec<i32>>> {
    if weights.addr() == MPI_UNWEIGHTED {
        return Ok(None);
    }
    if count == 0 {
        return Ok(Some(Vec::new()));
    }
    if weights.addr() == MPI_WEIGHTS_EMPTY {
        return Err(MpiError::arg("MPI_WEIGHTS_EMPTY was passed for edges"));
    }
    // SAFETY: the caller's promise.
    let weights = unsafe { elements(count, weights, "weights")? };
    match weights.iter().find(|weight| **weight < 0) {
        Some(bad) => Err(MpiError::arg(format!("negative weight {bad}"))),
        None => Ok(Some(weights.to_vec())),
    }
}

/// Edges (source, destination, weight).
struct Named {
    edges: Vec<(u32, u32, i32)>,
    are_weighted: bool,
}

unsafe fn named_edges(
    parent: &Communicator,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights: *const c_int,
) -> MpiResult<Named> {
    // SAFETY: the caller's promise.
    let (sources, degrees) = unsafe { (elements(n, sources, "sources")?, elements(n, degrees, "degrees")?) };
    if let Some(bad) = degrees.iter().find(|degree| **degree < 0) {
        return Err(MpiError::arg(format!("negative degree {bad}")));
    }
    let count = degrees.iter().try_fold(0, |sum: c_int, degree| sum.checked_add(*degree));
    let count = count.ok_or_else(|| MpiError::arg("too many edges"))?;
    // SAFETY: the caller's promise.
    let (destinations, weights) =
        unsafe { (elements(count, destinations, "destinations")?, weights_of(count, weights)?) };
    let of_each = sources
        .iter()
        .zip(degrees)
        .flat_map(|(source, degree)| std::iter::repeat_n(*source, degree.unsigned_abs() as usize));
    let edge = |(at, (source, destination)): (usize, (c_int, &c_int))| {
        let weight = weights.as_ref().map_or(1, |weights| weights[at]);
        Ok((args::rank(parent, source)?, args::rank(parent, *destination)?, weight))
    };
    let edges = of_each.zip(destinations).enumerate().map(edge).collect::<MpiResult<_>>()?;
    Ok(Named { edges, are_weighted: weights.is_some() })
}

fn is_weightless(weights: *const c_int) -> bool {
    weights.is_null() || [MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY].contains(&weights.addr())
}

fn edges_of(communicator: &Communicator) -> MpiResult<&Edges> {
    match communicator.topology.as_deref() {
        Some(Topology::Distributed(edges)) => Ok(edges),
        Some(Topology::Cart(_) | Topology::Graph(_)) | None => Err(without("distributed graph topology")),
    }
}
