//! `rsctl` called as `mpiexec` or `mpirun`: a launcher with the options that people know from other launchers.
//!
//! [`table`] the options · [`parse`] arguments → what is requested ([`words`] splits lines of files) · [`translate`] → the launch of `rsctl
//! run` and the job · [`help`] what is printed instead. In an [`allocation`] of Slurm, it starts [`workers`] on all nodes. [`adopt`] serves MPI libraries, which run `mpiexec -pmi_args` themselves.
//!
//! Exit codes are those of `rsctl run`, and so are messages, the verdict and Ctrl-C.

mod adopt;
mod allocation;
mod help;
mod parse;
mod table;
mod translate;
mod words;
mod workers;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use rsd_proto::v1::stdin_target::Target;

use self::allocation::Allocation;
use self::parse::{Asked, Show};
use self::workers::Workers;
use crate::dvm::{Client, Dvm};
use crate::exit::Failure;
use crate::options::plan::PlanOptions;
use crate::options::{Launch, Run};
use crate::print::say;
use crate::private::Private;
use crate::reconnect::{self, Contact};
use crate::spec::Here;
use crate::{input, plan, private, run};

/// Returns the name by which this program was called, if it is that of a launcher.
pub(crate) fn name(own: Option<&OsStr>) -> Option<&'static str> {
    let own = Path::new(own?).file_name()?;
    ["mpiexec", "mpirun"].into_iter().find(|name| own == *name)
}

/// Launches what the arguments request, or serves the MPI library that runs this program; returns the exit code.
pub(crate) fn mpiexec(args: &[OsString]) -> Result<u8, Failure> {
    if args.first().is_some_and(|first| first == adopt::ADOPT) {
        let port = adopt::port(args)?;
        return adopt::adopt(port, &Dvm::new(None, false)?);
    }
    let here = Here::now()?;
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let mut asked = parse::parse(args, &read).map_err(Failure::usage)?;
    match asked.job.show {
        Some(Show::Version) => return help::version(),
        Some(Show::Info) => return help::info(),
        Some(Show::Help) => return help::help(),
        None => {}
    }
    translate::with_environment(&mut asked, &here).map_err(Failure::usage)?;
    asked.notices.iter().for_each(|notice| say(notice));
    for name in translate::unset(&asked, &here) {
        say(&format!("-x {0} is ignored: {0} is not set here", name.display()));
    }
    crate::block_on(launch(asked, here))
}

async fn launch(asked: Asked, here: Here) -> Result<u8, Failure> {
    let dvm = Dvm::new(asked.job.dvm.clone(), true)?;
    let local = asked.job.local_only.then(|| dvm.find().ok()).flatten();
    let allocation = Allocation::of(&here.env).filter(|_| !asked.job.local_only);
    let mut launch = translate::launch(&asked, &here, local.as_ref().map(|daemon| daemon.name()))?;
    let stdin = translate::stdin(&asked.job)?;
    let mut spec = translate::job_spec(&asked, &launch, stdin, &here)?;
    let view = translate::view(&asked.job, &here)?;
    let (client, private, workers) = connect(&dvm, allocation.as_ref()).await?;
    if let (Some(allocation), Some(_)) = (&allocation, &workers) {
        // Daemons join in any order, but ranks follow Slurm's order of the nodes.
        if translate::leaves_nodes_open(&launch) {
            launch.first.host = allocation.names();
            spec = translate::job_spec(&asked, &launch, stdin, &here)?;
        }
    }
    if private.is_some() && allocation.is_none() {
        match nodes_granted(&here) {
            // Nothing else runs in this DVM, so more ranks than slots slow down no other job.
            None if translate::leaves_slots_open(&launch) => {
                (spec.oversubscribe, launch.placing.oversubscribe) = (true, true);
            }
            None => {}
            Some(nodes) if nodes > 1 => say(&format!(
                "this allocation has {nodes} nodes, but no daemons run on them: using this node only (rsctl help from-slurm)"
            )),
            Some(_) => {}
        }
    }
    let work = async {
        if asked.job.plan_only {
            return plan::plan(plan::Source::Dvm(client), &as_plan(launch, stdin), false).await;
        }
        if asked.job.show_plan {
            plan::show(&client, &launch).await?;
        }
        let contact = Contact::new(&dvm, client, private::patience(&private, reconnect::PATIENCE));
        run::run(contact, spec, view, stdin != Target::None(true) && input::is_there()).await
    };
    let code = work.await;
    if let Some(workers) = workers {
        workers.stop().await;
    }
    private::stop(private).await;
    code
}

/// Connects to a daemon. If none runs, starts a private one, and others on the other nodes of the allocation.
async fn connect(
    dvm: &Dvm,
    allocation: Option<&Allocation>,
) -> Result<(Client, Option<Private>, Option<Workers>), Failure> {
    let others = allocation.map(Allocation::others).unwrap_or_default();
    let (mut client, private) = dvm.client_or_private(&wish(allocation)).await?;
    let head = match private {
        Some(head) if !others.is_empty() => head,
        Some(_) | None => return Ok((client, private, None)),
    };
    match Workers::start(&others, &head, &mut client).await {
        Ok(workers) => Ok((client, Some(head), Some(workers))),
        Err(failure) => {
            head.stop().await;
            Err(failure)
        }
    }
}

/// Returns what the private daemon is in an allocation of Slurm: one of its nodes, or outside of it, where it only coordinates.
fn wish(allocation: Option<&Allocation>) -> private::Wish {
    let Some(allocation) = allocation else { return private::Wish::default() };
    let listens = !allocation.others().is_empty();
    match allocation.own() {
        Some(own) => private::Wish { name: Some(own.name.clone()), slots: own.slots, listens },
        None => private::Wish { name: None, slots: Some(0), listens },
    }
}

/// Returns the number of nodes of the batch system's allocation that this process runs in; None if it runs in none.
fn nodes_granted(here: &Here) -> Option<u32> {
    let value = |name: &str| here.env.iter().find(|(own, _)| own == name).map(|(_, value)| value.to_str());
    ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"].into_iter().find_map(value)?;
    let count = value("SLURM_JOB_NUM_NODES").flatten().and_then(|count| count.parse().ok());
    Some(count.unwrap_or(1))
}

fn as_plan(launch: Launch, stdin: Target) -> PlanOptions {
    let reconnect = reconnect::PATIENCE;
    let run = Run { launch, label: false, quiet: false, show_plan: false, stdin, reconnect };
    PlanOptions { run, idle: false, topology: None, diff: None, reasons: false, other: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsctl_is_a_launcher_under_the_names_of_one() {
        assert_eq!(name(Some("/x/mpiexec".as_ref())), Some("mpiexec"));
        assert_eq!(name(Some("mpirun".as_ref())), Some("mpirun"));
        assert_eq!(name(Some("/usr/bin/rsctl".as_ref())), None);
        assert_eq!(name(None), None);
    }
}
