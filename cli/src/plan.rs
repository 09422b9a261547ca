//! `plan`: shows where a job would go, and why. The code that places jobs computes the plan.
//!
//! [`crate::options::plan`] the options · [`ask`] requests the plan from the DVM, or from `rsd plan` for a machine that the user
//! describes · [`view`] the answer · [`text`] with [`drawing`], [`reasons`] and [`command`] for people, [`json`] for programs · [`diff`]
//! compares two answers · [`crate::look`] what the terminal can show.

mod ask;
mod command;
mod diff;
mod drawing;
mod json;
mod reasons;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::io::{self, BufWriter, Write};

use rsd_proto::transport::exit;
use rsd_proto::v1::plan_reply::Outcome;
use rsd_proto::v1::{JobSpec, PlanReply};

use self::diff::Difference;
use self::view::View;
use crate::dvm::Client;
use crate::exit::Failure;
use crate::look::{Look, Paint};
use crate::options::Launch;
use crate::options::plan::PlanOptions;
use crate::print::{self, say};
use crate::spec::{self, Here};

/// Where plans come from.
pub(crate) enum Source {
    /// The DVM.
    Dvm(Client),
    /// `rsd plan`, with the description of a topology.
    Elsewhere(String),
}

/// Returns the topology that `--topology` names, if it is given.
pub(crate) fn topology(options: &PlanOptions) -> Result<Option<String>, Failure> {
    options.topology.as_deref().map(ask::topology).transpose()
}

/// Requests the plan, prints it, and returns the exit code.
pub(crate) async fn plan(source: Source, options: &PlanOptions, as_json: bool) -> Result<u8, Failure> {
    let mut source = source;
    let here = Here::now()?;
    let a = Answer::to(&mut source, &options.run.launch, options.idle, &here).await?;
    match &options.other {
        None => one(&a, options, as_json),
        Some(launch) => {
            let b = Answer::to(&mut source, launch, options.idle, &here).await?;
            two(&a, &b, options, as_json)
        }
    }
}

/// Prints on stderr where a job that is about to be submitted would go now. If the job does not fit, it prints nothing: the submission
/// reports this.
pub(crate) async fn show(client: &Client, launch: &Launch) -> Result<(), Failure> {
    let mut source = Source::Dvm(client.clone());
    let answer = Answer::to(&mut source, launch, false, &Here::now()?).await?;
    if let Ok(view) = answer.view() {
        // Plain, because this is stderr: the look of standard output does not apply.
        let text = answer.text(&view, false, &Look::PLAIN);
        let _ = io::stderr().write_all(text.as_bytes());
    }
    Ok(())
}

/// A reply, and the command that requests the same placement without defaults.
struct Answer {
    reply: PlanReply,
    command: String,
    name: String,
    default_binding: bool,
}

impl Answer {
    async fn to(source: &mut Source, launch: &Launch, idle: bool, here: &Here) -> Result<Answer, Failure> {
        let spec = spec::job_spec(launch, None, here)?;
        // The environment has no effect on placement.
        let spec = JobSpec { env: Vec::new(), ..spec };
        let reply = match source {
            Source::Dvm(client) => ask::dvm(client, spec.clone(), idle).await?,
            Source::Elsewhere(topology) => ask::elsewhere(spec.clone(), topology.clone()).await?,
        };
        let command = match &reply.outcome {
            Some(Outcome::Plan(plan)) => command::full(launch, &spec, plan),
            Some(Outcome::Refused(_)) | None => String::new(),
        };
        Ok(Answer { reply, command, name: spec.name, default_binding: spec.bind_to.is_empty() })
    }

    fn text(&self, view: &View<'_>, every_reason: bool, look: &Look) -> String {
        let asked = text::Asked { command: &self.command, name: &self.name, default_binding: self.default_binding };
        text::text(view, &asked, every_reason, look)
    }

    /// Returns the plan, or the text of the refusal.
    fn view(&self) -> Result<View<'_>, &str> {
        match &self.reply.outcome {
            Some(Outcome::Plan(plan)) => Ok(View::new(plan)),
            Some(Outcome::Refused(refusal)) => Err(&refusal.text),
            None => Err("cannot read the plan: the daemon has another version"),
        }
    }
}

fn one(answer: &Answer, options: &PlanOptions, as_json: bool) -> Result<u8, Failure> {
    let view = answer.view();
    let code = if view.is_ok() { 0 } else { exit::NOT_PLACED };
    match view {
        _ if as_json => stream(|out| json::reply(&answer.reply, &answer.command, out))?,
        Ok(view) => print::out(&answer.text(&view, options.reasons, &Look::of_stdout()))?,
        Err(text) => say(text),
    }
    Ok(code)
}

fn two(a: &Answer, b: &Answer, options: &PlanOptions, as_json: bool) -> Result<u8, Failure> {
    let views = [a.view(), b.view()];
    let difference = match &views {
        [Ok(a), Ok(b)] => Some(Difference::new(a, b)),
        [Err(_), _] | [_, Err(_)] => None,
    };
    if as_json {
        let pair = [a, b].map(|answer| (&answer.reply, &*answer.command));
        stream(|out| json::pair(pair, difference.as_ref(), out))?;
    } else {
        let look = Look::of_stdout();
        for ((name, view), answer) in ["a", "b"].into_iter().zip(&views).zip([a, b]) {
            match view {
                Ok(view) => {
                    let title = look.paint(&format!("plan {name}"), Paint::Bold);
                    let text = answer.text(view, options.reasons, &look);
                    print::out(&format!("{title}: {text}\n"))?;
                }
                Err(text) => say(&format!("plan {name}: {text}")),
            }
        }
        if let Some(difference) = &difference {
            print::out(&difference.text(options.reasons, &look))?;
        }
    }
    Ok(if difference.is_some() { 0 } else { exit::NOT_PLACED })
}

/// Prints on stdout, through a buffer, what `write` writes.
fn stream(write: impl FnOnce(&mut BufWriter<io::StdoutLock<'static>>) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    print::written(write(&mut out).and_then(|()| out.flush()))
}
