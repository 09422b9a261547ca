//! What the terminal can show.

use std::io::IsTerminal;

/// How wide, and with which means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Columns.
    pub(crate) width: usize,
    /// A terminal whose user does not mind colours (NO_COLOR); everything else gets plain ASCII.
    pub(crate) rich: bool,
}

/// How a piece of text looks where there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Bold,
    Dim,
    Underlined,
    /// What one types, and names of options and files.
    Code,
    /// Neighbours get different ones.
    Hue(usize),
}

impl Look {
    /// The width where none is known: lines that fit a page.
    pub(crate) const PLAIN: Look = Look { width: 100, rich: false };

    /// That of standard output.
    pub(crate) fn of_stdout() -> Look {
        const NARROWEST: usize = 40;
        let width =
            terminal_size::terminal_size().map_or(Look::PLAIN.width, |(width, _)| usize::from(width.0).max(NARROWEST));
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        Look { width: if terminal { width } else { Look::PLAIN.width }, rich: terminal && !plain && !dumb }
    }

    /// `text` as it is to look; plain where there are no colours.
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

    /// From here to there.
    pub(crate) fn arrow(&self) -> &'static str {
        if self.rich { "→" } else { "->" }
    }
}
