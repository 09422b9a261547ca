//! rsctl, the client of rsd: arguments → daemon → one command → exit code.

mod array;
mod completion;
mod doctor;
mod dvm;
mod events;
mod exit;
mod group;
mod head;
mod help;
mod input;
mod interrupts;
mod jobs;
mod json;
mod kv;
mod login;
mod logins;
mod look;
mod manual;
mod metrics;
mod mpi;
mod mpiexec;
mod names;
mod node;
mod nodes;
mod options;
mod output;
mod pager;
mod placement;
mod plan;
mod ports;
mod print;
mod private;
mod queue;
mod reconnect;
mod report;
mod run;
mod selectors;
mod signals;
mod spec;
mod top;
mod topics;
mod up;
mod upgrade;
mod usage;
mod verdict;
mod waits;
mod when;

use std::ffi::OsString;

use rsd_proto::transport::exit::{INTERNAL, USAGE};
use rsd_proto::v1::change_job_request::Change;
use rsd_proto::v1::stdin_target::Target;

use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::options::group::GroupCommand;
use crate::options::{Cli, Command, Global, JobCommand, MpiCommand, NameCommand, Run, Unread};
use crate::print::say;
use crate::reconnect::Contact;
use crate::run::View;
use crate::spec::Here;

fn main() {
    completion::answer_script();
    let mut args = std::env::args_os();
    let name = args.next();
    let args: Vec<OsString> = args.collect();
    let code = match mpiexec::name(name.as_deref()) {
        None => read_and_perform(&args),
        Some(name) => {
            print::set_name(name);
            mpiexec::mpiexec(&args).unwrap_or_else(|failure| report(&failure, false))
        }
    };
    // Exits instead of returning: a thread may be blocked in a read from the terminal.
    std::process::exit(code.into());
}

fn read_and_perform(args: &[OsString]) -> u8 {
    match options::read(args) {
        Ok(cli) => {
            let json = cli.global.json;
            perform(cli).unwrap_or_else(|failure| report(&failure, json))
        }
        Err(unread) => report_unread(&unread, args.iter().any(|arg| arg == "--json")),
    }
}

fn perform(cli: Cli) -> Result<u8, Failure> {
    match &cli.command {
        Command::Completion { shell } => return completion::script(*shell),
        Command::Man { directory } => return manual::write(directory),
        Command::Help { words } => return help::help(words),
        Command::Mpi(MpiCommand::Settings) => return mpi::settings(cli.global.json),
        Command::Examine => return doctor::examine(),
        // This process becomes another program, so it must not start a runtime first.
        Command::Group(GroupCommand::Exec(exec)) => {
            return group::exec(exec, &Dvm::new(cli.global.dvm, cli.global.json)?);
        }
        Command::Group(GroupCommand::Env { join, pid }) => {
            return group::env(join, *pid, cli.global.json, &Dvm::new(cli.global.dvm, cli.global.json)?);
        }
        Command::Group(_)
        | Command::Run(_)
        | Command::Submit(_)
        | Command::Plan(_)
        | Command::Ps(_)
        | Command::Report { .. }
        | Command::Job(_)
        | Command::Logs(_)
        | Command::Wait { .. }
        | Command::Attach { .. }
        | Command::Signal { .. }
        | Command::Cancel { .. }
        | Command::Release { .. }
        | Command::Name(_)
        | Command::Kv(_)
        | Command::Login { .. }
        | Command::Up(_)
        | Command::Down(_)
        | Command::HoldConnections
        | Command::Why { .. }
        | Command::Hold { .. }
        | Command::Priority { .. }
        | Command::Node(_)
        | Command::Head(_)
        | Command::Waits { .. }
        | Command::Events { .. }
        | Command::Metrics
        | Command::Top(_)
        | Command::Doctor { .. }
        | Command::Nodes
        | Command::Upgrade(_)
        | Command::Ports { .. } => {}
    }
    block_on(command(cli))
}

/// Performs what needs a daemon.
fn block_on(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(INTERNAL, format!("cannot start the async runtime: {error}")))?;
    let outcome = runtime.block_on(work);
    // Remaining tasks and blocked threads end with the process.
    std::mem::forget(runtime);
    outcome
}

async fn command(cli: Cli) -> Result<u8, Failure> {
    let Cli { global: Global { dvm, json }, command } = cli;
    let which = dvm.clone();
    let dvm = Dvm::new(dvm, json)?;
    match command {
        Command::Run(Run { launch, show_plan, stdin, label, quiet, reconnect }) => {
            let spec = spec::job_spec(&launch, Some(stdin), &Here::now()?)?;
            let forward_stdin = stdin != Target::None(true) && input::is_there();
            let (client, private) = dvm.client_or_private(&private::Wish::default()).await?;
            let shown = if show_plan { plan::show(&client, &launch).await } else { Ok(()) };
            let code = match shown {
                Ok(()) => {
                    let contact = Contact::new(&dvm, client, private::patience(&private, reconnect));
                    run::run(contact, spec, View { quiet, ..View::new(label, json) }, forward_stdin).await
                }
                Err(failure) => Err(failure),
            };
            private::stop(private).await;
            code
        }
        Command::Submit(launch) => {
            let spec = spec::job_spec(&launch, None, &Here::now()?)?;
            let contact = Contact::new(&dvm, dvm.client().await?, reconnect::PATIENCE);
            let (job, queued) = run::submit(contact, spec).await?;
            if json {
                let line = json::document(serde_json::json!({ "job": job, "queued_reason": queued }));
                print::out(&(line + "\n"))?;
            } else {
                print::out(&format!("{job}\n"))?;
                queued.iter().for_each(|reason| say(&format!("job {job} is queued: {reason}")));
            }
            Ok(0)
        }
        Command::Plan(options) => match plan::topology(&options)? {
            Some(topology) => plan::plan(plan::Source::Elsewhere(topology), &options, json).await,
            None => {
                let (client, private) = dvm.client_or_private(&private::Wish::default()).await?;
                let code = plan::plan(plan::Source::Dvm(client), &options, json).await;
                if let Some(private) = private {
                    private.stop().await;
                }
                code
            }
        },
        Command::Ps(wanted) => jobs::ps(dvm.client().await?, &wanted, json).await,
        Command::Report { job } => report::report(dvm.client().await?, job, json).await,
        Command::Job(JobCommand::Show { job }) => jobs::show(dvm.client().await?, job, json).await,
        Command::Logs(logs) => jobs::logs(Contact::new(&dvm, dvm.client().await?, logs.reconnect), &logs, json).await,
        Command::Wait { jobs, reconnect } => {
            jobs::wait(Contact::new(&dvm, dvm.client().await?, reconnect), &jobs, json).await
        }
        Command::Attach { job, label, reconnect } => {
            let contact = Contact::new(&dvm, dvm.client().await?, reconnect);
            run::attach(contact, job, View::new(label, json)).await
        }
        Command::Signal { job, signal } => jobs::signal(dvm.client().await?, job, signal, json).await,
        Command::Cancel { jobs, grace } => jobs::cancel(dvm.client().await?, &jobs, grace, json).await,
        Command::Why { job } => queue::why(dvm.client().await?, job, json).await,
        Command::Hold { jobs } => queue::change(dvm.client().await?, jobs, Change::Hold(true), json).await,
        Command::Release { jobs } => queue::change(dvm.client().await?, jobs, Change::Hold(false), json).await,
        Command::Priority { priority, jobs } => {
            queue::change(dvm.client().await?, jobs, Change::Priority(priority), json).await
        }
        Command::Waits { job } => waits::waits(dvm.client().await?, job, json).await,
        Command::Events { follow, since, reconnect } => {
            let patience = if follow { reconnect } else { std::time::Duration::ZERO };
            let contact = Contact::to_watch(&dvm, dvm.observer().await?, patience);
            events::events(contact, since, follow, json).await
        }
        Command::Top(options) => top::top(&dvm, options, json).await,
        Command::Doctor { all } => doctor::doctor(dvm.client().await?, all, json).await,
        Command::Upgrade(options) => upgrade::upgrade(&dvm, &options, which).await,
        Command::Examine => doctor::examine(),
        Command::Metrics => metrics::metrics(dvm.observer().await?, json).await,
        Command::Nodes => nodes::nodes(dvm.client().await?, json).await,
        Command::Node(command) => node::change(dvm.client().await?, command, json).await,
        Command::Head(command) => head::perform(dvm.heads().await?, command, json).await,
        Command::Ports { emit } => ports::ports(dvm.client().await?, emit, json).await,
        Command::Name(NameCommand::Ls) => names::ls(dvm.client().await?, json).await,
        Command::Login { address, token, token_file } => {
            login::login(&address, token.as_deref(), token_file.as_deref(), json).await
        }
        Command::Up(options) => up::up(&dvm, *options, json).await,
        Command::Down(options) => up::down(&dvm, options, json).await,
        Command::HoldConnections => up::hold().await,
        Command::Kv(command) => kv::perform(&dvm, command, json).await,
        Command::Group(group) => group::ask(dvm.client().await?, group, json).await,
        Command::Mpi(MpiCommand::Settings) => mpi::settings(json),
        Command::Completion { shell } => completion::script(shell),
        Command::Man { directory } => manual::write(&directory),
        Command::Help { words } => help::help(&words),
    }
}

fn report(failure: &Failure, as_json: bool) -> u8 {
    match (failure.text.is_empty(), as_json) {
        (true, _) => {}
        (false, true) => print::err(&json::error(failure)),
        (false, false) => say(&failure.to_string()),
    }
    failure.code
}

fn report_unread(unread: &Unread, as_json: bool) -> u8 {
    match unread {
        Unread::Failure(failure) => report(failure, as_json),
        Unread::Clap(error, tip) if as_json && error.use_stderr() => {
            report(&claps_failure(&error.to_string(), *tip), true)
        }
        Unread::Escaped(text, tip) if as_json => report(&claps_failure(text, *tip), true),
        Unread::Escaped(text, tip) => {
            print::err(text.trim_end());
            tip.iter().for_each(|tip| say(tip));
            USAGE
        }
        Unread::Clap(error, tip) => {
            // clap writes help to stdout and errors to stderr. There is no place to report a failed write.
            let _ = error.print();
            tip.iter().for_each(|tip| say(tip));
            if error.use_stderr() { USAGE } else { 0 }
        }
    }
}

/// Returns an error of clap: its first paragraph is the message, the rest is the hint.
fn claps_failure(text: &str, tip: Option<&str>) -> Failure {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let (message, more) = text.split_once("\n\n").unwrap_or((text, ""));
    let hint = tip.map_or_else(|| more.trim_end().to_owned(), str::to_owned);
    Failure::usage(message.trim_end()).hint(hint)
}
