//! Compares matching with the simplest implementation.

use proptest::prelude::*;

use super::*;

/// The same state as two lists in order of time.
#[derive(Default)]
struct Naive {
    posted: Vec<(u32, Source, TagMatch, u32)>,
    messages: Vec<(Envelope, u32)>,
}

fn suits(context: u32, source: Source, tag: TagMatch, envelope: Envelope) -> bool {
    context == envelope.context
        && (source == Source::Any || source == Source::Rank(envelope.rank))
        && (tag == TagMatch::Any || tag == TagMatch::Value(envelope.tag))
}

#[derive(Debug, Clone)]
enum Event {
    /// A receive starts: it gets a pending message, or is posted.
    Receive(u32, Source, TagMatch),
    /// A message arrives: a posted receive gets it, or it waits.
    Message(Envelope),
    /// One of the posted receives is cancelled.
    Cancel(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let source = prop_oneof![3 => (0..3_u32).prop_map(Source::Rank), 1 => Just(Source::Any)];
    let tag = prop_oneof![3 => (-1..2_i32).prop_map(TagMatch::Value), 1 => Just(TagMatch::Any)];
    let envelope = (0..2_u32, 0..3_u32, -1..2_i32);
    prop_oneof![
        4 => (0..2_u32, source, tag).prop_map(|(context, source, tag)| Event::Receive(context, source, tag)),
        4 => envelope.prop_map(|(context, rank, tag)| Event::Message(Envelope { context, rank, tag })),
        1 => any::<prop::sample::Index>().prop_map(Event::Cancel),
    ]
}

proptest! {
    #[test]
    fn matching_agrees_with_two_plain_lists(events in prop::collection::vec(event(), 0..200)) {
        let (mut posted, mut unexpected, mut naive) = (Posted::default(), Unexpected::default(), Naive::default());
        let mut seen = [Seen::default(); 2];
        let mut entries = Vec::new();
        let mut envelopes = Vec::new();
        for (number, event) in events.into_iter().enumerate() {
            let number = number as u32;
            match event {
                Event::Receive(context, source, tag) => {
                    let place = naive.messages.iter().position(|it| suits(context, source, tag, it.0));
                    let expected = place.map(|place| naive.messages.remove(place).1);
                    let of = |message: u32| envelopes.iter().find(|it: &&(Envelope, u32)| it.1 == message).map(|it| it.0);
                    let seen = &mut seen[context as usize];
                    let found = unexpected.find(seen, context, source, tag, of);
                    prop_assert_eq!(found, expected);
                    if let Some(message) = found {
                        unexpected.remove(seen, message);
                    } else {
                        naive.posted.push((context, source, tag, number));
                        entries.push((posted.post(seen, context, source, tag, number), number));
                    }
                }
                Event::Message(envelope) => {
                    let place = naive.posted.iter().position(|it| suits(it.0, it.1, it.2, envelope));
                    let expected = place.map(|place| naive.posted.remove(place).3);
                    let seen = &mut seen[envelope.context as usize];
                    let found = posted.find(seen, envelope);
                    prop_assert_eq!(found.map(|it| it.1), expected);
                    if let Some((entry, request)) = found {
                        prop_assert_eq!(posted.asks(entry).0, envelope.context);
                        posted.remove(seen, entry);
                        entries.retain(|it| it.1 != request);
                    } else {
                        naive.messages.push((envelope, number));
                        envelopes.push((envelope, number));
                        unexpected.add(seen, envelope, number);
                    }
                }
                Event::Cancel(index) if !entries.is_empty() => {
                    let (entry, request) = entries.remove(index.index(entries.len()));
                    let (context, _) = posted.asks(entry);
                    posted.remove(&mut seen[context as usize], entry);
                    naive.posted.retain(|it| it.3 != request);
                }
                Event::Cancel(_) => {}
            }
        }
        for context in 0..2 {
            let first = naive.messages.iter().find(|it| it.0.context == context).map(|it| it.1);
            prop_assert_eq!(seen[context as usize].first_unexpected(), first);
        }
    }
}
