//! A plan as JSON. `ranks` has an object per rank, with logical indexes on its node; empty lists mean unbound. The text is written piece
//! by piece, so that the ranks of a large job are never all in memory as text.

use std::collections::HashMap;
use std::io::{self, Write};

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::Kind;
use rsd_proto::v1::{PlanNode, PlanRefusal, PlanReply, plan_reply::Outcome};
use serde_json::{Value, json};

use super::diff::Difference;
use super::view::{Bound, Node, Seat, View};
use crate::json::{SCHEMA, gpu, ranges};
use crate::placement::set;

/// Writes one plan, or the refusal.
pub(crate) fn reply(reply: &PlanReply, command: &str, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"schema_version\":{SCHEMA},")?;
    fields(reply, command, out)?;
    out.write_all(b"}\n")
}

/// Writes two plans, and the ranks that move between them: none if a plan was refused.
pub(crate) fn pair(
    pair: [(&PlanReply, &str); 2],
    difference: Option<&Difference<'_, '_>>,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(out, "{{\"schema_version\":{SCHEMA}")?;
    for (key, (reply, command)) in ["a", "b"].into_iter().zip(pair) {
        write!(out, ",\"{key}\":{{")?;
        fields(reply, command, out)?;
        out.write_all(b"}")?;
    }
    out.write_all(b",\"moved\":[")?;
    if let Some(difference) = difference {
        for (at, moved) in difference.moves.iter().enumerate() {
            let (from, to) = (place(difference.a, moved.from), place(difference.b, moved.to));
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}{}", json!({ "rank": moved.rank, "from": from, "to": to }))?;
        }
    }
    out.write_all(b"]}\n")
}

fn place(view: &View<'_>, seat: Option<Seat>) -> Option<Value> {
    let seat = seat?;
    let (node, bound) = (&view.nodes[seat.node as usize], view.seat(seat));
    let (cores, pus) = (view.cores(node, bound), &bound.threads);
    Some(json!({ "node": node.offer.name, "cores": numbers(&cores), "pus": numbers(pus) }))
}

fn fields(reply: &PlanReply, command: &str, out: &mut impl Write) -> io::Result<()> {
    match &reply.outcome {
        Some(Outcome::Plan(plan)) => self::plan(&View::new(plan), command, out),
        Some(Outcome::Refused(refusal)) => write!(out, "\"refused\":{}", refused(refusal)),
        None => write!(out, "\"refused\":{}", refused(&PlanRefusal::default())),
    }
}

fn plan(view: &View<'_>, command: &str, out: &mut impl Write) -> io::Result<()> {
    let plan = view.plan;
    out.write_all(b"\"ranks\":[")?;
    let names: Vec<String> = view.nodes.iter().map(|node| Value::from(&*node.offer.name).to_string()).collect();
    // The text of a rank, without its number and node, is the same on equal nodes.
    let mut said = HashMap::new();
    for (seat, rank) in view.seats().into_iter().zip(0_u32..) {
        let node = &view.nodes[seat.node as usize];
        let key = (node.offer.topology, node.offer.binding, seat.local);
        let said = said.entry(key).or_insert_with(|| rank_text(view, node, view.bound(node, seat.local)));
        let comma = if rank == 0 { "" } else { "," };
        write!(out, "{comma}{{\"rank\":{rank},\"node\":{},{said}}}", names[seat.node as usize])?;
    }
    let policy = json!({ "map_by": plan.map_by, "rank_by": plan.rank_by, "bind_to": plan.bind_to });
    let (notices, programs) = (Value::from(plan.notices.clone()), Value::from(plan.app_sizes.clone()));
    write!(out, "],\"policy\":{policy},\"programs\":{programs},\"notices\":{notices},")?;
    write!(out, "\"command\":{},\"nodes\":[", Value::from(command))?;
    for (at, node) in view.nodes.iter().enumerate() {
        let mut object = offer(node.offer);
        object["ranks"] = json!(node.ranges);
        let objects = |kind| view.topology(node).map(|topology| topology.objects(kind).len());
        object["cores"] = json!(objects(Kind::Core));
        object["pus"] = json!(objects(Kind::Thread));
        write!(out, "{}{object}", if at == 0 { "" } else { "," })?;
    }
    out.write_all(b"]")
}

/// Returns `"cores":[0,1],"pus":[0,1],"gpus":[],"reason":"…"`.
fn rank_text(view: &View<'_>, node: &Node<'_>, bound: &Bound<'_>) -> String {
    format!(
        "\"cores\":{},\"pus\":{},\"gpus\":{},\"reason\":{}",
        numbers(&view.cores(node, bound)),
        numbers(&bound.threads),
        Value::from(bound.gpus),
        Value::from(bound.reason)
    )
}

fn numbers(set: &CpuSet) -> Value {
    set.iter().collect::<Vec<u32>>().into()
}

/// Returns what a node offers.
fn offer(node: &PlanNode) -> Value {
    json!({
        "name": node.name,
        "slots": node.slots,
        "slots_reason": node.slots_reason,
        "in_use": node.in_use,
        "usable": ranges(&set(&node.usable)),
        "taken": ranges(&set(&node.taken)),
        "gpus": node.gpus.iter().map(gpu).collect::<Vec<_>>(),
    })
}

fn refused(refusal: &PlanRefusal) -> Value {
    json!({
        "text": refusal.text,
        "asked": refusal.asked,
        "free": refusal.free,
        "nodes": refusal.nodes.iter().map(offer).collect::<Vec<_>>(),
        "fixes": refusal.fixes,
    })
}
