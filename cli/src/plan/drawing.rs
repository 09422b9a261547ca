//! Draws a node's processor with the ranks on it.
//!
//! ```text
//! package  [0          ] [1          ]
//! core       0   1   2   3   4   5   6   7
//! rank     [0    ] [1    ] [2    ]   .   x      one cell per core, or per thread where a rank has half a core
//! ```
//!
//! Objects and ranks are spans of cells; ranks that share cells are drawn below each other. A drawing that is wider than the terminal is
//! cut into bands, if possible between packages. Bands without ranks are one line.

use std::ops::Range;

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Topology};
use rsd_proto::ranges;

use super::view::{Node, View, whole_cores};
use crate::look::{Look, Paint};
use crate::placement::{self, list, set};

/// The widest cell. Longer text in a cell is cut.
const CELL_MAX: usize = 11;
/// The most rows of ranks that share cells. Further ranks are counted.
const RANK_ROWS: usize = 6;

/// Returns the drawing of a node; empty if no rank is bound or the node's processor is unknown.
pub(crate) fn draw(view: &View<'_>, node: &Node<'_>, look: &Look) -> String {
    let Some(topology) = view.topology(node) else { return String::new() };
    if view.bounds(node).all(|(_, bound)| bound.threads.is_empty()) {
        return String::new();
    }
    let grid = Grid::new(view, node, topology);
    let mut rows = grid.objects(&view.plan.map_by, &view.plan.bind_to);
    let (ranks, hidden) = grid.ranks(view, node);
    rows.extend(ranks);
    rows.extend(grid.gpus(view, node));
    let mut text = Picture::new(&rows, look, grid.cells.len()).text(&grid);
    let mut legend = grid.legend();
    if hidden > 0 {
        legend.push(match hidden {
            1 => "1 more rank overlaps these".to_owned(),
            _ => format!("{hidden} more ranks overlap these"),
        });
    }
    if !legend.is_empty() {
        text.push_str(&look.paint(&format!("  {}", legend.join("   ")), Paint::Dim));
        text.push('\n');
    }
    text
}

/// A piece of a row.
struct Span {
    cells: Range<usize>,
    text: String,
    paint: Paint,
    /// Drawn in brackets; otherwise the span is one cell.
    boxed: bool,
}

struct Row {
    name: String,
    spans: Vec<Span>,
}

/// A processor as cells, and their contents.
struct Grid<'a> {
    topology: &'a Topology,
    /// What a cell is: a core, or a thread.
    unit: Kind,
    /// The threads of each cell.
    cells: Vec<Range<u32>>,
    /// Threads without a rank of this job.
    idle: CpuSet,
    /// Threads that ranks may not use.
    barred: CpuSet,
    /// Threads that another job uses.
    taken: CpuSet,
}

impl<'a> Grid<'a> {
    fn new(view: &View<'_>, node: &Node<'_>, topology: &'a Topology) -> Grid<'a> {
        let (usable, taken) = (set(&node.offer.usable), set(&node.offer.taken));
        let barred = if usable.is_empty() { CpuSet::EMPTY } else { topology.all().minus(&usable) };
        let whole = |threads: &CpuSet| whole_cores(topology, threads).is_some();
        let mut bounds = view.bounds(node).map(|(_, bound)| &bound.threads);
        let unit = match whole(&barred) && whole(&taken) && bounds.all(whole) {
            true => Kind::Core,
            false => Kind::Thread,
        };
        let cells: Vec<_> = topology.objects(unit).iter().map(|object| object.threads.clone()).collect();
        let used = view.bounds(node).fold(CpuSet::EMPTY, |used, (_, bound)| used.or(&bound.threads));
        Grid { topology, unit, cells, idle: topology.all().minus(&used), barred, taken }
    }

    /// Returns the cells that contain any of these threads, as ranges.
    fn cells_of(&self, threads: &CpuSet) -> Vec<Range<usize>> {
        let within = self.topology.objects_of(self.unit, threads);
        within.ranges().into_iter().map(|range| range.start as usize..range.end as usize).collect()
    }

    /// Returns a row for each kind of object (packages, NUMA nodes, caches), and one with the numbers of the cells. Kinds with equal
    /// objects share a row. A kind whose objects are single cells, or one object over all cells, gets no row.
    fn objects(&self, map_by: &str, bind_to: &str) -> Vec<Row> {
        let named = |kind: Kind| map_by.contains(kind.name()) || bind_to.contains(kind.name());
        let shown = |kind: &Kind| match kind {
            Kind::Package | Kind::Numa | Kind::L3 => true,
            Kind::L2 | Kind::L1 => named(*kind),
            Kind::Core => self.unit == Kind::Thread,
            Kind::Thread => false,
        };
        let mut levels: Vec<(String, Vec<Range<usize>>)> = Vec::new();
        for kind in Kind::ALL.into_iter().filter(shown) {
            let of = |at: usize| self.topology.objects(kind).get(at).map(|object| object.threads.clone());
            let number = self.topology.objects(kind).len();
            let ranges: Vec<_> = (0..number)
                .filter_map(of)
                .filter_map(|threads| {
                    let cells = self.cells_of(&CpuSet::range(threads));
                    Some(cells.first()?.start..cells.last()?.end)
                })
                .collect();
            let whole = kind != Kind::Package && ranges.len() == 1 && ranges[0].len() == self.cells.len();
            if whole || ranges.iter().all(|range| range.len() == 1) {
                continue;
            }
            match levels.iter_mut().find(|(_, known)| *known == ranges) {
                Some((name, _)) => *name = format!("{name} {}", short(kind)),
                None => levels.push((short(kind).to_owned(), ranges)),
            }
        }
        let boxed =
            |(at, cells): (usize, Range<usize>)| Span { cells, text: at.to_string(), paint: Paint::Dim, boxed: true };
        let row = |(name, ranges): (String, Vec<Range<usize>>)| Row {
            name,
            spans: ranges.into_iter().enumerate().map(boxed).collect(),
        };
        let number =
            |cell: usize| Span { cells: cell..cell + 1, text: cell.to_string(), paint: Paint::Dim, boxed: false };
        let numbers = Row { name: short(self.unit).to_owned(), spans: (0..self.cells.len()).map(number).collect() };
        levels.into_iter().map(row).chain([numbers]).collect()
    }

    /// Returns the rows of ranks, and the number of ranks without a row. Ranks with the same cells share a span; spans that overlap go to
    /// further rows. The first row also marks the cells without ranks.
    fn ranks(&self, view: &View<'_>, node: &Node<'_>) -> (Vec<Row>, usize) {
        let mut sets: Vec<(&CpuSet, Vec<u32>)> = Vec::new();
        let mut known = std::collections::HashMap::new();
        for (rank, bound) in view.bounds(node).filter(|(_, bound)| !bound.threads.is_empty()) {
            let at = *known.entry(&bound.threads).or_insert(sets.len());
            match sets.get_mut(at) {
                Some((_, ranks)) => ranks.push(rank),
                None => sets.push((&bound.threads, vec![rank])),
            }
        }
        let mut rows: Vec<Vec<Span>> = vec![Vec::new()];
        let mut hidden = 0;
        for (hue, (threads, ranks)) in sets.iter().enumerate() {
            let cells = self.cells_of(threads);
            let apart = |row: &Vec<Span>| row.iter().all(|span| cells.iter().all(|cells| apart(&span.cells, cells)));
            let at = match rows.iter().position(apart) {
                Some(at) => at,
                None if rows.len() < RANK_ROWS => {
                    rows.push(Vec::new());
                    rows.len() - 1
                }
                None => {
                    hidden += ranks.len();
                    continue;
                }
            };
            let text = placement::ranges(&ranges::of(ranks.iter().copied()));
            let span = |cells: Range<usize>| {
                let boxed = cells.len() > 1;
                Span { cells, text: text.clone(), paint: Paint::Hue(hue), boxed }
            };
            rows[at].extend(cells.into_iter().map(span));
        }
        let marks = self.cells.iter().enumerate().filter_map(|(at, cell)| {
            let mark = self.mark(cell)?;
            Some(Span { cells: at..at + 1, text: mark.to_string(), paint: Paint::Dim, boxed: false })
        });
        rows[0].extend(marks);
        let named = |(at, spans): (usize, Vec<Span>)| Row { name: if at == 0 { "rank" } else { "" }.to_owned(), spans };
        (rows.into_iter().enumerate().map(named).collect(), hidden)
    }

    /// Returns the mark of a cell without ranks of this job.
    fn mark(&self, cell: &Range<u32>) -> Option<char> {
        let all = |set: &CpuSet| cell.clone().all(|thread| set.contains(thread));
        match () {
            () if !all(&self.idle) => None,
            () if all(&self.barred) => Some('x'),
            () if cell.clone().any(|thread| self.taken.contains(thread)) => Some('#'),
            () => Some('.'),
        }
    }

    fn legend(&self) -> Vec<String> {
        const MEANINGS: [(char, &str); 3] = [('.', "free"), ('x', "not usable"), ('#', "another job's")];
        let marks: Vec<char> = self.cells.iter().filter_map(|cell| self.mark(cell)).collect();
        let used = MEANINGS.iter().filter(|(mark, _)| marks.contains(mark));
        used.map(|(mark, meaning)| format!("{mark} {meaning}")).collect()
    }

    /// Returns the rows of GPUs, each below the cells nearest to it, or below all cells if those are unknown. Empty if no rank has a GPU.
    fn gpus(&self, view: &View<'_>, node: &Node<'_>) -> Vec<Row> {
        if view.bounds(node).all(|(_, bound)| bound.gpus.is_empty()) {
            return Vec::new();
        }
        let mut rows: Vec<Vec<Span>> = Vec::new();
        for (place, gpu) in (0..).zip(&node.offer.gpus) {
            let owners = view.bounds(node).filter(|(_, bound)| bound.gpus.contains(&place)).map(|(rank, _)| rank);
            let owners = placement::ranges(&ranges::of(owners));
            let text = match owners.is_empty() {
                true => format!("{}: free", gpu.index),
                false => format!("{}: rank {owners}", gpu.index),
            };
            let near = self.cells_of(&set(&gpu.near));
            let cells = match (near.first(), near.last()) {
                (Some(first), Some(last)) => first.start..last.end,
                (_, _) => 0..self.cells.len(),
            };
            let free = rows.iter().position(|row| row.iter().all(|span| apart(&span.cells, &cells)));
            let span = Span { cells, text, paint: Paint::Plain, boxed: true };
            match free {
                Some(at) => rows[at].push(span),
                None => rows.push(vec![span]),
            }
        }
        let named = |(at, spans): (usize, Vec<Span>)| Row { name: if at == 0 { "gpu" } else { "" }.to_owned(), spans };
        rows.into_iter().enumerate().map(named).collect()
    }
}

fn apart(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.end <= b.start || b.end <= a.start
}

fn short(kind: Kind) -> &'static str {
    match kind {
        Kind::Package => "package",
        Kind::Numa => "numa",
        Kind::L3 => "l3",
        Kind::L2 => "l2",
        Kind::L1 => "l1",
        Kind::Core => "core",
        Kind::Thread => "thread",
    }
}

/// The layout of rows as text.
struct Picture<'a> {
    rows: &'a [Row],
    look: &'a Look,
    cells: usize,
    /// The width of a cell, without the blank that follows it.
    cell: usize,
    /// The width of the rows' names.
    name: usize,
}

/// Blanks before the names, and between the names and the cells.
const INDENT: usize = 2;

impl<'a> Picture<'a> {
    fn new(rows: &'a [Row], look: &'a Look, cells: usize) -> Picture<'a> {
        let needed = |span: &Span| {
            let (count, text) = (span.cells.len(), span.text.chars().count());
            if span.boxed { (text + 3).saturating_sub(count).div_ceil(count) } else { text }
        };
        let widest = rows.iter().flat_map(|row| &row.spans).map(needed).max().unwrap_or(1);
        let name = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        Picture { rows, look, cells, cell: widest.clamp(2, CELL_MAX), name }
    }

    fn text(&self, grid: &Grid<'_>) -> String {
        let room = self.look.width.saturating_sub(2 * INDENT + self.name) / (self.cell + 1);
        let bands = bands(self.cells, room.max(4), grid);
        let mut text = String::new();
        let mut at = 0;
        while let Some(band) = bands.get(at) {
            let folded = bands[at..].iter().take_while(|band| grid.is_free(band)).count();
            if bands.len() > 1 && folded > 0 {
                let cells = CpuSet::range(band.start as u32..bands[at + folded - 1].end as u32);
                text.push_str(&format!("  {}s {}: free\n", short(grid.unit), list(&cells)));
                at += folded;
            } else {
                self.rows.iter().filter_map(|row| self.line(row, band)).for_each(|line| text.push_str(&line));
                at += 1;
            }
        }
        text
    }

    /// Returns the part of a row in a band; None if the row is empty there.
    fn line(&self, row: &Row, band: &Range<usize>) -> Option<String> {
        let mut spans: Vec<&Span> = row.spans.iter().filter(|span| !apart(&span.cells, band)).collect();
        if spans.is_empty() {
            return None;
        }
        spans.sort_by_key(|span| span.cells.start);
        let mut line = format!("{0:INDENT$}{1:2$}{0:INDENT$}", "", row.name, self.name);
        let mut column = 0;
        for span in spans {
            let cells = span.cells.start.max(band.start)..span.cells.end.min(band.end);
            let start = (cells.start - band.start) * (self.cell + 1);
            line.push_str(&" ".repeat(start.saturating_sub(column)));
            let width = cells.len() * (self.cell + 1) - 1;
            let text = match span.boxed {
                true => {
                    let open = if cells.start == span.cells.start { '[' } else { '<' };
                    let close = if cells.end == span.cells.end { ']' } else { '>' };
                    format!("{open}{:<1$}{close}", cut(&span.text, width - 2), width - 2)
                }
                false => format!("{:>1$}", cut(&span.text, width), width),
            };
            line.push_str(&self.look.paint(&text, span.paint));
            column = start + width;
        }
        line.push('\n');
        Some(line)
    }
}

/// Cuts text that is too long and puts two dots in place of the rest.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    format!("{kept}..").chars().take(width).collect()
}

impl Grid<'_> {
    fn is_free(&self, band: &Range<usize>) -> bool {
        self.cells[band.clone()].iter().all(|cell| self.mark(cell) == Some('.'))
    }
}

/// Cuts the cells into ranges of at most `room` cells. A range ends at the end of a package if possible, else of a NUMA node, else of a
/// cache, else of a core.
fn bands(cells: usize, room: usize, grid: &Grid<'_>) -> Vec<Range<usize>> {
    let end_of = |kind: Kind| -> Vec<usize> {
        let objects = grid.topology.objects(kind).iter();
        objects.map(|object| grid.cells.partition_point(|cell| cell.end <= object.threads.end)).collect()
    };
    let ends: Vec<Vec<usize>> = [Kind::Package, Kind::Numa, Kind::L3, Kind::L2, Kind::Core].map(end_of).to_vec();
    let mut bands = Vec::new();
    let mut start = 0;
    while start < cells {
        let furthest = (start + room).min(cells);
        let fitting = |ends: &Vec<usize>| ends.iter().copied().filter(|end| *end > start && *end <= furthest).max();
        let end = if furthest == cells { cells } else { ends.iter().find_map(fitting).unwrap_or(furthest) };
        bands.push(start..end);
        start = end;
    }
    bands
}
