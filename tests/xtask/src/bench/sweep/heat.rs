//! The heat maps of a sweep: a row for each figure and number of ranks, a column for each size, green where rsd's library is faster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::cells::{Cells, Place, Ratios, size};

const WIDTH: usize = 34;
const HEIGHT: usize = 14;
const LABEL: usize = 250;
const HEAD: usize = 60;

/// Writes an SVG file for each way into the folder; returns what the ways are called, and the files' names.
pub(super) fn write(cells: &Cells, into: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut ways: BTreeMap<(String, bool), Vec<(&Place, &Ratios)>> = BTreeMap::new();
    for (place, ratios) in &cells.ratios {
        ways.entry((place.way.clone(), place.noisy)).or_default().push((place, ratios));
    }
    let mut files = Vec::new();
    for ((way, noisy), cells) in ways {
        let name = format!("{way}{}.svg", if noisy { "-noisy" } else { "" });
        fs::write(into.join(&name), draw(&cells))?;
        files.extend(cells.first().map(|(place, _)| (place.way(), name)));
    }
    Ok(files)
}

fn draw(cells: &[(&Place, &Ratios)]) -> String {
    let sizes: Vec<u64> = cells.iter().map(|(place, _)| place.bytes).collect::<BTreeSet<_>>().into_iter().collect();
    let mut rows: Vec<(&str, u64)> = Vec::new();
    for (place, _) in cells {
        let row = (place.figure.as_str(), place.ranks);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let (wide, high) = (LABEL + WIDTH * sizes.len() + 10, HEAD + HEIGHT * rows.len() + 10);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" font-family=\"sans-serif\" font-size=\"9\">\n\
         <rect width=\"{wide}\" height=\"{high}\" fill=\"white\"/>\n\
         <text x=\"4\" y=\"14\" font-size=\"12\">time of rsd's MPI library / time of the better of MPICH and Open MPI, medians: green is faster</text>\n"
    );
    for (column, &bytes) in sizes.iter().enumerate() {
        let (x, y) = (LABEL + WIDTH * column + WIDTH / 2, HEAD - 6);
        let _ = writeln!(svg, "<text transform=\"translate({x},{y}) rotate(-50)\">{}</text>", size(bytes));
    }
    for (at, (figure, ranks)) in rows.iter().enumerate() {
        let y = HEAD + HEIGHT * at;
        let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">{figure}, {ranks} ranks</text>", y + HEIGHT - 4);
        for (place, ratios) in
            cells.iter().filter(|(place, _)| (place.figure.as_str(), place.ranks) == (*figure, *ranks))
        {
            let column = sizes.iter().position(|bytes| *bytes == place.bytes).unwrap_or(0);
            let (x, ratio) = (LABEL + WIDTH * column, ratios.median);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{ratio:.2}</text>",
                colour(ratio),
                x + 6,
                y + HEIGHT - 4
            );
        }
    }
    svg + "</svg>\n"
}

/// Dark green for a fifth of the time and less, white for the same time, red for five times as much and more.
fn colour(ratio: f64) -> String {
    let scale = (ratio.ln() / 5.0_f64.ln()).clamp(-1.0, 1.0);
    let pale = |full: f64| (255.0 - (255.0 - full) * scale.abs()) as u8;
    let (red, green, blue) = if scale < 0.0 { (20.0, 150.0, 60.0) } else { (215.0, 40.0, 30.0) };
    format!("#{:02x}{:02x}{:02x}", pale(red), pale(green), pale(blue))
}

#[cfg(test)]
mod tests {
    use super::colour;

    #[test]
    fn faster_is_green_and_slower_is_red() {
        assert_eq!(colour(1.0), "#ffffff");
        assert_eq!(colour(0.1), "#14963c");
        assert_eq!(colour(50.0), "#d7281e");
    }
}
