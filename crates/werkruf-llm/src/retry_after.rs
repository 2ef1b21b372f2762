//! The wait time that a server requests before the next attempt.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Reads `retry-after-ms`, or `Retry-After` in seconds or as a date.
///
/// A date is compared with the server's own `Date` header, so that a wrong local clock does not matter; without that header it is ignored.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let span = |text: &str, unit: f64| text.parse::<f64>().ok().and_then(|number| Duration::try_from_secs_f64(number * unit).ok());
    if let Some(wait) = text("retry-after-ms").and_then(|text| span(text, 0.001)) {
        return Some(wait);
    }
    let header = text(RETRY_AFTER.as_str())?;
    if let Some(wait) = span(header, 1.0) {
        return Some(wait);
    }
    let parser = DateTimeParser::new();
    let until = parser.parse_timestamp(header).ok()?;
    let now = parser.parse_timestamp(text(DATE.as_str())?).ok()?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(pairs: &[(&'static str, &'static str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        retry_after(&headers)
    }

    #[test]
    fn reads_seconds_milliseconds_and_dates() {
        assert_eq!(waits(&[("retry-after", "3")]), Some(Duration::from_secs(3)));
        assert_eq!(waits(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(waits(&[("retry-after-ms", "250"), ("retry-after", "1")]), Some(Duration::from_millis(250)));
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(waits(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), date]), Some(Duration::from_secs(30)));
        assert_eq!(waits(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), date]), Some(Duration::ZERO));
    }

    #[test]
    fn invalid_values_are_ignored() {
        for invalid in ["soon", "-1", "NaN", "1e300", ""] {
            assert_eq!(waits(&[("retry-after", invalid)]), None, "{invalid}");
        }
        assert_eq!(waits(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]), None);
        assert_eq!(waits(&[]), None);
    }
}
