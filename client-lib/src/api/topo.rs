//! Process topologies (MPI 5.0 §8). Neighbourhood collectives are in [`super::coll`].

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]
#![expect(clippy::too_many_arguments, reason = "the standard's argument list")]

mod distributed;

use std::ffi::c_int;
use std::sync::Arc;

use super::args::{self, check_place, elements, put};
use super::comm::{of_members, sort};
use crate::abi::CommHandle;
use crate::abi::constants::{MPI_CART, MPI_DIST_GRAPH, MPI_ERR_DIMS, MPI_ERR_TOPOLOGY, MPI_GRAPH, MPI_UNDEFINED};
use crate::error::{MpiError, MpiResult};
use crate::object::comm::Communicator;
use crate::object::creation::Sorts;
use crate::object::dims;
use crate::object::group::Group;
use crate::object::topology::{Cart, Graph, Topology, to_int};
use crate::runtime::{Guard, Runtime, State};
pub use distributed::{
    dist_graph_create, dist_graph_create_adjacent, dist_graph_neighbors, dist_graph_neighbors_count,
};

/// `MPI_Topo_test`.
pub unsafe fn topo_test(rt: &Runtime, comm: CommHandle, status: *mut c_int) -> MpiResult {
    let found = match rt.lock().comms.get(comm)?.topology.as_deref() {
        None => MPI_UNDEFINED,
        Some(Topology::Cart(_)) => MPI_CART,
        Some(Topology::Graph(_)) => MPI_GRAPH,
        Some(Topology::Distributed(_)) => MPI_DIST_GRAPH,
    };
    // SAFETY: the caller's promise.
    unsafe { put(status, found) }
}

/// `MPI_Dims_create`.
pub unsafe fn dims_create(_: &Runtime, nnodes: c_int, ndims: c_int, dims: *mut c_int) -> MpiResult {
    let count = usize::try_from(ndims).ok().filter(|count| *count == 0 || !dims.is_null());
    let Some(count) = count else {
        return Err(MpiError::new(MPI_ERR_DIMS, format!("invalid dimensions: {ndims}, or a null array")));
    };
    // SAFETY: the caller guarantees this many dimensions, which nothing else uses during the call.
    let dims = if count == 0 { &mut [][..] } else { unsafe { std::slice::from_raw_parts_mut(dims, count) } };
    dims::create(nnodes, dims)
}

// --- grids ---

/// `MPI_Cart_create`. With `reorder`, each node gets a block of the grid, where that helps.
pub unsafe fn cart_create(
    rt: &Runtime,
    comm_old: CommHandle,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    reorder: c_int,
    comm_cart: *mut CommHandle,
) -> MpiResult {
    // What a program sees that lets errors return.
    // SAFETY: the caller's promise.
    unsafe { put(comm_cart, CommHandle::NULL)? };
    let mut guard = rt.lock();
    let parent = guard.comms.get(comm_old)?;
    parent.must_be_intra()?;
    // SAFETY: the caller's promise.
    let cart = unsafe { grid(parent, ndims, dims, periods)? };
    let order = if reorder == 0 { None } else { order(&guard, parent, &cart) };
    let places = order.unwrap_or_else(|| (0..cart.size()).collect());
    let made = with_topology(&mut guard, comm_old, &places, Topology::Cart(cart))?;
    // SAFETY: the caller's promise.
    unsafe { put(comm_cart, made) }
}

/// `MPI_Cart_map`: the rank that `MPI_Cart_create` with `reorder` would give.
pub unsafe fn cart_map(
    rt: &Runtime,
    comm: CommHandle,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    newrank: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let parent = guard.comms.get(comm)?;
    parent.must_be_intra()?;
    // SAFETY: the caller's promise.
    let cart = unsafe { grid(parent, ndims, dims, periods)? };
    let place = match order(&guard, parent, &cart) {
        Some(order) => order.iter().position(|index| *index == parent.rank),
        None => Some(parent.rank as usize).filter(|rank| *rank < cart.size() as usize),
    };
    // SAFETY: the caller's promise.
    unsafe { put(newrank, place.map_or(MPI_UNDEFINED, |place| place as c_int)) }
}

/// `MPI_Cartdim_get`.
pub unsafe fn cartdim_get(rt: &Runtime, comm: CommHandle, ndims: *mut c_int) -> MpiResult {
    let found = cart_of(rt.lock().comms.get(comm)?)?.dims.len();
    // SAFETY: the caller's promise.
    unsafe { put(ndims, found as c_int) }
}

/// `MPI_Cart_get`.
pub unsafe fn cart_get(
    rt: &Runtime,
    comm: CommHandle,
    maxdims: c_int,
    dims: *mut c_int,
    periods: *mut c_int,
    coords: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    let cart = cart_of(communicator)?;
    let (lens, wraps): (Vec<_>, Vec<_>) =
        cart.dims.iter().map(|(len, periodic)| (*len, c_int::from(*periodic))).unzip();
    // SAFETY: the caller's promise.
    unsafe {
        put_all(dims, maxdims, &lens, "dimensions")?;
        put_all(periods, maxdims, &wraps, "dimensions")?;
        put_all(coords, maxdims, &cart.coords(communicator.rank), "dimensions")
    }
}

/// `MPI_Cart_rank`.
pub unsafe fn cart_rank(rt: &Runtime, comm: CommHandle, coords: *const c_int, rank: *mut c_int) -> MpiResult {
    let guard = rt.lock();
    let cart = cart_of(guard.comms.get(comm)?)?;
    // SAFETY: the caller's promise.
    let coords = unsafe { elements(cart.dims.len() as c_int, coords, "coordinates")? };
    let found = cart.rank(coords.iter().map(|at| i64::from(*at)));
    let found = found.ok_or_else(|| MpiError::arg(format!("the coordinates {coords:?} are outside the grid")))?;
    // SAFETY: the caller's promise.
    unsafe { put(rank, found as c_int) }
}

/// `MPI_Cart_coords`.
pub unsafe fn cart_coords(
    rt: &Runtime,
    comm: CommHandle,
    rank: c_int,
    maxdims: c_int,
    coords: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    let cart = cart_of(communicator)?;
    let found = cart.coords(args::rank(communicator, rank)?);
    // SAFETY: the caller's promise.
    unsafe { put_all(coords, maxdims, &found, "dimensions") }
}

/// `MPI_Cart_shift`.
pub unsafe fn cart_shift(
    rt: &Runtime,
    comm: CommHandle,
    direction: c_int,
    disp: c_int,
    rank_source: *mut c_int,
    rank_dest: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    let cart = cart_of(communicator)?;
    let dimension = usize::try_from(direction).ok().filter(|direction| *direction < cart.dims.len());
    let Some(dimension) = dimension else {
        let text = format!("there is no dimension {direction} in a grid of {} dimensions", cart.dims.len());
        return Err(MpiError::new(MPI_ERR_DIMS, text));
    };
    let step = |by| to_int(cart.step(communicator.rank, dimension, by));
    let (source, destination) = (step(-i64::from(disp)), step(i64::from(disp)));
    // SAFETY: the caller's promise.
    unsafe {
        put(rank_source, source)?;
        put(rank_dest, destination)
    }
}

/// `MPI_Cart_sub`.
pub unsafe fn cart_sub(
    rt: &Runtime,
    comm: CommHandle,
    remain_dims: *const c_int,
    newcomm: *mut CommHandle,
) -> MpiResult {
    check_place(newcomm)?;
    let mut guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    let cart = cart_of(communicator)?;
    // SAFETY: the caller's promise.
    let remain = unsafe { elements(cart.dims.len() as c_int, remain_dims, "dimensions")? };
    let kept: Vec<bool> = remain.iter().map(|remains| *remains != 0).collect();
    let (part, colour, key) = cart.part(communicator.rank, &kept);
    let made = sort(&mut guard, comm, Some(colour as c_int), key as c_int, Sorts::One)?;
    guard.comms.get_mut(made)?.topology = Some(Arc::new(Topology::Cart(part)));
    // SAFETY: the caller's promise.
    unsafe { put(newcomm, made) }
}

// --- graphs that all members know ---

/// `MPI_Graph_create`. Ranks keep their order.
pub unsafe fn graph_create(
    rt: &Runtime,
    comm_old: CommHandle,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    _reorder: c_int,
    comm_graph: *mut CommHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put(comm_graph, CommHandle::NULL)? };
    let mut guard = rt.lock();
    let parent = guard.comms.get(comm_old)?;
    parent.must_be_intra()?;
    // SAFETY: the caller's promise.
    let graph = unsafe { graph(parent, nnodes, index, edges)? };
    let places: Vec<u32> = (0..graph.index.len() as u32).collect();
    let made = with_topology(&mut guard, comm_old, &places, Topology::Graph(graph))?;
    // SAFETY: the caller's promise.
    unsafe { put(comm_graph, made) }
}

/// `MPI_Graph_map`: ranks keep their order.
pub unsafe fn graph_map(
    rt: &Runtime,
    comm: CommHandle,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    newrank: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let parent = guard.comms.get(comm)?;
    parent.must_be_intra()?;
    // SAFETY: the caller's promise.
    let nodes = unsafe { graph(parent, nnodes, index, edges)? }.index.len();
    let place = if (parent.rank as usize) < nodes { parent.rank as c_int } else { MPI_UNDEFINED };
    // SAFETY: the caller's promise.
    unsafe { put(newrank, place) }
}

/// `MPI_Graphdims_get`.
pub unsafe fn graphdims_get(rt: &Runtime, comm: CommHandle, nnodes: *mut c_int, nedges: *mut c_int) -> MpiResult {
    let guard = rt.lock();
    let graph = graph_of(guard.comms.get(comm)?)?;
    // SAFETY: the caller's promise.
    unsafe {
        put(nnodes, graph.index.len() as c_int)?;
        put(nedges, graph.edges.len() as c_int)
    }
}

/// `MPI_Graph_get`.
pub unsafe fn graph_get(
    rt: &Runtime,
    comm: CommHandle,
    maxindex: c_int,
    maxedges: c_int,
    index: *mut c_int,
    edges: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let graph = graph_of(guard.comms.get(comm)?)?;
    // SAFETY: the caller's promise.
    unsafe {
        put_all(index, maxindex, &graph.index, "nodes")?;
        put_all(edges, maxedges, &ints(&graph.edges), "edges")
    }
}

/// `MPI_Graph_neighbors_count`.
pub unsafe fn graph_neighbors_count(rt: &Runtime, comm: CommHandle, rank: c_int, nneighbors: *mut c_int) -> MpiResult {
    let guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    let found = graph_of(communicator)?.neighbours(args::rank(communicator, rank)?).len();
    // SAFETY: the caller's promise.
    unsafe { put(nneighbors, found as c_int) }
}

/// `MPI_Graph_neighbors`.
pub unsafe fn graph_neighbors(
    rt: &Runtime,
    comm: CommHandle,
    rank: c_int,
    maxneighbors: c_int,
    neighbors: *mut c_int,
) -> MpiResult {
    let guard = rt.lock();
    let communicator = guard.comms.get(comm)?;
    let found = ints(graph_of(communicator)?.neighbours(args::rank(communicator, rank)?));
    // SAFETY: the caller's promise.
    unsafe { put_all(neighbors, maxneighbors, &found, "neighbours") }
}

// --- arguments and results ---

/// A communicator of the members with these ranks, in this order; null for the others.
fn with_topology(
    guard: &mut Guard<'_>,
    parent: CommHandle,
    places: &[u32],
    topology: Topology,
) -> MpiResult<CommHandle> {
    let group = guard.comms.get(parent)?.group();
    let members: Vec<_> = places.iter().map(|rank| group.members[*rank as usize]).collect();
    let group = Group { session: group.session, ..Group::new(members, guard.me()) };
    let made = of_members(guard, parent, Arc::new(group))?;
    if made != CommHandle::NULL {
        guard.comms.get_mut(made)?.topology = Some(Arc::new(topology));
    }
    Ok(made)
}

unsafe fn grid(parent: &Communicator, ndims: c_int, dims: *const c_int, periods: *const c_int) -> MpiResult<Cart> {
    if ndims < 0 {
        return Err(MpiError::new(MPI_ERR_DIMS, format!("invalid number of dimensions: {ndims}")));
    }
    // SAFETY: the caller's promise.
    let (dims, periods) = unsafe { (elements(ndims, dims, "dimensions")?, elements(ndims, periods, "periods")?) };
    let dims = dims.iter().zip(periods).map(|(len, periodic)| (*len, *periodic != 0)).collect();
    Cart::new(dims, parent.group().size())
}

/// The order that [`Cart::order`] finds for the nodes of this job.
fn order(state: &State, parent: &Communicator, cart: &Cart) -> Option<Vec<u32>> {
    let nodes = &state.world.as_ref()?.nodes;
    let nodes: Option<Vec<u32>> =
        parent.group().members.iter().map(|peer| nodes.get(peer.0 as usize).copied()).collect();
    cart.order(&nodes?)
}

unsafe fn graph(parent: &Communicator, nnodes: c_int, index: *const c_int, edges: *const c_int) -> MpiResult<Graph> {
    // SAFETY: the caller's promise.
    let index = unsafe { elements(nnodes, index, "nodes")? };
    if index.len() > parent.group().size() as usize {
        return Err(MpiError::arg(format!(
            "a graph of {nnodes} nodes, but the communicator has {}",
            parent.group().size()
        )));
    }
    if index.first().is_some_and(|first| *first < 0) || index.windows(2).any(|two| two[1] < two[0]) {
        return Err(MpiError::arg("the index of a graph must begin at 0 or more, and not fall"));
    }
    // SAFETY: the caller's promise.
    let edges = unsafe { elements(index.last().copied().unwrap_or(0), edges, "edges")? };
    Graph::new(index.to_vec(), edges)
}

/// Stores integers, of which there are at most `room`; without any the pointer may be null.
unsafe fn put_all(place: *mut c_int, room: c_int, values: &[c_int], what: &str) -> MpiResult {
    let room = usize::try_from(room).map_err(|_| MpiError::arg(format!("invalid number of {what}: {room}")))?;
    // As in other MPI libraries, what fits is stored.
    for (index, value) in values.iter().take(room).enumerate() {
        check_place(place)?;
        // SAFETY: the caller's promise.
        unsafe { place.add(index).write(*value) };
    }
    Ok(())
}

fn ints(ranks: &[u32]) -> Vec<c_int> {
    ranks.iter().map(|rank| *rank as c_int).collect()
}

fn cart_of(communicator: &Communicator) -> MpiResult<&Cart> {
    match communicator.topology.as_deref() {
        Some(Topology::Cart(cart)) => Ok(cart),
        Some(Topology::Graph(_) | Topology::Distributed(_)) | None => Err(without("Cartesian topology")),
    }
}

fn graph_of(communicator: &Communicator) -> MpiResult<&Graph> {
    match communicator.topology.as_deref() {
        Some(Topology::Graph(graph)) => Ok(graph),
        Some(Topology::Cart(_) | Topology::Distributed(_)) | None => Err(without("graph topology")),
    }
}

#[cold]
fn without(what: &str) -> MpiError {
    MpiError::new(MPI_ERR_TOPOLOGY, format!("the communicator has no {what}"))
}
