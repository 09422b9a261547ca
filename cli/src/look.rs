//! What standard output can show: its width and colours.

use std::io::IsTerminal;

/// Width and colours of the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// In columns.
    pub(crate) width: usize,
    /// Colours and Unicode: for a terminal, unless NO_COLOR is set. All other output is plain ASCII.
    pub(crate) rich: bool,
}

/// How a piece of text looks if colours are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Bold,
    Dim,
    Underlined,
    /// Text to type, and names of options and files.
    Code,
    /// One of several colours; adjacent numbers have different ones.
    Hue(usize),
}

impl Look {
    /// The look of output that is not a terminal: lines that fit a page.
    pub(crate) const PLAIN: Look = Look { width: 100, rich: false };

    /// Returns the look of standard output.
    pub(crate) fn of_stdout() -> Look {
        const NARROWEST: usize = 40;
        let width =
            terminal_size::terminal_size().map_or(Look::PLAIN.width, |(width, _)| usize::from(width.0).max(NARROWEST));
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        Look { width: if terminal { width } else { Look::PLAIN.width }, rich: terminal && !plain && !dumb }
    }

    /// Returns `text` with the escape sequences for `paint`; unchanged without colours.
    pub(crate) fn paint(&self, text: &str, paint: Paint) -> String {
        const HUES: [u8; 6] = [32, 33, 34, 35, 36, 31];
        match paint {
            _ if !self.rich => text.to_owned(),
            Paint::Plain => text.to_owned(),
            Paint::Bold => format!("\x1b[1m{text}\x1b[0m"),
            Paint::Underlined => format!("\x1b[4m{text}\x1b[0m"),
            Paint::Code => format!("\x1b[36m{text}\x1b[0m"),
            Paint::Dim => format!("\x1b[2m{text}\x1b[0m"),
            Paint::Hue(at) => format!("\x1b[{}m{text}\x1b[0m", HUES[at % HUES.len()]),
        }
    }

    /// Returns the arrow between an old and a new place.
    pub(crate) fn arrow(&self) -> &'static str {
        if self.rich { "→" } else { "->" }
    }
}
