//! The groups whose members wait for others, for `rsctl waits`.

use std::time::Duration;

use rsd_proto::v1::{RankWaiting, Wait, wait::What};

use super::{Group, Lobby};
use crate::contract::in_ms;
use crate::waits::MISSING_MAX;

impl Lobby {
    pub(in crate::head) fn waits(&self, now: Duration) -> impl Iterator<Item = Wait> {
        let waiting = self.groups.values().filter(|group| !group.seats.is_empty());
        waiting.map(move |group| group_wait(now, group))
    }
}

fn group_wait(now: Duration, group: &Group) -> Wait {
    let seats = &group.seats;
    let waited = seats.iter().map(|seat| now.saturating_sub(seat.since)).max().unwrap_or_default();
    let left = seats.iter().map(|seat| seat.deadline.saturating_sub(now)).min();
    // Which ranks are missing is known if all members have requested theirs.
    let requested: Option<Vec<u32>> = seats.iter().map(|seat| seat.join.rank).collect();
    let missing = requested.into_iter().flat_map(|taken| {
        let free = (0..group.size.0).filter(|rank| !taken.contains(rank));
        free.take(MISSING_MAX).map(|rank| RankWaiting { rank, ..RankWaiting::default() }).collect::<Vec<_>>()
    });
    Wait {
        waiting_ms: in_ms(waited),
        left_ms: left.map(in_ms),
        have: seats.len() as u32,
        want: group.size.0,
        missing: missing.collect(),
        what: Some(What::Group(group.name.clone())),
        ..Wait::default()
    }
}
