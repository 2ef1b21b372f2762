//! Day arguments: `today`, `this_week`, a date. Weeks run from Monday to Sunday.

use jiff::civil::{Date, Weekday};
use jiff::{Span, ToSpan};
use werkruf_contract::{ErrorCode, Failure};

/// The allowed values of a date argument, for error messages.
pub(super) const ALLOWED: &str =
    "YYYY-MM-DD, today, tomorrow, yesterday, this_week, next_week, last_week, this_month, next_month or last_month";

/// A day argument: a named day or range, or a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Day {
    Today,
    Tomorrow,
    Yesterday,
    ThisWeek,
    NextWeek,
    LastWeek,
    ThisMonth,
    NextMonth,
    LastMonth,
    On(Date),
}

/// A range of days, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) from: Date,
    pub(super) to: Date,
}

const NAMES: [(&str, Day); 9] = [
    ("today", Day::Today),
    ("tomorrow", Day::Tomorrow),
    ("yesterday", Day::Yesterday),
    ("this_week", Day::ThisWeek),
    ("next_week", Day::NextWeek),
    ("last_week", Day::LastWeek),
    ("this_month", Day::ThisMonth),
    ("next_month", Day::NextMonth),
    ("last_month", Day::LastMonth),
];

impl Day {
    /// Parses an argument; the failure lists the allowed values.
    pub(super) fn read(field: &str, text: &str) -> Result<Self, Failure> {
        Self::parse(text.trim()).ok_or_else(|| {
            Failure::validation(ErrorCode::InvalidArguments, format!("{field} must be {ALLOWED}; \"{}\" is none of them.", cut(text)))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let named = NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, day)| *day);
        // Exactly ten characters: the library also parses other notations, which are not part of the interface.
        named.or_else(|| if text.len() == 10 { text.parse().ok().map(Self::On) } else { None })
    }

    /// The argument value of this day.
    pub(super) fn text(self) -> String {
        match self {
            Self::On(date) => date.to_string(),
            named => NAMES.iter().find(|(_, day)| *day == named).map_or_else(String::new, |(name, _)| (*name).to_owned()),
        }
    }

    /// Whether the value is a single day and not a week or a month.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::Today | Self::Tomorrow | Self::Yesterday | Self::On(_))
    }

    /// The range of days, relative to today.
    pub(super) fn days(self, today: Date) -> Days {
        match self {
            Self::Today => Days::one(today),
            Self::Tomorrow => Days::one(shifted(today, 1.day())),
            Self::Yesterday => Days::one(shifted(today, -1.day())),
            Self::ThisWeek => week(today),
            Self::NextWeek => week(shifted(today, 7.days())),
            Self::LastWeek => week(shifted(today, -7.days())),
            Self::ThisMonth => month(today),
            Self::NextMonth => month(shifted(today.first_of_month(), 1.month())),
            Self::LastMonth => month(shifted(today.first_of_month(), -1.month())),
            Self::On(date) => Days::one(date),
        }
    }
}

impl Days {
    const fn one(date: Date) -> Self {
        Self { from: date, to: date }
    }
}

fn week(date: Date) -> Days {
    let since_monday = date.weekday().since(Weekday::Monday);
    let monday = shifted(date, -i64::from(since_monday).days());
    Days { from: monday, to: shifted(monday, 6.days()) }
}

fn month(date: Date) -> Days {
    Days { from: date.first_of_month(), to: date.last_of_month() }
}

/// Adds the span; saturates at the limits of the calendar.
pub(super) fn shifted(date: Date, span: Span) -> Date {
    date.saturating_add(span)
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::{Day, Days};

    fn days(text: &str) -> Days {
        // November 15 is a Sunday: it still belongs to the week that began on Monday.
        Day::read("dueDate", text).unwrap().days(date(2026, 11, 15))
    }

    #[test]
    fn named_days_and_dates_are_parsed() {
        let span = |from, to| Days { from, to };
        assert_eq!(days("today"), span(date(2026, 11, 15), date(2026, 11, 15)));
        assert_eq!(days(" Tomorrow "), span(date(2026, 11, 16), date(2026, 11, 16)));
        assert_eq!(days("this_week"), span(date(2026, 11, 9), date(2026, 11, 15)));
        assert_eq!(days("next_week"), span(date(2026, 11, 16), date(2026, 11, 22)));
        assert_eq!(days("last_month"), span(date(2026, 10, 1), date(2026, 10, 31)));
        assert_eq!(days("2024-02-29"), span(date(2024, 2, 29), date(2024, 2, 29)));
    }

    #[test]
    fn other_values_are_refused_with_the_allowed_ones() {
        for text in ["", "soon", "2026-02-30", "20261115", "2026-11-15T00:00:00Z", "15.11.2026", "today "].map(str::to_owned) {
            let read = Day::read("dueDate", &text);
            if text.trim() == "today" {
                continue;
            }
            let failure = read.unwrap_err();
            assert_eq!(failure.code, "invalid_arguments");
            assert!(failure.message.contains("this_week") && failure.message.starts_with("dueDate"), "{}", failure.message);
        }
    }

    #[test]
    fn text_and_parse_are_inverse() {
        for (name, day) in super::NAMES {
            assert_eq!((day.text().as_str(), Day::parse(name)), (name, Some(day)));
        }
        assert_eq!(Day::On(date(2026, 1, 2)).text(), "2026-01-02");
    }
}
