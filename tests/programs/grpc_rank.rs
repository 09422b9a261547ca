//! `grpc-rank [alone|large N|full]`: a rank that communicates with its process manager over gRPC instead of PMI-1.
//!
//! It prints its location, exchanges one key with every other rank over a fence, twice, and looks up a key that no rank has put.
//! With `alone`, it sends requests in another job's name, which must be refused. With `large N`, each rank puts N values of 1 MiB before
//! one fence. With `full`, it puts such values until one is refused.

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
    let one = |at: usize, rank: u32| PmiPut {
        who: Some(me.clone()),
        key: format!("large-{rank}-{at}").into_bytes().into(),
        value: vec![u8::try_from(at % 251).unwrap_or_default(); 1 << 20].into(),
    };
    if std::env::args().nth(1).as_deref() == Some("full") {
        for at in 0.. {
            if let Err(refusal) = pmi.put(one(at, rank)).await {
                println!("after {at}: {}", refusal.message());
                return Ok(());
            }
        }
    }
    let info = pmi.info(me.clone()).await?.into_inner();
    if std::env::args().nth(1).as_deref() == Some("large") {
        let count: usize = std::env::args().nth(2).context("no number")?.parse()?;
        for at in 0..count {
            pmi.put(one(at, rank)).await?;
        }
        let PmiRank { job, rank, namespace } = me.clone();
        pmi.fence(PmiFence { job, rank, namespace, attempt: 1 }).await?;
        for (other, at) in (0..info.size).flat_map(|other| (0..count).map(move |at| (other, at))) {
            let PmiPut { who, key, value } = one(at, other);
            ensure!(pmi.get(PmiGet { who, key }).await?.into_inner().value == value, "rank {other} put something else");
        }
        println!("{count} values of {} ranks", info.size);
        return Ok(());
    }
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
