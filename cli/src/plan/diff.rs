//! The difference between two plans of the same job: the ranks that move.

use std::collections::HashMap;
use std::fmt::Write;

use super::text::count;
use super::view::{Seat, View};
use crate::look::{Look, Paint};

/// Two plans, and the ranks whose places differ, ascending.
pub(crate) struct Difference<'v, 'p> {
    pub(crate) a: &'v View<'p>,
    pub(crate) b: &'v View<'p>,
    pub(crate) moves: Vec<Move>,
}

/// A rank whose place differs in the second plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) rank: u32,
    /// None: the plan does not have this rank.
    pub(crate) from: Option<Seat>,
    pub(crate) to: Option<Seat>,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// To another node.
    Away,
    /// To other cpus of its node.
    Within,
    /// The rank is in only one of the plans.
    Alone,
}

impl<'v, 'p> Difference<'v, 'p> {
    /// Compares two plans. Cost: one step per rank.
    pub(crate) fn new(a: &'v View<'p>, b: &'v View<'p>) -> Difference<'v, 'p> {
        // Names are compared once per node.
        let in_b: HashMap<&str, u32> = b.nodes.iter().zip(0..).map(|(node, at)| (&*node.offer.name, at)).collect();
        let same: Vec<Option<u32>> = a.nodes.iter().map(|node| in_b.get(&*node.offer.name).copied()).collect();
        let how = |from: Option<Seat>, to: Option<Seat>| match (from, to) {
            (Some(from), Some(to)) if same[from.node as usize] != Some(to.node) => Some(How::Away),
            (Some(from), Some(to)) if a.seat(from).threads == b.seat(to).threads => None,
            (Some(_), Some(_)) => Some(How::Within),
            (None, _) | (_, None) => Some(How::Alone),
        };
        let (seats_a, seats_b) = (a.seats(), b.seats());
        let ranks = 0..seats_a.len().max(seats_b.len());
        let moves = ranks.zip(0_u32..).filter_map(|(at, rank)| {
            let (from, to) = (seats_a.get(at).copied(), seats_b.get(at).copied());
            how(from, to).map(|how| Move { rank, from, to, how })
        });
        Difference { moves: moves.collect(), a, b }
    }

    /// Returns text for people: how many ranks move, and which. Without `every`, only the first ones are listed.
    pub(crate) fn text(&self, every: bool, look: &Look) -> String {
        const SHOWN: usize = 16;
        if self.moves.is_empty() {
            return "no rank moves\n".to_owned();
        }
        let kinds = [
            (How::Away, "to another node"),
            (How::Within, "to other cpus of its node"),
            (How::Alone, "in only one plan"),
        ];
        let kinds: Vec<String> = (kinds.iter())
            .map(|(how, what)| (self.moves.iter().filter(|moved| moved.how == *how).count(), what))
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        let ranks = self.a.ranks().max(self.b.ranks());
        let head = format!("{} of {} differ: {}", self.moves.len(), count(ranks, "rank"), kinds.join(", "));
        let mut text = format!("{}\n", look.paint(&head, Paint::Bold));
        let shown = if every || self.moves.len() <= SHOWN { self.moves.len() } else { SHOWN };
        for Move { rank, from, to, .. } in &self.moves[..shown] {
            let (from, to) = (place(self.a, *from), place(self.b, *to));
            let _ = writeln!(text, "  rank {rank}: {from} {} {to}", look.arrow());
        }
        if shown < self.moves.len() {
            let _ = writeln!(text, "  and {} more (--reasons lists each)", self.moves.len() - shown);
        }
        text
    }
}

/// Returns "node0 core 3".
fn place(view: &View<'_>, seat: Option<Seat>) -> String {
    let Some(seat) = seat else { return "none".to_owned() };
    let node = &view.nodes[seat.node as usize];
    format!("{} {}", node.offer.name, view.cpus(node, view.seat(seat))).trim_end().to_owned()
}
