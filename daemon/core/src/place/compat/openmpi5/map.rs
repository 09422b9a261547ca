//! Maps a program's ranks to nodes and objects. Every function returns how many ranks it placed, which is fewer than requested if
//! these rules find no more room.

use super::job::{Job, Place, Spot};
use super::node::NoCpu;
use super::rules::{Map, Rules};
use crate::place::topology::Kind;

/// The program that is being mapped.
#[derive(Clone, Copy)]
pub(super) struct Turn<'r> {
    pub(super) app: usize,
    pub(super) n: u32,
    pub(super) rules: &'r Rules,
}

/// Places a program's ranks. Where these rules give up on a rank that they cannot bind, the rank counts as unplaced.
pub(super) fn map(job: &mut Job<'_>, program: Turn<'_>, places: Vec<Place>) -> u32 {
    match program.rules.mapping.map {
        Map::Slot => by_slot(job, program, places),
        Map::Node => by_node(job, program, places),
        Map::Object(kind) => by_object(job, program, places, kind),
        Map::Ppr(count, None) => ppr_node(job, program, places, count),
        Map::Ppr(count, Some(kind)) => ppr_object(job, program, places, count, kind),
    }
}

/// Fills node by node, then adds equal shares.
fn by_slot(job: &mut Job<'_>, program: Turn<'_>, mut places: Vec<Place>) -> u32 {
    let mut left = program.n;
    places.retain_mut(|place| {
        let mut wanted = place.offer;
        visit(job, program, place, &mut wanted, &mut left)
    });
    if left > 0 && !places.is_empty() {
        let nodes = places.len() as u32;
        let (share, more) = (left / nodes, left % nodes);
        for (nth, place) in places.iter_mut().enumerate() {
            let mut wanted = share + u32::from((nth as u32) < more);
            visit(job, program, place, &mut wanted, &mut left);
        }
    }
    program.n - left
}

/// Goes over the nodes twice.
fn by_node(job: &mut Job<'_>, program: Turn<'_>, mut places: Vec<Place>) -> u32 {
    let mut left = program.n;
    for _round in 0..2 {
        if left == 0 || places.is_empty() {
            break;
        }
        let mut wanted = (left / places.len() as u32).max(1);
        places.retain_mut(|place| visit(job, program, place, &mut wanted, &mut left));
    }
    program.n - left
}

/// Gives a node the wanted ranks or, if fewer fit, those that fit; `wanted` becomes that number. Returns false if the node is at its
/// `max_slots`.
fn visit(job: &mut Job<'_>, program: Turn<'_>, place: &mut Place, wanted: &mut u32, left: &mut u32) -> bool {
    if *left == 0 {
        return true;
    }
    let Turn { app, rules, .. } = program;
    let oversubscribe = rules.mapping.oversubscribe;
    if !oversubscribe {
        *wanted = place.offer.min(*wanted);
    }
    if !oversubscribe && place.is_full() {
        return true;
    }
    if place.is_at_max() {
        return false;
    }
    let bind = binding_on(job, rules, place, *wanted, *wanted);
    let node = job.node(place);
    if bind.is_some() && !rules.overload {
        let fitting = node.free_in(node.processor.all()) as u32 / rules.mapping.pe;
        if fitting == 0 && *wanted > 0 {
            return true;
        }
        *wanted = fitting.min(*wanted);
    }
    let turn = node.turn();
    job.enter(place);
    let spot = Spot { bind, object: None, nth: None, turn: &turn };
    for _ in 0..*wanted {
        if *left == 0 || job.add(app, place, rules, spot).is_err() {
            break;
        }
        *left -= 1;
        if !oversubscribe && place.is_full() {
            break;
        }
    }
    true
}

/// The binding of ranks on a node. A default binding is dropped if `cpus` exceeds the node's free cpus while `ranks` does not
/// exceed its slots.
fn binding_on(job: &mut Job<'_>, rules: &Rules, place: &Place, ranks: u32, cpus: u32) -> Option<Kind> {
    let node = job.node(place);
    let dropped = cpus as usize > node.free_in(node.processor.all()) && ranks <= place.offer && !rules.explicit;
    if dropped && rules.bind.is_some() && !job.unbound.contains(&place.node) {
        job.unbound.push(place.node);
    }
    rules.bind.filter(|_| !dropped)
}

/// Places one rank per object in turn.
fn by_object(job: &mut Job<'_>, program: Turn<'_>, mut places: Vec<Place>, kind: Kind) -> u32 {
    let mut left = program.n;
    let mut stuck = false;
    while left > 0 && !stuck {
        let before = left;
        places.retain_mut(|place| {
            // A rank that cannot be bound ends the mapping.
            let stays = if stuck { Ok(false) } else { fill_objects(job, program, place, kind, &mut left) };
            stuck |= stays.is_err();
            stays.unwrap_or(false)
        });
        stuck |= left == before;
    }
    program.n - left
}

/// Goes over a node's objects in rounds, or once with `span`. Returns false if the node is full, at its `max_slots`, or has no such object.
fn fill_objects(
    job: &mut Job<'_>,
    program: Turn<'_>,
    place: &mut Place,
    kind: Kind,
    left: &mut u32,
) -> Result<bool, NoCpu> {
    let Turn { app, rules, .. } = program;
    let objects = job.node(place).processor.objects(kind).len();
    let mut short = false;
    loop {
        let before = *left;
        for object in 0..objects {
            if *left == 0 {
                return Ok(true);
            }
            let node = job.node(place);
            let free = node.free_in(node.processor.objects(kind)[object].cpus.clone());
            if free < rules.mapping.pe as usize && !rules.overload {
                short = true;
                continue;
            }
            if place.is_at_max() || (place.is_full() && !rules.mapping.oversubscribe) {
                return Ok(false);
            }
            let turn = node.turn();
            job.enter(place);
            job.add(app, place, rules, Spot { bind: rules.bind, object: Some(object), nth: None, turn: &turn })?;
            *left -= 1;
            if place.is_full() && !rules.mapping.oversubscribe {
                return Ok(false);
            }
        }
        if rules.mapping.span || short || *left == before {
            return Ok(objects > 0);
        }
    }
}

/// Places `count` ranks on each node.
fn ppr_node(job: &mut Job<'_>, program: Turn<'_>, places: Vec<Place>, count: u32) -> u32 {
    let Turn { app, n, rules } = program;
    let mut left = n;
    for mut place in places {
        if left == 0 {
            break;
        }
        let bind = binding_on(job, rules, &place, count, count.saturating_mul(rules.mapping.pe));
        let all = job.node(&place).processor.all();
        if !has_room(job, rules, &place, bind, all, count) {
            continue;
        }
        let turn = job.node(&place).turn();
        job.enter(&place);
        for nth in 1..=count {
            if left == 0 {
                break;
            }
            let spot = Spot { bind, object: None, nth: Some(nth), turn: &turn };
            if job.add(app, &mut place, rules, spot).is_err() {
                return n - left;
            }
            left -= 1;
            if place.is_full() && !rules.mapping.oversubscribe {
                break;
            }
        }
    }
    n - left
}

/// Places `count` ranks on each object, possibly more in all than requested.
fn ppr_object(job: &mut Job<'_>, program: Turn<'_>, places: Vec<Place>, count: u32, kind: Kind) -> u32 {
    let Turn { app, n, rules } = program;
    let mut placed = 0;
    for mut place in places {
        if placed >= n {
            break;
        }
        let objects = job.node(&place).processor.objects(kind).len();
        let ranks = count.saturating_mul(objects as u32);
        let bind = binding_on(job, rules, &place, ranks, ranks.saturating_mul(rules.mapping.pe));
        for object in 0..objects {
            let cpus = job.node(&place).processor.objects(kind)[object].cpus.clone();
            if placed >= n || !has_room(job, rules, &place, bind, cpus, count) {
                continue;
            }
            let turn = job.node(&place).turn();
            job.enter(&place);
            for nth in 1..=count {
                let spot = Spot { bind, object: Some(object), nth: Some(nth), turn: &turn };
                if job.add(app, &mut place, rules, spot).is_err() {
                    return placed.min(n - 1);
                }
                placed += 1;
                if place.is_full() && !rules.mapping.oversubscribe {
                    break;
                }
            }
        }
    }
    placed
}

/// Whether `count` ranks may go to these cpus of a node.
fn has_room(
    job: &Job<'_>,
    rules: &Rules,
    place: &Place,
    bind: Option<Kind>,
    cpus: std::ops::Range<usize>,
    count: u32,
) -> bool {
    let slot = !place.is_at_max() && (!place.is_full() || rules.mapping.oversubscribe);
    slot && (bind.is_none() || job.node(place).free_in(cpus) as u32 / rules.mapping.pe >= count)
}
