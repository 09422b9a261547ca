//! A look at the DVM: its jobs, nodes and waits, and how much its ranks write.

use std::time::Instant;

use rsd_proto::transport::{dvm_client, observe_client};
use rsd_proto::v1::{JobInfo, ListJobsRequest, ListNodesRequest, MetricsRequest, NodeInfo, Wait, WaitsRequest};
use tonic::transport::Channel;

use crate::dvm::{self, Client, Dvm, Observer};
use crate::exit::Failure;
use crate::reconnect::{Contact, PATIENCE};

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
    contact: Contact<'a, Clients>,
    /// The bytes of output at the last look.
    output: Option<(Instant, f64)>,
}

impl<'a> Looks<'a> {
    pub(super) async fn new(dvm: &'a Dvm) -> Result<Looks<'a>, Failure> {
        let clients = Clients { client: dvm.client().await?, observer: dvm.observer().await? };
        Ok(Looks { contact: Contact::of(dvm, clients, PATIENCE, Clients::on), output: None })
    }

    /// The same, without telling on standard error that the daemon is lost.
    pub(super) fn silent(self) -> Looks<'a> {
        Looks { contact: self.contact.silent(), ..self }
    }

    pub(super) fn client(&self) -> Client {
        self.contact.client.client.clone()
    }

    pub(super) async fn look(&mut self) -> Result<Snapshot, Failure> {
        let looked = self.contact.client.look().await?;
        Ok(self.rated(looked))
    }

    /// Handles that a look has failed: if the daemon is lost, looks again until it is back and answers.
    ///
    /// # Errors
    /// As [`Contact::again`].
    pub(super) async fn again(&mut self, failure: Failure) -> Result<Snapshot, Failure> {
        let looked = self.contact.again(failure, async |clients: &mut Clients| clients.look().await).await?;
        Ok(self.rated(looked))
    }

    /// Adds the rate of output since the last look.
    fn rated(&mut self, (snapshot, bytes): (Snapshot, Option<f64>)) -> Snapshot {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.output, bytes.map(|bytes| (now, bytes)));
        let output_rate = before.zip(bytes).and_then(|((at, before), bytes)| {
            let seconds = (now - at).as_secs_f64();
            // The head may have been restarted.
            (seconds > 0.0 && bytes >= before).then(|| (bytes - before) / seconds)
        });
        Snapshot { output_rate, ..snapshot }
    }
}

/// The clients with which top looks at a DVM, on one daemon.
struct Clients {
    client: Client,
    observer: Observer,
}

impl Clients {
    fn on(channel: Channel) -> Clients {
        Clients { client: dvm_client(channel.clone()), observer: observe_client(channel) }
    }

    /// Returns what is there now, and how many bytes all ranks have written; only the head knows the latter.
    async fn look(&mut self) -> Result<(Snapshot, Option<f64>), Failure> {
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
        let bytes = metrics.ok().and_then(|reply| output_bytes(&reply.text));
        let at_ms = crate::when::now_ms();
        Ok((Snapshot { jobs: jobs?, nodes: nodes?, waits: waits?, output_rate: None, at_ms }, bytes))
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
