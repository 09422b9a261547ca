//! `rsctl top`: a live view of nodes, jobs and waits.
//!
//! [`look`] asks the daemon; [`state`] has what is shown and what keys do, without I/O; [`render`] draws it, and [`plain`] prints it where
//! there is no screen. This module has the loop around them.

mod look;
mod plain;
mod render;
mod state;

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rsd_proto::transport::exit;
use rsd_proto::v1::{LogsRequest, Record, SignalRequest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::dvm::{self, Client, Dvm};
use crate::exit::Failure;
use crate::options::watching::Top;
use crate::{json, print, run};
use look::{Looks, Snapshot};
use state::{Action, Key, State};

/// The most records of a job's output that wait to be shown.
const RECORDS: usize = 64;
/// The pause before output is asked for again when the daemon is lost, unless a new client of it comes first.
const PAUSE: Duration = Duration::from_secs(1);

/// `top`.
pub(crate) async fn top(dvm: &Dvm, options: Top, as_json: bool) -> Result<u8, Failure> {
    let looks = Looks::new(dvm).await?;
    let is_dumb = std::env::var("TERM").map_or(true, |term| term.is_empty() || term == "dumb");
    let has_screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !is_dumb;
    if as_json || options.plain || !has_screen {
        return print_tables(looks, &options, as_json).await;
    }
    show(looks.silent(), options.interval).await
}

async fn print_tables(mut looks: Looks<'_>, options: &Top, as_json: bool) -> Result<u8, Failure> {
    let mut printed = 0;
    loop {
        let snapshot = match looks.look().await {
            Err(failure) if printed > 0 => looks.again(failure).await?,
            looked => looked?,
        };
        match as_json {
            true => print::out(&(json::document(plain::document(&snapshot)) + "\n"))?,
            false => print::out(&plain::tables(&snapshot, print::width()))?,
        }
        printed += 1;
        if options.count.is_some_and(|count| printed >= count) {
            return Ok(0);
        }
        tokio::time::sleep(options.interval).await;
    }
}

/// Something that changes the screen.
enum Change {
    Key(Key),
    Resized,
    Looked(Result<Snapshot, Failure>),
    /// The daemon is lost, and looked for.
    Lost(String),
    /// It answers again, and this is a client of it.
    Back(Client, Snapshot),
}

/// Shows the screen until the user leaves it.
async fn show(looks: Looks<'_>, interval: Duration) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::new(exit::SYSTEM, format!("cannot use the terminal: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let (changes, mut changed) = mpsc::channel(16);
    // The client of the daemon as it is now; those who follow a job's output learn of a new one.
    let (client, clients) = watch::channel(looks.client());
    let looking = keep_looking(looks, interval, changes.clone());
    tokio::pin!(looking);
    let mut looks_on = true;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    // Reading blocks, so a thread reads. It ends with the process.
    std::thread::spawn(move || read_keys(&changes));
    let mut state = State::default();
    let mut output: Option<mpsc::Receiver<Result<Record, Failure>>> = None;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| render::draw(frame, &mut state)) {
            break Err(failed(error));
        }
        let change = tokio::select! {
            _ = terminate.recv() => break Ok(128 + 15),
            _ = hangup.recv() => break Ok(128 + 1),
            change = changed.recv() => change,
            () = &mut looking, if looks_on => {
                looks_on = false;
                continue;
            }
            more = next_output(&mut output) => {
                let (records, failure) = more;
                state.on_records(records);
                if let Some(failure) = failure {
                    state.say(failure.text);
                }
                continue;
            }
        };
        let action = match change {
            // The thread has ended: the terminal is gone.
            None => break Ok(0),
            Some(Change::Resized) => continue,
            Some(Change::Looked(Ok(snapshot))) => {
                state.on_snapshot(snapshot);
                continue;
            }
            Some(Change::Looked(Err(failure))) => break Err(failure),
            Some(Change::Lost(text)) => {
                state.say(format!("{text}; trying again"));
                continue;
            }
            Some(Change::Back(back, snapshot)) => {
                client.send_replace(back);
                state.on_snapshot(snapshot);
                state.say("the daemon is back".to_owned());
                continue;
            }
            Some(Change::Key(key)) => state.on_key(key),
        };
        let done = match action {
            Action::Nothing => continue,
            Action::Quit => break Ok(0),
            Action::CloseLog => {
                output = None;
                continue;
            }
            Action::OpenLog(job) => {
                output = Some(follow(clients.clone(), job));
                continue;
            }
            Action::Cancel(job) => {
                let mut client = client.borrow().clone();
                run::cancel(&mut client, job, None).await.map(|_| format!("job {job} is being cancelled"))
            }
            Action::Signal(job, number) => {
                let request = SignalRequest { job, rank: None, signal: number };
                let mut client = client.borrow().clone();
                let sent = dvm::answer(&format!("signalling job {job}"), client.signal(request)).await;
                sent.map(|_| format!("sent signal {number} to job {job}"))
            }
        };
        state.say(done.unwrap_or_else(|failure| failure.to_string()));
    };
    ratatui::restore();
    ended
}

async fn keep_looking(mut looks: Looks<'_>, interval: Duration, changes: mpsc::Sender<Change>) {
    loop {
        let looked = looks.look().await;
        // Without a receiver, the screen is gone.
        let change = match looked {
            Err(failure) if failure.is_unreachable() => {
                if changes.send(Change::Lost(failure.text.clone())).await.is_err() {
                    return;
                }
                match looks.again(failure).await {
                    Ok(snapshot) => Change::Back(looks.client(), snapshot),
                    Err(failure) => Change::Looked(Err(failure)),
                }
            }
            looked => Change::Looked(looked),
        };
        let is_over = matches!(change, Change::Looked(Err(_)));
        if changes.send(change).await.is_err() || is_over {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}

fn read_keys(changes: &mpsc::Sender<Change>) {
    while let Ok(event) = event::read() {
        let change = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key).map(Change::Key),
            Event::Resize(..) => Some(Change::Resized),
            Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
        };
        if change.is_some_and(|change| changes.blocking_send(change).is_err()) {
            return;
        }
    }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(c) if !key.modifiers.contains(KeyModifiers::CONTROL) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

/// Follows the output of a job, as fast as it is shown. When the daemon is lost and back, it goes on where it stopped.
fn follow(mut clients: watch::Receiver<Client>, job: u64) -> mpsc::Receiver<Result<Record, Failure>> {
    let (sender, receiver) = mpsc::channel(RECORDS);
    tokio::spawn(async move {
        let mut request = LogsRequest { job, follow: true, ..LogsRequest::default() };
        let mut has_any = false;
        loop {
            let client = clients.borrow_and_update().clone();
            let read = read_output(client, &mut request, &sender, &mut has_any).await;
            let Err(failure) = read else { return };
            // What the screen says of a lost daemon comes from the looks. An earlier daemon does not say where its records are.
            let is_placed = request.from > 0 || request.skip > 0;
            if !failure.is_unreachable() || (has_any && !is_placed) {
                let _ = sender.send(Err(failure)).await;
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                changed = clients.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
    receiver
}

/// Reads a job's output from the position in `request` on, and advances that position with each record. Returns when the output has
/// ended or the receiver is gone.
async fn read_output(
    mut client: Client,
    request: &mut LogsRequest,
    sender: &mpsc::Sender<Result<Record, Failure>>,
    has_any: &mut bool,
) -> Result<(), Failure> {
    let doing = format!("reading the output of job {}", request.job);
    let mut records = dvm::answer(&doing, client.logs(*request)).await?;
    while let Some(record) = records.message().await.map_err(|status| Failure::of_status(&doing, &status))? {
        (request.from, request.skip, *has_any) = (record.position, record.index, true);
        if sender.send(Ok(record)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits for output, and returns all records that have arrived, with the failure that ended it, if any. Returns no records once the output
/// has ended.
async fn next_output(output: &mut Option<mpsc::Receiver<Result<Record, Failure>>>) -> (Vec<Record>, Option<Failure>) {
    let Some(receiver) = output else { return std::future::pending().await };
    let mut next = receiver.recv().await;
    if next.is_none() {
        *output = None;
        return (Vec::new(), None);
    }
    let mut records = Vec::new();
    while let Some(got) = next {
        match got {
            Ok(record) => records.push(record),
            Err(failure) => return (records, Some(failure)),
        }
        next = receiver.try_recv().ok();
    }
    (records, None)
}
