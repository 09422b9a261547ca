//! The parts of Markdown that the checks need: lines of prose, code spans and fenced blocks.

/// A line outside fenced blocks.
pub(super) struct Prose<'a> {
    /// The line number, from 1.
    pub(super) number: usize,
    pub(super) text: &'a str,
}

/// A fenced block.
pub(super) struct Block<'a> {
    /// The language after the fence.
    pub(super) language: &'a str,
    /// The lines, each with its number from 1.
    pub(super) lines: Vec<(usize, &'a str)>,
}

/// Splits a text into lines of prose and fenced blocks.
pub(super) fn split(text: &str) -> (Vec<Prose<'_>>, Vec<Block<'_>>) {
    let (mut prose, mut blocks) = (Vec::new(), Vec::new());
    let mut open: Option<Block<'_>> = None;
    for (line, number) in text.lines().zip(1..) {
        let fence = line.trim_start().strip_prefix("```");
        open = match (open, fence) {
            (Some(block), Some(_)) => {
                blocks.push(block);
                None
            }
            (None, Some(language)) => Some(Block { language: language.trim(), lines: Vec::new() }),
            (Some(mut block), None) => {
                block.lines.push((number, line));
                Some(block)
            }
            (None, None) => {
                prose.push(Prose { number, text: line });
                None
            }
        };
    }
    blocks.extend(open);
    (prose, blocks)
}

/// The code spans of a line.
pub(super) fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// The line with its code spans blanked.
pub(super) fn without_spans(line: &str) -> String {
    line.split('`').enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, text)| text).collect::<Vec<_>>().join("``")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_and_blocks_keep_their_line_numbers() {
        let (prose, blocks) = split("a\n```sh\nb `c`\n```\nd `e` f `g`\n");
        assert_eq!(
            prose.iter().map(|line| (line.number, line.text)).collect::<Vec<_>>(),
            [(1, "a"), (5, "d `e` f `g`")]
        );
        assert_eq!((blocks[0].language, &blocks[0].lines[..]), ("sh", &[(3, "b `c`")][..]));
        assert_eq!(spans(prose[1].text), ["e", "g"]);
        assert_eq!(without_spans(prose[1].text), "d `` f ``");
    }
}
