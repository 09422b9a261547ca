//! The values of jobs (`rsctl kv`) over gRPC; the head keeps them.

use std::time::Duration;

use rsd_core::rsd::{Answer, Call, Caller, Entry, KvCall, KvOp};
use rsd_proto::v1::{KvDeleteRequest, KvDone, KvEntries, KvFenceRequest, KvGetRequest, KvPutRequest, KvScope, KvValue};
use tonic::{Response, Status};

use super::{status_of, unexpected};
use crate::door::Door;

type Reply<T> = Result<Response<T>, Status>;

async fn ask(door: &Door, caller: Caller, scope: Option<KvScope>, op: KvOp) -> Result<Answer, Status> {
    match door.call(caller, Call::Kv(KvCall { scope: scope.unwrap_or_default(), op })).await {
        Answer::Refused(refused) => Err(status_of(refused)),
        answer => Ok(answer),
    }
}

async fn do_it(door: &Door, caller: Caller, scope: Option<KvScope>, op: KvOp) -> Reply<KvDone> {
    match ask(door, caller, scope, op).await? {
        Answer::Stopped => Ok(Response::new(KvDone {})),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn put(
    door: &Door,
    caller: Caller,
    KvPutRequest { scope, key, value }: KvPutRequest,
) -> Reply<KvDone> {
    do_it(door, caller, scope, KvOp::Put { key, value }).await
}

pub(crate) async fn get(
    door: &Door,
    caller: Caller,
    KvGetRequest { scope, key, timeout_ms }: KvGetRequest,
) -> Reply<KvValue> {
    let timeout = Duration::from_millis(timeout_ms);
    match ask(door, caller, scope, KvOp::Get { key, timeout }).await? {
        Answer::Value(value) => Ok(Response::new(KvValue { value })),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn list(door: &Door, caller: Caller, scope: KvScope) -> Reply<KvEntries> {
    match ask(door, caller, Some(scope), KvOp::List).await? {
        Answer::Entries(entries) => Ok(Response::new(KvEntries { entries })),
        other => Err(unexpected(&other)),
    }
}

pub(crate) async fn delete(
    door: &Door,
    caller: Caller,
    KvDeleteRequest { scope, key }: KvDeleteRequest,
) -> Reply<KvDone> {
    do_it(door, caller, scope, KvOp::Delete { key }).await
}

pub(crate) async fn fence(door: &Door, caller: Caller, request: KvFenceRequest) -> Reply<KvDone> {
    let KvFenceRequest { scope, name, participants, who, attempt, timeout_ms } = request;
    let timeout = Duration::from_millis(timeout_ms);
    do_it(door, caller, scope, KvOp::Fence(Entry { name, participants, who, attempt, timeout })).await
}
