//! Periods of work, split at midnight in the caller's time zone.
//!
//! Minutes are elapsed minutes, also on days when daylight saving time begins or ends.

use crate::store::WorktimeRow;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use super::days::{Days, shifted};

/// The part of a recorded working time that lies on one day.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkPeriod {
    pub(super) date: Date,
    pub(super) start: Zoned,
    /// `None` while the period is running.
    pub(super) end: Option<Zoned>,
    pub(super) seconds: i64,
}

/// The start of the first day (inclusive) and the end of the last day (exclusive).
pub(super) fn bounds(days: Days, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
    Some((start_of_day(days.from, zone)?.timestamp(), start_of_day(shifted(days.to, 1.day()), zone)?.timestamp()))
}

/// If midnight does not exist on that day, the day starts at the first existing time.
fn start_of_day(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_datetime(Time::midnight()).to_zoned(zone.clone()).ok()
}

/// The parts of the rows that lie in the range of days, one per row and day, in the order of the rows.
pub(super) fn split_by_day(rows: &[WorktimeRow], days: Days, zone: &TimeZone, now: Timestamp) -> Vec<WorkPeriod> {
    let Some((from, to)) = bounds(days, zone) else { return Vec::new() };
    rows.iter().flat_map(|row| cut(row, from, to, zone, now)).collect()
}

fn cut(row: &WorktimeRow, from: Timestamp, to: Timestamp, zone: &TimeZone, now: Timestamp) -> Vec<WorkPeriod> {
    let end = row.ended_at.unwrap_or(now).min(to);
    let mut start = row.started_at.max(from);
    let mut periods = Vec::new();
    // A period that has just started has no length yet, but must be listed.
    let just_started = row.ended_at.is_none() && start == end && start < to;
    while start < end || (just_started && periods.is_empty()) {
        let local = start.to_zoned(zone.clone());
        let Some(midnight) = start_of_day(shifted(local.date(), 1.day()), zone) else { break };
        let stop = end.min(midnight.timestamp());
        let running = row.ended_at.is_none() && stop == now;
        let seconds = (stop.as_millisecond() - start.as_millisecond()) / 1000;
        let end = (!running).then(|| stop.to_zoned(zone.clone()));
        periods.push(WorkPeriod { date: local.date(), start: local, end, seconds });
        start = stop;
    }
    periods
}

#[cfg(test)]
mod tests {
    use crate::store::WorktimeRow;
    use jiff::Timestamp;
    use jiff::civil::{Date, date};
    use jiff::tz::TimeZone;

    use super::{Days, bounds, split_by_day};

    fn row(start: &str, end: Option<&str>) -> WorktimeRow {
        WorktimeRow { id: 1, user_id: 3, started_at: start.parse().unwrap(), ended_at: end.map(|end| end.parse().unwrap()) }
    }

    fn minutes(rows: &[WorktimeRow], from: Date, to: Date, now: &str) -> Vec<(String, i64, bool)> {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now: Timestamp = now.parse().unwrap();
        let periods = split_by_day(rows, Days { from, to }, &zone, now);
        periods.iter().map(|period| (period.date.to_string(), period.seconds / 60, period.end.is_none())).collect()
    }

    #[test]
    fn a_night_shift_is_split_into_two_days() {
        let night = [row("2026-11-14T21:00:00Z", Some("2026-11-15T05:00:00Z"))];
        let day = date(2026, 11, 15);
        assert_eq!(minutes(&night, day, day, "2026-11-15T12:00:00Z"), [("2026-11-15".to_owned(), 360, false)]);
        let both = minutes(&night, date(2026, 11, 14), day, "2026-11-15T12:00:00Z");
        assert_eq!(both, [("2026-11-14".to_owned(), 120, false), ("2026-11-15".to_owned(), 360, false)]);
    }

    #[test]
    fn daylight_saving_changes_count_elapsed_minutes() {
        let spring = [row("2026-03-29T00:00:00Z", Some("2026-03-29T04:00:00Z"))];
        let day = date(2026, 3, 29);
        assert_eq!(minutes(&spring, day, day, "2026-03-30T00:00:00Z"), [("2026-03-29".to_owned(), 240, false)]);
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let hours = |day: Date| bounds(Days { from: day, to: day }, &zone).map(|(from, to)| (to.as_second() - from.as_second()) / 3600);
        assert_eq!((hours(day), hours(date(2026, 10, 25)), hours(date(2026, 11, 15))), (Some(23), Some(25), Some(24)));
        let whole_number = [row("2026-10-24T20:00:00Z", Some("2026-10-26T01:00:00Z"))];
        let day = date(2026, 10, 25);
        assert_eq!(minutes(&whole_number, day, day, "2026-11-15T12:00:00Z"), [("2026-10-25".to_owned(), 25 * 60, false)]);
    }

    #[test]
    fn a_running_period_counts_up_to_now_and_runs_only_today() {
        let open = [row("2026-11-14T22:00:00Z", None)];
        let periods = minutes(&open, date(2026, 11, 14), date(2026, 11, 15), "2026-11-15T09:30:40Z");
        assert_eq!(periods, [("2026-11-14".to_owned(), 60, false), ("2026-11-15".to_owned(), 630, true)]);
        let started = [row("2026-11-15T09:30:00Z", None)];
        let day = date(2026, 11, 15);
        assert_eq!(minutes(&started, day, day, "2026-11-15T09:30:00Z"), [("2026-11-15".to_owned(), 0, true)]);
        assert!(minutes(&open, date(2026, 11, 16), date(2026, 11, 16), "2026-11-15T09:30:40Z").is_empty());
    }
}
