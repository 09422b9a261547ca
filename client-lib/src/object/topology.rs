//! Process topologies: which processes of a communicator are neighbours (MPI 5.0 §8).
//!
//! Everything here is local and pure. A Cartesian grid and a graph are known to all members; of a distributed graph, each member knows
//! its own edges.

use crate::abi::constants::{MPI_ERR_DIMS, MPI_PROC_NULL};
use crate::error::{MpiError, MpiResult};

/// The topology of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// `MPI_CART`.
    Cart(Cart),
    /// `MPI_GRAPH`.
    Graph(Graph),
    /// `MPI_DIST_GRAPH`: this process's edges.
    Distributed(Edges),
}

/// One end of an edge: a rank, or `None` beyond the border of a grid.
pub type End = Option<u32>;

impl Topology {
    /// The processes from which `rank` receives in neighbourhood collectives, in the order of their blocks.
    pub fn sources(&self, rank: u32) -> Vec<End> {
        match self {
            Self::Cart(cart) => cart.neighbours(rank),
            Self::Graph(graph) => graph.neighbours(rank).iter().map(|end| Some(*end)).collect(),
            Self::Distributed(edges) => edges.sources.iter().map(|end| Some(*end)).collect(),
        }
    }

    /// The processes to which `rank` sends, in the order of their blocks.
    pub fn destinations(&self, rank: u32) -> Vec<End> {
        match self {
            Self::Cart(_) | Self::Graph(_) => self.sources(rank),
            Self::Distributed(edges) => edges.destinations.iter().map(|end| Some(*end)).collect(),
        }
    }

    /// The order in which the blocks to the destinations are sent. In a grid, what goes in one direction arrives from the opposite one,
    /// which matters where both neighbours of a dimension are the same process.
    pub fn sending_order(&self, degree: usize) -> Vec<usize> {
        match self {
            Self::Cart(_) => (0..degree).map(|index| index ^ 1).collect(),
            Self::Graph(_) | Self::Distributed(_) => (0..degree).collect(),
        }
    }
}

/// A Cartesian grid; ranks in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cart {
    /// `dims[d]`: how many processes there are in dimension d, and whether it is periodic.
    pub dims: Vec<(i32, bool)>,
}

impl Cart {
    /// A grid; fails with class `MPI_ERR_DIMS` if a dimension is not positive, or there are more than `most` places.
    pub fn new(dims: Vec<(i32, bool)>, most: u32) -> MpiResult<Self> {
        if let Some((bad, _)) = dims.iter().find(|(len, _)| *len < 1) {
            return Err(MpiError::new(MPI_ERR_DIMS, format!("a dimension of {bad} processes: it must be at least 1")));
        }
        let places = dims.iter().try_fold(1_u32, |all, (len, _)| all.checked_mul(len.unsigned_abs()));
        match places {
            Some(places) if places <= most => Ok(Self { dims }),
            _ => Err(MpiError::new(
                MPI_ERR_DIMS,
                format!("the grid {} is larger than the communicator, which has {most} processes", text(&dims)),
            )),
        }
    }

    /// The number of places.
    pub fn size(&self) -> u32 {
        self.dims.iter().map(|(len, _)| len.unsigned_abs()).product()
    }

    /// The coordinates of a rank of the grid.
    pub fn coords(&self, rank: u32) -> Vec<i32> {
        let mut rest = rank;
        let mut coords: Vec<i32> = Vec::with_capacity(self.dims.len());
        for (len, _) in self.dims.iter().rev() {
            coords.push((rest % len.unsigned_abs()) as i32);
            rest /= len.unsigned_abs();
        }
        coords.reverse();
        coords
    }

    /// The rank at coordinates, which wrap around in periodic dimensions; `None` outside.
    pub fn rank(&self, coords: impl IntoIterator<Item = i64>) -> End {
        self.dims.iter().zip(coords).try_fold(0, |rank, ((len, periodic), at)| {
            let len = i64::from(*len);
            let at = if *periodic { at.rem_euclid(len) } else { at };
            (0..len).contains(&at).then(|| rank * len as u32 + at as u32)
        })
    }

    /// The rank that lies `by` steps from another one in a dimension.
    pub fn step(&self, rank: u32, dimension: usize, by: i64) -> End {
        let at = |(index, at): (usize, i32)| i64::from(at) + if index == dimension { by } else { 0 };
        self.rank(self.coords(rank).into_iter().enumerate().map(at))
    }

    /// For each dimension, the neighbours before and after.
    fn neighbours(&self, rank: u32) -> Vec<End> {
        (0..self.dims.len()).flat_map(|dimension| [-1, 1].map(|by| self.step(rank, dimension, by))).collect()
    }

    /// The grid of the dimensions that are kept; also the colour of a rank's part, and its rank there.
    pub fn part(&self, rank: u32, kept: &[bool]) -> (Self, u32, u32) {
        let coords = self.coords(rank);
        let number = |of: bool| {
            let chosen = self.dims.iter().zip(&coords).zip(kept).filter(|(_, kept)| **kept == of);
            chosen.fold(0, |number, (((len, _), at), _)| number * len.unsigned_abs() + at.unsigned_abs())
        };
        let dims = self.dims.iter().zip(kept).filter(|(_, kept)| **kept).map(|(dim, _)| *dim).collect();
        (Self { dims }, number(false), number(true))
    }

    /// Which process gets which place, so that fewer neighbours are on different nodes: `order[place]` is an index into `nodes`, which
    /// has the node of each process. `None` if no order is better than the given one. All processes get the same answer.
    ///
    /// Each node gets a block of the grid. That is tried if all nodes have as many processes, for the shape of block that divides
    /// the grid and cuts the fewest edges. Cost: a few operations for each place and dimension.
    pub fn order(&self, nodes: &[u32]) -> Option<Vec<u32>> {
        let nodes = nodes.get(..self.size() as usize)?;
        let mut members: Vec<(u32, Vec<u32>)> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            match members.iter_mut().find(|(known, _)| known == node) {
                Some((_, members)) => members.push(index as u32),
                None => members.push((*node, vec![index as u32])),
            }
        }
        let each = members.first()?.1.len();
        if members.len() < 2 || members.iter().any(|(_, members)| members.len() != each) {
            return None;
        }
        let block = self.block(each as u32)?;
        let mut order = Vec::with_capacity(nodes.len());
        let mut taken = vec![0; members.len()];
        for place in 0..self.size() {
            let coords = self.coords(place);
            let node = self.dims.iter().zip(&block).zip(&coords).fold(0, |number, (((len, _), block), at)| {
                number * (len.unsigned_abs() / block) + at.unsigned_abs() / block
            }) as usize;
            order.push(members[node].1[taken[node]]);
            taken[node] += 1;
        }
        let given: Vec<u32> = (0..self.size()).collect();
        (self.cuts(nodes, &order) < self.cuts(nodes, &given)).then_some(order)
    }

    /// The shape of a block of `places` places that divides the grid and cuts the fewest edges.
    fn block(&self, places: u32) -> Option<Vec<u32>> {
        fn search(cart: &Cart, places: u32, block: &mut Vec<u32>, best: &mut Option<(u64, Vec<u32>)>) {
            let Some((len, _)) = cart.dims.get(block.len()) else {
                if places == 1 {
                    // Between two blocks, an edge is cut for each place of the grid's cross-section.
                    let cut = cart.dims.iter().zip(&*block).map(|((len, periodic), block)| {
                        let blocks = len.unsigned_abs() / block;
                        let borders = if *periodic && blocks > 1 { blocks } else { blocks - 1 };
                        u64::from(borders) * u64::from(cart.size() / len.unsigned_abs())
                    });
                    let cut = cut.sum();
                    if best.as_ref().is_none_or(|(least, _)| cut < *least) {
                        *best = Some((cut, block.clone()));
                    }
                }
                return;
            };
            for part in (1..=places.min(len.unsigned_abs()))
                .filter(|part| len.unsigned_abs().is_multiple_of(*part) && places.is_multiple_of(*part))
            {
                block.push(part);
                search(cart, places / part, block, best);
                block.pop();
            }
        }
        let mut best = None;
        search(self, places, &mut Vec::new(), &mut best);
        best.map(|(_, block)| block)
    }

    /// How many edges go from one node to another.
    fn cuts(&self, nodes: &[u32], order: &[u32]) -> usize {
        let node = |place: u32| nodes[order[place as usize] as usize];
        let cut = |place: u32| {
            self.neighbours(place).into_iter().flatten().filter(|other| node(*other) != node(place)).count()
        };
        (0..self.size()).map(cut).sum()
    }
}

fn text(dims: &[(i32, bool)]) -> String {
    dims.iter().map(|(len, _)| len.to_string()).collect::<Vec<_>>().join(" x ")
}

/// A graph that all members know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// `index[r]`: where the neighbours of rank r end in `edges`.
    pub index: Vec<i32>,
    /// The neighbours of all ranks.
    pub edges: Vec<u32>,
}

impl Graph {
    /// A graph; `index` must not fall, and `edges` has as many elements as its last value says.
    pub fn new(index: Vec<i32>, edges: &[i32]) -> MpiResult<Self> {
        let nodes = index.len();
        let known = |edge: &i32| u32::try_from(*edge).ok().filter(|edge| (*edge as usize) < nodes).ok_or(*edge);
        let edges = edges.iter().map(known).collect::<Result<_, _>>();
        let edges = edges
            .map_err(|edge| MpiError::arg(format!("the edge to {edge} leads out of the graph of {nodes} nodes")))?;
        Ok(Self { index, edges })
    }

    /// The neighbours of a rank.
    pub fn neighbours(&self, rank: u32) -> &[u32] {
        let end = |rank: usize| self.index.get(rank).map_or(0, |end| end.unsigned_abs() as usize);
        let first = if rank == 0 { 0 } else { end(rank as usize - 1) };
        self.edges.get(first..end(rank as usize)).unwrap_or(&[])
    }
}

/// One process's edges in a distributed graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edges {
    /// The ranks from which an edge leads to this process.
    pub sources: Vec<u32>,
    /// The ranks to which an edge leads.
    pub destinations: Vec<u32>,
    /// Their weights, if the graph has any.
    pub weights: Option<(Vec<i32>, Vec<i32>)>,
}

/// A rank for C.
pub fn to_int(end: End) -> i32 {
    end.map_or(MPI_PROC_NULL, |rank| rank as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cart(dims: &[(i32, bool)]) -> Cart {
        Cart::new(dims.to_vec(), 1000).unwrap()
    }

    #[test]
    fn ranks_and_coordinates_agree_and_wrap_around_only_where_periodic() {
        let grid = cart(&[(3, true), (4, false)]);
        for rank in 0..12 {
            let coords = grid.coords(rank);
            assert_eq!(grid.rank(coords.into_iter().map(i64::from)), Some(rank));
        }
        assert_eq!(grid.coords(7), [1, 3]);
        assert_eq!((grid.rank([-1, 0]), grid.rank([0, -1]), grid.rank([0, 4])), (Some(8), None, None));
        assert_eq!(grid.rank([i64::from(i32::MIN), 0]), Some(i64::from(i32::MIN).rem_euclid(3) as u32 * 4));
        assert_eq!((grid.step(0, 0, -1), grid.step(0, 1, -1), grid.step(3, 0, 4)), (Some(8), None, Some(7)));
        assert_eq!(cart(&[]).rank([]), Some(0));
        assert!(cart(&[]).coords(0).is_empty());
    }

    #[test]
    fn impossible_grids_are_errors() {
        for dims in [&[(0, false)][..], &[(-1, true)], &[(11, false)], &[(i32::MAX, false); 4]] {
            assert_eq!(Cart::new(dims.to_vec(), 10).unwrap_err().class, MPI_ERR_DIMS);
        }
    }

    #[test]
    fn a_part_keeps_its_dimensions_and_the_others_are_its_colour() {
        let grid = cart(&[(2, false), (3, true), (2, false)]);
        let parts: Vec<_> = (0..12).map(|rank| grid.part(rank, &[true, false, true])).collect();
        assert!(parts.iter().all(|(part, _, _)| part.dims == [(2, false), (2, false)]));
        let colours: Vec<_> = parts.iter().map(|(_, colour, _)| *colour).collect();
        assert_eq!(colours, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        let keys: Vec<_> = parts.iter().map(|(_, _, key)| *key).collect();
        assert_eq!(keys, [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3]);
        assert_eq!(grid.part(7, &[false; 3]), (cart(&[]), 7, 0));
    }

    #[test]
    fn nodes_get_blocks_of_the_grid_if_that_cuts_fewer_edges() {
        let grid = cart(&[(4, false), (4, false)]);
        let in_rows: Vec<u32> = (0..16).map(|rank| rank / 4).collect();
        let order = grid.order(&in_rows).unwrap();
        assert_eq!(order, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
        assert!(grid.cuts(&in_rows, &order) < grid.cuts(&in_rows, &(0..16).collect::<Vec<_>>()));
        let in_turn: Vec<u32> = (0..16).map(|rank| rank % 4).collect();
        let mut all = grid.order(&in_turn).unwrap();
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
        assert_eq!(cart(&[(8, true)]).order(&[0, 0, 0, 0, 1, 1, 1, 1]), None, "it is good as it is");
        assert_eq!(grid.order(&[0; 16]), None);
        assert_eq!(cart(&[(3, false)]).order(&[0, 0, 1]), None, "the nodes differ");
    }

    #[test]
    fn a_graph_has_the_neighbours_that_its_index_delimits() {
        let graph = Graph::new(vec![2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
        let all: Vec<_> = (0..4).map(|rank| graph.neighbours(rank).to_vec()).collect();
        assert_eq!(all, [vec![1, 3], vec![0], vec![3], vec![0, 2]]);
        assert!(Graph::new(vec![1], &[1]).is_err() && Graph::new(vec![1], &[-1]).is_err());
    }

    #[test]
    fn what_goes_in_one_direction_of_a_grid_arrives_from_the_other() {
        let two = Topology::Cart(cart(&[(2, true)]));
        assert_eq!((two.sources(0), two.sending_order(2)), (vec![Some(1), Some(1)], vec![1, 0]));
    }
}
