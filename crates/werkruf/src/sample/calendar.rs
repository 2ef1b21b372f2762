//! Days and hours of the sample, counted from the first start.

use jiff::civil::{Date, Time, Weekday};
use jiff::{SignedDuration, Span, Timestamp, ToSpan, Zoned};
use serde::Deserialize;

/// When work is due.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Due {
    /// So many days from today.
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
    pub(super) fn date(&self, here: &Zoned) -> Result<Date, jiff::Error> {
        let today = here.date();
        let days = match self {
            Self::Days(days) => *days,
            Self::Week(DayName::Friday) => i32::from(Weekday::Friday.to_monday_one_offset() - today.weekday().to_monday_one_offset()),
        };
        today.checked_add(Span::new().try_days(days)?)
    }
}

/// A stretch of work.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Stretch {
    /// Today, whatever the hour; without an end it still runs.
    Today { started_minutes_ago: i64, ended_minutes_ago: Option<i64> },
    /// On an earlier day.
    Past { days_ago: i32, from: Time, to: Time },
}

impl Stretch {
    pub(super) fn times(&self, here: &Zoned) -> Result<(Timestamp, Option<Timestamp>), jiff::Error> {
        match *self {
            Self::Today { started_minutes_ago, ended_minutes_ago } => {
                let now = here.timestamp();
                let midnight = here.start_of_day()?.timestamp();
                let before = |minutes: i64| now.checked_sub(SignedDuration::from_mins(minutes));
                // Soon after midnight the day is shorter than the stretch: then it is the whole day so far.
                let start = before(started_minutes_ago)?.max(midnight);
                let end = ended_minutes_ago.map(before).transpose()?;
                Ok((start, end.map(|end| if end > start { end } else { now })))
            }
            Self::Past { days_ago, from, to } => {
                let day = here.date().checked_sub(days_ago.days())?;
                let at = |time: Time| day.to_datetime(time).to_zoned(here.time_zone().clone()).map(|zoned| zoned.timestamp());
                Ok((at(from)?, Some(at(to)?)))
            }
        }
    }
}

pub(super) fn hours_before(now: Timestamp, hours: i64) -> Result<Timestamp, jiff::Error> {
    now.checked_sub(SignedDuration::from_hours(hours))
}
