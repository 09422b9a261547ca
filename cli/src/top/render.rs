//! Draws the screen of `rsctl top`. On a terminal of any size: what does not fit is left out, and lists scroll.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::plain::{self, JOBS, NODES};
use super::state::{Log, Mode, State, TABS, Tab};
use crate::print::{Align, one_line};

const KEYS: &str = "q quit  ? help  tab list  l output  s signal  c cancel";

const HELP: &[&str] = &[
    "up, down, j, k      select a row",
    "page up, page down  scroll",
    "home, end, g, G     first and last row",
    "tab, 1, 2, 3        jobs, nodes, waits",
    "l, enter            output of the selected job, as it comes",
    "s                   send a signal to the selected job",
    "c                   cancel the selected job, after a question",
    "q, escape           leave",
    "",
    "any key closes this help",
];

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let areas =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]);
    let [top, tabs, body, bottom] = areas.areas(frame.area());
    let summary = state.seen.as_ref().map_or_else(|| "asking the daemon …".to_owned(), plain::summary);
    frame.render_widget(Line::styled(summary, Modifier::BOLD), top);
    frame.render_widget(tab_line(state), tabs);
    // The titles take one row.
    state.page = usize::from(body.height).saturating_sub(1);
    match &state.mode {
        Mode::Help => frame.render_widget(Paragraph::new(Text::from_iter(HELP.iter().copied())), body),
        Mode::Log(log) => {
            state.page = usize::from(body.height);
            draw_log(frame, log, body);
        }
        Mode::Lists | Mode::Cancel(_) | Mode::Signal(..) => draw_list(frame, state, body),
    }
    frame.render_widget(bottom_line(state), bottom);
}

fn tab_line(state: &State) -> Line<'static> {
    if let Mode::Log(log) = &state.mode {
        return Line::raw(format!("output of job {}{}", log.job, if log.back > 0 { " (end follows it)" } else { "" }));
    }
    let span = |(tab, name): (Tab, &'static str)| {
        let style = if tab == state.tab { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        [Span::styled(format!(" {name} {} ", state.len(tab)), style), Span::raw(" ")]
    };
    Line::from_iter(TABS.into_iter().flat_map(span))
}

fn bottom_line(state: &State) -> Line<'static> {
    let strong = |text: String| Line::styled(text, Modifier::REVERSED);
    match &state.mode {
        Mode::Cancel(job) => strong(format!("cancel job {job}? y: yes, any other key: no")),
        Mode::Signal(job, text) if state.message.is_empty() => {
            strong(format!("signal to job {job} (as TERM or 15; escape: none): {text}_"))
        }
        Mode::Signal(_, text) => strong(format!("{}: {text}_", state.message)),
        Mode::Log(_) => Line::raw("q back  up, down, page up, page down scroll  G follow"),
        Mode::Lists | Mode::Help if state.message.is_empty() => Line::raw(KEYS),
        Mode::Lists | Mode::Help => strong(one_line(&state.message)),
    }
}

/// Draws the rows of the list that fit; of a thousand, only those are made.
fn draw_list(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(seen) = &state.seen else { return };
    let (len, page, row) = (state.len(state.tab), state.page.max(1), state.row());
    // The selected row is in the middle, except near the ends.
    let first = row.saturating_sub(page / 2).min(len.saturating_sub(page));
    let shown = first..len.min(first + page);
    if len == 0 {
        let none = match state.tab {
            Tab::Jobs => "no running jobs",
            Tab::Nodes => "no nodes",
            Tab::Waits => "nothing waits",
        };
        return frame.render_widget(Line::raw(none), area);
    }
    let mut selected = TableState::new().with_selected(row.checked_sub(first));
    let table = match state.tab {
        Tab::Jobs => table(JOBS, shown.map(|at| plain::job_row(seen, at)).collect()),
        Tab::Nodes => table(NODES, shown.map(|at| plain::node_row(seen, at)).collect()),
        Tab::Waits => table([("WAITS", Align::Left)], shown.map(|at| [plain::wait_line(seen, at)]).collect()),
    };
    frame.render_stateful_widget(table, area, &mut selected);
}

/// Returns a table whose last column has the rest of the width.
fn table<const N: usize>(columns: [(&'static str, Align); N], rows: Vec<[String; N]>) -> Table<'static> {
    let rows: Vec<[String; N]> = rows.iter().map(|row| std::array::from_fn(|at| one_line(&row[at]))).collect();
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([columns[at].0.len()]).max().unwrap_or(0)
    };
    let widths = (0..N).map(|at| match at + 1 == N {
        true => Constraint::Fill(1),
        false => Constraint::Length(u16::try_from(width(at)).unwrap_or(u16::MAX)),
    });
    let cell = |text: String, at: usize| {
        let text = Text::from(text);
        Cell::from(if columns[at].1 == Align::Right { text.right_aligned() } else { text })
    };
    let widths: Vec<Constraint> = widths.collect();
    let titles = Row::new((0..N).map(|at| cell(columns[at].0.to_owned(), at))).style(Modifier::UNDERLINED);
    let rows = rows.into_iter().map(|row| Row::new(row.into_iter().enumerate().map(|(at, text)| cell(text, at))));
    Table::new(rows, widths)
        .header(titles)
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn draw_log(frame: &mut Frame<'_>, log: &Log, area: Rect) {
    let end = log.lines.len().saturating_sub(log.back);
    let start = end.saturating_sub(usize::from(area.height));
    let lines = log.lines.range(start..end).map(|line| Line::raw(one_line(line)));
    let text = if log.lines.is_empty() { Text::raw("no output yet") } else { Text::from_iter(lines) };
    frame.render_widget(Paragraph::new(text), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use rsd_proto::v1::Record;

    use super::super::state::Key;
    use super::super::state::tests::seen;
    use super::*;

    fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_screen_has_counts_a_list_and_the_keys() {
        let mut state = State::default();
        assert_eq!(screen(&mut state, 60, 5)[0], "asking the daemon …");
        state.on_snapshot(seen(3, 2));
        let shown = screen(&mut state, 110, 8);
        assert_eq!(
            shown[0],
            "nodes 2 up; slots 8 of 16 in use; jobs 2 running, 1 queued; ranks 8 running; output 2.0 KiB/s"
        );
        assert_eq!(shown[1], " Jobs 3   Nodes 2   Waits 0");
        assert_eq!(shown[2], "JOB  STATE    RANKS  ELAPSED  USER  COMMAND");
        assert_eq!(shown[4], "  2  queued       -    1m00s  -     ./a.out 2");
        assert_eq!(shown[7], KEYS);
        state.on_key(Key::Char('c'));
        assert_eq!(screen(&mut state, 60, 5)[4], "cancel job 1? y: yes, any other key: no");
        state.on_key(Key::Escape);
        state.on_key(Key::Char('2'));
        assert!(screen(&mut state, 110, 8)[3].starts_with("n0    up         8       4"));
        state.on_key(Key::Char('?'));
        assert!(screen(&mut state, 80, 9)[2].starts_with("up, down, j, k"));
    }

    #[test]
    fn a_thousand_rows_scroll_and_the_selected_one_is_always_shown() {
        let mut state = State::default();
        state.on_snapshot(seen(1000, 1000));
        for (tab, last) in [('1', "1000"), ('2', "n999")] {
            state.on_key(Key::Char(tab));
            state.on_key(Key::Home);
            let height = 9;
            screen(&mut state, 80, height);
            for _ in 0..250 {
                state.on_key(Key::PageDown);
                let shown = screen(&mut state, 80, height);
                let name = if tab == '1' { format!("{}", state.row() + 1) } else { format!("n{}", state.row()) };
                assert!(shown.iter().any(|line| line.split_whitespace().next() == Some(&name)), "{name} in {shown:?}");
            }
            assert!(screen(&mut state, 80, height).iter().any(|line| line.trim_start().starts_with(last)));
        }
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn() {
        for mode in ['1', '2', '3', '?', 'c', 's', 'l'] {
            for (width, height) in [(1, 1), (2, 1), (1, 9), (3, 2), (7, 3), (300, 4), (40, 100)] {
                let mut state = State::default();
                state.on_snapshot(seen(50, 50));
                state.on_key(Key::Char(mode));
                let record = Record { data: b"out\n".to_vec().into(), ..Record::default() };
                state.on_records(vec![record]);
                assert_eq!(screen(&mut state, width, height).len(), usize::from(height));
                state.on_key(Key::PageDown);
                screen(&mut state, width, height);
            }
        }
    }

    #[test]
    fn control_characters_of_programs_do_not_reach_the_terminal() {
        let mut state = State::default();
        let mut snapshot = seen(1, 1);
        snapshot.jobs[0].command = "./a\u{1b}[2J\nb".to_owned();
        state.on_snapshot(snapshot);
        assert!(screen(&mut state, 80, 6)[3].ends_with("./a^[[2J b"));
        state.on_key(Key::Char('l'));
        state.on_records(vec![Record { data: b"x\x1b[31m\n".to_vec().into(), ..Record::default() }]);
        assert_eq!(screen(&mut state, 80, 6)[2], "[0] x^[[31m");
    }
}
