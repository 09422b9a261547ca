//! `grpc-rank [alone]`: a rank that communicates with its process manager over gRPC instead of PMI-1.
//!
//! It prints its location, exchanges one key with every other rank over a fence, twice, and looks up a key that no rank has put.
//! With `alone`, it sends requests in another job's name, which must be refused.

use anyhow::{Context, ensure};
use rsd_proto::transport::{Target, dial, pmi_client};
use rsd_proto::v1::{PmiFence, PmiGet, PmiPut, PmiRank};
use tonic::Code;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let socket = Target::Unix(env("RSD_SOCKET")?.into());
    let rank: u32 = env("RSD_RANK")?.parse()?;
    let me = PmiRank { job: env("RSD_JOB")?.parse()?, rank, namespace: env("RSD_PMI_NAMESPACE")? };
    let mut pmi = pmi_client(dial(&socket, std::time::Duration::from_secs(10)).await?);

    if std::env::args().nth(1).as_deref() == Some("alone") {
        let other = PmiRank { namespace: format!("{}0", me.namespace), ..me };
        let refusal = pmi.info(other).await.expect_err("another job's name is refused");
        println!("{}", refusal.message());
        return Ok(());
    }
    let info = pmi.info(me.clone()).await?.into_inner();
    ensure!(info.rank == rank && info.namespace == me.namespace, "{info:?} is not rank {rank}");
    for round in 0..2 {
        let key = |rank: u32| format!("key-{round}-{rank}").into_bytes().into();
        let value = |rank: u32| [b"value \0\n\\= ".as_slice(), &rank.to_le_bytes()].concat();
        pmi.put(PmiPut { who: Some(me.clone()), key: key(rank), value: value(rank).into() }).await?;
        let PmiRank { job, rank, namespace } = me.clone();
        pmi.fence(PmiFence { job, rank, namespace, attempt: round + 1 }).await?;
        for other in 0..info.size {
            let found = pmi.get(PmiGet { who: Some(me.clone()), key: key(other) }).await?.into_inner().value;
            ensure!(found == value(other), "rank {other} put something else");
        }
    }
    let unknown = PmiGet { who: Some(me), key: "no such key".into() };
    let missing = pmi.get(unknown).await.expect_err("no rank has put it");
    ensure!(missing.code() == Code::NotFound, "{missing}");
    println!("rank {rank} of {} on {}, local {} of {}", info.size, info.node_name, info.local_rank, info.local_size);
    Ok(())
}
