//! Ranks whose places the user lists: `seq` and `rankfile`.
//!
//! ```text
//! rank 0=node0 slot=0-3        cpus 0 to 3: cores, or threads with hwtcpus
//! rank 1=node0 slot=1:0-1      package 1, the first two cpus in it; what follows without a package is of the same one
//! rank 2=node1                 all of node1: unbound
//! ```
//!
//! A list is exact: it names every rank once, on cpus that are there, and no cpu twice unless ranks may share.

use std::collections::{HashMap, HashSet};

use super::bind::word;
use super::cpuset::CpuSet;
use super::machine::Machine;
use super::policy::{Directive, PolicyError};
use super::topology::Kind;
use super::wants::{Binding, Wants};
use super::{App, Host, NodeOffer, Obstacle, RankPlace, Request, hosts};
use crate::NodeId;

/// One program's ranks by their nodes (indexes into the offers), in rank order.
pub(super) type Listed = Vec<usize>;

/// The ranks of each program, if the directive lists them.
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

/// Rank i on the i-th entry of the program's host list.
fn in_sequence(nodes: &[NodeOffer], app: &App, head: NodeId) -> Result<Listed, Obstacle> {
    if app.hosts.is_empty() {
        return refuse("seq puts rank i on the i-th entry of a host list; name one with --host or --hostfile");
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
            "{asked} ranks asked, and seq has {entries} in the host list to put one on each; ask for -n {entries}, or list more"
        ));
    }
    listed.truncate(asked);
    Ok(listed)
}

/// Rank i where the rankfile says.
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
        return refuse("each line of a rankfile names one host: a name, or +n2 for the third node");
    }
    let mut programs = Vec::with_capacity(request.apps.len());
    for app in &request.apps {
        let others = listed.split_off(listed.len().min(app.n.map_or(usize::MAX, |n| n as usize)));
        let allowed = hosts::entries(nodes, &app.hosts, head).map_err(Obstacle::UnknownHost)?;
        let allowed: HashSet<usize> = allowed.into_iter().map(|(node, _)| node).collect();
        let outside = listed.iter().find(|(node, _)| !app.hosts.is_empty() && !allowed.contains(node));
        if let Some((_, Host { name, source, .. })) = outside {
            return refuse(format!(
                "{source}: {name} is not in the program's host list; add it there, or leave the list out"
            ));
        }
        programs.push(std::mem::replace(&mut listed, others).into_iter().map(|(node, _)| node).collect());
    }
    Ok(programs)
}

/// The lines of a rankfile by rank, each of the job's once.
pub(super) fn in_rank_order(request: &Request) -> Result<Vec<&RankPlace>, Obstacle> {
    let lines = &request.rankfile;
    if lines.is_empty() {
        return refuse("mapping by rankfile needs one with a line for each rank; name it with --rankfile");
    }
    let ranks: u64 = match &request.apps[..] {
        [App { n: None, .. }] => lines.len() as u64,
        apps => {
            let asked: Option<Vec<u64>> = apps.iter().map(|app| app.n.map(u64::from)).collect();
            match asked {
                Some(asked) => asked.iter().sum(),
                None => return refuse("with a rankfile and several programs each program needs its -n"),
            }
        }
    };
    let mut order: Vec<Option<&RankPlace>> = vec![None; usize::try_from(ranks).unwrap_or(usize::MAX).min(lines.len())];
    for line in lines {
        let (rank, source) = (line.rank, &line.source);
        if u64::from(rank) >= ranks {
            return refuse(format!("{source}: there is no rank {rank}, the job has {ranks}, numbered from 0"));
        }
        match order.get_mut(rank as usize) {
            Some(place @ None) => *place = Some(line),
            Some(Some(first)) => {
                return refuse(format!("{source}: rank {rank} has a place already, by {}", first.source));
            }
            // Beyond as many lines as there are: some rank before it is missing.
            None => {}
        }
    }
    let last = lines.last().map_or("rankfile", |line| &line.source);
    if let Some(missing) =
        order.iter().position(Option::is_none).or((ranks > order.len() as u64).then_some(order.len()))
    {
        return refuse(format!("{last} is the last line, and none says where rank {missing} of {ranks} goes"));
    }
    Ok(order.into_iter().flatten().collect())
}

/// The threads of a node's ranks as a rankfile lists them; `lines` in rank order.
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
                "{source}: {} of {name} may not be used; {}s {usable} may",
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
                    "{source}: {} of {name} is rank {}'s already, by {}; to share it, say --bind-to {}:overload-allowed",
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

/// The threads of each cpu that a line names, or what is wrong with it.
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
                    format!("there is no package {at} in {text}; {node} has {}, numbered from 0", packages.len())
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
            return Err(format!("{range} runs backwards; write {last}-{first}"));
        }
        if last as usize >= there.len() {
            let (count, name) = (there.len(), word(cpu));
            let whose = package.as_ref().map_or(node.to_owned(), |(at, _)| format!("package {at}"));
            return Err(format!("there is no {name} {last} in {text}; {whose} has {count}, numbered from 0"));
        }
        found.extend(there[first as usize..=last as usize].iter().map(|threads| {
            // What the mask leaves of a core is the core here, too.
            let whole = CpuSet::range((*threads).clone());
            let usable = whole.and(&machine.usable);
            if usable.is_empty() { whole } else { usable }
        }));
    }
    Ok(found)
}

fn number_of(word: &str, text: &str) -> Result<u32, String> {
    let form = "cpus are written as 0-3,6 or, within a package, as 1:0-2";
    word.trim().parse().map_err(|_| format!("{word:?} in {text} is no number; {form}"))
}

fn policy(text: String) -> Obstacle {
    Obstacle::Policy(PolicyError { text })
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Obstacle> {
    Err(policy(text.into()))
}
