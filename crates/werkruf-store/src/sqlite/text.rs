//! Ids and times in the format of the tables, written to the stack and read without an allocation.
//!
//! A time is always 24 bytes, `2026-11-15T04:30:54.123Z`, so the texts sort like the times.

use jiff::Timestamp;
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};
use werkruf_contract::Uuid;

/// An id as a bound parameter.
pub struct Id([u8; 36]);

impl From<Uuid> for Id {
    fn from(id: Uuid) -> Self {
        let mut text = [0; 36];
        id.hyphenated().encode_lower(&mut text);
        Self(text)
    }
}

impl ToSql for Id {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

/// An optional id as a bound parameter.
pub fn id_or_null(id: Option<Uuid>) -> Option<Id> {
    id.map(Id::from)
}

/// A time as a bound parameter.
pub struct Stamp([u8; 24]);

const DAY_MS: i64 = 86_400_000;
/// The first instant with a four-digit year; the last one is beyond the range of `Timestamp`.
const EARLIEST_MS: i64 = -62_167_219_200_000;

impl From<Timestamp> for Stamp {
    fn from(time: Timestamp) -> Self {
        let ms = time.as_millisecond().max(EARLIEST_MS);
        let (year, month, day) = civil(ms.div_euclid(DAY_MS));
        let of_day = ms.rem_euclid(DAY_MS);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], of_day / 3_600_000);
        digits(&mut text[14..16], of_day / 60_000 % 60);
        digits(&mut text[17..19], of_day / 1000 % 60);
        digits(&mut text[20..23], of_day % 1000);
        Self(text)
    }
}

impl ToSql for Stamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

/// An optional time as a bound parameter.
pub fn stamp_or_null(time: Option<Timestamp>) -> Option<Stamp> {
    time.map(Stamp::from)
}

/// Reads what [`Stamp`] writes, and nothing else.
pub(super) fn parse_stamp(text: &[u8]) -> Option<Timestamp> {
    let fits = text.len() == 24
        && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')].iter().all(|&(at, mark)| text[at] == mark);
    if !fits {
        return None;
    }
    let (year, month, day) = (number(&text[0..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute) = (number(&text[11..13])?, number(&text[14..16])?);
    let (second, milli) = (number(&text[17..19])?, number(&text[20..23])?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_since_epoch(year, month, day);
    Timestamp::from_millisecond(days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + milli).ok()
}

fn digits(place: &mut [u8], mut value: i64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
}

fn number(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

// The calendar counts from 1 March of year 0 in eras of 400 years, so a leap day is the last day of its year.

fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{EARLIEST_MS, Stamp, parse_stamp};

    fn text(ms: i64) -> String {
        String::from_utf8(Stamp::from(Timestamp::from_millisecond(ms).unwrap()).0.to_vec()).unwrap()
    }

    #[test]
    fn a_time_is_written_with_exactly_milliseconds() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(1_794_717_054_123), "2026-11-15T04:30:54.123Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn writing_agrees_with_the_calendar_and_reading_is_its_inverse() {
        // A step that covers every hour, minute and millisecond over the whole range.
        let step = 86_400_000 * 97 + 3_723_457;
        let mut ms = EARLIEST_MS;
        let latest = 253_402_207_200_000;
        while ms <= latest {
            let time = Timestamp::from_millisecond(ms).unwrap();
            let text = text(ms);
            assert_eq!(text, format!("{time:.3}"), "{ms}");
            assert_eq!(parse_stamp(text.as_bytes()), Some(time));
            ms += step;
        }
        assert_eq!(text(EARLIEST_MS), "0000-01-01T00:00:00.000Z");
        assert_eq!(text(latest), format!("{:.3}", Timestamp::from_millisecond(latest).unwrap()));
        assert_eq!(text(EARLIEST_MS - 1), "0000-01-01T00:00:00.000Z", "the tables cannot hold a year without four digits");
    }

    #[test]
    fn other_formats_are_refused() {
        for text in ["", "2026-11-15T04:30:54Z", "2026-11-15 04:30:54.123Z", "2026-13-15T04:30:54.123Z", "2026-11-15T24:30:54.123Z"] {
            assert_eq!(parse_stamp(text.as_bytes()), None, "{text}");
        }
    }
}
