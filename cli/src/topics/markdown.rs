//! Parses the part of Markdown that the topics use into blocks of text.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    Heading {
        level: u8,
        text: Text,
    },
    Paragraph(Text),
    /// Lines that are not wrapped.
    Code(String),
    List {
        ordered: bool,
        items: Vec<Vec<Block>>,
    },
    /// The first row is the header.
    Table(Vec<Vec<Text>>),
}

/// A sequence of spans, each in one style.
pub(super) type Text = Vec<Span>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) style: Style,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Emphasis,
    Strong,
    Code,
}

/// Parses a source into blocks.
pub(super) fn parse(source: &str) -> Vec<Block> {
    blocks(&mut Parser::new_ext(source, Options::ENABLE_TABLES))
}

/// Reads blocks up to the end of the block that contains them. Items of tight lists contain text without a paragraph.
fn blocks<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut loose = Text::new();
    while let Some(event) = events.next() {
        let block = match event {
            Event::Start(Tag::Heading { level, .. }) => Block::Heading { level: level as u8, text: text(events) },
            Event::Start(Tag::Paragraph) => Block::Paragraph(text(events)),
            Event::Start(Tag::CodeBlock(_)) => Block::Code(code(events)),
            Event::Start(Tag::List(first)) => Block::List { ordered: first.is_some(), items: items(events) },
            Event::Start(Tag::Table(_)) => Block::Table(rows(events)),
            Event::End(_) => break,
            inline => {
                push(&mut loose, inline, events);
                continue;
            }
        };
        flush(&mut loose, &mut blocks);
        blocks.push(block);
    }
    flush(&mut loose, &mut blocks);
    blocks
}

fn flush(loose: &mut Text, blocks: &mut Vec<Block>) {
    if !loose.is_empty() {
        blocks.push(Block::Paragraph(std::mem::take(loose)));
    }
}

fn items<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> Vec<Vec<Block>> {
    let mut items = Vec::new();
    while let Some(Event::Start(_)) = events.next() {
        items.push(blocks(events));
    }
    items
}

fn rows<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> Vec<Vec<Text>> {
    let mut rows = Vec::new();
    while let Some(Event::Start(_)) = events.next() {
        let mut row = Vec::new();
        while let Some(Event::Start(_)) = events.next() {
            row.push(text(events));
        }
        rows.push(row);
    }
    rows
}

fn code<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> String {
    let mut code = String::new();
    while let Some(Event::Text(text)) = events.next() {
        code.push_str(&text);
    }
    code
}

/// Reads inline text up to the end of its block.
fn text<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> Text {
    let mut text = Text::new();
    while let Some(event) = events.next() {
        if let Event::End(TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::TableCell) = event {
            break;
        }
        push(&mut text, event, events);
    }
    text
}

/// Appends one inline event, with the events that it encloses.
fn push<'a>(text: &mut Text, event: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) {
    let mut span = |style, words: &str| text.push(Span { style, text: words.to_owned() });
    match event {
        Event::Text(words) => span(Style::Plain, &words),
        Event::Code(words) => span(Style::Code, &words),
        Event::SoftBreak | Event::HardBreak => span(Style::Plain, " "),
        Event::Start(Tag::Strong) => span(Style::Strong, &enclosed(events)),
        Event::Start(Tag::Emphasis) => span(Style::Emphasis, &enclosed(events)),
        // Only the text of a link is kept: topics refer to other topics by command.
        Event::Start(_) => span(Style::Plain, &enclosed(events)),
        _ => {}
    }
}

fn enclosed<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> String {
    let mut words = String::new();
    for event in events {
        match event {
            Event::Text(text) | Event::Code(text) => words.push_str(&text),
            Event::SoftBreak | Event::HardBreak => words.push(' '),
            Event::End(_) => break,
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Span {
        Span { style: Style::Plain, text: text.to_owned() }
    }

    #[test]
    fn headings_paragraphs_and_code_become_blocks() {
        let code = Span { style: Style::Code, text: "b".to_owned() };
        assert_eq!(
            parse("## A\n\nx `b`\ny\n\n```sh\n$ z\n  w\n```\n"),
            [
                Block::Heading { level: 2, text: vec![plain("A")] },
                Block::Paragraph(vec![plain("x "), code, plain(" "), plain("y")]),
                Block::Code("$ z\n  w\n".to_owned()),
            ]
        );
    }

    #[test]
    fn lists_and_tables_keep_their_items() {
        let paragraph = |text| vec![Block::Paragraph(vec![plain(text)])];
        assert_eq!(
            parse("- a\n- b\n\n| h | i |\n|---|---|\n| c | d |\n"),
            [
                Block::List { ordered: false, items: vec![paragraph("a"), paragraph("b")] },
                Block::Table(vec![vec![vec![plain("h")], vec![plain("i")]], vec![vec![plain("c")], vec![plain("d")]]]),
            ]
        );
    }
}
