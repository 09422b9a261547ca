//! The log of refused connections: one line per source, reason and minute, so that a program that keeps trying does not fill the
//! log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rsd_proto::transport::Refusals;
use tracing::warn;

const PAUSE: Duration = Duration::from_secs(60);
/// The most sources that are distinguished; further ones share one pause.
const SOURCES_MAX: usize = 4096;
/// The most reasons of one source in a minute.
const REASONS_MAX: usize = 8;

/// Returns the receiver of a daemon's refusals, which logs them.
pub(crate) fn logged() -> Refusals {
    let recent = Mutex::new(Recent::default());
    Refusals::new(move |from, why| {
        if recent.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now(), from, why) {
            let from = from.map_or_else(|| "this machine".to_owned(), |from| from.to_string());
            warn!(from, why, "refused a connection");
        }
    })
}

/// The sources of the last minute, with their reasons.
#[derive(Debug, Default)]
struct Recent {
    at: HashMap<Option<IpAddr>, Vec<(String, Instant)>>,
    others: Option<Instant>,
}

impl Recent {
    /// Whether a refusal of this source is logged now.
    fn is_due(&mut self, now: Instant, from: Option<IpAddr>, why: &str) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < PAUSE;
        if self.at.len() >= SOURCES_MAX && !self.at.contains_key(&from) {
            // Further sources share one line a minute; only then are the old ones looked at.
            if self.others.as_ref().is_some_and(is_recent) {
                return false;
            }
            self.others = Some(now);
            self.at.retain(|_, reasons| reasons.iter().any(|(_, at)| is_recent(at)));
            return true;
        }
        let reasons = self.at.entry(from).or_default();
        reasons.retain(|(_, at)| is_recent(at));
        // A caller chooses a part of the text, so it could make any number of reasons.
        let is_due = reasons.len() < REASONS_MAX && !reasons.iter().any(|(known, _)| known == why);
        if is_due {
            reasons.push((why.to_owned(), now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn each_source_and_reason_is_logged_once_a_minute() {
        let mut recent = Recent::default();
        let (now, a, b) = (Instant::now(), Some([10, 0, 0, 1].into()), None);
        assert!(recent.is_due(now, a, "no TLS") && recent.is_due(now, b, "no TLS"));
        assert!(!recent.is_due(now + PAUSE / 2, a, "no TLS"));
        assert!(recent.is_due(now + PAUSE / 2, a, "unknown token"), "another reason");
        assert!(recent.is_due(now + PAUSE, a, "no TLS"));
    }

    #[test]
    fn the_reasons_of_a_source_are_bounded() {
        let mut recent = Recent::default();
        let (now, from) = (Instant::now(), Some([10, 0, 0, 1].into()));
        let lines = (0..1000).filter(|n| recent.is_due(now, from, &format!("version {n}"))).count();
        assert_eq!(lines, REASONS_MAX);
        assert!(recent.is_due(now + PAUSE, from, "version 7"));
    }

    #[test]
    fn the_sources_that_are_distinguished_are_bounded() {
        let mut recent = Recent::default();
        let now = Instant::now();
        let sources = (0..SOURCES_MAX as u32 + 100).map(|n| Some(IpAddr::from(Ipv4Addr::from(n))));
        assert_eq!(sources.filter(|from| recent.is_due(now, *from, "no TLS")).count(), SOURCES_MAX + 1);
        assert_eq!(recent.at.len(), SOURCES_MAX);
    }
}
