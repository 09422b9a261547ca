use super::*;

/// Rank 0 of a job, on the node with the job's number.
fn of(job: JobId) -> Process {
    Process { job, node: job as NodeId, rank: 0, uid: None }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn call(job: JobId) -> CallId {
    CallId { job, node: job as NodeId, number: 1 }
}

fn data(entries: &[(&str, &str)], range: DataRange, persistence: Persistence) -> wire::PublishData {
    let entry = |(key, value): &(&str, &str)| wire::Kv {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    let entries = entries.iter().map(entry).collect();
    wire::PublishData { rank: 0, entries, range: range.into(), persistence: persistence.into() }
}

fn publish(published: &mut Published, process: Process, key: &str, range: DataRange) -> Result<Changes, i32> {
    let mut changes = Changes::default();
    let data = data(&[(key, "port")], range, Persistence::App);
    published.publish(0, process, &data, &mut changes).map(|()| changes).map_err(|failure| failure.status)
}

fn lookup(process: Process, keys: &[&'static str], wait: Option<u32>) -> Lookup {
    let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
    let range = DataRange::Session.into();
    Lookup::new(process, wire::LookupData { rank: 0, keys, range, wait, timeout_ms: None }).unwrap()
}

fn find(published: &mut Published, process: Process, key: &'static str) -> Option<(JobId, u32)> {
    let lookup = lookup(process, &[key], None);
    let found = published.lookup(at(0), 0, call(process.job), lookup, None, &mut Changes::default()).unwrap();
    found.expect("it does not wait").first().map(|found| found.publisher)
}

fn assert_empty(published: &Published) {
    assert_eq!((published.leftovers().count(), published.next_deadline()), (0, None));
}

#[test]
fn a_key_is_unique_on_its_range_and_seen_by_those_in_it() {
    let mut published = Published::default();
    let (one, two) = (of(1), of(2));
    let neighbour = Process { node: 1, ..of(3) };
    for range in [DataRange::Session, DataRange::Namespace, DataRange::Local, DataRange::Process] {
        publish(&mut published, one, "key", range).unwrap();
        assert_eq!(publish(&mut published, one, "key", range).unwrap_err(), DUPLICATE_KEY);
        let sees =
            [two, neighbour, Process { rank: 1, ..one }, one].map(|it| find(&mut published, it, "key").is_some());
        let expected = match range {
            DataRange::Session => [true, true, true, true],
            DataRange::Namespace => [false, false, true, true],
            DataRange::Local => [false, true, true, true],
            _ => [false, false, false, true],
        };
        assert_eq!(sees, expected, "{range:?}");
        let others = publish(&mut published, two, "key", range);
        assert_eq!(others.is_err(), range == DataRange::Session, "{range:?}");
        published.job_is_over(0, 2);
        published.job_is_over(0, 1);
    }
    for range in [DataRange::Host, DataRange::Custom] {
        assert_eq!(publish(&mut published, one, "key", range).unwrap_err(), NOT_SUPPORTED);
    }
    assert_empty(&published);
}

#[test]
fn all_entries_are_published_or_none() {
    let mut published = Published::default();
    publish(&mut published, of(1), "b", DataRange::Global).unwrap();
    for entries in [[("a", ""), ("b", "")], [("a", ""), ("a", "")]] {
        let data = data(&entries, DataRange::Session, Persistence::App);
        let failure = published.publish(0, of(2), &data, &mut Changes::default()).unwrap_err();
        assert_eq!(failure.status, DUPLICATE_KEY);
    }
    assert_eq!(find(&mut published, of(2), "a"), None);
    published.job_is_over(0, 1);
    assert_empty(&published);
}

#[test]
fn data_for_one_reader_goes_to_the_first_that_waits() {
    let mut published = Published::default();
    let mut changes = Changes::default();
    for job in [2, 3] {
        let lookup = lookup(of(job), &["a", "b"], Some(0));
        assert_eq!(published.lookup(at(0), 0, call(job), lookup, None, &mut changes), Ok(None));
    }
    for key in ["a", "b"] {
        let data = data(&[(key, key)], DataRange::Session, Persistence::FirstRead);
        published.publish(0, of(1), &data, &mut changes).unwrap();
    }
    let [(answered, found, 2)] = &changes.found[..] else { panic!("{changes:?}") };
    assert_eq!((*answered, found.iter().map(|it| &it.value[..]).collect::<Vec<_>>()), (call(2), vec![&b"a"[..], b"b"]));
    assert_eq!(changes.gone.len(), 2);
    assert_eq!(find(&mut published, of(9), "a"), None, "it was read");
    published.job_is_over(0, 3);
    assert_empty(&published);
}

#[test]
fn a_lookup_waits_for_as_many_keys_as_it_says_and_only_so_long() {
    let mut published = Published::default();
    let mut changes = Changes::default();
    let wait = |published: &mut Published, job, wait, seconds| {
        let lookup = lookup(of(job), &["a", "b", "c"], Some(wait));
        published.lookup(at(1), 0, call(job), lookup, Some(at(seconds)), &mut Changes::default()).unwrap()
    };
    assert_eq!((wait(&mut published, 2, 2, 9), wait(&mut published, 3, 0, 4)), (None, None));
    for (key, answered) in [("a", 0), ("b", 1)] {
        let data = data(&[(key, key)], DataRange::Session, Persistence::App);
        published.publish(0, of(1), &data, &mut changes).unwrap();
        assert_eq!(changes.found.len(), answered, "{key}");
    }
    assert_eq!((changes.found[0].0, changes.found[0].1.len()), (call(2), 2));
    assert_eq!(published.next_deadline(), Some(at(5)));
    let late = published.settle(at(5));
    assert_eq!((late[0].0, late[0].1.status), (call(3), TIMEOUT));
    assert_eq!(late[0].1.why, "timed out after 4 s: no process has published \"a\" and others");
    published.job_is_over(0, 1);
    assert_empty(&published);
}

#[test]
fn data_of_a_process_ends_with_it_and_only_the_same_user_unpublishes() {
    let mut published = Published::default();
    let mut changes = Changes::default();
    let data_of = |key, persistence| data(&[(key, "")], DataRange::Session, persistence);
    published.publish(0, of(1), &data_of("brief", Persistence::Process), &mut changes).unwrap();
    published.publish(0, of(1), &data_of("long", Persistence::Indefinite), &mut changes).unwrap();
    published.ranks_ended(0, 1, &RankSet::run(1, 7), &mut changes);
    assert!(find(&mut published, of(2), "brief").is_some(), "other ranks have ended");
    published.ranks_ended(0, 1, &RankSet::run(0, 0), &mut changes);
    assert_eq!((find(&mut published, of(2), "brief"), changes.gone.len()), (None, 1));

    let unpublish = |published: &mut Published, process, keys: &[&'static str]| {
        let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        let data = wire::UnpublishData { rank: 0, keys, range: DataRange::Session.into() };
        published.unpublish(0, process, &data, &mut Changes::default()).unwrap();
        find(published, of(2), "long").is_some()
    };
    assert!(unpublish(&mut published, Process { uid: Some(7), ..of(1) }, &["long"]), "another user");
    assert!(unpublish(&mut published, of(2), &[]), "all of another process");
    assert!(!unpublish(&mut published, of(2), &["long", "unknown"]), "another process of the same user");
    publish(&mut published, of(1), "long", DataRange::Session).unwrap();
    assert!(!unpublish(&mut published, of(1), &[]));
    assert_empty(&published);
}

#[test]
fn published_data_and_lookups_are_bounded_for_each_user() {
    let mut published = Published::default();
    let mut changes = Changes::default();
    let large = "x".repeat(BYTES_MAX / 2);
    let put = |published: &mut Published, realm, key: &str, value: &str| {
        let data = data(&[(key, value)], DataRange::Session, Persistence::App);
        published.publish(realm, of(1), &data, &mut Changes::default()).map_err(|failure| failure.status)
    };
    put(&mut published, 0, "a", &large).unwrap();
    assert_eq!(put(&mut published, 0, "b", &large), Err(OUT_OF_RESOURCE));
    put(&mut published, 1, "b", &large).unwrap();
    published.job_is_over(0, 1);
    for n in 0..ENTRIES_MAX {
        put(&mut published, 0, &n.to_string(), "").unwrap();
    }
    assert_eq!(put(&mut published, 0, "b", ""), Err(OUT_OF_RESOURCE));
    for _ in 0..WAITING_MAX {
        assert_eq!(published.lookup(at(0), 0, call(1), lookup(of(1), &["z"], Some(0)), None, &mut changes), Ok(None));
    }
    let more = published.lookup(at(0), 0, call(1), lookup(of(1), &["z"], Some(0)), None, &mut changes);
    assert_eq!(more.unwrap_err().status, OUT_OF_RESOURCE);
    [0, 1].into_iter().for_each(|realm| published.job_is_over(realm, 1));
    assert_empty(&published);
    for key in ["", &"k".repeat(512)] {
        assert_eq!(put(&mut published, 0, key, ""), Err(BAD_PARAM));
    }
}
