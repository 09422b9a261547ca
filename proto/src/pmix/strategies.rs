//! Arbitrary values for tests.

use proptest::prelude::*;

use super::{
    App, Codec, Commit, DataArray, DataType, Entry, Envar, Info, KVal, Pdata, Proc, ProcInfo, Query, Request, Scope,
    Text, Value,
};

pub(super) fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::V3), Just(Codec::V41)]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., 0..12)
}

fn maybe() -> impl Strategy<Value = Text> {
    prop::option::of(bytes())
}

fn name() -> impl Strategy<Value = String> {
    "[a-z.]{1,10}"
}

pub(super) fn proc() -> impl Strategy<Value = Proc> {
    (name(), any::<u32>()).prop_map(|(namespace, rank)| Proc { namespace, rank })
}

fn procs() -> impl Strategy<Value = Vec<Proc>> {
    prop::collection::vec(proc(), 0..4)
}

pub(super) fn info() -> impl Strategy<Value = Info> {
    (name(), any::<u32>(), value()).prop_map(|(key, flags, value)| Info { key, flags, value })
}

fn infos() -> impl Strategy<Value = Vec<Info>> {
    prop::collection::vec(info(), 0..3)
}

pub(super) fn kval() -> impl Strategy<Value = KVal> {
    (name(), value()).prop_map(|(key, value)| KVal { key, value })
}

fn plain() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Undefined),
        any::<bool>().prop_map(Value::Bool),
        any::<u8>().prop_map(Value::Byte),
        maybe().prop_map(Value::String),
        any::<u64>().prop_map(Value::Size),
        any::<u32>().prop_map(Value::Pid),
        any::<i32>().prop_map(Value::Int),
        any::<i8>().prop_map(Value::Int8),
        any::<i16>().prop_map(Value::Int16),
        any::<i64>().prop_map(Value::Int64),
        any::<u32>().prop_map(Value::Uint),
        any::<u16>().prop_map(Value::Uint16),
        any::<(i64, i64)>().prop_map(Value::Timeval),
        any::<i32>().prop_map(Value::Status),
        proc().prop_map(Value::Proc),
        bytes().prop_map(Value::ByteObject),
        any::<u32>().prop_map(Value::Rank),
        (maybe(), maybe(), any::<u8>()).prop_map(|(name, value, separator)| Value::Envar(Box::new(Envar {
            name,
            value,
            separator
        }))),
        (proc(), maybe(), maybe(), any::<u32>(), any::<u8>()).prop_map(|(proc, hostname, executable, pid, state)| {
            Value::ProcInfo(Box::new(ProcInfo { proc, hostname, executable, pid, state }))
        }),
        prop::collection::vec(any::<u64>(), 0..4)
            .prop_map(|items| Value::array(DataType::Size, items.into_iter().map(Value::Size).collect())),
        prop::collection::vec(any::<u32>(), 0..4)
            .prop_map(|items| Value::array(DataType::Pid, items.into_iter().map(Value::Pid).collect())),
        prop::collection::vec(maybe(), 0..4)
            .prop_map(|items| Value::array(DataType::String, items.into_iter().map(Value::String).collect())),
    ]
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    plain().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec((name(), any::<u32>(), inner.clone()), 0..3).prop_map(|infos| {
                Value::infos(infos.into_iter().map(|(key, flags, value)| Info { key, flags, value }).collect())
            }),
            (proc(), name(), inner.clone()).prop_map(|(proc, key, value)| Value::Pdata(Box::new(Pdata {
                proc,
                key,
                value
            }))),
            (name(), inner.clone()).prop_map(|(key, value)| Value::KVal(Box::new(KVal { key, value }))),
            inner.clone().prop_map(|value| Value::Value(Box::new(value))),
            inner.prop_map(|value| Value::DataArray(DataArray::new(
                DataType::Value,
                vec![Value::Value(Box::new(value))]
            ))),
        ]
    })
}

fn app() -> impl Strategy<Value = App> {
    let words = || prop::collection::vec(bytes(), 0..3);
    (maybe(), words(), words(), maybe(), any::<i32>(), infos())
        .prop_map(|(command, argv, env, cwd, processes, infos)| App { command, argv, env, cwd, processes, infos })
}

fn commit(codec: Codec) -> impl Strategy<Value = Commit> {
    let scope = prop_oneof![Just(Scope::Local), Just(Scope::Remote), Just(Scope::Global)];
    (scope, prop::collection::vec(kval(), 0..4)).prop_map(move |(scope, kvals)| Commit {
        scope,
        entries: kvals.iter().map(|kval| Entry::new(codec, kval)).collect(),
    })
}

/// A request that the codec carries.
pub(super) fn request(codec: Codec) -> impl Strategy<Value = Request> {
    let keys = || prop::collection::vec(name(), 0..3);
    let codes = || prop::collection::vec(any::<i32>(), 0..4);
    let query =
        (prop::collection::vec(bytes(), 0..3), infos()).prop_map(|(keys, qualifiers)| Query { keys, qualifiers });
    prop_oneof![
        Just(Request::JobInfo),
        Just(Request::Finalize),
        (any::<i32>(), maybe(), procs()).prop_map(|(status, message, procs)| Request::Abort { status, message, procs }),
        prop::collection::vec(commit(codec), 0..3).prop_map(Request::Commit),
        (procs(), infos()).prop_map(|(procs, infos)| Request::Fence { procs, infos }),
        (proc(), infos(), prop::option::of(name())).prop_map(|(proc, infos, key)| Request::Get { proc, infos, key }),
        infos().prop_map(|infos| Request::Publish { infos }),
        (keys(), infos()).prop_map(|(keys, infos)| Request::Lookup { keys, infos }),
        (keys(), infos()).prop_map(|(keys, infos)| Request::Unpublish { keys, infos }),
        (infos(), prop::collection::vec(app(), 0..3)).prop_map(|(infos, apps)| Request::Spawn { infos, apps }),
        (procs(), infos()).prop_map(|(procs, infos)| Request::Connect { procs, infos }),
        (procs(), infos()).prop_map(|(procs, infos)| Request::Disconnect { procs, infos }),
        (any::<i32>(), any::<u8>(), infos()).prop_map(|(status, range, infos)| Request::Notify {
            status,
            range,
            infos
        }),
        (codes(), infos()).prop_map(|(codes, infos)| Request::RegisterEvents { codes, infos }),
        codes().prop_map(|codes| Request::DeregisterEvents { codes }),
        prop::collection::vec(query, 0..3).prop_map(Request::Query),
        (infos(), infos()).prop_map(|(infos, directives)| Request::Log { infos, directives }),
        (procs(), infos()).prop_map(|(targets, infos)| Request::JobControl { targets, infos }),
        (name(), procs(), infos()).prop_map(|(group, procs, infos)| Request::GroupConstruct { group, procs, infos }),
        name().prop_map(|group| Request::GroupDestruct { group }),
        name().prop_map(|group| Request::GroupLeave { group }),
        (maybe(), name()).prop_map(|(node, namespace)| Request::ResolvePeers { node, namespace }),
        name().prop_map(|namespace| Request::ResolveNodes { namespace }),
        (39_u8..).prop_map(Request::Unknown),
    ]
}
