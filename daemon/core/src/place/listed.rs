//! Ranks whose nodes the user lists: `seq` and `rankfile`.
//!
//! ```text
//! rank 0=node0 slot=0-3        cpus 0 to 3: cores, or threads with hwtcpus
//! rank 1=node0 slot=1:0-1      the first two cpus of package 1; later ranges without a package use the same package
//! rank 2=node1                 all of node1: unbound
//! ```
//!
//! A rank file names every rank once, only cpus that exist, and no cpu twice unless ranks may share cpus.

use std::collections::{HashMap, HashSet};

use super::cpuset::CpuSet;
use super::machine::Machine;
use super::policy::{Directive, PolicyError};
use super::topology::{Kind, word};
use super::wants::{Binding, Wants};
use super::{App, Host, NodeOffer, Obstacle, RankPlace, Request, hosts};
use crate::NodeId;

/// One program's ranks by their nodes (indexes into the offers), in rank order.
pub(super) type Listed = Vec<usize>;

/// Returns the node of each rank of each program, if the directive lists them.
pub(super) fn nodes_of_ranks(
    nodes: &[NodeOffer],
    request: &Request,
    wants: &Wants<'_>,
    head: NodeId,
) -> Result<Option<Vec<Listed>>, Obstacle> {
    match wants.directive {
        Directive::Seq => {
            request.apps.iter().map(|app| in_sequence(nodes, app, head)).collect::<Result<_, _>>().map(Some)
        }
        Directive::Rankfile => by_file(nodes, request, head).map(Some),
        Directive::Slot | Directive::Node | Directive::Object(_) | Directive::Ppr { .. } | Directive::PeList { .. } => {
            Ok(None)
        }
    }
}

/// Puts rank i on the i-th entry of the program's host list.
fn in_sequence(nodes: &[NodeOffer], app: &App, head: NodeId) -> Result<Listed, Obstacle> {
    if app.hosts.is_empty() {
        return refuse("seq needs a host list, with one entry for each rank: use --host or --hostfile");
    }
    let mut listed: Listed = hosts::entries(nodes, &app.hosts, head)
        .map_err(Obstacle::UnknownHost)?
        .into_iter()
        .map(|(node, _)| node)
        .collect();
    let asked = app.n.unwrap_or(listed.len() as u32) as usize;
    if asked > listed.len() {
        let entries = listed.len();
        return refuse(format!(
            "{asked} ranks requested, {entries} entries in the host list, and seq puts one rank on each: use -n {entries}, or list \
             more hosts"
        ));
    }
    listed.truncate(asked);
    Ok(listed)
}

/// Puts each rank on the node that the rank file gives.
fn by_file(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Vec<Listed>, Obstacle> {
    let places = in_rank_order(request)?;
    let host = |place: &&RankPlace| Host {
        name: place.host.clone(),
        slots: None,
        max_slots: None,
        source: place.source.clone(),
    };
    let hosts: Vec<Host> = places.iter().map(host).collect();
    let mut listed = hosts::entries(nodes, &hosts, head).map_err(Obstacle::UnknownHost)?;
    if listed.len() != hosts.len() {
        return refuse("each line of a rankfile needs one host: a name, or +n2 for the third node");
    }
    let mut programs = Vec::with_capacity(request.apps.len());
    for app in &request.apps {
        let others = listed.split_off(listed.len().min(app.n.map_or(usize::MAX, |n| n as usize)));
        let allowed = hosts::entries(nodes, &app.hosts, head).map_err(Obstacle::UnknownHost)?;
        let allowed: HashSet<usize> = allowed.into_iter().map(|(node, _)| node).collect();
        let outside = listed.iter().find(|(node, _)| !app.hosts.is_empty() && !allowed.contains(node));
        if let Some((_, Host { name, source, .. })) = outside {
            return refuse(format!(
                "{source}: {name} is not in the program's host list: add it there, or omit the list"
            ));
        }
        programs.push(std::mem::replace(&mut listed, others).into_iter().map(|(node, _)| node).collect());
    }
    Ok(programs)
}

/// Returns the lines of a rank file in rank order, one for each rank.
pub(super) fn in_rank_order(request: &Request) -> Result<Vec<&RankPlace>, Obstacle> {
    let lines = &request.rankfile;
    if lines.is_empty() {
        return refuse("mapping by rankfile needs a rank file with a line for each rank: use --rankfile");
    }
    let ranks: u64 = match &request.apps[..] {
        [App { n: None, .. }] => lines.len() as u64,
        apps => {
            let asked: Option<Vec<u64>> = apps.iter().map(|app| app.n.map(u64::from)).collect();
            match asked {
                Some(asked) => asked.iter().sum(),
                None => return refuse("a rankfile with several programs needs -n for each program"),
            }
        }
    };
    let mut order: Vec<Option<&RankPlace>> = vec![None; usize::try_from(ranks).unwrap_or(usize::MAX).min(lines.len())];
    for line in lines {
        let (rank, source) = (line.rank, &line.source);
        if u64::from(rank) >= ranks {
            return refuse(format!("{source}: no rank {rank}: the job has {ranks}, numbered from 0"));
        }
        match order.get_mut(rank as usize) {
            Some(place @ None) => *place = Some(line),
            Some(Some(first)) => {
                return refuse(format!("{source}: rank {rank} is already placed by {}", first.source));
            }
            // The number exceeds that of the lines, so some smaller rank is missing; that is reported below.
            None => {}
        }
    }
    let last = lines.last().map_or("rankfile", |line| &line.source);
    if let Some(missing) =
        order.iter().position(Option::is_none).or((ranks > order.len() as u64).then_some(order.len()))
    {
        return refuse(format!("{last}: no line for rank {missing} of {ranks}; add: rank {missing}=HOST"));
    }
    Ok(order.into_iter().flatten().collect())
}

/// Returns the threads of a node's ranks as a rank file lists them. `lines` are in rank order.
pub(super) fn threads(
    machine: &Machine<'_>,
    wants: &Wants<'_>,
    node: &NodeOffer,
    lines: &[&RankPlace],
) -> Result<Vec<CpuSet>, Obstacle> {
    let mut owner: HashMap<u32, &RankPlace> = HashMap::new();
    let mut sets = Vec::with_capacity(lines.len());
    for line in lines {
        let source = &line.source;
        if line.cpus.is_empty() || wants.binding == Binding::None {
            sets.push(CpuSet::EMPTY);
            continue;
        }
        let mut set = CpuSet::EMPTY;
        for threads in
            cpus(machine, wants.cpu, &node.name, &line.cpus).map_err(|text| policy(format!("{source}: {text}")))?
        {
            set = set.or(&threads);
        }
        if let Binding::Object(kind) = wants.binding {
            let parts = machine.parts(kind).into_iter().filter(|part| part.intersects(&set));
            set = parts.fold(set.clone(), |all, part| all.or(&part));
        }
        let name = &node.name;
        let cpu =
            |thread: u32| format!("{} {}", word(wants.cpu), machine.topology.object_of(wants.cpu, thread).unwrap_or(0));
        if let Some(thread) = set.minus(&machine.usable).first() {
            let usable = machine.topology.objects_of(wants.cpu, &machine.usable);
            return refuse(format!(
                "{source}: {} of {name} is not available; available {}s: {usable}",
                cpu(thread),
                word(wants.cpu)
            ));
        }
        if let Some(thread) = set.and(&node.taken).first() {
            return Err(Obstacle::Taken {
                text: format!("{source}: {} of {name} is held by another job", cpu(thread)),
            });
        }
        for thread in set.iter().filter(|_| !wants.overload) {
            if let Some(first) = owner.insert(thread, line) {
                return refuse(format!(
                    "{source}: {} of {name} already belongs to rank {} ({}); to share it, use --bind-to {}:overload-allowed",
                    cpu(thread),
                    first.rank,
                    first.source,
                    wants.cpu.name()
                ));
            }
        }
        sets.push(set);
    }
    Ok(sets)
}

/// Returns the threads of each cpu in a line's list, or what is wrong with the list.
fn cpus(machine: &Machine<'_>, cpu: Kind, node: &str, text: &str) -> Result<Vec<CpuSet>, String> {
    let all = machine.topology.objects(cpu);
    let mut package: Option<(u32, std::ops::Range<u32>)> = None;
    let mut found = Vec::new();
    for item in text.split(',') {
        let range = match item.split_once(':') {
            Some((number, range)) => {
                let at = number_of(number, text)?;
                let packages = machine.topology.objects(Kind::Package);
                let object = packages.get(at as usize).ok_or_else(|| {
                    format!("{text}: no package {at}: {node} has {}, numbered from 0", packages.len())
                })?;
                package = Some((at, object.threads.clone()));
                range
            }
            None => item,
        };
        let within = |threads: &std::ops::Range<u32>| match &package {
            Some((_, package)) => package.contains(&threads.start),
            None => true,
        };
        let there: Vec<_> = all.iter().map(|object| &object.threads).filter(|threads| within(threads)).collect();
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number_of(first, text)?, number_of(last, text)?),
            None => (number_of(range, text)?, number_of(range, text)?),
        };
        if first > last {
            return Err(format!("the range {range} is reversed: write {last}-{first}"));
        }
        if last as usize >= there.len() {
            let (count, name) = (there.len(), word(cpu));
            let whose = package.as_ref().map_or(node.to_owned(), |(at, _)| format!("package {at}"));
            return Err(format!("{text}: no {name} {last}: {whose} has {count}, numbered from 0"));
        }
        found.extend(there[first as usize..=last as usize].iter().map(|threads| {
            // A core counts as the part of it that the affinity mask allows.
            let whole = CpuSet::range((*threads).clone());
            let usable = whole.and(&machine.usable);
            if usable.is_empty() { whole } else { usable }
        }));
    }
    Ok(found)
}

fn number_of(word: &str, text: &str) -> Result<u32, String> {
    let form = "cpus are written as 0-3,6 or, within a package, as 1:0-2";
    word.trim().parse().map_err(|_| format!("{text}: {word:?} is not a number; {form}"))
}

fn policy(text: String) -> Obstacle {
    Obstacle::Policy(PolicyError { text })
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Obstacle> {
    Err(policy(text.into()))
}
