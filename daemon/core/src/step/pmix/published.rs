//! Values under names. The head keeps them; what a value is, only the steps know, which all encode it in one codec.

use bytes::Bytes;
use rsd_proto::pmix::{Codec, Info, Item, Pdata, Persistence, Proc, Range, Reader, Reply, Status, Value, Writer, keys};
use rsd_proto::v1::{self as wire, name_call};

use super::pending::Asked;
use super::pending::ms;
use super::{Awaited, Effect, Local, Step, To};

/// The codec of values at the head.
const KEPT: Codec = Codec::V41;

impl Step {
    pub(super) fn on_pmix_publish(&mut self, local: Local, to: To, infos: Vec<Info>, out: &mut Vec<Effect>) {
        let range = range(&infos);
        let persistence = Info::find(&infos, keys::PERSISTENCE).and_then(Value::as_number);
        let persistence = persistence.and_then(|number| u8::try_from(number).ok()).map(Persistence::of);
        let persistence = persistence.unwrap_or(Persistence::Application);
        let entries: Vec<wire::Kv> = infos
            .into_iter()
            .filter(|info| !keys::is_reserved(&info.key))
            .map(|info| wire::Kv { key: info.key.into(), value: encode(&info.value) })
            .collect();
        if entries.is_empty() {
            return self.send_pmix(to, &Reply::Done(Status::BAD_PARAM), out);
        }
        let data = wire::PublishData {
            rank: self.ranks[local].rank,
            entries,
            range: i32::from(range.number()),
            persistence: i32::from(persistence.number()),
        };
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Publish(to)));
        self.ask_head_for(ticket, name_call::Op::PublishData(data), out);
    }

    pub(super) fn on_pmix_lookup(
        &mut self,
        local: Local,
        to: To,
        keys: Vec<String>,
        infos: &[Info],
        out: &mut Vec<Effect>,
    ) {
        let wait = Info::find(infos, rsd_proto::pmix::keys::WAIT).map(|wait| match wait {
            Value::Bool(true) | Value::Undefined => 0,
            other => other.as_number().and_then(|number| u32::try_from(number).ok()).unwrap_or(0),
        });
        let data = wire::LookupData {
            rank: self.ranks[local].rank,
            keys: keys.into_iter().map(Bytes::from).collect(),
            range: i32::from(range(infos).number()),
            wait,
            timeout_ms: ms(infos).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
        };
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Lookup(to)));
        self.ask_head_for(ticket, name_call::Op::LookupData(data), out);
    }

    pub(super) fn on_looked_up(&mut self, to: To, result: wire::NameResult, out: &mut Vec<Effect>) {
        let status = Status(result.status);
        if !status.is_success() && status != Status::PARTIAL_SUCCESS {
            return self.send_pmix(to, &Reply::Done(status), out);
        }
        let found = result.found.into_iter().filter_map(|found| {
            let key = String::from_utf8(found.key.to_vec()).ok()?;
            let value = decode(&found.value)?;
            Some(Pdata { proc: Proc { namespace: found.namespace, rank: found.rank }, key, value })
        });
        let found = found.collect();
        self.send_pmix(to, &Reply::Found(status, found), out);
    }

    pub(super) fn on_pmix_unpublish(
        &mut self,
        local: Local,
        to: To,
        keys: Vec<String>,
        infos: &[Info],
        out: &mut Vec<Effect>,
    ) {
        let data = wire::UnpublishData {
            rank: self.ranks[local].rank,
            keys: keys.into_iter().map(Bytes::from).collect(),
            range: i32::from(range(infos).number()),
        };
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Publish(to)));
        self.ask_head_for(ticket, name_call::Op::UnpublishData(data), out);
    }
}

/// Returns the range of a request; PMIx's default is the session.
fn range(infos: &[Info]) -> Range {
    let number = Info::find(infos, keys::RANGE).and_then(Value::as_number);
    number.and_then(|number| u8::try_from(number).ok()).map_or(Range::Session, Range::of)
}

fn encode(value: &Value) -> Bytes {
    let mut writer = Writer::new(KEPT);
    value.write(&mut writer);
    writer.finish().into()
}

fn decode(bytes: &Bytes) -> Option<Value> {
    Value::read(&mut Reader::new(KEPT, bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_value_keeps_its_type() {
        for value in [Value::text("port"), Value::ByteObject(vec![0, 1]), Value::Uint16(7)] {
            assert_eq!(decode(&encode(&value)), Some(value));
        }
        assert_eq!(decode(&Bytes::from_static(b"\xff\xff\xff")), None);
        assert_eq!(range(&[Info::new(keys::RANGE, Value::Range(3))]), Range::Namespace);
        assert_eq!(range(&[]), Range::Session);
    }
}
