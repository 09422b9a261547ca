//! A topic as a man page of section 7.

use roff::{Inline, Roff, bold, italic, roman};

use super::Topic;
use super::markdown::{Block, Style, Text, parse};
use super::terminal::plain_table;

/// A table of more than two columns is set as plain text of this width.
const TABLE_WIDTH: usize = 72;

/// Returns the name of the page: `rsd-placement`.
pub(crate) fn name(topic: &Topic) -> String {
    format!("rsd-{}", topic.name)
}

/// Returns the page as roff.
pub(crate) fn page(topic: &Topic) -> String {
    let mut page = Roff::new();
    let version = format!("rsd {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [&*name(topic).to_uppercase(), "7", "", &version, "rsd"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{} - {}", name(topic), topic.about))]);
    let blocks = parse(topic.source);
    // The first heading repeats the name.
    let (_, body) = blocks.split_first().unwrap_or((&Block::Code(String::new()), &[]));
    if !matches!(body.first(), Some(Block::Heading { .. })) {
        page.control("SH", ["DESCRIPTION"]);
    }
    set(body, &mut page);
    page.render()
}

fn set(blocks: &[Block], page: &mut Roff) {
    for block in blocks {
        match block {
            Block::Heading { level, text } => {
                page.control(if *level <= 2 { "SH" } else { "SS" }, [&*flat(text)]);
            }
            Block::Paragraph(text) => {
                page.control("PP", []);
                page.text(inlines(text));
            }
            Block::Code(code) => literal(code, page),
            Block::List { ordered, items } => list(*ordered, items, page),
            Block::Table(rows) => table(rows, page),
        }
    }
}

fn literal(code: &str, page: &mut Roff) {
    page.control("PP", []);
    page.control("RS", ["4"]);
    page.control("nf", []);
    for line in code.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("RE", []);
}

fn list(ordered: bool, items: &[Vec<Block>], page: &mut Roff) {
    for (at, item) in items.iter().enumerate() {
        let mark = if ordered { format!("{}.", at + 1) } else { "-".to_owned() };
        page.control("IP", [&*mark, "3"]);
        let (first, rest) = match item.split_first() {
            Some((Block::Paragraph(text), rest)) => (inlines(text), rest),
            Some(_) | None => (Vec::new(), &item[..]),
        };
        page.text(first);
        if !rest.is_empty() {
            page.control("RS", ["3"]);
            set(rest, page);
            page.control("RE", []);
        }
    }
}

/// Sets a table of two columns as terms and their meanings, without its header row, because the section's heading says the same.
fn table(rows: &[Vec<Text>], page: &mut Roff) {
    if rows.first().map_or(0, Vec::len) != 2 {
        return literal(&plain_table(rows, TABLE_WIDTH), page);
    }
    for row in &rows[1..] {
        let [term, meaning] = &row[..] else { continue };
        page.control("TP", []);
        page.text([bold(flat(term))]);
        page.text(inlines(meaning));
    }
}

fn inlines(text: &Text) -> Vec<Inline> {
    let inline = |span: &super::markdown::Span| match span.style {
        Style::Plain => roman(&*span.text),
        Style::Emphasis => italic(&*span.text),
        Style::Strong | Style::Code => bold(&*span.text),
    };
    text.iter().map(inline).collect()
}

fn flat(text: &Text) -> String {
    text.iter().map(|span| &*span.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_code_and_tables_become_roff_requests() {
        let source = "# t: x\n\n## Use\n\nSay `a -b`.\n\n```sh\n.x\n```\n\n| k | v |\n|---|---|\n| `K` | the value |\n";
        let page = page(&Topic { name: "t", about: "x", source });
        for expected in [
            ".TH RSD-T 7",
            ".SH NAME\nrsd\\-t \\- x\n",
            ".SH Use\n.PP\nSay \\fBa \\-b\\fR.\n",
            ".nf\n\\&.x\n.fi",
            ".TP\n\\fBK\\fR\nthe value\n",
        ] {
            assert!(page.contains(expected), "{expected:?} is not in\n{page}");
        }
    }
}
