//! A plan as text for people: which node takes which ranks, where on its processor they run, and why.

use std::fmt::Write;

use rsd_core::place::cpuset::CpuSet;

use super::view::{Bound, Node, View, names, whole_cores};
use super::{drawing, reasons};
use crate::look::{Look, Paint};
use crate::placement;
use crate::print::{Align, table};

/// The most rows of nodes. If there are more nodes, equal neighbours share a row.
const ROWS: usize = 24;
/// The most drawings: one for each combination of processor and binding.
const DRAWINGS: usize = 4;
/// The most ranks with a line of their own, unless all are requested.
const FEW: u32 = 8;
/// The most runs of ranks in a row.
const RUNS: usize = 4;

/// What the user requested.
pub(crate) struct Asked<'a> {
    /// The full command.
    pub(crate) command: &'a str,
    /// The job's name; empty: it has none.
    pub(crate) name: &'a str,
    /// No binding was requested.
    pub(crate) default_binding: bool,
}

/// Returns the whole text. `every_reason`: a line for every rank.
pub(crate) fn text(view: &View<'_>, asked: &Asked<'_>, every_reason: bool, look: &Look) -> String {
    let name = if asked.name.is_empty() { String::new() } else { format!("{}: ", asked.name) };
    let mut text = format!("{name}{}\n\n{}", heading(view), nodes(view));
    text.push_str(&drawings(view, look));
    text.push_str(&match every_reason || view.ranks() <= FEW {
        true => each_rank(view),
        false => folded_reasons(view, look),
    });
    let plan = view.plan;
    let policy = [("mapped by", &plan.map_by), ("numbered by", &plan.rank_by), ("bound to", &plan.bind_to)];
    let named = policy.iter().filter(|(_, value)| !value.is_empty()).map(|(what, value)| format!("{what} {value}"));
    let default = if asked.default_binding && !plan.bind_to.is_empty() { " (the default)" } else { "" };
    let _ = writeln!(text, "\n{}{default}", named.collect::<Vec<_>>().join(", "));
    plan.notices.iter().for_each(|notice| text.push_str(&format!("note: {notice}\n")));
    let _ = writeln!(text, "full command: {}", asked.command);
    text
}

/// Returns "12 ranks of 2 programs (1 + 11) on 2 nodes".
pub(crate) fn heading(view: &View<'_>) -> String {
    let sizes: Vec<String> = view.plan.app_sizes.iter().map(u32::to_string).collect();
    let programs = match sizes.len() {
        0 | 1 => String::new(),
        many => format!(" of {many} programs ({})", sizes.join(" + ")),
    };
    format!("{}{programs} on {}", count(view.ranks(), "rank"), count(view.nodes.len() as u32, "node"))
}

/// Returns "1 rank" or "2 ranks".
pub(crate) fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the table of nodes.
fn nodes(view: &View<'_>) -> String {
    let alike = |a: &Node<'_>, b: &Node<'_>| {
        let offer = |node: &Node<'_>| (node.offer.slots, node.offer.in_use, node.count(), node.group);
        view.nodes.len() > ROWS && offer(a) == offer(b) && a.offer.slots_reason == b.offer.slots_reason
    };
    let runs: Vec<&[Node<'_>]> = view.nodes.chunk_by(alike).collect();
    let cpus: Vec<String> = view.groups.iter().map(|group| cpus_each(view, &view.nodes[group.nodes[0]])).collect();
    let busy = view.nodes.iter().any(|node| node.offer.in_use > 0);
    let cells = |run: &&[Node<'_>]| {
        let [first, ..] = run else { return Vec::new() };
        let slots = format!("{} ({})", first.offer.slots, first.offer.slots_reason);
        let each = if run.len() > 1 { " each" } else { "" };
        let mut cells = vec![names(run.iter().map(|node| &*node.offer.name)), slots + each];
        if busy {
            cells.push(format!("{}{each}", first.offer.in_use));
        }
        cells.extend([format!("{}{each}", first.count()), which(run), cpus[first.group].clone()]);
        cells
    };
    let rows: Vec<Vec<String>> = runs.iter().take(ROWS).map(cells).collect();
    const LEFT: Align = Align::Left;
    let mut text = match busy {
        true => {
            let columns = [
                ("NODE", LEFT),
                ("SLOTS", LEFT),
                ("IN USE", LEFT),
                ("RANKS", LEFT),
                ("WHICH", LEFT),
                ("CPUS EACH", LEFT),
            ];
            table(columns, &fixed(rows))
        }
        false => {
            let columns = [("NODE", LEFT), ("SLOTS", LEFT), ("RANKS", LEFT), ("WHICH", LEFT), ("CPUS EACH", LEFT)];
            table(columns, &fixed(rows))
        }
    };
    let hidden: usize = runs.iter().skip(ROWS).map(|run| run.len()).sum();
    if hidden > 0 {
        let _ = writeln!(text, "and {hidden} more nodes (--json lists all)");
    }
    text
}

fn fixed<const N: usize>(rows: Vec<Vec<String>>) -> Vec<[String; N]> {
    rows.into_iter().filter_map(|row| row.try_into().ok()).collect()
}

/// Returns the ranks of a run of nodes.
fn which(run: &[Node<'_>]) -> String {
    match run {
        [] => String::new(),
        [only] => few(&only.ranges),
        [first, .., last] => {
            let whole = run.windows(2).all(|pair| match (&pair[0].ranges[..], &pair[1].ranges[..]) {
                ([(_, end)], [(start, _)]) => end + 1 == *start,
                _ => false,
            });
            match (whole, first.ranges.first(), last.ranges.last()) {
                (true, Some((start, _)), Some((_, end))) => placement::ranges(&[(*start, *end)]),
                _ => format!("{} to {}", few(&first.ranges), few(&last.ranges)),
            }
        }
    }
}

/// Returns the first ranges: "0,8,16,24,..".
pub(crate) fn few(ranges: &[(u32, u32)]) -> String {
    match ranges.len() <= RUNS {
        true => placement::ranges(ranges),
        false => format!("{},..", placement::ranges(&ranges[..RUNS])),
    }
}

/// Returns the cpus that each of a node's ranks may run on: "1 core", "2-3 cores", "any cpu".
fn cpus_each(view: &View<'_>, node: &Node<'_>) -> String {
    let topology = view.topology(node);
    let cores = |bound: &Bound<'_>| topology.and_then(|topology| whole_cores(topology, &bound.threads));
    let sizes = |size: &dyn Fn(&Bound<'_>) -> Option<u32>| -> Option<(u32, u32)> {
        let sizes: Option<Vec<u32>> = view.bounds(node).map(|(_, bound)| size(bound)).collect();
        let sizes = sizes?;
        Some((*sizes.iter().min()?, *sizes.iter().max()?))
    };
    let text = |(least, most): (u32, u32), what: &str| match (least, most) {
        (_, 0) => "any cpu".to_owned(),
        (0, _) => format!("any cpu, or up to {}", count(most, what)),
        (least, most) if least == most => count(most, what),
        (least, most) => format!("{least}-{most} {what}s"),
    };
    match sizes(&|bound| cores(bound).map(|cores| cores.len())) {
        Some(cores) => text(cores, "core"),
        None => sizes(&|bound| Some(bound.threads.len())).map_or_else(String::new, |threads| text(threads, "thread")),
    }
}

/// Returns one drawing for each group of equal nodes.
fn drawings(view: &View<'_>, look: &Look) -> String {
    let mut text = String::new();
    let mut drawn = 0;
    let mut left_out = 0;
    for group in &view.groups {
        let [first, others @ ..] = &group.nodes[..] else { continue };
        if drawn == DRAWINGS {
            left_out += group.nodes.len();
            continue;
        }
        let node = &view.nodes[*first];
        let drawing = drawing::draw(view, node, look);
        if drawing.is_empty() {
            continue;
        }
        let title = match others {
            [] => node.offer.name.clone(),
            [_] => format!("{} ({} is alike, with other ranks)", node.offer.name, view.names(others)),
            _ => format!("{} ({} are alike, with other ranks)", node.offer.name, view.names(others)),
        };
        let _ = write!(text, "\n{}\n{drawing}", look.paint(&title, Paint::Bold));
        drawn += 1;
    }
    if left_out > 0 {
        let _ = writeln!(text, "\n{left_out} more nodes differ from these (--json lists all; --host selects nodes)");
    }
    text
}

/// Returns a line per rank.
fn each_rank(view: &View<'_>) -> String {
    let gpus = view.nodes.iter().any(|node| view.bounds(node).any(|(_, bound)| !bound.gpus.is_empty()));
    let rows = view.seats().into_iter().zip(0_u32..).map(|(seat, rank)| {
        let node = &view.nodes[seat.node as usize];
        let bound = view.bound(node, seat.local);
        let cpus = if bound.threads.is_empty() { "any cpu".to_owned() } else { view.cpus(node, bound) };
        (rank.to_string(), node.offer.name.clone(), cpus, gpu_list(bound.gpus), bound.reason.to_owned())
    });
    const LEFT: Align = Align::Left;
    let table = match gpus {
        true => {
            let columns = [("RANK", Align::Right), ("NODE", LEFT), ("ON", LEFT), ("GPU", LEFT), ("REASON", LEFT)];
            table(columns, &rows.map(|(a, b, c, d, e)| [a, b, c, d, e]).collect::<Vec<_>>())
        }
        false => {
            let columns = [("RANK", Align::Right), ("NODE", LEFT), ("ON", LEFT), ("REASON", LEFT)];
            table(columns, &rows.map(|(a, b, c, _, e)| [a, b, c, e]).collect::<Vec<_>>())
        }
    };
    format!("\n{table}")
}

fn gpu_list(gpus: &[u32]) -> String {
    let set: CpuSet = gpus.iter().copied().collect();
    placement::list(&set)
}

/// Returns a line per group of nodes: the reasons of its ranks, in their order.
fn folded_reasons(view: &View<'_>, look: &Look) -> String {
    // Nodes of different groups may have the same reasons.
    let mut lines: Vec<(Vec<usize>, String)> = Vec::new();
    for group in &view.groups {
        let node = &view.nodes[group.nodes[0]];
        let text = reasons::fold(view.bounds(node).map(|(_, bound)| bound.reason)).join("; ");
        match lines.iter_mut().find(|(_, known)| *known == text) {
            Some((nodes, _)) => nodes.extend(&group.nodes),
            None => lines.push((group.nodes.clone(), text)),
        }
    }
    lines.iter_mut().for_each(|(nodes, _)| nodes.sort_unstable());
    let mut text = format!(
        "\n{}\n",
        look.paint("reasons, in the order of each node's ranks (--reasons lists every rank)", Paint::Bold)
    );
    let shown = lines.iter().take(ROWS).map(|(nodes, reasons)| (view.names(nodes), reasons));
    let width = shown.clone().map(|(names, _)| names.chars().count()).max().unwrap_or(0);
    shown.for_each(|(names, reasons)| text.push_str(&format!("  {names:width$}  {reasons}\n")));
    if lines.len() > ROWS {
        let _ = writeln!(text, "  and {} others", lines.len() - ROWS);
    }
    text
}
