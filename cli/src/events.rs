//! `rsctl events`: what happens in the DVM, one line per event.

mod text;

use rsd_proto::v1::dvm_event::What;
use rsd_proto::v1::{
    DvmEvent, EventsReply, EventsRequest, GroupChange, JobChange, JobEnd, NodeChange, TokenChange, group_change,
    job_change, token_change,
};
use serde_json::{Value, json};
use tonic::Streaming;

use crate::dvm::{self, Observer};
use crate::exit::Failure;
use crate::json;
use crate::print::{one_line, out, say};
use crate::reconnect::Contact;

/// `events`.
pub(crate) async fn events(
    mut contact: Contact<'_, Observer>,
    since: Option<u64>,
    follow: bool,
    as_json: bool,
) -> Result<u8, Failure> {
    let mut replies = ask(&mut contact.client, since, follow).await?;
    let mut cursor = since;
    loop {
        match replies.message().await {
            Ok(Some(reply)) => {
                cursor = Some(reply.cursor);
                print(&reply, as_json)?;
            }
            Ok(None) if !follow => return Ok(0),
            Ok(None) => replies = again(&mut contact, stopped(), cursor).await?,
            Err(status) => replies = again(&mut contact, Failure::of_status(DOING, &status), cursor).await?,
        }
    }
}

/// What this does, as errors say it.
const DOING: &str = "reading the events of the DVM";

async fn ask(observer: &mut Observer, since: Option<u64>, follow: bool) -> Result<Streaming<EventsReply>, Failure> {
    dvm::answer(DOING, observer.events(EventsRequest { since, follow })).await
}

/// Follows the events after the last that was printed, when the daemon is back.
async fn again(
    contact: &mut Contact<'_, Observer>,
    failure: Failure,
    cursor: Option<u64>,
) -> Result<Streaming<EventsReply>, Failure> {
    let found = contact.again(failure, async |observer: &mut Observer| ask(observer, cursor, true).await).await;
    found.map_err(|failure| match failure.is_unreachable() {
        true => Failure { text: failure.text + &go_on(cursor), ..failure },
        false => failure,
    })
}

fn stopped() -> Failure {
    Failure::unreachable("the daemon has stopped".to_owned())
}

fn print(reply: &EventsReply, as_json: bool) -> Result<(), Failure> {
    tell_missed(reply, as_json)?;
    let lines = reply.events.iter().map(|event| match as_json {
        true => json::document(described(event)) + "\n",
        false => one_line(&text::line(event)) + "\n",
    });
    out(&lines.collect::<String>())
}

fn go_on(cursor: Option<u64>) -> String {
    cursor.map(|cursor| format!("; to go on: rsctl events --follow --since {cursor:x}")).unwrap_or_default()
}

fn tell_missed(reply: &EventsReply, as_json: bool) -> Result<(), Failure> {
    if reply.missed == 0 && !reply.head_restarted {
        return Ok(());
    }
    if as_json {
        let fields = json!({ "event": "missed", "count": reply.missed, "head_restarted": reply.head_restarted });
        return out(&(json::document(fields) + "\n"));
    }
    if reply.head_restarted {
        say("events of earlier heads are missing: the head keeps only the latest ones");
    }
    match reply.missed {
        0 => {}
        1 => say("1 event is missing: the head keeps only the latest ones"),
        count => say(&format!("{count} events are missing: the head keeps only the latest ones")),
    }
    Ok(())
}

/// Returns an event as JSON. A cursor is a text, because many readers round large numbers.
fn described(event: &DvmEvent) -> Value {
    let (kind, fields) = match &event.what {
        Some(What::Job(change)) => job(change),
        Some(What::Node(change)) => node(change),
        Some(What::Group(change)) => group(change),
        Some(What::Token(change)) => token(change),
        Some(What::HeadStarted(it)) => {
            let before = (!it.successor_of.is_empty()).then_some(&it.successor_of);
            let fields = json!({ "name": it.node, "version": it.version, "epoch": it.epoch, "in_place_of": before });
            ("head_started".to_owned(), fields)
        }
        None => ("unknown".to_owned(), json!({})),
    };
    let mut all = json!({ "event": kind, "cursor": format!("{:x}", event.number), "at_ms": event.at_ms });
    if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
        all.extend(fields);
    }
    all
}

fn job(change: &JobChange) -> (String, Value) {
    use job_change::Change;
    let (kind, mut fields) = match &change.change {
        Some(Change::Submitted(command)) => ("submitted", json!({ "command": command })),
        Some(Change::Queued(reason)) => ("queued", json!({ "reason": reason })),
        Some(Change::Placed(placed)) => {
            ("placed", json!({ "ranks": placed.ranks, "nodes": placed.nodes, "first_nodes": placed.node_names }))
        }
        Some(Change::Killing(reason)) => ("killing", json!({ "reason": reason })),
        Some(Change::RankFailed(failure)) => {
            ("rank_failed", json!({ "rank": failure.rank, "name": failure.node, "text": failure.text }))
        }
        Some(Change::Ended(end)) => ("ended", ended(end)),
        None => ("unknown", json!({})),
    };
    fields["job"] = change.job.into();
    fields["user"] = change.owner.as_ref().map(|owner| owner.name.clone()).into();
    (format!("job_{kind}"), fields)
}

fn ended(end: &JobEnd) -> Value {
    json!({
        "state": json::state(end.state()),
        "exit_code": end.exit_code,
        "cause": (!end.cause.is_empty()).then_some(&end.cause),
        "failed_ranks": end.failed_ranks,
    })
}

fn node(change: &NodeChange) -> (String, Value) {
    let fields = json!({
        "node": change.node,
        "name": change.name,
        "text": (!change.text.is_empty()).then_some(&change.text),
    });
    (format!("node_{}", text::node_word(change.change())), fields)
}

fn group(change: &GroupChange) -> (String, Value) {
    use group_change::Change;
    let (kind, mut fields) = match &change.change {
        Some(Change::Formed(members)) => {
            ("formed", json!({ "members": members, "epoch": change.epoch, "job": change.job }))
        }
        Some(Change::EpochEnded(end)) => {
            let (state, cause) = (json::state(end.state()), (!end.cause.is_empty()).then_some(&end.cause));
            ("epoch_ended", json!({ "state": state, "cause": cause, "epoch": change.epoch, "job": change.job }))
        }
        Some(Change::Closed(_)) => ("closed", json!({})),
        None => ("unknown", json!({})),
    };
    fields["group"] = change.group.clone().into();
    (format!("group_{kind}"), fields)
}

fn token(change: &TokenChange) -> (String, Value) {
    use token_change::Change;
    let (kind, mut fields) = match &change.change {
        Some(Change::Made(uses)) => ("made", json!({ "uses": uses })),
        Some(Change::Used(left)) => ("used", json!({ "uses_left": left })),
        Some(Change::Revoked(_)) => ("revoked", json!({})),
        None => ("unknown", json!({})),
    };
    fields["token"] = format!("{:016x}", change.token).into();
    fields["uid"] = change.uid.into();
    (format!("token_{kind}"), fields)
}
