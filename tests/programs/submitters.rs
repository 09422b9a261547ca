//! `submitters SOCKET CLIENTS JOBS run|hold`: CLIENTS clients submit JOBS jobs to the daemon at SOCKET, each the next one when its last one
//! is confirmed: it is in the head's journal, on the disk. With `hold`, the jobs stay queued; with `run`, they run `true`.
//!
//! Prints the seconds that all took, and the median and the 99th percentile of the time of one submission in microseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rsd_proto::transport::{Target, dial, dvm_client};
use rsd_proto::v1::{App, EnvVar, JobSpec, StdinTarget, job_event, stdin_target};

/// About the size of a user's environment.
const VARIABLES: usize = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, clients, jobs, how] = &args[..] else { bail!("usage: submitters SOCKET CLIENTS JOBS run|hold") };
    let (clients, jobs, hold): (usize, usize, bool) = (clients.parse()?, jobs.parse()?, how == "hold");
    let left = Arc::new(AtomicUsize::new(jobs));
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(dvm_client(dial(&Target::Unix(socket.into()), Duration::from_secs(10)).await?));
    }
    let since = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut dvm| {
            let left = left.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    let since = Instant::now();
                    let mut events = dvm.submit(job(hold)).await?.into_inner();
                    let first = events.message().await?.context("no event")?;
                    let Some(job_event::Body::Submitted(_)) = first.body else { bail!("not submitted: {first:?}") };
                    times.push(since.elapsed());
                }
                anyhow::Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let all = since.elapsed().as_secs_f64();
    times.sort_unstable();
    let us = |part: usize| times[(times.len() - 1) * part / 100].as_micros();
    println!("{all:.3} {} {}", us(50), us(99));
    Ok(())
}

fn job(hold: bool) -> JobSpec {
    let variable = |at| EnvVar { name: format!("VARIABLE_{at}").into(), value: "/usr/local/share/of/something".into() };
    JobSpec {
        apps: vec![App { argv: vec!["true".into()], n: Some(1), ..Default::default() }],
        env: (0..VARIABLES).map(variable).collect(),
        stdin: Some(StdinTarget { target: Some(stdin_target::Target::None(true)) }),
        hold,
        ..Default::default()
    }
}
