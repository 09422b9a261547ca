//! Points in time as people write them: `2h` ago, `14:00` today, `2026-11-23 14:00`. All are local, by the time zone of this process.

mod calendar;
mod zone;

use std::time::{SystemTime, UNIX_EPOCH};

use calendar::{DAY_S, date_of, days_of};
use zone::Zone;

/// Returns the time, in milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Parses a point in time: a duration before now, a date, a time of today, or both. Returns milliseconds since the epoch.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    parse_at(text, now_ms(), &Zone::of_process())
}

fn parse_at(text: &str, now_ms: u64, zone: &Zone) -> Result<u64, String> {
    const FORMS: &str =
        "expected a duration before now (`2h`) or a local time (`2026-11-23`, `2026-11-23 14:00`, `14:00`)";
    let text = text.trim();
    if let Ok(ago) = rsd_config::duration::parse(text) {
        return Ok(now_ms.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)).max(1));
    }
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (Some(date), Some(time.trim_start())),
        None if text.contains(':') => (None, Some(text)),
        None => (Some(text), None),
    };
    let days = match date {
        Some(date) => days(date).ok_or(FORMS)?,
        None => {
            let now_s = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
            (now_s + zone.offset_at(now_s)).div_euclid(DAY_S)
        }
    };
    let seconds = time.map_or(Some(0), seconds).ok_or(FORMS)?;
    let at_s = zone.of_local(days * DAY_S + seconds);
    u64::try_from(at_s).map(|at_s| at_s * 1000).map_err(|_| format!("{text}: times before 1970 are not supported"))
}

/// Parses `2026-11-23`. Returns the days since the epoch.
fn days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_date = parts.next().is_none() && year.len() == 4;
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    let days = days_of(year, month, day);
    // 31 June is 1 July.
    (is_date && date_of(days) == (year, month, day)).then_some(days)
}

/// Parses `14:00` or `14:00:30`. Returns seconds.
fn seconds(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hours, minutes) = (number(parts.next()?)?, number(parts.next()?)?);
    let seconds = parts.next().map_or(Some(0), number)?;
    let fits = parts.next().is_none() && hours < 24 && minutes < 60 && seconds < 60;
    fits.then_some(hours * 3600 + minutes * 60 + seconds)
}

fn number(text: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Returns `2026-11-23 14:00:05 +01:00`, in local time.
pub(crate) fn shown(ms: u64) -> String {
    shown_in(ms, &Zone::of_process())
}

fn shown_in(ms: u64, zone: &Zone) -> String {
    let at_s = i64::try_from(ms / 1000).unwrap_or(i64::MAX / 2);
    let offset = zone.offset_at(at_s);
    let local = at_s + offset;
    let ((year, month, day), second) = (date_of(local.div_euclid(DAY_S)), local.rem_euclid(DAY_S));
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    let (sign, east) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02} {sign}{:02}:{:02}",
        east / 60,
        east % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23 13:00:00 UTC.
    const NOW_MS: u64 = 1_795_438_800_000;

    fn berlin() -> Zone {
        Zone::parse("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    #[test]
    fn durations_dates_and_times_are_understood() {
        let at = |text| parse_at(text, NOW_MS, &Zone::utc());
        assert_eq!(at("2h"), Ok(NOW_MS - 7_200_000));
        assert_eq!(at("2026-11-23 13:00"), Ok(NOW_MS));
        assert_eq!(at("2026-11-23T13:00:00"), Ok(NOW_MS));
        assert_eq!(at("13:00"), Ok(NOW_MS));
        assert_eq!(at("2026-11-23"), Ok(NOW_MS - 13 * 3_600_000));
        assert_eq!(at("2024-02-29 00:00:01"), Ok(1_709_164_801_000));
    }

    #[test]
    fn times_are_local() {
        let at = |text| parse_at(text, NOW_MS, &berlin());
        assert_eq!(at("2026-11-23 14:00"), Ok(NOW_MS));
        assert_eq!(at("14:00"), Ok(NOW_MS));
        assert_eq!(at("2026-07-01 14:00"), Ok(1_782_907_200_000), "two hours east of Greenwich");
        assert_eq!(shown_in(NOW_MS, &berlin()), "2026-11-23 14:00:00 +01:00");
        assert_eq!(shown_in(1_782_907_200_000, &berlin()), "2026-07-01 14:00:00 +02:00");
        assert_eq!(shown_in(NOW_MS, &Zone::parse("NST3:30").unwrap()), "2026-11-23 09:30:00 -03:30");
    }

    #[test]
    fn what_is_no_time_is_refused_with_the_forms() {
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-30",
            "2025-02-29",
            "26-1-1",
            "24:00",
            "12",
            "12:60",
            "1:2:3:4",
            "2026-1-1 x",
            "2h ago",
        ] {
            let answer = parse_at(text, NOW_MS, &Zone::utc());
            // A bare number is a duration in seconds.
            assert!(answer.is_err() || text == "12", "{text}: {answer:?}");
        }
        assert!(parse_at("1969-12-31", NOW_MS, &Zone::utc()).unwrap_err().contains("before 1970"));
    }
}
