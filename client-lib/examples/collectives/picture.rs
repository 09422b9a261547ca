//! The heat map: a panel for each function, with a row for each layout and a column for each size.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::grid::{Cell, Kind};
use crate::report::Verdict;

const WIDTH: usize = 12;
const HEIGHT: usize = 9;
const LEFT: usize = 80;
const PANEL: usize = 9 * WIDTH + 16;
const TOP: usize = 60;

/// The verdicts on one machine, by function: above against the fastest algorithm, below against the lower bound.
pub(crate) fn draw(name: &str, verdicts: &[(Kind, Vec<Verdict>)]) -> String {
    let cells = || verdicts.iter().flat_map(|(_, verdicts)| verdicts.iter().map(|verdict| verdict.cell));
    let mut layouts: Vec<(u32, u32)> = cells().map(|cell| (cell.nodes, cell.each)).collect();
    layouts.sort_unstable();
    layouts.dedup();
    let rows = layouts.len() * HEIGHT;
    let (width, height) = (LEFT + verdicts.len() * PANEL, 2 * (TOP + rows) + 30);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"8\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    type Ratio = fn(&Verdict) -> f64;
    let halves: [(&str, Ratio, f64); 2] = [
        ("the choice / the fastest algorithm: green 1, red 1.5", |it| it.over_best, 1.5),
        ("the choice / the lower bound: green 1, red 32", |it| it.over_bound, 32.0),
    ];
    for (half, (title, ratio, red)) in halves.into_iter().enumerate() {
        let top = half * (TOP + rows) + TOP;
        let _ = writeln!(text, "<text x=\"4\" y=\"{}\" font-size=\"12\">{name}, {title}</text>", top - 36);
        for (index, (nodes, each)) in layouts.iter().enumerate() {
            let y = top + index * HEIGHT + 7;
            let _ = writeln!(text, "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{nodes} × {each}</text>", LEFT - 4);
        }
        let mut squares: BTreeMap<usize, String> = BTreeMap::new();
        for (panel, (kind, verdicts)) in verdicts.iter().enumerate() {
            let left = LEFT + panel * PANEL;
            let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\" font-size=\"10\">{kind:?}</text>", top - 16);
            let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\">1 B … 16 MiB</text>", top - 5);
            for verdict in verdicts {
                let Cell { nodes, each, bytes, .. } = verdict.cell;
                let row = layouts.iter().position(|it| *it == (nodes, each)).unwrap_or(0);
                let column = bytes.max(1).ilog2() as usize / 3;
                let (x, y) = (left + column * WIDTH, top + row * HEIGHT);
                let share = (ratio(verdict).ln() / red.ln()).clamp(0.0, 1.0);
                let squares = squares.entry((share * LEVELS) as usize).or_default();
                let _ = write!(squares, "M{x} {y}h{}v{}h-{}z", WIDTH - 1, HEIGHT - 1, WIDTH - 1);
            }
        }
        for (level, squares) in squares {
            let _ = writeln!(text, "<path fill=\"{}\" d=\"{squares}\"/>", colour(level as f64 / LEVELS));
        }
    }
    text.push_str("</svg>\n");
    text
}

/// How many colours there are, but for one.
const LEVELS: f64 = 20.0;

/// From green over yellow to red.
fn colour(share: f64) -> String {
    let (red, green) = if share < 0.5 { (share * 2.0, 1.0) } else { (1.0, 2.0 - share * 2.0) };
    let level = |part: f64| (40.0 + 190.0 * part) as u32;
    format!("#{:02x}{:02x}28", level(red), level(green))
}
