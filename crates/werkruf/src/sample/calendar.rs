//! Dates and times of the sample data, relative to the first start.

use jiff::civil::{Date, Time, Weekday};
use jiff::{SignedDuration, Span, Timestamp, ToSpan, Zoned};
use serde::Deserialize;

/// When work is due.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Due {
    /// This many days from today.
    Days(i32),
    /// On a day of this week, which begins on Monday.
    Week(DayName),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DayName {
    Friday,
}

impl Due {
    pub(super) fn date(&self, local_now: &Zoned) -> Result<Date, jiff::Error> {
        let today = local_now.date();
        let days = match self {
            Self::Days(days) => *days,
            Self::Week(DayName::Friday) => i32::from(Weekday::Friday.to_monday_one_offset() - today.weekday().to_monday_one_offset()),
        };
        today.checked_add(Span::new().try_days(days)?)
    }
}

/// A period of work.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum WorkPeriod {
    /// Today, at any time of day; without an end the work is not finished.
    Today { started_minutes_ago: i64, ended_minutes_ago: Option<i64> },
    /// On an earlier day.
    Past { days_ago: i32, from: Time, to: Time },
}

impl WorkPeriod {
    pub(super) fn times(&self, local_now: &Zoned) -> Result<(Timestamp, Option<Timestamp>), jiff::Error> {
        match *self {
            Self::Today { started_minutes_ago, ended_minutes_ago } => {
                let now = local_now.timestamp();
                let midnight = local_now.start_of_day()?.timestamp();
                let before = |minutes: i64| now.checked_sub(SignedDuration::from_mins(minutes));
                // Shortly after midnight the day is shorter than the period; then the period is the day so far.
                let start = before(started_minutes_ago)?.max(midnight);
                let end = ended_minutes_ago.map(before).transpose()?;
                Ok((start, end.map(|end| if end > start { end } else { now })))
            }
            Self::Past { days_ago, from, to } => {
                let day = local_now.date().checked_sub(days_ago.days())?;
                let at = |time: Time| day.to_datetime(time).to_zoned(local_now.time_zone().clone()).map(|zoned| zoned.timestamp());
                Ok((at(from)?, Some(at(to)?)))
            }
        }
    }
}

pub(super) fn hours_before(now: Timestamp, hours: i64) -> Result<Timestamp, jiff::Error> {
    now.checked_sub(SignedDuration::from_hours(hours))
}
