//! The values of jobs (`rsctl kv`) over gRPC; the head keeps them.

use std::time::Duration;

use rsd_core::rsd::{Answer, Call, Entry, KvCall, KvOp};
use rsd_proto::v1::{KvDeleteRequest, KvDone, KvEntries, KvFenceRequest, KvGetRequest, KvPutRequest, KvScope, KvValue};
use tonic::{Response, Status};

use super::{status_of, unexpected};
use crate::door::Door;

type Reply<T> = Result<Response<T>, Status>;

async fn ask(door: &Door, scope: Option<KvScope>, op: KvOp) -> Result<Answer, Status> {
    match door.call(Call::Kv(KvCall { scope: scope.unwrap_or_default(), op })).await {
        Answer::Refused(refused) => Err(status_of(refused)),
        answer => Ok(answer),
    }
}

async fn do_it(door: &Door, scope: Option<KvScope>, op: KvOp) -> Reply<KvDone> {
    match ask(door, scope, op).await? {
        Answer::Stopped => Ok(Response::new(KvDone {})),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn put(door: &Door, KvPutRequest { scope, key, value }: KvPutRequest) -> Reply<KvDone> {
    do_it(door, scope, KvOp::Put { key, value }).await
}

pub(crate) async fn get(door: &Door, KvGetRequest { scope, key, timeout_ms }: KvGetRequest) -> Reply<KvValue> {
    let timeout = Duration::from_millis(timeout_ms);
    match ask(door, scope, KvOp::Get { key, timeout }).await? {
        Answer::Value(value) => Ok(Response::new(KvValue { value })),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn list(door: &Door, scope: KvScope) -> Reply<KvEntries> {
    match ask(door, Some(scope), KvOp::List).await? {
        Answer::Entries(entries) => Ok(Response::new(KvEntries { entries })),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn delete(door: &Door, KvDeleteRequest { scope, key }: KvDeleteRequest) -> Reply<KvDone> {
    do_it(door, scope, KvOp::Delete { key }).await
}

pub(crate) async fn fence(door: &Door, request: KvFenceRequest) -> Reply<KvDone> {
    let KvFenceRequest { scope, name, participants, who, attempt, timeout_ms } = request;
    let timeout = Duration::from_millis(timeout_ms);
    do_it(door, scope, KvOp::Fence(Entry { name, participants, who, attempt, timeout })).await
}
