//! The time zone of this process: `TZ`, else `/etc/localtime`. Files are those of tzfile(5) (RFC 9636), rules those of POSIX. A zone that
//! cannot be read is UTC, as in the C library.

use std::path::{Path, PathBuf};

use super::calendar::{DAY_S, date_of, days_of, weekday};

/// How far local time is ahead of UTC, and when that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Zone {
    /// From each of these times on, in seconds since the epoch, so many seconds.
    changes: Vec<(i64, i64)>,
    /// Before the first of them.
    first: i64,
    /// After the last of them.
    rule: Rule,
}

/// A rule for all years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    standard: i64,
    summer: Option<Summer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summer {
    offset: i64,
    begins: Moment,
    ends: Moment,
}

/// A moment of every year, in the local time before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    day: Day,
    seconds: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Day {
    /// The day of the year from 1 to 365; 29 February has no number.
    Julian(i64),
    /// The day of the year from 0 to 365.
    OfYear(i64),
    /// A day of the week in a week of a month; week 5 is the last one.
    OfWeek { month: i64, week: i64, weekday: i64 },
}

/// The folders of zone files.
const ZONES: [&str; 2] = ["/usr/share/zoneinfo", "/usr/lib/zoneinfo"];
/// A zone file is much smaller.
const FILE_BYTES_MAX: usize = 1 << 20;

impl Zone {
    pub(super) fn utc() -> Zone {
        Zone { changes: Vec::new(), first: 0, rule: Rule { standard: 0, summer: None } }
    }

    pub(super) fn of_process() -> Zone {
        let files: Vec<PathBuf> = match std::env::var("TZ").ok().filter(|zone| !zone.is_empty()) {
            None => vec!["/etc/localtime".into()],
            Some(zone) => {
                let name = zone.strip_prefix(':').unwrap_or(&zone);
                if let Some(zone) = Zone::parse(name) {
                    return zone;
                }
                ZONES.iter().map(|folder| Path::new(folder).join(name)).collect()
            }
        };
        let contents = files.iter().find_map(|file| std::fs::read(file).ok());
        contents
            .filter(|bytes| bytes.len() <= FILE_BYTES_MAX)
            .and_then(|bytes| Zone::read(&bytes))
            .unwrap_or_else(Zone::utc)
    }

    /// Parses a rule, `CET-1CEST,M3.5.0,M10.5.0/3`.
    pub(super) fn parse(text: &str) -> Option<Zone> {
        let rule = Rule::parse(text)?;
        Some(Zone { changes: Vec::new(), first: rule.standard, rule })
    }

    /// Reads a zone file of version 2 or later.
    fn read(bytes: &[u8]) -> Option<Zone> {
        // The first part has times of 32 bits and is repeated with 64.
        let old = Header::read(bytes)?;
        let bytes = bytes.get(Header::BYTES + old.data_bytes(4)..)?;
        let header = Header::read(bytes)?;
        let data = bytes.get(Header::BYTES..)?;
        let (times, rest) = data.split_at_checked(header.times * 8)?;
        let (kinds, rest) = rest.split_at_checked(header.times)?;
        let offset =
            |kind: usize| Some(i64::from(i32::from_be_bytes(rest.get(kind * 6..kind * 6 + 4)?.try_into().ok()?)));
        let change =
            |(time, kind): (&[u8], &u8)| Some((i64::from_be_bytes(time.try_into().ok()?), offset(usize::from(*kind))?));
        let changes: Vec<(i64, i64)> = times.chunks_exact(8).zip(kinds).map(change).collect::<Option<_>>()?;
        let first = offset(0)?;
        let footer = std::str::from_utf8(data.get(header.data_bytes(8)..)?).ok()?;
        let last = changes.last().map_or(first, |(_, offset)| *offset);
        let rule = Rule::parse(footer.trim_matches('\n')).unwrap_or(Rule { standard: last, summer: None });
        Some(Zone { changes, first, rule })
    }

    /// Returns how many seconds local time is ahead at this time.
    pub(super) fn offset_at(&self, at_s: i64) -> i64 {
        match self.changes.partition_point(|(time, _)| *time <= at_s) {
            0 if self.changes.is_empty() => self.rule.offset_at(at_s),
            0 => self.first,
            all if all == self.changes.len() => self.rule.offset_at(at_s),
            after => self.changes[after - 1].1,
        }
    }

    /// Returns the time of a local time. Of a time that occurs twice it is one of both; a time that is skipped is near.
    pub(super) fn of_local(&self, local_s: i64) -> i64 {
        let near = local_s - self.offset_at(local_s);
        local_s - self.offset_at(near)
    }
}

/// The header of each part of a zone file.
struct Header {
    times: usize,
    kinds: usize,
    name_bytes: usize,
    leaps: usize,
    others: usize,
}

impl Header {
    const BYTES: usize = 44;

    fn read(bytes: &[u8]) -> Option<Header> {
        let is_known =
            bytes.starts_with(b"TZif") && bytes.get(4).is_some_and(|version| (b'2'..=b'9').contains(version));
        let number = |at: usize| {
            let field = bytes.get(20 + at * 4..24 + at * 4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(field)).ok().filter(|number| *number <= FILE_BYTES_MAX)
        };
        let others = number(0)?.checked_add(number(1)?)?;
        is_known.then_some(())?;
        Some(Header { others, leaps: number(2)?, times: number(3)?, kinds: number(4)?, name_bytes: number(5)? })
    }

    /// Returns the bytes of what follows; times have `time_bytes`.
    fn data_bytes(&self, time_bytes: usize) -> usize {
        self.times * (time_bytes + 1) + self.kinds * 6 + self.name_bytes + self.leaps * (time_bytes + 4) + self.others
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Rule> {
        let rest = name(text)?;
        let (west, rest) = time(rest)?;
        let standard = -west;
        if rest.is_empty() {
            return Some(Rule { standard, summer: None });
        }
        let rest = name(rest)?;
        let (offset, rest) = match time(rest) {
            Some((west, rest)) => (-west, rest),
            None => (standard + 3600, rest),
        };
        // Without dates, those of POSIX.
        let dates = if rest.is_empty() { ",M3.2.0,M11.1.0" } else { rest };
        let (begins, ends) = dates.strip_prefix(',')?.split_once(',')?;
        let (begins, ends) = (Moment::parse(begins)?, Moment::parse(ends)?);
        Some(Rule { standard, summer: Some(Summer { offset, begins, ends }) })
    }

    fn offset_at(&self, at_s: i64) -> i64 {
        let Some(Summer { offset, begins, ends }) = self.summer else { return self.standard };
        let (year, _, _) = date_of((at_s + self.standard).div_euclid(DAY_S));
        let (begins, ends) = (begins.local(year) - self.standard, ends.local(year) - offset);
        let is_summer = match begins < ends {
            true => (begins..ends).contains(&at_s),
            false => !(ends..begins).contains(&at_s),
        };
        if is_summer { offset } else { self.standard }
    }
}

impl Moment {
    /// Parses `M3.5.0/2`, `J60` or `59`.
    fn parse(text: &str) -> Option<Moment> {
        let (day, seconds) = match text.split_once('/') {
            None => (text, 7200),
            Some((day, at)) => (day, time(at).filter(|(_, rest)| rest.is_empty())?.0),
        };
        let number = |text: &str, min: i64, max: i64| {
            let is_number = !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|number| is_number && (min..=max).contains(number))
        };
        let day = match (day.strip_prefix('M'), day.strip_prefix('J')) {
            (Some(rest), _) => {
                let mut parts = rest.split('.');
                let (month, week) = (number(parts.next()?, 1, 12)?, number(parts.next()?, 1, 5)?);
                let weekday = number(parts.next()?, 0, 6)?;
                parts.next().is_none().then_some(Day::OfWeek { month, week, weekday })?
            }
            (None, Some(rest)) => Day::Julian(number(rest, 1, 365)?),
            (None, None) => Day::OfYear(number(day, 0, 365)?),
        };
        Some(Moment { day, seconds })
    }

    /// Returns the local time in a year, in seconds since the local epoch.
    fn local(self, year: i64) -> i64 {
        let days = match self.day {
            Day::OfYear(day) => days_of(year, 1, 1) + day,
            Day::Julian(day) if day >= 60 => days_of(year, 3, 1) + day - 60,
            Day::Julian(day) => days_of(year, 1, 1) + day - 1,
            Day::OfWeek { month, week, weekday: wanted } => {
                let first = days_of(year, month, 1);
                let next = if month == 12 { days_of(year + 1, 1, 1) } else { days_of(year, month + 1, 1) };
                let day = first + (wanted - weekday(first)).rem_euclid(7) + (week - 1) * 7;
                if day >= next { day - 7 } else { day }
            }
        };
        days * DAY_S + self.seconds
    }
}

/// Returns what follows the name of a zone: letters, or `<+03>`.
fn name(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('<') {
        return rest.split_once('>').map(|(_, rest)| rest);
    }
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    (end >= 3).then(|| &text[end..])
}

/// Parses `-1`, `3:30` or `+02:00:00` at the start of a text. Returns seconds and the rest.
fn time(text: &str) -> Option<(i64, &str)> {
    let (sign, body) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(rest), _) => (-1, rest),
        (None, Some(rest)) => (1, rest),
        (None, None) => (1, text),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(body.len());
    let (mut seconds, mut unit) = (0, 3600);
    for part in body[..end].split(':') {
        let number: i64 = Some(part).filter(|part| (1..=3).contains(&part.len()) && unit > 0)?.parse().ok()?;
        seconds += number * unit;
        unit /= 60;
    }
    Some((sign * seconds, &body[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_say_when_summer_begins_and_ends() {
        let berlin = Zone::parse("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        // 2026-03-29 01:00 UTC and 2026-10-25 01:00 UTC.
        let (begins, ends) = (1_774_746_000, 1_792_890_000);
        let offsets = [begins - 1, begins, ends - 1, ends].map(|at| berlin.offset_at(at));
        assert_eq!(offsets, [3600, 7200, 7200, 3600]);
        for local in [begins + 7200, ends - 7200, ends + 7200] {
            assert_eq!(berlin.of_local(local + berlin.offset_at(local)), local);
        }
        let sydney = Zone::parse("AEST-10AEDT,M10.1.0,M4.1.0/3").unwrap();
        assert_eq!(sydney.offset_at(1_767_225_600), 11 * 3600, "January is summer there");
        assert_eq!(sydney.offset_at(1_782_864_000), 10 * 3600);
        assert_eq!(Zone::parse("<+0330>-3:30").unwrap().offset_at(0), 12_600);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "Europe/Berlin",
            "UT",
            "UTC",
            "CET-1CEST,M3",
            "CET-1CEST,M13.1.0,M1.1.0",
            "CET-x",
            "CET-1CEST,M3.6.0,M1.1.0",
        ] {
            assert_eq!(Zone::parse(text), None, "{text}");
        }
    }

    /// A file with one change, from +1 h to +2 h at 1000 s.
    fn file(footer: &str) -> Vec<u8> {
        let counts: Vec<u8> = [0_u32, 0, 0, 1, 2, 4].iter().flat_map(|count| count.to_be_bytes()).collect();
        let header = [b"TZif2".as_slice(), &[0; 15], &counts].concat();
        let kinds = |bytes: &[u8]| {
            [bytes, &[1], &3600_i32.to_be_bytes(), &[0, 0], &7200_i32.to_be_bytes(), &[1, 0], b"ABC\0"].concat()
        };
        let (old, new) = (kinds(&1000_i32.to_be_bytes()), kinds(&1000_i64.to_be_bytes()));
        [&header[..], &old, &header, &new, b"\n", footer.as_bytes(), b"\n"].concat()
    }

    #[test]
    fn files_have_changes_and_a_rule_for_what_follows() {
        let zone = Zone::read(&file("EST5")).unwrap();
        assert_eq!([0, 999, 1000].map(|at| zone.offset_at(at)), [3600, 3600, -18_000]);
        assert_eq!(Zone::read(&file("")).unwrap().offset_at(5000), 7200);
    }

    #[test]
    fn a_damaged_file_is_refused_and_never_panics() {
        let whole = file("EST5");
        for end in 0..whole.len() - 6 {
            assert_eq!(Zone::read(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = Zone::read(&damaged).map(|zone| zone.offset_at(1_795_438_800));
            }
        }
    }
}
