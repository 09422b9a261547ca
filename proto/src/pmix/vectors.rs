//! Messages byte by byte, written by hand from the wire's rules, and round trips of arbitrary ones.

use bytes::Bytes;
use proptest::prelude::*;

use super::strategies::{codec, info, kval, proc, request, value};
use super::*;

fn check(codec: Codec, request: &Request, bytes: &[u8]) {
    assert_eq!(request.encode(codec), bytes, "{request:?}");
    assert_eq!(Request::decode(codec, &Bytes::copy_from_slice(bytes)).as_ref(), Ok(request));
}

#[test]
fn a_fence_over_a_job_with_data() {
    let procs = vec![Proc::new("ns", rank::WILDCARD)];
    let fence = Request::Fence { procs, infos: vec![Info::new(keys::COLLECT_DATA, Value::Bool(true))] };
    check(
        Codec::V3,
        &fence,
        b"\0\0\0\x01\x03\
          \0\0\0\x01\0\x0f\0\0\0\0\0\0\0\x01\
          \0\0\0\x01\0\0\0\x03ns\0\xff\xff\xff\xfe\
          \0\0\0\x01\0\x0f\0\0\0\0\0\0\0\x01\
          \0\0\0\x01\0\0\0\x0dpmix.collect\0\0\0\0\0\0\x01\x01",
    );
    check(
        Codec::V41,
        &fence,
        b"\x02\x03\x02\x01\x02\x06ns\0\xfe\xff\xff\xff\x0f\x02\x01\x02\x1apmix.collect\0\0\x01\x01",
    );
}

#[test]
fn a_get_with_and_without_a_key() {
    let get = |key| Request::Get { proc: Proc::new("n", 1), infos: Vec::new(), key };
    check(Codec::V41, &get(None), b"\x02\x04\x02\x04n\0\x02\x01\x02\0");
    check(Codec::V41, &get(Some("k".into())), b"\x02\x04\x02\x04n\0\x02\x01\x02\0\x02\x04k\0");
    check(
        Codec::V3,
        &get(None),
        b"\0\0\0\x01\x04\0\0\0\x01\0\0\0\x02n\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x0f\0\0\0\0\0\0\0\0",
    );
}

#[test]
fn a_commit_of_one_value_for_this_node() {
    let kval = KVal::new("k", Value::Uint32(7));
    let commit = |codec| Request::Commit(vec![Commit { scope: Scope::Local, entries: vec![Entry::new(codec, &kval)] }]);
    check(
        Codec::V3,
        &commit(Codec::V3),
        b"\0\0\0\x01\x02\0\0\0\x01\x01\0\0\0\x01\x01\0\x0f\0\0\0\0\0\0\0\x10\0\0\0\x01\0\0\0\x02k\0\0\x0e\0\0\0\x07",
    );
    check(Codec::V41, &commit(Codec::V41), b"\x02\x02\x02\x01\x02\x01\x06\x02\x04k\0\x0e\x07");
}

#[test]
fn values_of_sizes_and_process_ids_are_described_once_for_a_list() {
    let sizes = Value::array(DataType::Size, vec![Value::Size(1), Value::Size(2)]);
    let pids = Value::array(DataType::Pid, vec![Value::Pid(3), Value::Pid(4)]);
    let encode = |codec, value: &Value| {
        let mut writer = Writer::new(codec);
        value.write(&mut writer);
        writer.finish()
    };
    assert_eq!(
        encode(Codec::V3, &sizes),
        b"\0\x27\0\x04\0\x0f\0\0\0\0\0\0\0\x02\0\x0f\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02"
    );
    assert_eq!(encode(Codec::V41, &sizes), b"\x27\x04\x02\x01\x02");
    assert_eq!(encode(Codec::V41, &pids), b"\x27\x05\x02\x0e\x03\x04");
    assert_eq!(encode(Codec::V41, &Value::Pid(3)), b"\x05\x0e\x03");
    assert_eq!(encode(Codec::V3, &Value::Int(-2)), b"\0\x06\0\x09\xff\xff\xff\xfe");
    assert_eq!(encode(Codec::V41, &Value::Uint(1)), b"\x0b\x02", "an unsigned int travels as an int");
}

#[test]
fn an_event_of_a_lost_process() {
    let infos = vec![Info::new(keys::EVENT_AFFECTED_PROC, Value::Proc(Proc::new("n", 1)))];
    let event = Event { status: Status::LOST_CONNECTION, source: Proc::new("n", 1), infos };
    let bytes = b"\x02\x0c\x02\x79\x02\x04n\0\x01\x02\x01\x02\x18pmix.evproc\0\0\x16\x04n\0\x01";
    assert_eq!(event.encode(Codec::V41), bytes);
    assert_eq!(Event::decode(Codec::V41, bytes), Ok(event));
}

#[test]
fn data_types_that_are_not_decoded_are_errors() {
    for number in [26, 29, 44, 47, 48, 49, 52, 56, 61, 70, 499, u16::MAX] {
        assert_eq!(DataType::of(number), Err(WireError::DataType(number)));
    }
    for kind in DataType::ALL {
        assert_eq!(DataType::of(kind.number()), Ok(*kind));
    }
    let mut reader = Reader::new(Codec::V41, b"\x27\x1f\x02\x01");
    assert_eq!(Value::read(&mut reader), Err(WireError::DataType(31)), "pointers in a list are one byte together");
}

#[test]
fn nesting_and_numbers_of_values_are_bounded() {
    let mut deep = Value::Bool(true);
    for _ in 0..40 {
        deep = Value::Value(Box::new(deep));
    }
    let mut writer = Writer::new(Codec::V3);
    deep.write(&mut writer);
    assert_eq!(Value::read(&mut Reader::new(Codec::V3, &writer.finish())), Err(WireError::Deep));

    let many = Value::array(DataType::Bool, vec![Value::Bool(true); ITEMS_MAX as usize + 1]);
    let mut writer = Writer::new(Codec::V41);
    many.write(&mut writer);
    assert_eq!(Value::read(&mut Reader::new(Codec::V41, &writer.finish())), Err(WireError::Items));
}

#[test]
fn flags_may_be_absent_numbers_or_words() {
    for (value, flag) in [
        (Value::Undefined, Some(true)),
        (Value::Bool(false), Some(false)),
        (Value::Int(2), Some(true)),
        (Value::text("no"), Some(false)),
        (Value::text("perhaps"), None),
        (Value::Proc(Proc::new("n", 0)), None),
    ] {
        assert_eq!(value.as_flag(), flag, "{value:?}");
    }
}

#[test]
fn a_group_may_be_dissolved_in_any_versions_form() {
    let (old, new) = (b"\x02\x1c\x02\x04g\0\x02\0", b"\x02\x1c\x02\x04g\0\x02\x01\x02\x04n\0\x01\x02\0");
    for bytes in [&old[..], new] {
        let request = Request::decode(Codec::V41, &Bytes::from_static(bytes.to_vec().leak()));
        assert_eq!(request, Ok(Request::GroupDestruct { group: "g".into() }));
    }
}

#[test]
fn clients_are_told_about_a_group_as_their_version_expects() {
    let reply = |form| {
        let members = vec![Proc::new("n", 0)];
        Reply::Group(Founded { form, members, number: 9, jobs: Vec::new() }).encode(Codec::V41)
    };
    assert_eq!(reply(GroupForm::of("4.2.2")), b"\x02\0\x02\x09");
    assert_eq!(reply(GroupForm::of("5.0.11")), b"\x02\0\x02\x01\x02\x04n\0\0\x02\x09");
    assert_eq!(reply(GroupForm::of("6.1.0")), b"\x02\0\x02\x01\x02\x04n\0\0\x02\x01\x02\x09\x02\0");
    assert_eq!(GroupForm::of("4.2.4"), GroupForm::Members);
    assert_eq!(GroupForm::of(""), GroupForm::Number);
}

fn replies() -> impl Strategy<Value = (Request, Reply)> {
    let name = || "[a-z]{1,8}";
    let values = || prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    let jobs = move || prop::collection::vec((name(), values()), 0..3);
    let kept = (proc(), values()).prop_map(|(proc, values)| Kept { proc, values });
    let pdata = (proc(), name(), value()).prop_map(|(proc, key, value)| Pdata { proc, key, value });
    let get = Request::Get { proc: Proc::new("n", 0), infos: Vec::new(), key: None };
    let lookup = Request::Lookup { keys: Vec::new(), infos: Vec::new() };
    let spawn = Request::Spawn { infos: Vec::new(), apps: Vec::new() };
    let connect = Request::Connect { procs: Vec::new(), infos: Vec::new() };
    let group = Request::GroupConstruct { group: "g".into(), procs: Vec::new(), infos: Vec::new() };
    let peers = Request::ResolvePeers { node: None, namespace: "n".into() };
    let nodes = Request::ResolveNodes { namespace: "n".into() };
    let with = |request: Request| move |reply| (request.clone(), reply);
    prop_oneof![
        any::<i32>().prop_map(|status| Reply::Done(Status(status))).prop_map(with(Request::Finalize)),
        (name(), values()).prop_map(|(name, values)| Reply::JobInfo(name, values)).prop_map(with(Request::JobInfo)),
        prop::collection::vec(kept, 1..4).prop_map(Reply::Kept).prop_map(with(get)),
        prop::collection::vec(pdata, 0..3)
            .prop_map(|found| Reply::Found(Status::PARTIAL_SUCCESS, found))
            .prop_map(with(lookup)),
        (name(), values()).prop_map(|(name, values)| Reply::Spawned(name, values)).prop_map(with(spawn)),
        prop::collection::vec((name(), values()), 1..3).prop_map(Reply::Connected).prop_map(with(connect)),
        prop::collection::vec(info(), 0..3)
            .prop_map(|infos| Reply::Infos(Status::SUCCESS, infos))
            .prop_map(with(Request::Query(Vec::new()))),
        (prop::collection::vec(proc(), 0..3), any::<u64>(), jobs())
            .prop_map(|(members, number, jobs)| Reply::Group(Founded {
                form: GroupForm::Members,
                members,
                number,
                jobs
            }))
            .prop_map(with(group)),
        prop::collection::vec(proc(), 0..3).prop_map(Reply::Procs).prop_map(with(peers)),
        prop::option::of(prop::collection::vec(1_u8.., 0..8)).prop_map(Reply::Text).prop_map(with(nodes)),
    ]
}

proptest! {
    #[test]
    fn requests_survive_the_wire((codec, request) in codec().prop_flat_map(|codec| (Just(codec), request(codec)))) {
        let bytes = Bytes::from(request.encode(codec));
        prop_assert_eq!(Request::decode(codec, &bytes), Ok(request));
    }

    #[test]
    fn replies_survive_the_wire(codec in codec(), (request, reply) in replies()) {
        let bytes = Bytes::from(reply.encode(codec));
        prop_assert_eq!(Reply::decode(codec, &request, &bytes), Ok(reply));
    }

    #[test]
    fn values_pass_from_one_codec_to_the_other(from in codec(), to in codec(), kvals in prop::collection::vec(kval(), 0..5)) {
        let bytes = Bytes::from(encode_all(from, &kvals));
        let entries = Entry::split(from, &bytes).unwrap();
        let again: Vec<KVal> = entries.iter().map(|entry| entry.decode(from).unwrap()).collect();
        prop_assert_eq!(&again, &kvals);
        let there = Bytes::from(encode_all(to, &again));
        let there = Entry::split(to, &there).unwrap();
        prop_assert_eq!(there.iter().map(|entry| entry.decode(to).unwrap()).collect::<Vec<_>>(), kvals);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(codec in codec(), number in 0_u8..40, bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let mut writer = Writer::new(codec);
        writer.one_byte(number);
        writer.raw(&bytes);
        let _ = Request::decode(codec, &writer.finish().into());
        let _ = Request::decode(codec, &bytes.clone().into());
        let _ = Event::decode(codec, &bytes);
        let _ = Entry::split(codec, &bytes.clone().into());
        let get = Request::Get { proc: Proc::new("n", 0), infos: Vec::new(), key: None };
        let _ = Reply::decode(codec, &get, &bytes.into());
    }

    #[test]
    fn no_damage_makes_a_decoder_panic(
        (codec, request) in codec().prop_flat_map(|codec| (Just(codec), request(codec))),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = request.encode(codec);
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = Request::decode(codec, &Bytes::copy_from_slice(&bytes));
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = Request::decode(codec, &bytes.into());
    }
}
