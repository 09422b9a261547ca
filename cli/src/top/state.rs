//! What `rsctl top` shows, and what keys change: pure.

use std::collections::VecDeque;

use rsd_proto::v1::{JobInfo, JobState, NodeState, Record};

use super::look::Snapshot;
use crate::signals;

/// The most lines of a job's output that are kept, and the longest of them in characters.
const LINES_MAX: usize = 1000;
const LINE_CHARS: usize = 2000;

/// A key that the user has pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Next,
    Previous,
    Enter,
    Escape,
    Backspace,
    Interrupt,
    Char(char),
}

/// What the user wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    OpenLog(u64),
    CloseLog,
    Cancel(u64),
    Signal(u64, i32),
}

/// The lists, of which one is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tab {
    #[default]
    Jobs,
    Nodes,
    Waits,
}

pub(super) const TABS: [(Tab, &str); 3] = [(Tab::Jobs, "Jobs"), (Tab::Nodes, "Nodes"), (Tab::Waits, "Waits")];

/// What the keys mean now.
#[derive(Debug, Default)]
pub(super) enum Mode {
    #[default]
    Lists,
    Help,
    /// Asks whether to cancel this job.
    Cancel(u64),
    /// Asks for a signal to this job.
    Signal(u64, String),
    /// Shows the output of this job.
    Log(Log),
}

/// The end of a job's output.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) job: u64,
    pub(super) lines: VecDeque<String>,
    /// How many lines below the screen's last one are not shown; 0: it follows.
    pub(super) back: usize,
    /// By rank and stream: the line that continues with the next record.
    open: Vec<(u32, i32)>,
}

/// Everything that the screen shows.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) seen: Option<Snapshot>,
    pub(super) tab: Tab,
    pub(super) mode: Mode,
    /// The selected row of each list.
    rows: [usize; TABS.len()],
    /// The rows that fit on the screen, as it was drawn last.
    pub(super) page: usize,
    /// A line for the user, until the next key.
    pub(super) message: String,
}

/// Counts for the first line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) up: usize,
    pub(super) away: usize,
    pub(super) drained: usize,
    pub(super) slots: u64,
    pub(super) in_use: u64,
    pub(super) running: usize,
    pub(super) queued: usize,
    pub(super) ending: usize,
    /// Ranks of running jobs and of those that are being ended; of both, those that have failed.
    pub(super) ranks_running: u64,
    pub(super) ranks_ending: u64,
    pub(super) ranks_failed: u64,
}

impl Counts {
    pub(super) fn of(seen: &Snapshot) -> Counts {
        let mut counts = Counts::default();
        for node in &seen.nodes {
            match (node.state(), node.drained) {
                (NodeState::Up, false) => counts.up += 1,
                (NodeState::Up, true) => counts.drained += 1,
                (NodeState::Away, _) => counts.away += 1,
            }
            counts.slots += node.inventory.as_ref().map_or(0, |inventory| u64::from(inventory.slots));
            counts.in_use += u64::from(node.slots_in_use);
        }
        for job in &seen.jobs {
            let failed = rsd_proto::exits::count(&job.exits);
            let alive = u64::from(job.ranks).saturating_sub(failed);
            match job.state() {
                JobState::Queued => counts.queued += 1,
                JobState::Running => {
                    (counts.running, counts.ranks_running) = (counts.running + 1, counts.ranks_running + alive)
                }
                JobState::Ending => {
                    (counts.ending, counts.ranks_ending) = (counts.ending + 1, counts.ranks_ending + alive)
                }
                JobState::Done | JobState::Failed | JobState::Cancelled | JobState::TimedOut | JobState::Unknown => {}
            }
            counts.ranks_failed += failed;
        }
        counts
    }
}

impl State {
    /// Takes what was seen. The selected job or node stays selected.
    pub(super) fn on_snapshot(&mut self, seen: Snapshot) {
        let job = self.selected_job().map(|job| job.job);
        let node =
            self.seen.as_ref().and_then(|seen| seen.nodes.get(self.rows[Tab::Nodes as usize])).map(|node| node.node);
        if let Some(at) = job.and_then(|job| seen.jobs.iter().position(|other| other.job == job)) {
            self.rows[Tab::Jobs as usize] = at;
        }
        if let Some(at) = node.and_then(|node| seen.nodes.iter().position(|other| other.node == node)) {
            self.rows[Tab::Nodes as usize] = at;
        }
        self.seen = Some(seen);
        for (tab, _) in TABS {
            self.rows[tab as usize] = self.rows[tab as usize].min(self.len(tab).saturating_sub(1));
        }
    }

    /// Takes output of the job whose log is shown.
    pub(super) fn on_records(&mut self, records: Vec<Record>) {
        if let Mode::Log(log) = &mut self.mode {
            records.into_iter().for_each(|record| log.add(&record));
        }
    }

    pub(super) fn say(&mut self, message: String) {
        self.message = message;
    }

    /// Returns how many rows a list has.
    pub(super) fn len(&self, tab: Tab) -> usize {
        let Some(seen) = &self.seen else { return 0 };
        match tab {
            Tab::Jobs => seen.jobs.len(),
            Tab::Nodes => seen.nodes.len(),
            Tab::Waits => seen.waits.len(),
        }
    }

    /// Returns the selected row of the shown list.
    pub(super) fn row(&self) -> usize {
        self.rows[self.tab as usize]
    }

    fn selected_job(&self) -> Option<&JobInfo> {
        self.seen.as_ref()?.jobs.get(self.rows[Tab::Jobs as usize])
    }

    pub(super) fn on_key(&mut self, key: Key) -> Action {
        self.message.clear();
        if key == Key::Interrupt {
            return Action::Quit;
        }
        match std::mem::take(&mut self.mode) {
            Mode::Lists => self.on_list_key(key),
            // Any key closes the help.
            Mode::Help => Action::Nothing,
            Mode::Cancel(job) if matches!(key, Key::Char('y' | 'Y')) => Action::Cancel(job),
            Mode::Cancel(job) => {
                self.message = format!("job {job} was not cancelled");
                Action::Nothing
            }
            Mode::Signal(job, text) => self.on_signal_key(job, text, key),
            Mode::Log(log) => self.on_log_key(log, key),
        }
    }

    fn on_list_key(&mut self, key: Key) -> Action {
        let (len, page) = (self.len(self.tab), self.page.max(1));
        let row = &mut self.rows[self.tab as usize];
        match key {
            Key::Up | Key::Char('k') => *row = row.saturating_sub(1),
            Key::Down | Key::Char('j') => *row += 1,
            Key::PageUp => *row = row.saturating_sub(page),
            Key::PageDown | Key::Char(' ') => *row += page,
            Key::Home | Key::Char('g') => *row = 0,
            Key::End | Key::Char('G') => *row = len,
            Key::Next => self.tab = self.beside(1),
            Key::Previous => self.tab = self.beside(TABS.len() - 1),
            Key::Char('1') => self.tab = Tab::Jobs,
            Key::Char('2') => self.tab = Tab::Nodes,
            Key::Char('3') => self.tab = Tab::Waits,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('q') | Key::Escape => return Action::Quit,
            Key::Char('l') | Key::Enter => return self.on_job(|job| (Mode::Log(Log::new(job)), Action::OpenLog(job))),
            Key::Char('c') => return self.on_job(|job| (Mode::Cancel(job), Action::Nothing)),
            Key::Char('s') => return self.on_job(|job| (Mode::Signal(job, String::new()), Action::Nothing)),
            Key::Char(_) | Key::Backspace | Key::Interrupt => {}
        }
        let last = self.len(self.tab).saturating_sub(1);
        let row = &mut self.rows[self.tab as usize];
        *row = (*row).min(last);
        Action::Nothing
    }

    fn beside(&self, by: usize) -> Tab {
        TABS[(self.tab as usize + by) % TABS.len()].0
    }

    /// Does something with the selected job.
    fn on_job(&mut self, what: impl Fn(u64) -> (Mode, Action)) -> Action {
        let job = if self.tab == Tab::Jobs { self.selected_job().map(|job| job.job) } else { None };
        let Some(job) = job else {
            self.message = "select a job first (key 1 shows the jobs)".to_owned();
            return Action::Nothing;
        };
        let action;
        (self.mode, action) = what(job);
        action
    }

    fn on_signal_key(&mut self, job: u64, mut text: String, key: Key) -> Action {
        match key {
            Key::Escape => return Action::Nothing,
            Key::Enter => match signals::parse(text.trim()) {
                Ok(number) => return Action::Signal(job, number),
                Err(why) => self.message = why,
            },
            Key::Backspace => drop(text.pop()),
            Key::Char(c) if text.len() < 16 && !c.is_control() => text.push(c),
            Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::Next
            | Key::Previous
            | Key::Interrupt
            | Key::Char(_) => {}
        }
        self.mode = Mode::Signal(job, text);
        Action::Nothing
    }

    fn on_log_key(&mut self, mut log: Log, key: Key) -> Action {
        let page = self.page.max(1);
        let most = log.lines.len().saturating_sub(page);
        match key {
            Key::Escape | Key::Char('q' | 'l') => return Action::CloseLog,
            Key::Up | Key::Char('k') => log.back += 1,
            Key::Down | Key::Char('j') => log.back = log.back.saturating_sub(1),
            Key::PageUp => log.back += page,
            Key::PageDown | Key::Char(' ') => log.back = log.back.saturating_sub(page),
            Key::Home | Key::Char('g') => log.back = most,
            Key::End | Key::Char('G') => log.back = 0,
            Key::Next | Key::Previous | Key::Enter | Key::Backspace | Key::Interrupt | Key::Char(_) => {}
        }
        log.back = log.back.min(most);
        self.mode = Mode::Log(log);
        Action::Nothing
    }
}

impl Log {
    fn new(job: u64) -> Log {
        Log { job, lines: VecDeque::new(), back: 0, open: Vec::new() }
    }

    /// Adds a record. One without an end of line is continued by the next of its rank and stream, if no other came between.
    fn add(&mut self, record: &Record) {
        let source = (record.rank, record.stream);
        let text = String::from_utf8_lossy(&record.data);
        let text = text.trim_end_matches('\n');
        match self.lines.back_mut().filter(|_| self.open == [source]) {
            Some(line) => line.push_str(text),
            None => {
                self.lines.push_back(format!("[{}] {text}", record.rank));
                // What the user reads stays where it is.
                self.back += usize::from(self.back > 0);
            }
        }
        self.open = if record.more { vec![source] } else { Vec::new() };
        if let Some(line) = self.lines.back_mut()
            && let Some((end, _)) = line.char_indices().nth(LINE_CHARS)
        {
            line.truncate(end);
        }
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
        self.back = self.back.min(self.lines.len());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rsd_proto::v1::{Inventory, NodeInfo};

    use super::*;

    pub(in super::super) fn seen(jobs: u64, nodes: u32) -> Snapshot {
        let job = |job| JobInfo {
            job,
            state: (if job % 2 == 0 { JobState::Queued } else { JobState::Running }).into(),
            command: format!("./a.out {job}"),
            ranks: if job % 2 == 0 { 0 } else { 4 },
            submitted_ms: 1000,
            ..JobInfo::default()
        };
        let node = |node| NodeInfo {
            node,
            name: format!("n{node}"),
            state: NodeState::Up.into(),
            inventory: Some(Inventory { slots: 8, ..Inventory::default() }),
            slots_in_use: 4,
            ..NodeInfo::default()
        };
        let (jobs, nodes) = ((1..=jobs).map(job).collect(), (0..nodes).map(node).collect());
        Snapshot { jobs, nodes, at_ms: 61_000, output_rate: Some(2048.0), ..Snapshot::default() }
    }

    fn record(rank: u32, text: &str, more: bool) -> Record {
        Record { rank, data: text.as_bytes().to_vec().into(), more, ..Record::default() }
    }

    #[test]
    fn the_selected_job_stays_selected_and_the_selection_stays_inside() {
        let mut state = State { page: 10, ..State::default() };
        assert_eq!(state.on_key(Key::Down), Action::Nothing, "nothing was seen yet");
        state.on_snapshot(seen(1000, 3));
        for _ in 0..41 {
            state.on_key(Key::Down);
        }
        assert_eq!(state.selected_job().unwrap().job, 42);
        let mut fewer = seen(1000, 3);
        fewer.jobs.drain(..10);
        state.on_snapshot(fewer);
        assert_eq!((state.row(), state.selected_job().unwrap().job), (31, 42));
        for (key, row) in
            [(Key::End, 989), (Key::PageUp, 979), (Key::PageDown, 989), (Key::Down, 989), (Key::Home, 0), (Key::Up, 0)]
        {
            state.on_key(key);
            assert_eq!(state.row(), row, "{key:?}");
        }
        state.on_snapshot(seen(0, 0));
        assert_eq!((state.row(), state.on_key(Key::Char('c'))), (0, Action::Nothing));
        assert!(state.message.contains("select a job first"));
    }

    #[test]
    fn a_job_is_cancelled_only_after_a_confirmation() {
        let mut state = State::default();
        state.on_snapshot(seen(3, 1));
        state.on_key(Key::Down);
        assert_eq!(state.on_key(Key::Char('c')), Action::Nothing);
        assert_eq!(state.on_key(Key::Char('n')), Action::Nothing);
        assert_eq!(state.message, "job 2 was not cancelled");
        state.on_key(Key::Char('c'));
        assert_eq!(state.on_key(Key::Char('y')), Action::Cancel(2));
        assert_eq!(state.on_key(Key::Char('y')), Action::Nothing, "it was asked once");
    }

    #[test]
    fn a_signal_is_named_and_a_wrong_name_can_be_mended() {
        let mut state = State::default();
        state.on_snapshot(seen(1, 1));
        for c in "susr9".chars() {
            state.on_key(Key::Char(c));
        }
        assert_eq!(state.on_key(Key::Enter), Action::Nothing);
        assert!(state.message.contains("unknown signal"), "{}", state.message);
        state.on_key(Key::Backspace);
        state.on_key(Key::Char('1'));
        assert_eq!(state.on_key(Key::Enter), Action::Signal(1, 10));
        state.on_key(Key::Char('s'));
        assert_eq!(state.on_key(Key::Escape), Action::Nothing);
        assert_eq!(state.on_key(Key::Char('q')), Action::Quit);
    }

    #[test]
    fn the_output_of_a_job_is_bounded_and_partial_lines_are_joined() {
        let mut state = State { page: 10, ..State::default() };
        state.on_snapshot(seen(1, 1));
        assert_eq!(state.on_key(Key::Char('l')), Action::OpenLog(1));
        let records = [record(0, "a", true), record(0, "b\n", false), record(1, "c", true), record(0, "d\n", false)];
        state.on_records(records.to_vec());
        let Mode::Log(log) = &state.mode else { panic!("{:?}", state.mode) };
        assert_eq!(log.lines, ["[0] ab", "[1] c", "[0] d"]);
        state.on_records((0..5000).map(|at| record(at, &"x".repeat(9000), false)).collect());
        state.on_key(Key::PageUp);
        let Mode::Log(log) = &state.mode else { panic!("{:?}", state.mode) };
        assert_eq!((log.lines.len(), log.back), (LINES_MAX, 10));
        assert!(log.lines.iter().all(|line| line.chars().count() <= LINE_CHARS));
        assert_eq!(state.on_key(Key::Escape), Action::CloseLog);
        assert!(matches!(state.mode, Mode::Lists));
    }

    #[test]
    fn tabs_go_round_and_help_closes_with_any_key() {
        let mut state = State::default();
        for tab in [Tab::Nodes, Tab::Waits, Tab::Jobs] {
            state.on_key(Key::Next);
            assert_eq!(state.tab, tab);
        }
        state.on_key(Key::Previous);
        assert_eq!(state.tab, Tab::Waits);
        state.on_key(Key::Char('?'));
        assert!(matches!(state.mode, Mode::Help));
        assert_eq!(state.on_key(Key::Char('q')), Action::Nothing);
        assert_eq!(state.on_key(Key::Interrupt), Action::Quit);
    }

    #[test]
    fn ranks_and_slots_are_counted_by_state() {
        let counts = Counts::of(&seen(3, 2));
        let expected =
            Counts { up: 2, slots: 16, in_use: 8, running: 2, queued: 1, ranks_running: 8, ..Counts::default() };
        assert_eq!(counts, expected);
    }
}
