//! Formats a topic as text for a terminal, wrapped to its width.

use super::Topic;
use super::markdown::{Block, Style, Text, parse};
use crate::look::{Look, Paint};

/// The longest line, also on a wide terminal: longer lines are hard to read.
const WIDTH_MAX: usize = 96;
/// The least width of a table's last column, and the greatest width of the others.
const LAST_MIN: usize = 24;
const OTHERS_MAX: usize = 30;

/// Returns the whole topic as text.
pub(crate) fn text(topic: &Topic, look: &Look) -> String {
    let page = Page { look: Look { width: look.width.min(WIDTH_MAX), ..*look } };
    let mut out = String::new();
    page.blocks(&parse(topic.source), 0, &mut out);
    out
}

/// Returns a table as plain text of this width.
pub(super) fn plain_table(rows: &[Vec<Text>], width: usize) -> String {
    let mut out = String::new();
    Page { look: Look { width, rich: false } }.table(rows, 0, &mut out);
    out
}

struct Page {
    look: Look,
}

/// A word and how it looks.
struct Word {
    text: String,
    paint: Paint,
    /// Whether a blank precedes it.
    apart: bool,
}

impl Page {
    fn blocks(&self, blocks: &[Block], indent: usize, out: &mut String) {
        for (at, block) in blocks.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            match block {
                Block::Heading { text, .. } => {
                    let words = words(text).into_iter().map(|word| Word { paint: Paint::Bold, ..word }).collect();
                    self.lines(&self.wrap(words, self.look.width - indent), indent, out);
                }
                Block::Paragraph(text) => self.lines(&self.wrap(words(text), self.look.width - indent), indent, out),
                Block::Code(code) => {
                    for line in code.lines() {
                        let line = self.look.paint(line, Paint::Code);
                        out.push_str(format!("{:1$}{line}", "", indent + 4).trim_end());
                        out.push('\n');
                    }
                }
                Block::List { ordered, items } => self.list(*ordered, items, indent, out),
                Block::Table(rows) => self.table(rows, indent, out),
            }
        }
    }

    fn list(&self, ordered: bool, items: &[Vec<Block>], indent: usize, out: &mut String) {
        for (at, item) in items.iter().enumerate() {
            let mark = if ordered { format!("{}. ", at + 1) } else { "- ".to_owned() };
            let mut text = String::new();
            self.blocks(item, indent + mark.len(), &mut text);
            out.push_str(&format!("{:indent$}{mark}{}", "", text.trim_start()));
        }
    }

    /// Formats a table. Only the last column wraps. After a cell that is wider than its column, the row continues on the next line.
    fn table(&self, rows: &[Vec<Text>], indent: usize, out: &mut String) {
        let columns = rows.first().map_or(0, Vec::len);
        let length = |text: &Text| words(text).iter().map(|word| word.width()).sum::<usize>();
        let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| width(column).min(OTHERS_MAX)).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let rest = self.look.width.saturating_sub(indent + before).max(LAST_MIN);
        for (at, row) in rows.iter().enumerate() {
            let mut lead = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate().take(columns.saturating_sub(1)) {
                let mut words = words(cell);
                if at == 0 {
                    words.iter_mut().for_each(|word| word.paint = Paint::Bold);
                }
                let line = self.wrap(words, usize::MAX).concat();
                let next = widths[..=column].iter().map(|width| width + 2).sum::<usize>();
                lead.push_str(&match widths[column].checked_sub(length(cell)) {
                    Some(room) => format!("{line}{:1$}", "", room + 2),
                    None => format!("{line}\n{:1$}", "", indent + next),
                });
            }
            let mut last = row.last().map(words).unwrap_or_default();
            if at == 0 {
                last.iter_mut().for_each(|word| word.paint = Paint::Bold);
            }
            let lines = self.wrap(last, rest);
            let mut lines = lines.iter();
            out.push_str(format!("{lead}{}", lines.next().map_or("", String::as_str)).trim_end());
            out.push('\n');
            lines.for_each(|line| out.push_str(&format!("{:1$}{line}\n", "", indent + before)));
        }
    }

    fn lines(&self, lines: &[String], indent: usize, out: &mut String) {
        lines.iter().for_each(|line| out.push_str(&format!("{:indent$}{line}\n", "")));
    }

    /// Wraps words into lines of at most `width` columns; a longer word gets a line of its own.
    fn wrap(&self, words: Vec<Word>, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let (mut line, mut column) = (String::new(), 0);
        // Words without a blank between them stay together.
        for piece in words.chunk_by(|_, next| !next.apart) {
            let length: usize = piece.iter().map(|word| word.text.chars().count()).sum();
            if column > 0 && column + 1 + length > width {
                lines.push(std::mem::take(&mut line));
                column = 0;
            }
            if column > 0 {
                line.push(' ');
                column += 1;
            }
            piece.iter().for_each(|word| line.push_str(&self.look.paint(&word.text, word.paint)));
            column += length;
        }
        lines.push(line);
        lines
    }
}

impl Word {
    fn width(&self) -> usize {
        self.text.chars().count() + usize::from(self.apart)
    }
}

fn words(text: &Text) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut apart = false;
    for span in text {
        let (paint, mark) = match span.style {
            Style::Plain => (Paint::Plain, ""),
            Style::Emphasis => (Paint::Underlined, ""),
            Style::Strong => (Paint::Bold, ""),
            Style::Code => (Paint::Code, "`"),
        };
        let marked = format!("{mark}{}{mark}", span.text);
        apart |= marked.starts_with(' ');
        for word in marked.split_whitespace() {
            words.push(Word { text: word.to_owned(), paint, apart: apart && !words.is_empty() });
            apart = true;
        }
        apart = marked.ends_with(' ');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &'static str, width: usize) -> String {
        text(&Topic { name: "t", about: "", source }, &Look { width, rich: false })
    }

    #[test]
    fn paragraphs_wrap_and_code_does_not() {
        assert_eq!(
            shown("# Title\n\none two `three`, four\n\n```sh\na very long line of code\n```\n", 16),
            "Title\n\none two `three`,\nfour\n\n    a very long line of code\n"
        );
    }

    #[test]
    fn lists_are_indented_and_the_last_column_of_a_table_wraps() {
        assert_eq!(shown("- one two three four\n- b\n", 12), "- one two\n  three four\n- b\n");
        let table = "| code | means |\n|---|---|\n| `0` | all ranks exited with zero, and so on |\n";
        assert_eq!(shown(table, 32), "code  means\n`0`   all ranks exited with\n      zero, and so on\n");
    }
}
