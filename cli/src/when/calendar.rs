//! Days since 1970 and dates of the Gregorian calendar.

/// The seconds of a day.
pub(super) const DAY_S: i64 = 86_400;
/// The days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// The days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Returns the days from 1970-01-01 to a date. Years are counted from March, so that the leap day is the last one.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAYS
}

/// Returns year, month and day.
pub(super) fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * from_march + 2) / 5 + 1, (from_march + 2) % 12 + 1);
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Returns the day of the week, from 0 for Sunday.
pub(super) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        for days in -800_000..800_000 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
        }
        assert_eq!((days_of(1970, 1, 1), days_of(2000, 3, 1), date_of(20_780)), (0, 11_017, (2026, 11, 23)));
        assert_eq!(weekday(20_780), 1, "a Monday");
    }
}
