//! A look at the DVM: its jobs, nodes and waits, and how much its ranks write.

use std::time::{Duration, Instant};

use rsd_proto::transport::{dvm_client, exit, observe_client};
use rsd_proto::v1::{JobInfo, ListJobsRequest, ListNodesRequest, MetricsRequest, NodeInfo, Wait, WaitsRequest};

use crate::dvm::{self, Client, Dvm, Observer};
use crate::exit::Failure;
use crate::reconnect::PATIENCE;

/// What was seen at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// Those that have not ended, by number.
    pub(super) jobs: Vec<JobInfo>,
    pub(super) nodes: Vec<NodeInfo>,
    pub(super) waits: Vec<Wait>,
    /// Output of all ranks in bytes per second; None: unknown yet, or the daemon is not the head.
    pub(super) output_rate: Option<f64>,
    /// Milliseconds since the epoch.
    pub(super) at_ms: u64,
}

/// What looks at a DVM again and again.
pub(super) struct Looks<'a> {
    dvm: &'a Dvm,
    client: Client,
    observer: Observer,
    /// The bytes of output at the last look.
    output: Option<(Instant, f64)>,
}

impl<'a> Looks<'a> {
    pub(super) async fn new(dvm: &'a Dvm) -> Result<Looks<'a>, Failure> {
        Ok(Looks { dvm, client: dvm.client().await?, observer: dvm.observer().await?, output: None })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits until a daemon that was lost is back, and asks it with pauses of `pause`.
    ///
    /// # Errors
    /// When it does not come back in time, or is another one.
    pub(super) async fn back(&mut self, pause: Duration) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.dvm.channel_again().await {
                Ok(channel) => {
                    (self.client, self.observer) = (dvm_client(channel.clone()), observe_client(channel));
                    return Ok(());
                }
                Err(failure) if matches!(failure.code, exit::UNREACHABLE | exit::NO_DAEMON) && Instant::now() < end => {
                    tokio::time::sleep(pause).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    pub(super) async fn look(&mut self) -> Result<Snapshot, Failure> {
        let (mut nodes_client, mut waits_client) = (self.client.clone(), self.client.clone());
        let nodes = async {
            let nodes = nodes_client.list_nodes(ListNodesRequest { load: true });
            dvm::answer("listing the nodes", nodes).await.map(|reply| reply.nodes)
        };
        let waits = async {
            let waits = waits_client.list_waits(WaitsRequest { job: None });
            dvm::answer("asking what waits", waits).await.map(|reply| reply.waits)
        };
        let metrics = dvm::answer("reading the metrics", self.observer.get_metrics(MetricsRequest {}));
        let jobs = jobs(&mut self.client);
        let (jobs, nodes, waits, metrics) = tokio::join!(jobs, nodes, waits, metrics);
        let now = Instant::now();
        let bytes = metrics.ok().and_then(|reply| output_bytes(&reply.text));
        let before = std::mem::replace(&mut self.output, bytes.map(|bytes| (now, bytes)));
        let output_rate = before.zip(bytes).and_then(|((at, before), bytes)| {
            let seconds = (now - at).as_secs_f64();
            // The head may have been restarted.
            (seconds > 0.0 && bytes >= before).then(|| (bytes - before) / seconds)
        });
        Ok(Snapshot { jobs: jobs?, nodes: nodes?, waits: waits?, output_rate, at_ms: crate::when::now_ms() })
    }
}

async fn jobs(client: &mut Client) -> Result<Vec<JobInfo>, Failure> {
    let mut jobs: Vec<JobInfo> = Vec::new();
    loop {
        let after = jobs.last().map_or(0, |job| job.job);
        let request = ListJobsRequest { all: false, after, ..ListJobsRequest::default() };
        let reply = dvm::answer("listing the jobs", client.list_jobs(request)).await?;
        let more = reply.more && !reply.jobs.is_empty();
        jobs.extend(reply.jobs);
        if !more {
            return Ok(jobs);
        }
    }
}

fn output_bytes(metrics: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix("rsd_output_bytes_total ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_all_ranks_is_found_in_the_heads_metrics() {
        assert_eq!(output_bytes("# TYPE rsd_output_bytes_total counter\nrsd_output_bytes_total 4096\n"), Some(4096.0));
        assert_eq!(output_bytes("rsd_steps 1\n"), None);
    }
}
